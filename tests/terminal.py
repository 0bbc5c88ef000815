"""A command in a pseudo-terminal of some width, in earnest."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping
from pathlib import Path


def in_terminal(
    *words: str,
    columns: int,
    env: Mapping[str, str],
    folder: Path | None = None,
    progress_only: bool = False,
) -> str:
    """What a command prints, without escape sequences; it must succeed.

    Args:
        words: the command, after ``joulemesh``.
        columns: width of the terminal.
        env: the process's environment.
        folder: where it runs.
        progress_only: only its standard error is the terminal, as with ``joulemesh run > file``.
    """
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    child = subprocess.Popen(
        [sys.executable, "-m", "joulemesh", *words],
        stdin=None if progress_only else follower,
        stdout=subprocess.DEVNULL if progress_only else follower,
        stderr=follower,
        cwd=folder,
        env=dict(env),
    )
    os.close(follower)
    seen = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(leader)
    assert child.wait() == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
