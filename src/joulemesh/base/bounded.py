"""Reading JSON, and what other devices sent: plain files only, and no more than is sensible."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any

from joulemesh.base import machine
from joulemesh.base.errors import ScenarioError

_MIB = 2**20


@dataclass(frozen=True)
class Limit:
    """The most that is read of one kind of file.

    Attributes:
        most: bytes, whatever the machine has.
        part: at most one part in this many of the memory that the process may use, as well.
    """

    most: int = sys.maxsize
    part: int = 0

    @property
    def now(self) -> int:
        """The figure on this machine, in its control group, within its resource limits."""
        return min(self.most, machine.memory_bytes() // self.part) if self.part else self.most


JOURNAL = Limit(1024 * _MIB)  # nodes begin a new one at 8 MB
JOURNAL_LINE = Limit(4 * _MIB)  # a view of 100,000 members fits
NODE_STATE = Limit(part=2)
FLEET = Limit(32 * _MIB)  # a scenario, 100,000 links and tables of 10 MiB fit
HOST_LIST = Limit(4 * _MIB)  # a row takes 40 bytes
_MOST_PARTS = 2**21  # objects and lists of a text: each takes 20 times its two characters


def _require_regular(path: Path, most_bytes: int) -> int:
    """The size of a file: a device or a pipe might never end."""
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


def open_bounded(path: Path, most_bytes: int) -> BufferedReader:
    """Open a plain file of at most so many bytes."""
    _require_regular(path, most_bytes)
    return path.open("rb")


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The contents of a plain file of at most so many bytes."""
    size = _require_regular(path, most_bytes)
    with path.open("rb") as file:
        content = file.read(size + 1)
    if len(content) > size:
        raise ScenarioError(f"{path} is being written to; wait until it is complete")
    return content


def read_json(path: Path, most_bytes: int | None = None) -> Any:
    """The value in a JSON file; of at most so many bytes, where others may have written it."""
    return parse_json(path.read_bytes() if most_bytes is None else read_bounded(path, most_bytes))


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text writes, if no object in it names a key twice."""
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    parts = text.count("[") + text.count("{")
    if parts > _MOST_PARTS:
        raise ValueError(f"{parts:,} objects and lists are more than {_MOST_PARTS:,} that are read")
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("its objects and lists are nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{name!r:.60} is given twice")
            seen.add(name)
    return values
