"""How parameters travel. In: a graph and the price of its links. Out: a Route (who sends how many
bits to whom, in which step) and a mixing matrix. May not know: budgets, rounds, what is learned.
"""
