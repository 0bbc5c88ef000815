"""Journals that are read while devices write them."""

from __future__ import annotations

__all__ = ["FileTail", "JournalTail"]

import zlib
from pathlib import Path

from joulemesh.base.bounded import JOURNAL, JOURNAL_LINE, open_bounded
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.record.history import History, HistoryReader

_PIECE = 1 << 16


class JournalTail:
    """What has been read of the journal that a device is writing.

    Args:
        device: its number.
        name: what it is called.

    >>> tail = JournalTail(3, "gate")
    >>> tail.feed(b'{"at": 1.0, "kind": "start", "device": 3}\\n{"at": 2.0, "ki')
    >>> len(tail.history().events), tail.size
    (1, 57)
    >>> tail.feed(b'nd": "left"}\\n')
    >>> [event.kind for event in tail.history().events], tail.history().damaged
    (['start', 'left'], 0)
    """

    def __init__(self, device: int, name: str) -> None:
        self.device, self.name = device, name
        self.restart()

    def restart(self) -> None:
        """Forget what was read."""
        self.size, self.crc32 = 0, 0
        """How many bytes of the file in use were read, and their check sum."""
        self._rest = b""
        self._reader = HistoryReader(self.device)
        self._history: History | None = None

    def feed(self, data: bytes) -> None:
        """Take up more bytes; half a line waits for the rest of it."""
        self.size, self.crc32 = self.size + len(data), zlib.crc32(data, self.crc32)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-JOURNAL_LINE.now :]
        if lines:
            self._reader.feed(lines)
            self._history = None

    def history(self) -> History:
        """What all whole lines tell; the same object until there are more of them."""
        if self._history is None:
            self._history = self._reader.history(self.name)
        return self._history


class FileTail(JournalTail):
    """A journal in a folder of this machine, the files that were full before included.

    Args:
        folder: where ``journal*.jsonl`` lie.
        device: its number.
        name: what it is called.
    """

    def __init__(self, folder: Path, device: int, name: str) -> None:
        super().__init__(device, name)
        self._folder = folder
        self._files: list[int] = []

    def look(self) -> bool:
        """Read what has been written since the last look.

        Returns:
            Is there a journal at all?
        """
        paths = journals_in(self._folder)
        if not paths:
            return False
        files = [path.stat().st_ino for path in paths]
        if files != self._files or paths[-1].stat().st_size < self.size:
            self.restart()
            self._files = files
            for path in paths[:-1]:
                self._take(path, 0)
            self.size = 0
        self._take(paths[-1], self.size)
        return True

    def _take(self, path: Path, begin: int) -> None:
        with open_bounded(path, JOURNAL.now) as file:
            file.seek(begin)
            while piece := file.read(_PIECE):
                self.feed(piece)
