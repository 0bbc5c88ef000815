"""A disk that remembers what was done to it, and what a power cut at any moment would leave.

Bytes of a file survive once the file is synced, names in a folder once the folder is synced. What
was not synced may survive wholly, partly, in another order, as zeros, or not at all.
"""

from __future__ import annotations

import errno
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import IO, Any

from joulemesh.base.files import Disk
from joulemesh.base.lock import LOCK

Step = tuple[str, Any, Any]
# What survives of that which was not synced: nothing, all, the first steps of each folder (a
# journal), or any of them (no order at all).
SURVIVING = ("none", "some", "any", "all")


class RecordingDisk(Disk):
    """Works on the real folder, and writes down every step within it.

    Args:
        root: of the folder; what it holds already is on the disk.
        forgets: calls whose effect is left out, as if the program did not make them: ``"sync"``,
            ``"sync_folder"`` or ``"append"`` (which then does not sync).
    """

    def __init__(self, root: Path, forgets: str = "") -> None:
        self.root, self.forgets = root.resolve(), forgets
        self.steps: list[Step] = []
        self.writes = 0  # that need room
        self._live: dict[str, int] = {}
        self._next = 0
        for path in sorted(self.root.rglob("*")):
            self._found(path)

    def _found(self, path: Path) -> None:
        if path.is_dir():
            self._note("mkdir", path)
        elif path.name != LOCK:
            self._new(path)
            self._data(path)
        self._note("syncdir", path.parent)

    def _name(self, path: Path) -> str | None:
        path = path.parent.resolve() / path.name if path != self.root else path
        inside = path == self.root or self.root in path.parents
        return path.relative_to(self.root).as_posix() if inside else None

    def _note(self, kind: str, path: Path, value: Any = None) -> None:
        name = self._name(path)
        if name is not None:
            self.steps.append((kind, name, value))

    def _new(self, path: Path) -> None:
        name = self._name(path)
        if name is not None:
            self._next += 1
            self._live[name] = self._next
            self._note("create", path, self._next)

    def _data(self, path: Path, *, synced: bool = True) -> None:
        name = self._name(path)
        if name is not None:
            self.steps.append(("data", self._live[name], path.read_bytes()))
            if synced:
                self.steps.append(("synced", self._live[name], None))

    def create(self, path: Path) -> IO[bytes]:
        file = super().create(path)
        self.writes += 1
        self._new(path)
        return file

    def append(self, path: Path, data: bytes) -> None:
        self.writes += 1
        if not path.exists():
            self._new(path)
        with path.open("ab") as file:
            file.write(data)
        self._data(path, synced=self.forgets != "append")

    def truncate(self, path: Path, size: int) -> None:
        with path.open("r+b") as file:
            file.truncate(size)
        self._data(path)

    def sync(self, file: IO[bytes]) -> None:
        file.flush()
        self.writes += 1
        path = Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))
        self._data(path, synced=self.forgets != "sync")

    def replace(self, draft: Path, path: Path) -> None:
        super().replace(draft, path)
        source, target = self._name(draft), self._name(path)
        if source is not None and target is not None:
            number = self._live[target] = self._live.pop(source)
            self.steps.append(("rename", source, (target, number)))

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self.writes += 1
        self._note("mkdir", path)

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._live.pop(self._name(path) or "", None)
        self._note("unlink", path)

    def sync_folder(self, path: Path) -> None:
        if self.forgets != "sync_folder":
            self._note("syncdir", path)


class FullDisk(Disk):
    """Has room for some writes; the next one fails half way, and so do all after it.

    Args:
        room: writes that succeed.
    """

    def __init__(self, room: int) -> None:
        self.room = room

    def _take_room(self) -> None:
        self.room -= 1
        if self.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def create(self, path: Path) -> IO[bytes]:
        self._take_room()
        return super().create(path)

    def append(self, path: Path, data: bytes) -> None:
        try:
            self._take_room()
        except OSError:
            super().append(path, data[: len(data) // 2])
            raise
        super().append(path, data)

    def sync(self, file: IO[bytes]) -> None:
        self._take_room()
        super().sync(file)

    def make_folder(self, path: Path) -> None:
        self._take_room()
        super().make_folder(path)


def after_a_cut(steps: list[Step], at: int, rng: random.Random, target: Path, how: str) -> None:
    """Lay out what is left if the power fails after some of the steps.

    Args:
        steps: of a recording.
        at: how many of them were done.
        rng: decides what survives of that which was not synced.
        target: an empty folder.
        how: one of `SURVIVING`.
    """
    names: dict[str, int | None] = {}  # a folder has no file behind it
    waiting: dict[str, list[Step]] = defaultdict(list)
    synced: dict[int, bytes] = {}
    unsynced: dict[int, bytes] = {}
    for step in steps[:at]:
        kind, name, value = step
        if kind == "data":
            unsynced[name] = value
        elif kind == "synced":
            synced[name] = unsynced.pop(name, synced.get(name, b""))
        elif kind == "syncdir":
            for one in waiting.pop(name, []):
                _apply(names, one)
        else:
            waiting[Path(name).parent.as_posix()].append(step)
    for some in waiting.values():
        for one in _survivors(some, rng, how):
            _apply(names, one)
    for name, number in sorted(names.items()):
        place = target / name
        if number is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        old = synced.get(number, b"")
        content = _content(old, unsynced.get(number, old), rng, how)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)


def _apply(names: dict[str, int | None], step: Step) -> None:
    kind, name, value = step
    if kind in ("create", "mkdir"):
        names[name] = value
    elif kind == "rename":
        target, number = value
        names.pop(name, None)
        names[target] = number
    elif kind == "unlink":
        names.pop(name, None)


def _survivors(steps: list[Step], rng: random.Random, how: str) -> list[Step]:
    """The steps in one folder that a cut leaves, of those that were not synced."""
    if how == "any":
        return [step for step in steps if rng.random() < 0.5]
    return steps[: {"none": 0, "all": len(steps), "some": rng.randint(0, len(steps))}[how]]


def _content(old: bytes, new: bytes, rng: random.Random, how: str) -> bytes:
    """What is left of a file that held ``old`` when it was synced and ``new`` at the cut."""
    if how in ("none", "all") or old == new:
        return new if how == "all" else old
    safe = len(old) if new.startswith(old) else 0  # an append cannot lose what was synced before
    first, last = sorted(rng.randint(safe, len(new)) for _ in range(2))
    holed = new[:first] + b"\0" * (last - first) + new[last:]  # a block that was never written
    return rng.choice([old, new, new[:last], holed])
