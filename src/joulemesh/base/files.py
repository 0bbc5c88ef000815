"""Files written whole or not at all, and on the disk when the call returns.

A power cut loses what was not synced: the bytes of a file until ``sync``, and the names in a folder
until ``sync_folder``. Everything that must survive goes through a `Disk`, so that a test can record
the operations and replay what a power cut between any two of them leaves behind.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TypeVar

from joulemesh.base.errors import ScenarioError
from joulemesh.base.lock import take

DRAFT = ".part"
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Disk:
    """The machine's own file system."""

    def create(self, path: Path) -> IO[bytes]:
        """Make a file that did not exist, open for reading and writing."""
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666), "w+b")

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to a file, made if need be, and wait until they are on the disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to a size, and wait until that is on the disk."""
        descriptor = os.open(path, os.O_WRONLY | _FLAGS)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync(self, file: IO[bytes]) -> None:
        """Wait until a file's bytes are on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def replace(self, draft: Path, path: Path) -> None:
        """Put a file in the place of another in one step."""
        os.replace(draft, path)

    def make_folder(self, path: Path) -> None:
        """Make one folder, if it does not exist."""
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all in it, if it is there; a link is only unlinked."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are on the disk, where the system can be told to."""
        with suppress(PermissionError):  # Windows cannot open a folder; it needs no such call
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


DISK: ContextVar[Disk] = ContextVar("disk", default=Disk())  # noqa: B039 (it has no state)


D = TypeVar("D", bound=Disk)


@contextmanager
def using(disk: D) -> Iterator[D]:
    """Let everything written in this scope go through another disk."""
    token = DISK.set(disk)
    try:
        yield disk
    finally:
        DISK.reset(token)


def write_whole(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a draft beside the path, then put it in the path's place in one step.

    The draft has an unpredictable name and is made exclusively, so that no symbolic link is
    followed and two writers cannot meet; what lies at the path is replaced, never written through.
    """
    path, disk = Path(path), DISK.get()
    if not path.name or (path.is_dir() and not path.is_symlink()):
        raise ScenarioError(f"cannot write {path}: Is a directory; choose another place")
    draft = path
    try:
        file, draft = _draft_for(path)
        with file:
            write(file)
            disk.sync(file)
        disk.replace(draft, path)
        disk.sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write {path}: {reason}; choose another place") from None
    finally:
        if draft != path:
            with suppress(OSError):  # gone after the replacement; left by a failure or Ctrl-C
                draft.unlink()


def _draft_for(path: Path) -> tuple[IO[bytes], Path]:
    """A new file beside a path, open and locked: a draft that nobody has locked is litter."""
    while True:
        draft = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}{DRAFT}")
        file = DISK.get().create(draft)
        try:
            take(file.fileno())
            if os.fstat(file.fileno()).st_nlink:
                return file, draft
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks; there nothing is swept either
            return file, draft
        file.close()  # `sweep` has come between: it is removing, or has removed, the draft


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes, *, private: bool = False) -> None:
    """Write bytes, whole or not at all; if they are private, for the owner's eyes only."""

    def write(draft: IO[bytes]) -> None:
        if private and sys.platform != "win32":  # there a folder's rights are its files'
            os.fchmod(draft.fileno(), 0o600)  # before the first byte is there
        draft.write(data)

    write_whole(path, write)


def make_folder(path: str | Path, *, remedy: str = "choose another place") -> Path:
    """Make a folder and those above it, durably."""
    path, disk = Path(path), DISK.get()
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            disk.make_folder(folder)
            disk.sync_folder(folder.parent)
        if not path.is_dir():
            raise NotADirectoryError(20, "Not a directory")
    except OSError as error:
        raise ScenarioError(f"cannot make the folder {path}: {error.strerror}; {remedy}") from None
    return path


def sweep(folder: Path) -> None:
    """Remove drafts that killed processes have left in a folder and those within it.

    Drafts that are being written are locked, and are left alone.
    """
    for path in folder.rglob(f".*{DRAFT}"):
        with suppress(OSError):
            if path.is_symlink() or path.is_dir():
                continue  # nothing that `write_whole` has made
            with path.open("rb") as file:
                take(file.fileno())
                if sys.platform != "win32":  # a writer that comes now finds its draft removed
                    DISK.get().remove(path)
            if sys.platform == "win32":  # it removes no open file, nor a draft opened meanwhile
                DISK.get().remove(path)


def require_empty(folder: str | Path) -> None:
    """Refuse a folder with anything in it, and what is not a folder."""
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
    """A folder to write into, which takes its place only when all is written."""
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
