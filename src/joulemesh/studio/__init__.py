"""A planner to play with. In: a scenario and what somebody does to it on a page. Out: one JSON
document for each plan, with all that the page draws, and a local web server that sends it.
May not know: how training is compiled (``training``), or the commands (``cli``).
"""
