"""Joules that may have been spent by the time of a crash: never fewer than were.

Before anything is spent beyond it, the ceiling is raised on the disk, far enough for an exchange. A
node that is started again after a crash counts the whole ceiling as spent; one that was stopped
has written the exact figure.
"""

from __future__ import annotations

__all__ = ["SPENT", "Ceiling"]

import os
import zlib
from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files import DISK
from joulemesh.files.bounded import read_bounded

SPENT = "spent.txt"
_WIDTH = 64  # bytes of a line
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Ceiling:
    """The ceiling of one device's spending.

    The file has two lines of fixed width that are overwritten in turn, so that it needs no room on
    a full disk, and a write that a power cut tears leaves the line before it whole.

    Args:
        folder: where the file is.

    Raises:
        ScenarioError: the file is there and neither line is whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     ceiling = Ceiling(Path(place))
    ...     ceiling.joules
    ...     ceiling.set(2.5)
    ...     ceiling.set(4.0)
    ...     Ceiling(Path(place)).joules
    0.0
    4.0
    """

    def __init__(self, folder: Path) -> None:
        self._path, self._number, self.joules = folder / SPENT, 0, 0.0
        if not (self._path.exists() or self._path.is_symlink()):
            return
        try:
            content = read_bounded(self._path, 2 * _WIDTH)
        except OSError as error:
            raise ScenarioError(f"{self._path} cannot be read: {error.strerror}") from None
        whole = [found for at in (0, _WIDTH) if (found := _read(content[at : at + _WIDTH]))]
        if not whole:
            raise ScenarioError(
                f"{self._path} is damaged; restore it from a copy: without it nobody knows what "
                "the device has spent"
            )
        self._number, self.joules = max(whole)

    def set(self, joules: float) -> None:
        """Put the ceiling somewhere, durably.

        Raises:
            ScenarioError: the disk cannot be written.
        """
        try:
            if not self._number:
                # Two lines at once, so that both have their place on the disk from now on.
                DISK.get().append(self._path, _line(1, joules) + _line(2, joules))
                DISK.get().sync_folder(self._path.parent)
                self._number = 2
            else:
                self._overwrite(_line(self._number + 1, joules), _WIDTH * (self._number % 2))
                self._number += 1
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self._path}: {error.strerror}; make room on the disk"
            ) from None
        self.joules = joules

    def _overwrite(self, line: bytes, at: int) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | _FLAGS)
        try:
            os.lseek(descriptor, at, os.SEEK_SET)
            os.write(descriptor, line)
            getattr(os, "fdatasync", os.fsync)(descriptor)
        finally:
            os.close(descriptor)


def _line(number: int, joules: float) -> bytes:
    words = f"{number:016d} {joules!r:>30}"
    return f"{words} {zlib.crc32(words.encode()):08x}".ljust(_WIDTH - 1).encode() + b"\n"


def _read(line: bytes) -> tuple[int, float] | None:
    """Number and joules of a line, if it is whole."""
    try:
        number, joules, _ = line.decode().split()
        found = int(number), float(joules)
    except ValueError:
        return None
    return found if line == _line(*found) else None
