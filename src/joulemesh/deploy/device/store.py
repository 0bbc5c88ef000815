"""A node's state on disk: what it was when the last save returned, whatever happened since.

``state.log`` is only ever added to, and a save is one append and one wait for the disk. Arrays
that are the same objects as at an earlier save are not written again: the state refers to all of
them by number. A last record that is not whole is a save that never returned. When little of the
log is still referred to, it is written anew, whole or not at all.
"""

from __future__ import annotations

__all__ = ["SPENDING", "SPENT", "STATE", "Ceiling", "Owner", "Store", "framed", "records_in"]

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load as read_tensors
from safetensors.numpy import save as tensors_of

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import (
    DISK,
    NODE_STATE,
    make_folder,
    open_bounded,
    parse_json,
    read_bounded,
    sweep,
    write_bytes,
)
from joulemesh.deploy.effects import Commit, Durable
from joulemesh.deploy.messages import Account, FleetRoster, Part
from joulemesh.deploy.view import View
from joulemesh.training.tensors import Arrays

_HEAD = struct.Struct("<8sQ32s")  # mark, bytes of the record, their SHA-256
_LENGTH = struct.Struct("<Q")  # of the JSON, which begins the record
_MARK = b"JMNODE1\n"
_PIECE = 2**20


def framed(record: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A record as bytes.

    >>> import io
    >>> written = framed({"n": 1}, {"w": np.arange(3)})
    >>> [(plain, arrays["w"].tolist()) for plain, arrays, _ in records_in(io.BytesIO(written))]
    [({'n': 1}, [0, 1, 2])]
    """
    text = json.dumps(record).encode()
    held = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    body = b"".join([_LENGTH.pack(len(text)), text, tensors_of(held)])
    return _HEAD.pack(_MARK, len(body), hashlib.sha256(body).digest()) + body


def records_in(file: IO[bytes]) -> Iterator[tuple[dict[str, Any], Arrays, int]]:
    """The records of a file: plain values, arrays, and where each ends.

    Raises:
        ValueError: one that was whole has changed.
    """
    for body, end in _bodies(file):
        try:
            start = _LENGTH.size + _LENGTH.unpack_from(body)[0]
            plain, arrays = parse_json(body[_LENGTH.size : start]), read_tensors(body[start:])
        except (struct.error, SafetensorError) as error:
            raise ValueError(str(error)) from None
        yield plain, arrays, end


def _bodies(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    """The records of a log, up to one that is not whole, which only the last may be.

    Raises:
        ValueError: there are whole ones after it: the disk has not kept what was written.
    """
    size, at = file.seek(0, os.SEEK_END), 0
    while at < size:
        body = _body_at(file, at, size)
        if body is None:
            break
        at = file.tell()
        yield body, at
    file.seek(at)
    while at < size:
        piece = file.read(_PIECE)
        found = piece.find(_MARK)
        if found < 0:
            at = size if at + len(piece) >= size else at + len(piece) - len(_MARK)
        elif _body_at(file, at + found, size) is not None:
            raise ValueError(f"what stands before byte {at + found:,} has changed")
        else:
            at += found + 1
        file.seek(at)


def _body_at(file: IO[bytes], at: int, size: int) -> bytes | None:
    """The record that begins somewhere, if it is whole."""
    file.seek(at)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    mark, length, digest = _HEAD.unpack(head)
    if mark != _MARK or length > size - file.tell():
        return None
    body = file.read(length)
    return body if hashlib.sha256(body).digest() == digest else None


STATE, PLACE = "state.log", "place"
FORMAT = "joulemesh node 2"
_LEAST_LOG = 4 * 2**20
_MOST_STALE = 4  # times as many bytes as are still referred to


@dataclass(frozen=True)
class Owner:
    """Whose state it is: that of another fleet, plan or device is not taken up.

    Attributes:
        fleet: its identity.
        plan: digest of the plan.
        device: its number.
    """

    fleet: str
    plan: str
    device: int


@dataclass(frozen=True)
class _Kept:
    """Where an iteration's parameters are, and what the optimiser remembers by name."""

    iteration: int
    vector: int
    memory: dict[str, int]


@dataclass(frozen=True)
class _Sent:
    to: int
    view: int
    iteration: int
    step: int
    payload: int


@dataclass(frozen=True)
class _Record:
    """The state, with numbers in the place of arrays."""

    format: str
    owner: Owner
    incarnation: int
    views: tuple[View, ...]
    promised: tuple[int, int] | None
    accepted: tuple[tuple[int, int], View] | None
    commit: _Kept
    spent_j: float
    elapsed_s: float
    absent: tuple[tuple[int, int], ...]
    average: _Kept | None
    view: int
    trained: _Kept | None
    sent: tuple[_Sent, ...]
    gift: _Kept | None
    ended: str
    accounts: tuple[Account, ...]
    planned_s: float
    epoch: int
    saves: int
    folder: Literal["new", "whole", "lost", "copied"]
    roster: FleetRoster
    place: tuple[int, int] | None = None
    owed: int | None = None
    agreed: int | None = None


class _Held(NamedTuple):
    number: int
    array: NDArray[Any]


_RECORD = TypeAdapter(_Record)


class Store:
    """Keeps the state of one node. Saves must not overlap: one thread carries them out.

    Nobody may change in place an array that was saved.

    Args:
        folder: made if need be.
        owner: whose state it is.

    >>> import tempfile
    >>> import numpy as np
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
        self._held: dict[int, _Held] = {}  # arrays of the last state, by identity
        self._number, self._size, self._whole = 0, 0, False
        self._texts: dict[int, tuple[View, dict[str, Any]]] = {}
        sweep(self.folder)

    # Writing ------------------------------------------------------------------------------------

    def save(self, state: Durable) -> None:
        """Make a state durable; what was there before stays whole until this one is.

        Raises:
            ScenarioError: the disk is full or cannot be written.
        """
        if not (self.folder / PLACE).exists():
            write_bytes(self.folder / PLACE, b"")
        before, number, fresh = dict(self._held), self._number, dict[str, NDArray[Any]]()
        record = self._record(state, fresh)
        used = _numbers_in(record)
        content = framed(record, fresh)
        try:
            if not self._whole or self._size + len(content) > self._most(used):
                everything = {
                    str(h.number): h.array for h in self._held.values() if h.number in used
                }
                content = framed(record, everything)
                write_bytes(self.path, content, private=True)
                self._size = 0
            else:
                self._append(content)
        except BaseException:
            self._held, self._number = before, number
            raise
        self._size, self._whole = self._size + len(content), True
        self._held = {key: held for key, held in self._held.items() if held.number in used}

    def _most(self, used: set[int]) -> int:
        """Bytes to which the log may grow before it is written anew."""
        live = sum(held.array.nbytes for held in self._held.values() if held.number in used)
        return max(_LEAST_LOG, _MOST_STALE * live)

    def _append(self, content: bytes) -> None:
        try:
            DISK.get().append(self.path, content)
        except OSError as error:
            self._whole = False  # the next save writes the log anew, without half a record
            raise ScenarioError(
                f"cannot write {self.path}: {error.strerror}; make room on the disk"
            ) from None

    def _record(self, state: Durable, fresh: dict[str, NDArray[Any]]) -> dict[str, Any]:
        """The state as plain values; arrays that are not in the log yet are put into ``fresh``."""

        def number(array: NDArray[Any]) -> int:
            found = self._held.get(id(array))
            if found is None or found.array is not array:
                self._number += 1
                found = self._held[id(array)] = _Held(self._number, array)
                fresh[str(found.number)] = array
            return found.number

        def kept(iteration: int, vector: Any, memory: Mapping[str, Any]) -> dict[str, Any]:
            numbers = {name: number(one) for name, one in memory.items()}
            return {"iteration": iteration, "vector": number(vector), "memory": numbers}

        def sent(to: int, part: Part) -> dict[str, int]:
            at = {"view": part.view, "iteration": part.iteration, "step": part.step}
            return {"to": to, **at, "payload": number(part.payload)}

        commit, accepted = state.commit, state.accepted
        return {
            "format": FORMAT,
            "owner": asdict(self.owner),
            "incarnation": state.incarnation,
            "views": [self._plain(view) for view in state.views],
            "promised": state.promised,
            "accepted": accepted and (accepted[0], self._plain(accepted[1])),
            "commit": kept(commit.iteration, commit.vector, commit.memory),
            "spent_j": commit.spent_j,
            "elapsed_s": commit.elapsed_s,
            "planned_s": commit.planned_s,
            "absent": commit.absent,
            "average": commit.average and kept(*commit.average, {}),
            "view": commit.view,
            "trained": state.trained and kept(*state.trained),
            "sent": [sent(to, part) for to, part in state.sent],
            "gift": state.gift and kept(*state.gift, {}),
            "ended": state.ended,
            "accounts": [asdict(one) for one in state.accounts],
            "epoch": state.epoch,
            "saves": state.saves,
            "folder": state.folder,
            "roster": asdict(state.roster),
            "place": self._place(),
            "owed": None if commit.owed is None else number(commit.owed),
            "agreed": None if commit.agreed is None else number(commit.agreed),
        }

    def _place(self) -> tuple[int, int] | None:
        """What no copy of the folder has: the number of a file in it, and when it was made."""
        try:
            found = (self.folder / PLACE).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_ctime_ns

    def _plain(self, view: View) -> dict[str, Any]:
        """A view as plain values; the same views are saved again and again."""
        found = self._texts.get(id(view))
        if found is None or found[0] is not view:
            if len(self._texts) > 16:
                self._texts.clear()
            found = self._texts[id(view)] = (view, asdict(view))
        return found[1]

    # Reading ------------------------------------------------------------------------------------

    def load(self) -> Durable | None:
        """The state that was saved last; None if there is none.

        Raises:
            ScenarioError: it is damaged, or that of another fleet, plan or device.
        """
        if not (self.path.exists() or self.path.is_symlink()):
            return None
        try:
            arrays, record, self._size = self._newest()
            self._require_own(record.owner)
            state = _state(record, arrays)
            if record.place not in (None, self._place()) and state.folder == "whole":
                state = replace(state, folder="copied")
        except ScenarioError:
            raise
        except (OSError, ValueError, KeyError) as error:
            raise ScenarioError(
                f"{self.path} is damaged ({_reason(error)}); remove "
                f"{self.folder}: the device then asks to be taken in as a new one"
            ) from None
        self._number = max(arrays)
        self._held = {id(array): _Held(number, array) for number, array in arrays.items()}
        self._whole = self._size == self.path.stat().st_size
        return state

    def _newest(self) -> tuple[dict[int, NDArray[Any]], _Record, int]:
        """The arrays and the state of the last whole record, and where it ends."""
        arrays, plain, size = dict[int, NDArray[Any]](), dict[str, Any](), 0
        with open_bounded(self.path, NODE_STATE.now) as file:
            for plain, found, end in records_in(file):
                if plain.get("format") != FORMAT:
                    break
                arrays |= {int(name): one for name, one in found.items()}
                used, size = _numbers_in(plain), end
                arrays = {number: one for number, one in arrays.items() if number in used}
        if not plain:
            raise ValueError("it holds no whole record")
        if plain.get("format") != FORMAT:
            raise ScenarioError(
                f"{self.path} is not of the format {FORMAT!r}; use the version that wrote it"
            )
        return arrays, _RECORD.validate_python(plain), size

    def _require_own(self, found: Owner) -> None:
        for what, one, other in (
            ("fleet", found.fleet, self.owner.fleet),
            ("plan", found.plan, self.owner.plan),
            ("device", str(found.device), str(self.owner.device)),
        ):
            if one != other:
                raise ScenarioError(
                    f"{self.folder} holds the state of another {what} ({one:.12}, not "
                    f"{other:.12}); run that one, or remove the folder to begin this one"
                )


def _numbers_in(record: Mapping[str, Any]) -> set[int]:
    kept = [one for name in ("commit", "average", "trained", "gift") if (one := record[name])]
    vectors = {number for one in kept for number in (one["vector"], *one["memory"].values())}
    vectors |= {record[name] for name in ("owed", "agreed") if record.get(name) is not None}
    return vectors | {one["payload"] for one in record["sent"]}


def _state(record: _Record, arrays: Mapping[int, NDArray[Any]]) -> Durable:
    def vector(kept: _Kept) -> NDArray[Any]:
        if arrays[kept.vector].ndim != 1:
            raise ValueError(f"array {kept.vector} holds no parameters")
        return arrays[kept.vector]

    def memory(kept: _Kept) -> Arrays:
        return {name: arrays[number] for name, number in kept.memory.items()}

    kept, average, trained, gift = record.commit, record.average, record.trained, record.gift
    commit = Commit(
        iteration=kept.iteration,
        vector=vector(kept),
        memory=memory(kept),
        spent_j=record.spent_j,
        elapsed_s=record.elapsed_s,
        planned_s=record.planned_s,
        average=(average.iteration, vector(average)) if average else None,
        absent=record.absent,
        view=record.view,
        owed=None if record.owed is None else arrays[record.owed],
        agreed=None if record.agreed is None else arrays[record.agreed],
    )
    return Durable(
        incarnation=record.incarnation,
        views=record.views,
        commit=commit,
        promised=record.promised,
        accepted=record.accepted,
        trained=(trained.iteration, vector(trained), memory(trained)) if trained else None,
        sent=tuple(
            (one.to, Part(one.view, one.iteration, one.step, arrays[one.payload]))
            for one in record.sent
        ),
        gift=(gift.iteration, vector(gift)) if gift else None,
        ended=record.ended,
        accounts=record.accounts,
        epoch=record.epoch,
        saves=record.saves,
        folder=record.folder,
        roster=record.roster,
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:160]
    return (getattr(error, "strerror", None) or " ".join(str(error).split()))[:160]


SPENT, SPENDING = "spent.txt", "spending.txt"
_WIDTH = 64  # bytes of a line
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Ceiling:
    """The ceilings of one device's spending.

    The file on the disk has two lines of fixed width that are overwritten in turn, so that it
    needs no room on a full disk, and a write that a power cut tears leaves the line before it
    whole.

    Args:
        folder: where the files are.
        stride_j: by how much more the far ceiling is raised each time: what a power cut may cost.

    Raises:
        ScenarioError: the file is there and neither line is whole.

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
        """Make room for spending, before it is done.

        Args:
            spent_j: joules spent once that which is about to be done is done.
            ahead_j: joules that will follow soon.

        Raises:
            ScenarioError: the disk cannot be written.
        """
        if spent_j <= self.joules:
            return
        near_j = spent_j + ahead_j
        if near_j > self._far_j:
            self._write(near_j + self._stride_j)
        self._write_near(near_j)
        self.joules = near_j

    def settle(self, spent_j: float) -> None:
        """Put both ceilings where the spending is.

        Raises:
            ScenarioError: the disk cannot be written.
        """
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
