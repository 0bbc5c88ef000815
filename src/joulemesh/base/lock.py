"""One user of a folder at a time; the others are told who it is."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from joulemesh.base.errors import ScenarioError

LOCK = ".lock"


class FolderLock:
    """Holds a folder while the scope lasts; the system lets go of it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._descriptor = folder, -1

    @classmethod
    def is_held(cls, folder: Path) -> bool:
        """Does another process hold the folder?"""
        try:
            with cls(folder):
                return False
        except ScenarioError:
            return True

    def __enter__(self) -> FolderLock:
        path = self.folder / LOCK
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise ScenarioError(
                f"cannot lock {self.folder}: {error.strerror}; make it writable"
            ) from None
        try:
            take(descriptor)
        except OSError:
            holder = os.read(descriptor, 1000)
            os.close(descriptor)
            raise ScenarioError(
                f"{self.folder} is in use by {_words(holder)}; wait for it, or stop it"
            ) from None
        who = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with suppress(OSError):  # a full disk: others are told "another process"
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, json.dumps(who).encode())
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _words(holder: bytes) -> str:
    """Who holds the lock, from what it wrote."""
    try:
        who = json.loads(holder)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(who["since"])))
        host = "".join(c for c in str(who["host"]) if c.isalnum() or c in ".-_")
        return f"process {int(who['process'])} on {host} since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return "another process"


if sys.platform == "win32":
    import msvcrt

    _FAR = 2**31 - 2  # Windows keeps others from reading what is locked: not the file's own bytes

    def take(descriptor: int) -> None:
        """Lock a file until it is closed; refuse (OSError) if another process has locked it."""
        here = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, here, os.SEEK_SET)

else:
    import fcntl

    def take(descriptor: int) -> None:
        """Lock a file until it is closed; refuse (OSError) if another process has locked it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
