"""The command line, one file per command. In: arguments. Out: printed results and an exit code.
May not know: any science; commands only join the other rooms.
"""

from joulemesh.cli.main import main

__all__ = ["main"]
