"""How much to train and when. In: a Scenario (its World and Route are made on the way). Out: a
Plan: rounds, edges, a ledger that adds up, margins.
May not know: weights, gradients, accuracy (``training``, ``theory.measured``).
"""
