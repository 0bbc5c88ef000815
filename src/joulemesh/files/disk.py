"""The few operations of a file system that durability depends on, behind one seam.

A power cut loses what was not synced: the bytes of a file until ``sync``, and the names in a folder
until ``sync_folder``. Everything that must survive goes through a `Disk`, so that a test can record
the operations and replay what a power cut between any two of them leaves behind.
"""

from __future__ import annotations

__all__ = ["DISK", "Disk", "using"]

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import IO, TypeVar

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
    """Let everything written in this scope go through another disk.

    >>> with using(Disk()) as mine:
    ...     DISK.get() is mine
    True
    """
    token = DISK.set(disk)
    try:
        yield disk
    finally:
        DISK.reset(token)
