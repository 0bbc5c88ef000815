"""In: a scenario, and the data and model that it trains. Out: the constants that the bounds need,
estimated on them, and the gap to the optimum that training really leaves, beside its bound.
May not know: contenders, or how results are kept and shown (``methods``, ``study``, ``views``).
"""
