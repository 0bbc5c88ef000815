"""Files written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from joulemesh.errors import ScenarioError

__all__ = ["write_bytes", "write_text", "write_whole"]


def write_whole(path: str | Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a draft beside the path, then put it in the path's place in one step.

    Args:
        path: where the file is wanted; what lies there is replaced.
        write: called with the draft's path.

    Raises:
        ScenarioError: the place cannot be written; the message has the path and the reason.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place = Path(folder, "note.txt")
    ...     write_whole(place, lambda draft: draft.write_text("whole"))
    ...     place.read_text(), len(list(Path(folder).iterdir()))
    ('whole', 1)
    """
    path = Path(path)
    if not path.name or path.is_dir():
        raise ScenarioError(f"cannot write {path}: Is a directory; choose another place")
    draft = path.with_name(path.name + f".{os.getpid()}.part")
    try:
        write(draft)
        os.replace(draft, path)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write {path}: {reason}; choose another place") from None
    finally:
        with suppress(OSError):  # gone after the replacement; left by a failure or Ctrl-C
            draft.unlink()


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_whole(path, lambda draft: draft.write_text(text, "utf-8"))


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write bytes, whole or not at all."""
    write_whole(path, lambda draft: draft.write_bytes(data))
