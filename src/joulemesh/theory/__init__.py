"""In: rounds, step size, batch sizes and the constants of a loss. Out: the paper's bounds, printed
and corrected, and the objective of problem (42), in NumPy alone.
May not know: devices, plans, how anything is trained (``world``, ``planning``, ``training``).
"""
