"""The command line: a file per command, small ones together. In: arguments. Out: printed results.
May not know: any science (``world``, ``aggregation``, ``theory``); commands only join other rooms.
"""

from joulemesh.cli.main import program as main

__all__ = ["main"]
