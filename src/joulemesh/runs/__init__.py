"""One run from beginning to end. In: a Scenario (and the user's own model and data). Out: a Result
and a run folder that survives Ctrl-C and kill.
May not know: how parameters travel (``aggregation``), arguments of the command line (``cli``).
"""
