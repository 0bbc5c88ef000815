"""What a node keeps on disk: its state, and the joules that may have been spent.

The state is in an SQLite database with a write-ahead log: a save is one transaction and one wait
for the disk, and what was there before stays whole until it is over. Arrays that are the same
objects as at an earlier save are not written again: the record refers to all of them by number.
Digests tell what the disk has not kept.

The joules have a file of their own, of fixed size: it is raised while the database is being
written, and where no room is left on the disk.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import make_folder, read_bounded, sweep, write_bytes
from joulemesh.deploy.codec import Malformed, Record, read_record, write_record
from joulemesh.deploy.effects import Durable

STATE, PLACE = "state.db", "place"
FORMAT = 3
_BEFORE = "state.log"  # where versions before the format 3 kept the state
_TABLES = (
    "create table arrays (number integer primary key, dtype text, shape text, data blob, "
    "digest blob)",
    "create table state (one integer primary key check (one = 1), record text, digest blob)",
)
# A record begins with its number, which is so found in a log of which SQLite skips a part.
_MARKED = re.compile(rb"joulemesh-save-(\d{16})")
_PAGE, _LOG_PAGES = 16384, 256  # bytes of a page; pages of the log that are put into the database


@dataclass(frozen=True)
class Owner(Record):
    """Whose state it is: that of another fleet, plan or device is not taken up."""

    fleet: str
    plan: str  # its digest
    device: int


@dataclass(frozen=True, eq=False)
class _Kept(Record):
    owner: Owner
    place: tuple[int, int] | None
    state: Durable


class _Numbers:
    """The arrays of a state, by number; those that are not in the database yet are ``fresh``."""

    def __init__(self, known: dict[int, NDArray[Any]]) -> None:
        self.by_number, self.used = dict(known), set[int]()
        self._of = {id(array): number for number, array in known.items()}
        self.fresh: list[int] = []

    def number(self, array: NDArray[Any]) -> int:
        number = self._of.get(id(array))
        if number is None:
            number = self._of[id(array)] = max(self.by_number, default=0) + 1
            self.by_number[number] = array
            self.fresh.append(number)
        self.used.add(number)
        return number

    def array(self, number: int) -> NDArray[Any]:
        self.used.add(number)
        if number not in self.by_number:
            raise ValueError(f"there is no array {number}")
        return self.by_number[number]

    @property
    def kept(self) -> dict[int, NDArray[Any]]:
        return {number: self.by_number[number] for number in self.used}


class Store:
    """Keeps the state of one node. Saves must not overlap: one thread carries them out.

    Nobody may change in place an array that was saved.

    >>> import tempfile
    >>> from joulemesh.deploy.effects import Commit
    >>> from joulemesh.deploy.view import View
    >>> mine = Owner("f1", "ab12", 3)
    >>> with tempfile.TemporaryDirectory() as place:
    ...     store = Store(Path(place), mine)
    ...     store.load() is None
    ...     store.save(Durable(1, (View(0, 1, (2, 3)),), Commit(7, np.arange(3.0))))
    ...     found = Store(Path(place), mine).load()
    ...     found.commit.iteration, found.commit.vector.tolist(), found.views[0].members
    True
    (7, [0.0, 1.0, 2.0], (2, 3))
    """

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.folder, self.owner = make_folder(folder), owner
        self.path = folder / STATE
        self._held: dict[int, NDArray[Any]] = {}  # arrays in the database, by number
        self._number = 0  # of the last save
        self._base: sqlite3.Connection | None = None
        sweep(self.folder)

    def save(self, state: Durable) -> None:
        """Make a state durable; what was there before stays whole until this one is."""
        numbers = _Numbers(self._held)
        try:
            if not (self.folder / PLACE).exists():
                write_bytes(self.folder / PLACE, b"")
            record = write_record(_Kept(self.owner, self._place(), state), arrays=numbers)
            record = f"joulemesh-save-{self._number + 1:016d}{record}"
            with self._writing() as base:
                fresh = (_row(number, numbers.by_number[number]) for number in numbers.fresh)
                base.executemany("insert or replace into arrays values (?, ?, ?, ?, ?)", fresh)
                stale = [(number,) for number in self._held if number not in numbers.used]
                base.executemany("delete from arrays where number = ?", stale)
                row = (record, _digest(record.encode()))
                base.execute("insert or replace into state values (1, ?, ?)", row)
        except (sqlite3.Error, OSError) as error:
            raise ScenarioError(
                f"cannot write {self.path}: {_words(error)}; make room on the disk"
            ) from None
        self._held, self._number = numbers.kept, self._number + 1

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction; after one that fails the database is opened anew."""
        if self._base is None:
            # Parameters can reveal samples; the log is made with the rights of the database.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o600))
            self._base = _opened(self.path)
        try:
            self._base.execute("begin immediate")
            if not _version(self._base):
                for statement in (*_TABLES, f"pragma user_version = {FORMAT}"):
                    self._base.execute(statement)
            yield self._base
            self._base.execute("commit")
        except BaseException:
            base, self._base = self._base, None
            base.close()
            raise

    def close(self) -> None:
        """Put the log into the database, and let go of both."""
        if self._base is not None:
            self._base.close()
            self._base = None

    def _place(self) -> tuple[int, int] | None:
        """What no copy of the folder has: the number of a file in it, and when it was made."""
        try:
            found = (self.folder / PLACE).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    def load(self) -> Durable | None:
        """The state that was saved last; None if there is none."""
        if (self.folder / _BEFORE).exists():
            raise ScenarioError(
                f"{self.folder / _BEFORE} was written by an earlier version of joulemesh; use that"
            )
        if not (self.path.exists() or self.path.is_symlink()):
            return None
        try:
            newest = _newest_in_log(self.path)
            # Only read: closing it must not remove a log that turns out to be damaged.
            with closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True)
            ) as base:
                kept, numbers = self._read(base) if _version(base) else (None, _Numbers({}))
            # The last save may have been cut short, and the first one may have been the last.
            if newest > self._number + 1:
                raise Malformed("what stands before its last save has changed")
        except (sqlite3.Error, OSError, Malformed) as error:
            raise ScenarioError(
                f"{self.path} is damaged ({_words(error)}); remove {self.folder}: the device then "
                "asks to be taken in as a new one"
            ) from None
        if kept is None:
            return None
        self._require_own(kept.owner)
        self._held = numbers.kept
        if kept.place not in (None, self._place()) and kept.state.folder == "whole":
            return replace(kept.state, folder="copied")
        return kept.state

    def _read(self, base: sqlite3.Connection) -> tuple[_Kept, _Numbers]:
        version = _version(base)
        if version != FORMAT:
            raise ScenarioError(
                f"{self.path} is of format {version}, not {FORMAT}; use the version of joulemesh "
                "that wrote it"
            )
        found = base.execute("pragma quick_check(1)").fetchone()[0]
        if found != "ok":
            raise Malformed(" ".join(found.split()))
        arrays = {}
        for number, dtype, shape, data, digest in base.execute("select * from arrays"):
            if _digest(data, dtype, shape) != digest:
                raise Malformed(f"array {number} has changed")
            arrays[number] = np.frombuffer(data, dtype).reshape(json.loads(shape)).copy()
        row = base.execute("select record, digest from state").fetchone()
        if row is None:
            raise Malformed("it holds no state")
        found = _MARKED.match(row[0].encode())
        if _digest(row[0].encode()) != row[1] or found is None:
            raise Malformed("its record has changed")
        self._number, numbers = int(found[1]), _Numbers(arrays)
        return read_record(_Kept, row[0][found.end() :], numbers), numbers

    def _require_own(self, found: Owner) -> None:
        for what in ("fleet", "plan", "device"):
            one, other = str(getattr(found, what)), str(getattr(self.owner, what))
            if one != other:
                raise ScenarioError(
                    f"{self.folder} holds the state of another {what} ({one:.12}, not "
                    f"{other:.12}); run that one, or remove the folder to begin this one"
                )


