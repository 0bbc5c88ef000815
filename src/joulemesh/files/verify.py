"""Compare a folder with its manifest."""

from __future__ import annotations

__all__ = ["Verdict", "ahead_of", "commit_all", "strangers_in", "verified"]

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.files.lock import LOCK
from joulemesh.files.manifest import MANIFEST, Manifest, digest_of
from joulemesh.files.whole import DRAFT


@dataclass(frozen=True)
class Verdict:
    """What was found in a folder.

    Attributes:
        folder: which.
        commits: good ones in its manifest.
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
        """Is everything as it was written?"""
        return not self.damaged

    def lines(self) -> list[str]:
        """A line for each damaged file."""
        folder = Path(self.folder)
        return [f"{folder / name} is damaged: {why}" for name, why in self.damaged.items()]

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "intact": self.intact}


def commit_all(folder: Path, **facts: Any) -> None:
    """Take every file in a folder into its manifest, as it is now.

    Args:
        folder: held by the caller, who has just written it.
        facts: plain values to keep with the commit.
    """
    manifest = Manifest(folder)
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = (path.relative_to(folder).as_posix() for path in found)
    own = (MANIFEST, LOCK)
    files = {n: digest_of(folder / n) for n in names if n not in own and not n.endswith(DRAFT)}
    gone = set(manifest.newest.files) - set(files) if manifest.commits else set()
    manifest.commit(files, removed=gone, **facts)


def ahead_of(manifest: Manifest) -> dict[str, str]:
    """What was written after the newest commit by whoever keeps the folder, by name.

    The first commit's fact ``owns`` lists the names, and beginnings of names, that are its own. A
    crash leaves such files behind, and so does a manifest that was replaced by an older one.
    """
    if not manifest.commits:
        return {}
    own = tuple(manifest.commits[0].facts.get("owns", ()))
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
    found = (path for path in sorted(manifest.folder.rglob("*")) if not path.is_dir())
    names = (path.relative_to(manifest.folder).as_posix() for path in found)
    own = (MANIFEST, LOCK)
    return [n for n in names if n not in known and n not in own and not n.endswith(DRAFT)]


def verified(folder: Path) -> Verdict:
    """Look at every file that a folder's manifest names.

    Raises:
        ScenarioError: there is no manifest.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as empty:
    ...     verified(Path(empty))
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: ... has no manifest.jsonl: name a run or study folder
    """
    manifest = Manifest(folder)
    if not manifest.commits and not manifest.fault:
        raise ScenarioError(f"{folder} has no {MANIFEST}: name a run or study folder")
    damaged = {MANIFEST: manifest.fault} if manifest.fault else {}
    if manifest.commits:
        damaged |= ahead_of(manifest) | manifest.damage(manifest.newest)
    files = len(manifest.newest.files) if manifest.commits else 0
    strangers = tuple(name for name in strangers_in(manifest) if name not in damaged)
    return Verdict(str(folder), len(manifest.commits), files, damaged, strangers)
