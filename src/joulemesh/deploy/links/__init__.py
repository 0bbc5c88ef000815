"""Rates of links, measured by timed transfers of the model's own size."""
