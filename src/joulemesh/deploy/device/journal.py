"""What happened on a device, as lines of JSON that outlive it.

Every line has ``at`` (seconds since 1970 by the device's clock), ``t`` (seconds since the node was
started, by a clock that nobody sets), ``kind``, and figures. Devices are named by their numbers.

| kind | figures |
|---|---|
| ``start`` | device, name, incarnation, fleet, plan, version, meter, iteration (the last committed), battery_j, spent_j |
| ``trained`` | iteration, rounds, joules, seconds |
| ``committed`` | iteration, view, iteration_s, rounds, train_j, train_s, exchange_j, exchange_s, spent_j, left_j, elapsed_s, absent, sent {neighbour: [bytes, seconds, messages]}, received {neighbour: [bytes, messages]} |
| ``evaluated`` | iteration, accuracy, and other figures of the learner by their names |
| ``undelivered`` | to, message, reason, count: since the line before of that kind |
| ``prepared`` | trained_by: the library that trains, with its version |
| ``not-prepared`` | reason: the learner could not be made ready ahead of its first training |
| ``not-trained``, ``not-evaluated`` | iteration, reason |
| ``not-saved`` | reason |
| ``stopped`` | reason: somebody asked the node to stop |
| ``end`` | reason, complete, resumable, iteration, spent_j, left_j, and with a deadline timed, late, worst: how many iterations were timed since the start, how many took longer, how many times the deadline the longest took |
| ``failed`` | reason, iteration, traceback: a defect has ended the node |
| ``view`` | number, start, members, cut, gifts, left_j, elapsed_s, pace, digest |
| ``suspected``, ``refused``, ``fetched``, ``gift``, ``cannot-give``, ``left``, ``unheld``, … | what the state machine notes |

Lines are kept in memory until `flush`, which appends them and waits for the disk. A line that a
power cut has cut short is removed when the journal is next opened. The file in use is
``journal.jsonl``; a full one becomes ``journal-000001.jsonl``, ``journal-000002.jsonl``, ….
"""  # noqa: E501 (a table)

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.base.files import DISK

JOURNAL = "journal.jsonl"
FULL_BYTES = 8 * 2**20
MOST_FILES = 64
MOST_WAITING = 10_000  # lines that wait for a disk that is full
_REPEATED = {"refused": ("sender", "reason"), "undelivered": ("to", "message", "reason")}
_AGAIN_S = 30.0


class Journal:
    """Writes the journal of one device; safe to call from one thread while another flushes.

    What repeats itself is counted rather than written each time: a stranger that is refused a
    thousand times a second must not fill the disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     journal = Journal(Path(place), clock=lambda: 5.0, wall=lambda: 1e9)
    ...     journal.write("stopped", {"reason": "SIGTERM"})
    ...     journal.flush()
    ...     print(Path(place, JOURNAL).read_text(), end="")
    {"at": 1000000000.0, "t": 0.0, "kind": "stopped", "reason": "SIGTERM"}
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        full_bytes: int = FULL_BYTES,
        most_files: int = MOST_FILES,
    ) -> None:
        self.folder, self.path = folder, folder / JOURNAL
        self._clock, self._wall, self._full, self._most = clock, wall, full_bytes, most_files
        self._since = clock()
        self._waiting: deque[bytes] = deque()
        self._counts: dict[tuple[Any, ...], tuple[float, int]] = {}
        self._mended = False

    def write(self, kind: str, figures: Mapping[str, Any] | None = None) -> None:
        counted = self._counted(kind, dict(figures or {}))
        if counted is None:
            return
        t = round(self._clock() - self._since, 6)
        line = {"at": round(self._wall(), 6), "t": t, "kind": kind, **_plain(counted)}
        if len(self._waiting) >= MOST_WAITING:  # the newest lines say why it ended
            self._waiting.popleft()
        self._waiting.append(json.dumps(line, allow_nan=False).encode() + b"\n")

    def _counted(self, kind: str, figures: dict[str, Any]) -> dict[str, Any] | None:
        """The figures with the number of repetitions; None if it is too early for a line."""
        if kind not in _REPEATED:
            return figures
        key = (kind, *(str(figures.get(name)) for name in _REPEATED[kind]))
        if key not in self._counts and len(self._counts) >= 1000:  # whoever varies his reasons
            key = (kind,)
        since, count = self._counts.get(key, (-math.inf, 0))
        if self._clock() - since < _AGAIN_S:
            self._counts[key] = (since, count + 1)
            return None
        self._counts[key] = (self._clock(), 0)
        return {**figures, "count": count + 1}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def flush(self) -> None:
        """Append the lines that wait, and wait for the disk."""
        lines = list(self._waiting.copy())  # another thread may be adding
        if not lines:
            return
        disk = DISK.get()
        if not self._mended:
            self._mend()
        new = not self.path.exists()
        self._mended = False  # until the lines are whole on the disk
        disk.append(self.path, b"".join(lines))
        if new:
            disk.sync_folder(self.folder)
        self._mended = True
        for line in lines:
            if self._waiting and self._waiting[0] is line:
                self._waiting.popleft()
        if self.path.stat().st_size >= self._full:
            self._put_aside()

    def _mend(self) -> None:
        if not self.path.is_file():
            return
        with self.path.open("rb") as file:
            end = size = file.seek(0, os.SEEK_END)
            while end:
                start = max(0, end - 2**16)
                file.seek(start)
                found = file.read(end - start).rfind(b"\n")
                if found >= 0:
                    end = start + found + 1
                    break
                end = start
        if end < size:
            DISK.get().truncate(self.path, end)

    def _put_aside(self) -> None:
        disk, old = DISK.get(), journals_in(self.folder)[:-1]
        number = int(old[-1].stem.rpartition("-")[2]) + 1 if old else 1
        disk.replace(self.path, self.folder / f"journal-{number:06d}.jsonl")
        for path in old[: max(0, len(old) + 2 - self._most)]:
            disk.remove(path)
        disk.sync_folder(self.folder)


def journals_in(folder: Path) -> list[Path]:
    """The files of a journal, oldest first.

    >>> journals_in(Path("/nowhere"))
    []
    """
    aside = sorted(folder.glob("journal-[0-9][0-9][0-9][0-9][0-9][0-9].jsonl"))
    newest = folder / JOURNAL
    return [*aside, newest] if newest.exists() else aside


def _plain(value: Any) -> Any:
    """Values as JSON has them: NumPy's numbers as Python's, and none that is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
