"""What the files of a folder must hold: their sizes and digests, checked before they are used.

``manifest.jsonl`` is written whole, after the files that it names are on the disk. It has a line
for each of the newest commits: every file that the folder must hold then, with size and SHA-256,
and facts of the caller. Files that grow are verified up to the size committed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from joulemesh.base.bounded import parse_json
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import DISK, DRAFT, write_bytes
from joulemesh.base.lock import LOCK

MANIFEST = "manifest.jsonl"
_KEPT = 3  # commits: that of each checkpoint of a run, and the newest
_PIECE = 2**20


@dataclass(frozen=True)
class FileDigest:
    """Size and SHA-256 of a file; of one that grows, of the bytes that it began with."""

    bytes: int
    sha256: str
    grows: bool = False


def sha256_of(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first ``size`` bytes."""
    made, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left is None or left > 0:
            piece = file.read(_PIECE if left is None else min(_PIECE, left))
            if not piece:
                break
            made.update(piece)
            left = None if left is None else left - len(piece)
    if left:
        raise ValueError(f"{left} bytes are missing at its end")
    return made.hexdigest()


def digest_of(path: Path) -> FileDigest:
    return FileDigest(path.stat().st_size, sha256_of(path))


@dataclass(frozen=True)
class Commit:
    """One line of a manifest: every file that the folder must hold, and facts of the caller."""

    number: int
    files: Mapping[str, FileDigest]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> bytes:
        record = {
            "commit": self.number,
            "files": {name: vars(known) for name, known in sorted(self.files.items())},
            "facts": dict(self.facts),
        }
        return json.dumps({**record, "sha256": _digest(record)}, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Commit:
        record = parse_json(line)
        if record.pop("sha256") != _digest(record):
            raise ValueError("the line's digest does not fit")
        files = {_inside(name): FileDigest(**known) for name, known in record["files"].items()}
        return cls(int(record["commit"]), files, record["facts"])


class Manifest:
    """The newest commits of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / MANIFEST
        self.commits: list[Commit] = []
        self.fault: str | None = None
        """What is wrong with the manifest itself; None if nothing is."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fault = f"{error.strerror}"
            return
        for number, line in enumerate(lines, start=1):
            try:
                commit = Commit.parse(line)
                if commit.line() != line:
                    raise ValueError("a line that was not written so")
                self.commits.append(commit)
            except (ValueError, KeyError, TypeError, AttributeError):
                self.fault = f"line {number}: its contents have changed"

    @property
    def newest(self) -> Commit:
        return self.commits[-1]

    def commit(
        self, files: Mapping[str, FileDigest], *, removed: Iterable[str] = (), **facts: Any
    ) -> Commit:
        """Add files that are on the disk already, and facts, to those of the commit before."""
        before = self.newest if self.commits else Commit(-1, {})
        gone = set(removed)
        held = {name: digest for name, digest in before.files.items() if name not in gone}
        plain = json.loads(json.dumps({**before.facts, **facts}))
        made = Commit(before.number + 1, {**held, **files}, plain)
        commits = [*self.commits, made][-_KEPT:]
        write_bytes(self.path, b"".join(one.line() for one in commits))
        self.commits, self.fault = commits, None
        return made

    def go_back(self, commit: Commit) -> None:
        """Forget the commits after one; the next commit takes their place."""
        self.commits = self.commits[: self.commits.index(commit) + 1]

    def damage(self, commit: Commit, only: Iterable[str] | None = None) -> dict[str, str]:
        """What has happened to files of a commit (or some of them), by name; empty if intact."""
        names = commit.files if only is None else [n for n in only if n in commit.files]
        found = {name: self._damage(name, commit.files[name]) for name in names}
        return {name: fault for name, fault in found.items() if fault}

    def _damage(self, name: str, known: FileDigest) -> str:
        path = self.folder / name
        above = [self.folder / part for part in Path(name).parents if part.name]
        try:
            if any(one.is_symlink() for one in (path, *above)):
                return "it is a symbolic link, or lies behind one"
            if not path.exists():
                return "it is missing"
            if not path.is_file():
                return "it is not a file"
            size = path.stat().st_size
            if size < known.bytes or (size > known.bytes and not known.grows):
                return f"it has {size} bytes instead of {known.bytes}"
            if sha256_of(path, known.bytes) != known.sha256:
                return "its contents have changed"
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        return ""


def _inside(name: str) -> str:
    """A name that stays within the folder."""
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not a name within the folder")
    return name


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


class GrowingFile:
    """Appends to a file; what is appended is on the disk when the call returns.

    What the file holds beyond its last commit is cut off; without one it is begun anew.
    """

    def __init__(self, path: Path, known: FileDigest | None = None) -> None:
        self.path, self._size, self._sha256 = path, 0, hashlib.sha256()
        if known is None:
            DISK.get().remove(path)
            return
        if path.stat().st_size > known.bytes:
            DISK.get().truncate(path, known.bytes)
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                self._sha256.update(piece)
        self._size = known.bytes

    @property
    def digest(self) -> FileDigest:
        return FileDigest(self._size, self._sha256.hexdigest(), grows=True)

    def append(self, text: str) -> None:
        data, disk = text.encode(), DISK.get()
        try:
            disk.append(self.path, data)
            if not self._size:
                disk.sync_folder(self.path.parent)
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self.path}: {error.strerror}; make room, then --resume"
            ) from None
        self._size += len(data)
        self._sha256.update(data)


