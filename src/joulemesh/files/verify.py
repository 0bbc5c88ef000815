"""Compare a folder with its manifest."""

from __future__ import annotations

__all__ = ["Verdict", "strangers_in", "verified"]

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.files.lock import LOCK
from joulemesh.files.manifest import MANIFEST, Manifest
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
        place = Path(self.folder)
        return [f"{place / name} is damaged: {why}" for name, why in self.damaged.items()]

    def record(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "intact": self.intact}


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
        damaged |= manifest.damage(manifest.newest)
    files = len(manifest.newest.files) if manifest.commits else 0
    strangers = tuple(strangers_in(manifest))
    return Verdict(str(folder), len(manifest.commits), files, damaged, strangers)
