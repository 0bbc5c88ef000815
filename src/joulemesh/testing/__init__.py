"""In: a seed.
Out: what befell a fleet, in one process and under faults, and which of its rules broke.
May not know: the contenders, what studies make of runs, views (``methods``, ``study``, ``views``).
"""
