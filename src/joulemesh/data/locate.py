"""Find a data set's published files in a folder, in whichever form they are kept."""

from __future__ import annotations

__all__ = ["Located", "locate"]

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from joulemesh.data.files import check_member, pickled_batch
from joulemesh.data.packed import tar_members, unpacked
from joulemesh.data.sources import Member, Source
from joulemesh.errors import ScenarioError
from joulemesh.files.limits import PICKLED_BATCH

_SUFFIXES = (".gz", ".xz", "")


@dataclass(frozen=True)
class Located:
    """All files of a data set: one path per member, or the one tarball that holds them all."""

    source: Source
    paths: tuple[Path, ...]

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield where each member was read and its content, verified, in the source's order."""
        archive = self.paths[0] if self.paths[0].name in self.source.archives else None
        if archive is not None:
            yield from self._from_archive(archive)
            return
        for member, path in zip(self.source.members, self.paths, strict=True):
            where = str(path)
            if _is_pickle(member, path.name):
                raw = unpacked(path, PICKLED_BATCH.now)
                yield where, pickled_batch(where, raw, member.pickle_md5)
            else:
                raw = unpacked(path, member.size_bytes)
                check_member(where, raw, member)
                yield where, raw

    def _from_archive(self, archive: Path) -> Iterator[tuple[str, bytes]]:
        members = self.source.members
        names = {name for member in members for name in (member.name, _pickle_name(member))}
        held = tar_members(archive, names)
        for member in members:
            where = f"{archive} ({member.name})"
            if member.name in held:
                check_member(where, held[member.name], member)
                yield where, held.pop(member.name)
            elif _pickle_name(member) in held:
                raw = held.pop(_pickle_name(member))
                yield where, pickled_batch(where, raw, member.pickle_md5)
            else:
                raise ScenarioError(
                    f"{archive} lacks {member.name}: delete it and download it again"
                )


def locate(source: Source, folder: Path) -> Located | None:
    """Look for the files of a data set in a folder or in its usual subfolders.

    Args:
        source: the data set.
        folder: one that holds ``mnist/`` and the like, or the files themselves.

    Returns:
        The files; None where there is none of them.

    Raises:
        ScenarioError: some are there and some are not.
    """
    for searched in (*(folder / name for name in source.folders), folder):
        if not searched.is_dir():
            continue
        paths = [_find(searched, member) for member in source.members]
        found = tuple(path for path in paths if path is not None)
        if len(found) == len(paths):
            return Located(source, found)
        for archive in source.archives:
            if (searched / archive).is_file():
                return Located(source, (searched / archive,))
        if found:
            missing = source.members[paths.index(None)].name
            raise ScenarioError(
                f"{searched} holds {len(found)} of the {len(paths)} files of {source.name}; "
                f"{missing} (or .gz, .xz) is missing: add it, or remove the others to download all"
            )
    return None


def _find(searched: Path, member: Member) -> Path | None:
    names = [name + suffix for name in member.names for suffix in _SUFFIXES]
    if member.pickle_md5:
        names.append(_pickle_name(member))
    return next((searched / name for name in names if (searched / name).is_file()), None)


def _pickle_name(member: Member) -> str:
    return member.name.removesuffix(".bin")


def _is_pickle(member: Member, name: str) -> bool:
    return bool(member.pickle_md5) and name == _pickle_name(member)
