"""Folders written whole or not at all."""

from __future__ import annotations

__all__ = ["new_folder", "require_empty"]

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files.whole import DRAFT, make_folder


def require_empty(folder: str | Path) -> None:
    """Refuse a folder with anything in it, and what is not a folder.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     require_empty(place)
    """
    folder = Path(folder)
    try:
        inside = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ScenarioError(f"{folder} is a file; name a new folder") from None
    except OSError as error:
        raise ScenarioError(f"cannot read {folder}: {error.strerror}; name a new folder") from None
    if inside:
        shown = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
        raise ScenarioError(f"{folder} is not empty (it has {shown}); name a new folder")


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to write into, which takes its place only when all is written.

    Args:
        folder: where it is wanted: not there yet, or empty.

    Raises:
        ScenarioError: it is not empty, or cannot be made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with new_folder(Path(place, "app")) as draft:
    ...         _ = (draft / "note.txt").write_text("whole")
    ...     [path.name for path in Path(place).iterdir()]
    ['app']
    """
    folder = Path(folder)
    require_empty(folder)
    folder = Path(os.path.abspath(folder))  # "." has a name of its own only so
    draft = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{DRAFT}")
    make_folder(draft)
    try:
        yield draft
        with suppress(FileNotFoundError):
            folder.rmdir()
        os.replace(draft, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write {folder}: {reason}; name another folder") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
