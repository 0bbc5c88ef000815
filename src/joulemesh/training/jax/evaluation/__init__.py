"""Evaluation: which samples models are evaluated on, and how well they do."""