def _opened(path: Path) -> sqlite3.Connection:
    base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        for pragma in (f"page_size = {_PAGE}", "journal_mode = wal", "synchronous = full",
                       "cache_size = -256", f"wal_autocheckpoint = {_LOG_PAGES}"):  # fmt: skip
            base.execute(f"pragma {pragma}")
    except BaseException:
        base.close()
        raise
    return base


def _version(base: sqlite3.Connection) -> int:
    return int(base.execute("pragma user_version").fetchone()[0])


def _row(number: int, array: NDArray[Any]) -> tuple[Any, ...]:
    data = np.ascontiguousarray(array).tobytes()
    dtype, shape = array.dtype.str, json.dumps(array.shape)
    return number, dtype, shape, data, _digest(data, dtype, shape)


def _digest(data: bytes, *texts: str) -> bytes:
    return hashlib.sha256(data + "|".join(texts).encode()).digest()


def _newest_in_log(path: Path) -> int:
    """The number of the newest save in the write-ahead log of a database, whole or not."""
    log = path.with_name(path.name + "-wal")
    if not log.exists() or not log.stat().st_size:
        return 0
    with log.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return max((int(one[1]) for one in _MARKED.finditer(content)), default=0)


def _words(error: Exception) -> str:
    return (getattr(error, "strerror", None) or " ".join(str(error).split()))[:160]


