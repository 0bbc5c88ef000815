"""In: a scenario, or the folder of a run.
Out: a Flower app of the same scenario; a model to load elsewhere, with a card that describes it.
May not know: the command line (``cli``).
"""
