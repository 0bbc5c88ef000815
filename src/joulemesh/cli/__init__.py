"""The command line, one file per command. In: arguments. Out: printed results and an exit code.
May not know: any science (``world``, ``aggregation``, ``theory``); commands only join other rooms.
"""

from joulemesh.cli.main import program as main

__all__ = ["main"]
