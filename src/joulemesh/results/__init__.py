"""In: what training measured, and what it cost. Out: a Result, a Comparison, and both in several
worlds: data only, with figures, intervals and tables.
May not know: how they are made (``aggregation``, ``studies``), drawn (``views``), kept (``runs``).
"""
