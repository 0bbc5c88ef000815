"""A disk that remembers what was done to it, and what a power cut at any moment would leave.

Bytes of a file survive once the file is synced, names in a folder once the folder is synced. What
was not synced may survive wholly, partly or not at all.
"""

from __future__ import annotations

import random
from collections import defaultdict
from pathlib import Path
from typing import IO, Any

from joulemesh.files import Disk

Step = tuple[str, Any, Any]


class RecordingDisk(Disk):
    """Works on the real folder, and writes down every step within it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.steps: list[Step] = []
        self._live: dict[str, int] = {}
        self._next = 0

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

    def _data(self, path: Path) -> None:
        name = self._name(path)
        if name is not None:
            self.steps.append(("data", self._live[name], path.read_bytes()))
            self.steps.append(("synced", self._live[name], None))

    def create(self, path: Path) -> IO[bytes]:
        file = super().create(path)
        self._new(path)
        return file

    def append(self, path: Path, data: bytes) -> None:
        if not path.exists():
            self._new(path)
        with path.open("ab") as file:
            file.write(data)
        self._data(path)

    def truncate(self, path: Path, size: int) -> None:
        with path.open("r+b") as file:
            file.truncate(size)
        self._data(path)

    def sync(self, file: IO[bytes]) -> None:
        file.flush()
        self._data(Path(file.name) if isinstance(file.name, str) else self._path_of(file))

    def _path_of(self, file: IO[bytes]) -> Path:
        import os

        return Path(os.readlink(f"/proc/self/fd/{file.fileno()}"))

    def replace(self, draft: Path, path: Path) -> None:
        super().replace(draft, path)
        source, target = self._name(draft), self._name(path)
        if source is not None and target is not None:
            self._live[target] = self._live.pop(source)
            self.steps.append(("rename", source, target))

    def make_folder(self, path: Path) -> None:
        super().make_folder(path)
        self._note("mkdir", path)

    def remove(self, path: Path) -> None:
        super().remove(path)
        self._live.pop(self._name(path) or "", None)
        self._note("unlink", path)

    def sync_folder(self, path: Path) -> None:
        self._note("syncdir", path)


def _folder_of(name: str) -> str:
    return Path(name).parent.as_posix()


def after_a_cut(steps: list[Step], at: int, rng: random.Random, target: Path, how: str) -> None:
    """Lay out what is left if the power fails after some of the steps.

    Args:
        steps: of a recording.
        at: how many of them were done.
        rng: decides what survives of that which was not synced.
        target: an empty folder.
        how: ``"none"`` of the unsynced survives, ``"all"``, or ``"some"``.
    """
    names: dict[str, int | None] = {}  # a folder has no file behind it
    waiting: dict[str, list[Step]] = defaultdict(list)
    synced: dict[int, bytes] = {}
    unsynced: dict[int, bytes] = {}

    def apply(step: Step) -> None:
        kind, name, value = step
        if kind in ("create", "mkdir"):
            names[name] = value
        elif kind == "rename" and name in names:
            names[value] = names.pop(name)
        elif kind == "unlink":
            names.pop(name, None)

    for step in steps[:at]:
        kind, name, value = step
        if kind == "data":
            unsynced[name] = value
        elif kind == "synced":
            synced[name] = unsynced.pop(name, synced.get(name, b""))
        elif kind == "syncdir":
            for one in waiting.pop(name, []):
                apply(one)
        else:
            waiting[_folder_of(name)].append(step)
    for some in waiting.values():
        count = {"none": 0, "all": len(some), "some": rng.randint(0, len(some))}[how]
        for one in some[:count]:
            apply(one)
    for name, number in sorted(names.items()):
        place = target / name
        if number is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        old = synced.get(number, b"")
        new = unsynced.get(number, old)
        # An append cannot lose what was synced before it.
        safe = len(old) if new.startswith(old) else 0
        torn = new[: rng.randint(safe, len(new))] if number in unsynced else old
        content = {"none": old, "all": new, "some": rng.choice([old, new, torn])}[how]
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
