"""Joules that may have been spent by the time of a crash: never fewer than were.

Before anything is spent beyond it, a ceiling is raised, far enough for an exchange. There are two:
a near one in a file that outlives the process, and a far one, raised more rarely, that is on the
disk and outlives a power cut. A node that is started again counts as spent the near one if the
machine has not been restarted since, and the far one otherwise; one that was stopped has written
the exact figure to both.
"""

from __future__ import annotations

__all__ = ["SPENDING", "SPENT", "Ceiling"]

import os
import zlib
from pathlib import Path

from joulemesh.base.bounded import read_bounded
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_bytes

SPENT, SPENDING = "spent.txt", "spending.txt"
_WIDTH = 64  # bytes of a line
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Ceiling:
    """The ceilings of one device's spending.

    The file on the disk has two lines of fixed width that are overwritten in turn, so that it
    needs no room on a full disk, and a write that a power cut tears leaves the line before it
    whole.

    Args:
        folder: where the files are.
        stride_j: by how much more the far ceiling is raised each time: what a power cut may cost.

    Raises:
        ScenarioError: the file is there and neither line is whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     ceiling = Ceiling(Path(place), stride_j=10.0)
    ...     ceiling.raise_over(2.5, ahead_j=1.0)
    ...     ceiling.joules, Ceiling(Path(place)).joules
    ...     ceiling.settle(2.75)
    ...     Ceiling(Path(place)).joules
    (3.5, 3.5)
    2.75
    """

    def __init__(self, folder: Path, stride_j: float = 0.0) -> None:
        self._path, self._near_path = folder / SPENT, folder / SPENDING
        self._stride_j, self._boot = stride_j, _boot()
        self._number, self._far_j = 0, 0.0
        if self._path.exists() or self._path.is_symlink():
            self._number, self._far_j = self._read()
        near_j = self._read_near()
        self.joules = self._far_j if near_j is None else min(near_j, self._far_j)
        """Joules that may have been spent, at most."""

    def raise_over(self, spent_j: float, ahead_j: float = 0.0) -> None:
        """Make room for spending, before it is done.

        Args:
            spent_j: joules spent once that which is about to be done is done.
            ahead_j: joules that will follow soon.

        Raises:
            ScenarioError: the disk cannot be written.
        """
        if spent_j <= self.joules:
            return
        near_j = spent_j + ahead_j
        if near_j > self._far_j:
            self._write(near_j + self._stride_j)
        self._write_near(near_j)
        self.joules = near_j

    def settle(self, spent_j: float) -> None:
        """Put both ceilings where the spending is.

        Raises:
            ScenarioError: the disk cannot be written.
        """
        self._write(spent_j)
        self._write_near(spent_j)
        self.joules = spent_j

    # On the disk --------------------------------------------------------------------------------

    def _read(self) -> tuple[int, float]:
        try:
            content = read_bounded(self._path, 2 * _WIDTH)
        except OSError as error:
            raise ScenarioError(f"{self._path} cannot be read: {error.strerror}") from None
        lines = (_words_of(content[at : at + _WIDTH]) for at in (0, _WIDTH))
        whole = [(int(words[0]), float(words[1])) for words in lines if words]
        if not whole:
            raise ScenarioError(
                f"{self._path} is damaged; restore it from a copy: without it nobody knows what "
                "the device has spent"
            )
        return max(whole)

    def _write(self, joules: float) -> None:
        number = self._number + 1
        line = _line(f"{number:016d}", f"{joules!r:>30}")
        try:
            if not self._number:  # both lines at once: they have their place on the disk from now
                write_bytes(self._path, line + line)
            else:
                _overwrite(self._path, line, _WIDTH * (self._number % 2), sync=True)
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self._path}: {error.strerror}; make room on the disk"
            ) from None
        self._number, self._far_j = number, joules

    # In the system's memory ---------------------------------------------------------------------

    def _read_near(self) -> float | None:
        """The near ceiling, if it was written since the machine was started."""
        try:
            words = _words_of(read_bounded(self._near_path, _WIDTH))
        except (OSError, ScenarioError):
            return None
        return float(words[1]) if words and words[0] == self._boot else None

    def _write_near(self, joules: float) -> None:
        if not self._boot:
            return
        try:
            _overwrite(self._near_path, _line(self._boot, f"{joules!r:>30}"), 0, sync=False)
        except OSError:  # then the far one counts: never may an older figure
            self._near_path.unlink(missing_ok=True)


def _overwrite(path: Path, line: bytes, at: int, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o666)
    try:
        os.lseek(descriptor, at, os.SEEK_SET)
        os.write(descriptor, line)
        if sync:
            getattr(os, "fdatasync", os.fsync)(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    """What names this start of the machine; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read(36).replace("-", "")[:16]
    except OSError:
        return ""


def _line(key: str, figure: str) -> bytes:
    words = f"{key} {figure}"
    return f"{words} {zlib.crc32(words.encode()):08x}".ljust(_WIDTH - 1).encode() + b"\n"


def _words_of(line: bytes) -> tuple[str, str] | None:
    """Key and figure of a line, if it is whole."""
    try:
        key, figure, _ = line.decode().split()
        float(figure)
    except ValueError:
        return None
    return (key, figure) if line == _line(key, f"{figure:>30}") else None
