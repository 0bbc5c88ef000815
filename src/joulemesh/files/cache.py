"""Results that can be computed again, kept with a digest: found whole, or not found."""

from __future__ import annotations

__all__ = ["find", "keep", "require_usable", "user_cache"]

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import open_bounded
from joulemesh.files.limits import CACHED
from joulemesh.files.whole import make_folder, sweep, write_whole

_MARK = b"joulemesh cache 1 "
_HEAD = len(_MARK) + 64 + 1


def user_cache() -> Path:
    """The user's cache folder: the one place for everything that can be computed again.

    >>> user_cache().name
    'joulemesh'
    """
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("joulemesh"))


def keep(path: Path, content: bytes) -> None:
    """Write content with its digest, whole or not at all.

    Raises:
        ScenarioError: the place cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     keep(Path(folder, "a", "b"), b"result")
    ...     find(Path(folder, "a", "b")), find(Path(folder, "c"))
    (b'result', None)
    """
    sweep(make_folder(path.parent))
    head = _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"

    def write(draft: IO[bytes]) -> None:
        draft.write(head)
        draft.write(content)

    write_whole(path, write)


def find(path: Path, most_bytes: int | None = None) -> bytes | None:
    """What was kept; None if there is nothing, or if it is not what was written.

    Args:
        path: where.
        most_bytes: a larger file is taken for damaged; what fits into memory unless given.
    """
    most = CACHED.now if most_bytes is None else most_bytes
    with suppress(OSError, ScenarioError), open_bounded(path, most + _HEAD) as file:
        head, size = file.read(_HEAD), os.fstat(file.fileno()).st_size - _HEAD
        if not head.startswith(_MARK):
            return None
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if head == _MARK + found.encode() + b"\n":  # only then is it worth the memory
            file.seek(_HEAD)
            return file.read(size)
    return None


def require_usable(folder: Path, remedy: str) -> None:
    """Refuse a cache folder that cannot be written, before anything is computed for it.

    Drafts that killed processes have left in it are removed.

    Args:
        folder: made if need be.
        remedy: what the user can do.

    Raises:
        ScenarioError: it cannot be made, or not be written to.
    """
    make_folder(folder, remedy=remedy)
    sweep(folder)
    probe = folder / ".probe"
    try:
        write_whole(probe, lambda draft: draft.write(b""))
        probe.unlink()
    except (ScenarioError, OSError) as error:
        reason = str(error).rpartition(";")[0] or str(error)
        raise ScenarioError(f"{reason}; {remedy}") from None
