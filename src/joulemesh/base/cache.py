"""Results that can be computed again, kept with a digest: found whole, or not found."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, sweep, write_bytes

_MARK = b"joulemesh cache 1 "


def user_cache() -> Path:
    """The user's cache folder: the one place for everything that can be computed again."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("joulemesh"))


def _head(content: bytes) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode()


def keep(path: Path, content: bytes) -> None:
    """Write content with its digest, whole or not at all."""
    sweep(make_folder(path.parent))
    write_bytes(path, _head(content) + b"\n" + content)


def find(path: Path) -> bytes | None:
    """What was kept; None if there is nothing, or if it is not what was written."""
    with suppress(OSError):
        head, _, content = path.read_bytes().partition(b"\n")
        if head == _head(content):
            return content
    return None


def require_usable(folder: Path, remedy: str) -> None:
    """Refuse a cache folder that cannot be written, before anything is computed for it.

    Drafts that killed processes have left in it are removed.
    """
    make_folder(folder, remedy=remedy)
    sweep(folder)
    probe = folder / ".probe"
    try:
        write_bytes(probe, b"")
        probe.unlink()
    except (ScenarioError, OSError) as error:
        reason = str(error).rpartition(";")[0] or str(error)
        raise ScenarioError(f"{reason}; {remedy}") from None
