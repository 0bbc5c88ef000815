"""A fleet at work on a page. In: what devices answer and write. Out: one JSON document of all that
the page draws, and a local web server that sends it; nothing of the fleet is changed.
May not know: how training is compiled (``training``), or the commands (``cli``).
"""
