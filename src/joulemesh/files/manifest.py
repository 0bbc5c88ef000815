"""What the files of a folder must hold: a chain of commits, each with the digests it adds.

``manifest.jsonl`` has one line per commit: a JSON object with its number, the digest of the line
before it, the size and SHA-256 of every file that it adds or changes, the names that it removes,
and facts of the caller. It is appended and synced after the files that it names, so that a commit
that can be read describes files that are on the disk. A last line without its end is an append that
a crash has cut short: it never happened. Files that grow are verified up to the size committed.
"""

from __future__ import annotations

__all__ = ["MANIFEST", "Commit", "FileDigest", "Manifest", "digest_of", "sha256_of"]

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import open_bounded, parse_json
from joulemesh.files.disk import DISK
from joulemesh.files.limits import MANIFEST_FILE, MANIFEST_LINE, MANIFEST_NAMES
from joulemesh.files.whole import write_bytes

MANIFEST = "manifest.jsonl"
_FIRST = "0" * 64
_PIECE = 2**20


@dataclass(frozen=True)
class FileDigest:
    """Size and SHA-256 of a file; of one that grows, of the bytes that it began with."""

    bytes: int
    sha256: str
    grows: bool = False


def sha256_of(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first ``size`` bytes.

    Raises:
        ValueError: the file is shorter than that.
        OSError: it cannot be read.
    """
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
    """Size and digest of a file."""
    return FileDigest(path.stat().st_size, sha256_of(path))


@dataclass(frozen=True)
class Commit:
    """One line of a manifest, and all that holds after it.

    Attributes:
        number: from 0.
        digest: of its line.
        files: every file that the folder must hold after this commit, by relative name.
        facts: the caller's.
    """

    number: int
    digest: str
    files: Mapping[str, FileDigest]
    facts: Mapping[str, Any] = field(default_factory=dict)


class Manifest:
    """The commits of a folder.

    Args:
        folder: whose files they describe.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     folder = Path(place)
    ...     _ = (folder / "a.txt").write_text("one")
    ...     made = Manifest(folder)
    ...     _ = made.commit({"a.txt": digest_of(folder / "a.txt")}, stage="begun")
    ...     again = Manifest(folder)
    ...     _ = (folder / "a.txt").write_text("two")
    ...     again.newest.facts["stage"], again.damage(again.newest)
    ('begun', {'a.txt': 'its contents have changed'})
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / MANIFEST
        self.commits: list[Commit] = []
        self.fault: str | None = None
        """What is wrong with the manifest itself after its good commits; None if nothing is."""
        self._good_bytes = 0
        self._read()

    @property
    def newest(self) -> Commit:
        """The newest good commit."""
        return self.commits[-1]

    def _read(self) -> None:
        try:
            if self.path.is_symlink():
                self.fault = "it is a symbolic link"
                return
            names = 0
            with open_bounded(self.path, MANIFEST_FILE.now) as file:
                while line := file.readline(MANIFEST_LINE.now):
                    if len(line) == MANIFEST_LINE.now:
                        raise ScenarioError(f"it has more than {MANIFEST_LINE}")
                    if not line.endswith(b"\n"):
                        return  # an append that a crash has cut short
                    self.commits.append(self._parsed(line))
                    names += len(self.newest.files)
                    if names > MANIFEST_NAMES.now:
                        self.commits.pop()
                        raise ScenarioError(f"more than {MANIFEST_NAMES} are named")
                    self._good_bytes += len(line)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = "its contents have changed"
            if isinstance(error, OSError | ScenarioError):
                reason = getattr(error, "strerror", None) or str(error)
            self.fault = f"line {len(self.commits) + 1}: {reason}"

    def _parsed(self, line: bytes) -> Commit:
        text = line[:-1]
        record = parse_json(text)
        own = record.pop("sha256")
        before = self.commits[-1] if self.commits else None
        if own != _line_digest(record) or _line(record, own) != line:
            raise ValueError("the line's digest does not fit")
        if record["previous"] != (before.digest if before else _FIRST):
            raise ValueError("the chain is broken")
        files = dict(before.files) if before else {}
        for name in record["removed"]:
            files.pop(name, None)
        files |= {_inside(name): FileDigest(**known) for name, known in record["files"].items()}
        return Commit(int(record["commit"]), own, files, record["facts"])

    def commit(
        self, files: Mapping[str, FileDigest], *, removed: Iterable[str] = (), **facts: Any
    ) -> Commit:
        """Append a commit; the files must be on the disk already.

        Args:
            files: what it adds or changes, by name relative to the folder.
            removed: names that the folder need not hold any longer.
            facts: plain values to keep with it.

        Returns:
            The commit.

        Raises:
            ScenarioError: the manifest cannot be written.
        """
        before = self.commits[-1] if self.commits else None
        record = {
            "commit": len(self.commits),
            "previous": before.digest if before else _FIRST,
            "files": {name: vars(known) for name, known in sorted(files.items())},
            "removed": sorted(removed),
            "facts": facts,
        }
        own = _line_digest(record)
        line = _line(record, own)
        if before is None:  # nothing to fall back to if a power cut tears it
            write_bytes(self.path, line)
        else:
            self._append(line)
        self.commits.append(self._parsed(line))
        self._good_bytes += len(line)
        self.fault = None
        return self.newest

    def _append(self, line: bytes) -> None:
        disk = DISK.get()
        try:
            if self.path.stat().st_size > self._good_bytes:  # what follows the good commits
                disk.truncate(self.path, self._good_bytes)
            disk.append(self.path, line)
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self.path}: {error.strerror}; make room, then --resume"
            ) from None

    def go_back(self, commit: Commit) -> None:
        """Forget the commits after one; the next commit takes their place."""
        while self.newest is not commit:
            self.commits.pop()
        # The lines up to it are read again, for their length.
        with self.path.open("rb") as file:
            self._good_bytes = sum(len(file.readline()) for _ in self.commits)

    def damage(self, commit: Commit, only: Iterable[str] | None = None) -> dict[str, str]:
        """What has happened to files of a commit, by name; empty if they are intact.

        Args:
            commit: which must hold.
            only: names to look at; all of the commit's unless given.
        """
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


def _line_digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def _line(record: Mapping[str, Any], own: str) -> bytes:
    return json.dumps({**record, "sha256": own}, sort_keys=True).encode() + b"\n"