@dataclass(frozen=True)
class Verdict:
    """What was found in a folder.

    Attributes:
        folder: which.
        commits: made in it so far.
        files: that the newest commit names.
        damaged: what has happened to files, by name; the manifest is one of them.
        strangers: files that no commit names.
    """

    folder: str
    commits: int
    files: int
    damaged: Mapping[str, str]
    strangers: tuple[str, ...]

    @property
    def intact(self) -> bool:
        return not self.damaged

    def lines(self) -> list[str]:
        """A line for each damaged file."""
        folder = Path(self.folder)
        return [f"{folder / name} is damaged: {why}" for name, why in self.damaged.items()]

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "intact": self.intact}


def _names_in(folder: Path) -> list[str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in found)
    return [n for n in names if n not in (MANIFEST, LOCK) and not n.endswith(DRAFT)]


def commit_all(folder: Path, **facts: Any) -> None:
    """Take every file in a folder that the caller holds into its manifest, as it is now."""
    manifest = Manifest(folder)
    files = {name: digest_of(folder / name) for name in _names_in(folder)}
    gone = set(manifest.newest.files) - set(files) if manifest.commits else set()
    manifest.commit(files, removed=gone, **facts)


def ahead_of(manifest: Manifest) -> dict[str, str]:
    """What was written after the newest commit by whoever keeps the folder, by name.

    The fact ``owns`` lists the names, and beginnings of names, that are its own. A crash leaves
    such files behind, and so does a manifest that was replaced by an older one.
    """
    if not manifest.commits:
        return {}
    own = tuple(manifest.newest.facts.get("owns", ()))
    later = "it was written after the last commit; --resume puts that right"
    found = {name: later for name in strangers_in(manifest) if name.startswith(own)} if own else {}
    for name, known in manifest.newest.files.items():
        path = manifest.folder / name
        if known.grows and path.is_file() and path.stat().st_size > known.bytes:
            found[name] = later
    return found


def strangers_in(manifest: Manifest) -> list[str]:
    """Names in a folder that its newest commit does not know."""
    known = set(manifest.newest.files) if manifest.commits else set()
    return [name for name in _names_in(manifest.folder) if name not in known]


def verified(folder: Path) -> Verdict:
    """Look at every file that a folder's manifest names."""
    manifest = Manifest(folder)
    if not manifest.commits and not manifest.fault:
        raise ScenarioError(f"{folder} has no {MANIFEST}: name a run or study folder")
    damaged = {MANIFEST: manifest.fault} if manifest.fault else {}
    if manifest.commits:
        damaged |= ahead_of(manifest) | manifest.damage(manifest.newest)
    commits, files = 0, 0
    if manifest.commits:
        commits, files = manifest.newest.number + 1, len(manifest.newest.files)
    strangers = tuple(name for name in strangers_in(manifest) if name not in damaged)
    return Verdict(str(folder), commits, files, damaged, strangers)
