"""A planner to play with, a fleet to watch. In: a scenario and edits, or what devices answer.
Out: one JSON document of all that a page draws, and a local server that sends it.
May not know: how training is compiled (``training``), or the commands (``cli``).
"""
