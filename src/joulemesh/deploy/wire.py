"""Messages as bytes: a JSON header of at most 64 KiB, then perhaps one vector as safetensors.

A conversation begins with a greeting, which says once what all its messages have in common: the
format, the fleet and the plan. Every byte that comes in is a claim. A header is read strictly: the
fields of the message and no others, each of its type. The size of a vector is compared with the
plan before there is a place for it, and only what safetensors itself needs is read of its own
header.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import parse_json
from joulemesh.deploy.codec import Malformed, read_claim, write_record
from joulemesh.deploy.messages import (
    Absent,
    Beat,
    Fetch,
    FleetRoster,
    Flood,
    Given,
    Message,
    Part,
    Recall,
    Refused,
)
from joulemesh.deploy.transport import Address, Reason, TransportError

WIRE = 4
"""Number of this format; devices that speak another are refused."""

HEADER_BYTES = 64 * 1024

_KINDS: dict[str, type] = {
    kind.__name__.lower(): kind
    for kind in (Part, Beat, Fetch, Given, Absent, Refused, Recall, FleetRoster, Flood)
}
_CARRIES = {kind: "payload" in (field.name for field in fields(kind)) for kind in _KINDS.values()}
_TENSOR_HEADER_BYTES = 1024
_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")
_BYTES = "uint8"
_CODES = {_BYTES: "U8", "float16": "F16", "float32": "F32", "float64": "F64"}


def wire_type(bits_per_parameter: int) -> str:
    """The type in which a vector travels.

    >>> wire_type(32)
    'float32'
    """
    found = {16: "float16", 32: "float32", 64: "float64"}.get(bits_per_parameter)
    if found is None:
        raise ScenarioError(
            f"network.bits_per_parameter = {bits_per_parameter} cannot be deployed: devices send "
            "numbers of 16, 32 or 64 bits"
        )
    return found


@dataclass(frozen=True)
class Terms:
    """What all messages of a fleet have in common."""

    fleet: str  # its identifier
    plan: str  # digest of the plan that all devices hold
    parameters: int  # P, of the model
    dtype: str = "float32"  # type in which vectors travel
    packed: bool = False  # do those of exchanges travel as bytes, quantised by their sender?

    def type_of(self, kind: type) -> str:
        """The type in which the vector of a kind of message travels."""
        return _BYTES if self.packed and kind is Part else self.dtype

    @property
    def itemsize(self) -> int:
        return int(_little(self.dtype).itemsize)


@dataclass(frozen=True, eq=False)
class Frame:
    """A message on its way out."""

    header: bytes  # of JSON
    # the parts of its safetensors, in order; none if there is no vector
    payload: tuple[memoryview, ...]


def encode(message: Message, terms: Terms) -> Frame:
    """A message as bytes. Numbers of a vector are rounded to the type in which they travel.

    >>> encode(Fetch(view=0, iteration=3), Terms("orchard", "abc", 10)).header
    b'{"kind":"fetch","bytes":0,"body":{"view":0,"iteration":3,"gift":false}}'
    """
    vector = getattr(message, "payload", None)
    payload = () if vector is None else _tensor(vector, terms.type_of(type(message)))
    kind, size = type(message).__name__.lower(), sum(part.nbytes for part in payload)
    body = write_record(message, arrays=_Payload(None))
    text = f'{{"kind":"{kind}","bytes":{size},"body":{body}}}'.encode()
    if len(text) > HEADER_BYTES:
        raise TransportError(
            Reason.TOO_LARGE, f"a header of {len(text):,} bytes; at most {HEADER_BYTES:,} are sent"
        )
    return Frame(text, payload)


@dataclass(frozen=True, eq=False)
class _Payload:
    """The one vector that follows a header, which calls it number 0."""

    vector: Vector | None

    def number(self, array: Vector) -> int:
        return 0

    def array(self, number: int) -> Vector:
        if number or self.vector is None:
            raise ValueError("there is no such vector")
        return self.vector


def _tensor(vector: Vector, dtype: str) -> tuple[memoryview, ...]:
    flat: NDArray[Any] = np.ascontiguousarray(vector, dtype=_little(dtype))
    data: Any = flat.view(np.uint8)
    return memoryview(_tensor_head(flat.size, dtype)), memoryview(data)


@lru_cache(maxsize=256)
def _tensor_head(size: int, dtype: str) -> bytes:
    """How a safetensors file of one vector begins, to the byte: there is no other way to say it."""
    end = size * _little(dtype).itemsize
    said = {"dtype": _CODES[dtype], "shape": [size], "data_offsets": [0, end]}
    text = json.dumps({"payload": said}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


@lru_cache
def _little(dtype: str) -> np.dtype[Any]:
    return np.dtype(dtype).newbyteorder("<")


class Incoming:
    """A message that is coming in. Its header is checked at once, its pieces as they come.

    >>> terms = Terms("orchard", "abc", 3)
    >>> frame = encode(Given(view=0, iteration=3, payload=np.arange(3.0)), terms)
    >>> coming = Incoming(frame.header, terms)
    >>> for piece in frame.payload:
    ...     coming.add(piece)
    >>> coming.message().payload
    array([0., 1., 2.], dtype=float32)
    """

    def __init__(self, header: bytes, terms: Terms) -> None:
        self._terms = terms
        record = _object(header, {"kind", "bytes", "body"})
        self._kind = _kind(record["kind"])
        self._body = record["body"]
        self._size = self._claimed(record["bytes"])
        self._came = 0
        # The system gives pages as they are filled: a claim by itself costs nothing.
        self._data = np.empty(self._size, np.uint8) if self._size else None

    def _claimed(self, size: object) -> int:
        if type(size) is not int or size < 0:
            raise TransportError(Reason.MALFORMED, "the number of bytes that follow is missing")
        carries = _CARRIES[self._kind]
        largest = self._terms.parameters * self._terms.itemsize if carries else 0
        most = 8 + _TENSOR_HEADER_BYTES + largest if carries else 0
        if size > most:
            raise TransportError(
                Reason.TOO_LARGE,
                f"{size:,} bytes are announced where the plan has at most {largest:,}",
            )
        if carries and size < 8:
            raise TransportError(Reason.MALFORMED, "no vector is announced where there must be one")
        return size

    @property
    def missing(self) -> int:
        return self._size - self._came

    def add(self, piece: bytes | memoryview) -> None:
        if len(piece) > self.missing:
            raise TransportError(
                Reason.TOO_LARGE, f"{len(piece):,} bytes where {self.missing:,} are still to come"
            )
        if self._data is None or not piece:
            raise TransportError(Reason.MALFORMED, "an empty piece")
        end = self._came + len(piece)
        self._data[self._came : end] = np.frombuffer(piece, np.uint8)
        self._came = end

    def message(self) -> Message:
        if self.missing:
            raise TransportError(
                Reason.MALFORMED, f"it ends after {self._came:,} of {self._size:,} bytes"
            )
        vector = None if self._data is None else self._vector(self._data)
        try:
            made: Message = read_claim(self._kind, self._body, _Payload(vector))
        except (Malformed, RecursionError) as error:
            raise TransportError(Reason.MALFORMED, str(error)) from None
        return made

    def _vector(self, data: NDArray[np.uint8]) -> Vector:
        name = self._terms.type_of(self._kind)
        dtype = _little(name)
        start = 8 + int.from_bytes(data[:8].tobytes(), "little")
        if start > min(_TENSOR_HEADER_BYTES, self._size):
            raise TransportError(Reason.MALFORMED, f"a safetensors header of {start - 8:,} bytes")
        numbers, odd = divmod(self._size - start, dtype.itemsize)
        most = self._terms.parameters * (self._terms.itemsize if name == _BYTES else 1)
        if numbers > most or (self._kind is Given and numbers < most):
            raise TransportError(
                Reason.TOO_LARGE if numbers > most else Reason.MALFORMED,
                f"a vector of {numbers:,} numbers where the model has {most:,}",
            )
        if odd or data[:start].tobytes() != _tensor_head(numbers, name):
            raise TransportError(Reason.MALFORMED, f"its safetensors is not one vector of {name}")
        vector = data[start:].view(dtype).astype(name, copy=False)
        vector.flags.writeable = False
        return vector


def greeting(terms: Terms, at: Address | None = None) -> bytes:
    """How a conversation begins.

    >>> greeting(Terms("orchard", "abc", 10), Address("10.0.0.7", 7100))
    b'{"wire":4,"fleet":"orchard","plan":"abc","at":["10.0.0.7",7100]}'
    """
    said = {"wire": WIRE, "fleet": terms.fleet, "plan": terms.plan, "at": at}
    return json.dumps(said, separators=(",", ":")).encode()


def check_greeting(text: bytes, terms: Terms) -> Address | None:
    """Where the sender of a greeting says that it listens, if it has this fleet and this plan.

    >>> check_greeting(greeting(Terms("orchard", "abc", 10)), Terms("orchard", "abd", 9))
    Traceback (most recent call last):
    ...
    joulemesh.deploy.transport.TransportError: another plan: it follows plan 'abc', ...
    """
    record = _object(text)
    if type(record.get("wire")) is not int or record["wire"] != WIRE:
        raise TransportError(
            Reason.OTHER_VERSION,
            f"it speaks format {record.get('wire')!r:.20}, this device {WIRE}; install the same "
            "version of joulemesh on both",
        )
    if set(record) != {"wire", "fleet", "plan", "at"}:
        raise TransportError(Reason.MALFORMED, "the greeting has other fields than a greeting has")
    at = record["at"]
    if at is not None and not (
        isinstance(at, list)
        and list(map(type, at)) == [str, int]
        and _HOST.fullmatch(at[0])
        and 0 < at[1] < 2**16
    ):
        raise TransportError(Reason.MALFORMED, "the greeting names no address and port")
    if record["fleet"] != terms.fleet:
        raise TransportError(
            Reason.OTHER_FLEET, f"it belongs to fleet {record['fleet']!r:.60}, not {terms.fleet!r}"
        )
    if record["plan"] != terms.plan:
        raise TransportError(
            Reason.OTHER_PLAN,
            f"it follows plan {record['plan']!r:.20}, this device {terms.plan!r:.20}; give every "
            "device the folder that deploy init made last",
        )
    return None if at is None else Address(*at)


def _object(text: bytes, names: set[str] | None = None) -> dict[str, Any]:
    if len(text) > HEADER_BYTES:
        raise TransportError(
            Reason.TOO_LARGE, f"a header of {len(text):,} bytes; {HEADER_BYTES:,} are read"
        )
    try:
        record = parse_json(text)
    except ValueError:  # of bytes that are no text, too
        raise TransportError(Reason.MALFORMED, "the header is not JSON") from None
    if not isinstance(record, dict) or (names and set(record) != names):
        raise TransportError(Reason.MALFORMED, "the header has other fields than a message has")
    return record


def _kind(name: object) -> type:
    if not isinstance(name, str) or name not in _KINDS:
        raise TransportError(Reason.MALFORMED, f"there is no message of kind {name!r:.40}")
    return _KINDS[name]
