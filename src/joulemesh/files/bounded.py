"""Reading files that others wrote: plain ones only, and no more of them than is sensible."""

from __future__ import annotations

__all__ = ["read_bounded", "require_regular"]

import os
import stat
from pathlib import Path

from joulemesh.errors import ScenarioError


def require_regular(path: Path, most_bytes: int) -> int:
    """Refuse a file that is too large or is not a regular file: a device or a pipe might never end.

    Args:
        path: of the file.
        most_bytes: that it may hold.

    Returns:
        Its size in bytes.

    Raises:
        ScenarioError: it is something else, or larger.
        OSError: it cannot be looked at.
    """
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(21, "Is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise ScenarioError(f"{path} is a device, pipe or socket; name a file")
    if found.st_size > most_bytes:
        raise ScenarioError(
            f"{path} has {found.st_size:,} bytes, more than the {most_bytes:,} that are read; "
            "name another file"
        )
    return found.st_size


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The contents of a plain file of at most so many bytes.

    Raises:
        ScenarioError: it is something else, or larger.
        OSError: it cannot be read.

    >>> read_bounded(Path("/dev/null"), 100)
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: /dev/null is a device, pipe or socket; name a file
    """
    require_regular(path, most_bytes)
    with path.open("rb") as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:  # it has grown since
        raise ScenarioError(f"{path} is being written to; wait until it is complete")
    return content