SPENT, SPENDING = "spent.txt", "spending.txt"
_WIDTH = 64  # bytes of a line
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Ceiling:
    """The ceilings of one device's spending.

    The file on the disk has two lines of fixed width that are overwritten in turn, so that it
    needs no room on a full disk, and a write that a power cut tears leaves the line before it
    whole.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     ceiling = Ceiling(Path(place), stride_j=10.0)
    ...     ceiling.raise_over(2.5, ahead_j=1.0)
    ...     ceiling.joules, Ceiling(Path(place)).joules
    ...     ceiling.settle(2.75)
    ...     Ceiling(Path(place)).joules
    (3.5, 3.5)
    2.75
    """

    def __init__(self, folder: Path, stride_j: float = 0.0) -> None:
        self._path, self._near_path = folder / SPENT, folder / SPENDING
        self._stride_j, self._boot = stride_j, _boot()
        self._number, self._far_j = 0, 0.0
        if self._path.exists() or self._path.is_symlink():
            self._number, self._far_j = self._read()
        near_j = self._read_near()
        self.joules = self._far_j if near_j is None else min(near_j, self._far_j)
        """Joules that may have been spent, at most."""

    def raise_over(self, spent_j: float, ahead_j: float = 0.0) -> None:
        """Make room for spending, before it is done."""
        if spent_j <= self.joules:
            return
        near_j = spent_j + ahead_j
        if near_j > self._far_j:
            self._write(near_j + self._stride_j)
        self._write_near(near_j)
        self.joules = near_j

    def settle(self, spent_j: float) -> None:
        self._write(spent_j)
        self._write_near(spent_j)
        self.joules = spent_j

    # On the disk --------------------------------------------------------------------------------

    def _read(self) -> tuple[int, float]:
        try:
            content = read_bounded(self._path, 2 * _WIDTH)
        except OSError as error:
            raise ScenarioError(f"{self._path} cannot be read: {error.strerror}") from None
        lines = (_words_of(content[at : at + _WIDTH]) for at in (0, _WIDTH))
        whole = [(int(words[0]), float(words[1])) for words in lines if words]
        if not whole:
            raise ScenarioError(
                f"{self._path} is damaged; restore it from a copy: without it nobody knows what "
                "the device has spent"
            )
        return max(whole)

    def _write(self, joules: float) -> None:
        number = self._number + 1
        line = _line(f"{number:016d}", f"{joules!r:>30}")
        try:
            if not self._number:  # both lines at once: they have their place on the disk from now
                write_bytes(self._path, line + line)
            else:
                _overwrite(self._path, line, _WIDTH * (self._number % 2), sync=True)
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self._path}: {error.strerror}; make room on the disk"
            ) from None
        self._number, self._far_j = number, joules

    # In the system's memory ---------------------------------------------------------------------

    def _read_near(self) -> float | None:
        """The near ceiling, if it was written since the machine was started."""
        try:
            words = _words_of(read_bounded(self._near_path, _WIDTH))
        except (OSError, ScenarioError):
            return None
        return float(words[1]) if words and words[0] == self._boot else None

    def _write_near(self, joules: float) -> None:
        if not self._boot:
            return
        try:
            _overwrite(self._near_path, _line(self._boot, f"{joules!r:>30}"), 0, sync=False)
        except OSError:  # then the far one counts: never may an older figure
            self._near_path.unlink(missing_ok=True)


def _overwrite(path: Path, line: bytes, at: int, *, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS, 0o666)
    try:
        os.lseek(descriptor, at, os.SEEK_SET)
        os.write(descriptor, line)
        if sync:
            getattr(os, "fdatasync", os.fsync)(descriptor)
    finally:
        os.close(descriptor)


def _boot() -> str:
    """What names this start of the machine; empty where the system does not say."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read(36).replace("-", "")[:16]
    except OSError:
        return ""


def _line(key: str, figure: str) -> bytes:
    words = f"{key} {figure}"
    return f"{words} {zlib.crc32(words.encode()):08x}".ljust(_WIDTH - 1).encode() + b"\n"


def _words_of(line: bytes) -> tuple[str, str] | None:
    """Key and figure of a line, if it is whole."""
    try:
        key, figure, _ = line.decode().split()
        float(figure)
    except ValueError:
        return None
    return (key, figure) if line == _line(key, f"{figure:>30}") else None
