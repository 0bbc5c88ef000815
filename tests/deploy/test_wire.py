"""Messages as bytes: what is written is read again, and nothing else is."""

from __future__ import annotations

import json
import math
import tracemalloc
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy import messages
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
from joulemesh.deploy.transport import Reason, TransportError
from joulemesh.deploy.transport.connection import FRAME_BYTES
from joulemesh.deploy.transport.tcp import GIVEN_UP, Unpacker, packets, size_of
from joulemesh.deploy.view import View
from joulemesh.deploy.wire import (
    HEADER_BYTES,
    Terms,
    check_greeting,
    encode,
    greeting,
    wire_type,
)

TERMS = Terms("orchard", "0123abcd", 6, "float64")
KINDS = (Part, Beat, Fetch, Given, Absent, Refused, Recall, FleetRoster, Flood)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything of an annotated type."""
    plain: dict[Any, st.SearchStrategy[Any]] = {
        int: st.integers(-1, 2**53),
        float: st.floats(allow_nan=False),
        bool: st.booleans(),
        str: st.text("abc -é✓", max_size=20),
        type(None): st.none(),
    }
    if hint in plain:
        return plain[hint]
    if get_origin(hint) is tuple:
        inner = get_args(hint)
        if inner[-1] is Ellipsis:
            return st.lists(values(inner[0]), max_size=3).map(tuple)
        return st.tuples(*(values(one) for one in inner))
    if is_dataclass(hint):
        known = get_type_hints(hint)
        made: Any = hint
        return st.builds(made, **{f.name: field(f.name, known) for f in fields(made)})
    if get_origin(hint) is Literal:
        return st.just(*get_args(hint))
    if get_origin(hint) is Union or get_args(hint):
        return st.one_of(*(values(one) for one in get_args(hint)))
    raise TypeError(hint)


def field(name: str, known: dict[str, Any]) -> st.SearchStrategy[Any]:
    if name != "payload":
        return values(known[name])
    return st.lists(st.floats(width=64, allow_nan=False), min_size=6, max_size=6).map(np.array)


def carried(message: Message, terms: Terms = TERMS) -> Message:
    unpacker = Unpacker(terms)
    (got,) = [
        one for packet, _ in packets([encode(message, terms)]) for one in unpacker.feed(packet)
    ]
    return got


def same(one: Any, other: Any) -> bool:
    if not hasattr(one, "payload"):
        return bool(one == other)
    plain = [f.name for f in fields(one) if f.name != "payload"]
    return all(getattr(one, n) == getattr(other, n) for n in plain) and np.array_equal(
        one.payload, other.payload
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_read_as_it_was_written(kind: type) -> None:
    @settings(max_examples=25, deadline=None)
    @given(values(kind))
    def check(message: Message) -> None:
        got = carried(message)
        assert type(got) is type(message)
        assert same(message, got)

    check()


def test_every_kind_of_message_is_known_here() -> None:
    assert set(KINDS) == set(get_args(messages.Message))


def test_a_vector_is_safetensors_that_anybody_can_read() -> None:
    frame = encode(Given(0, 3, np.arange(6.0)), TERMS)
    found = load(b"".join(bytes(part) for part in frame.payload))
    assert found.keys() == {"payload"}
    assert found["payload"].tolist() == [0, 1, 2, 3, 4, 5]


def test_numbers_travel_in_the_type_of_the_plan() -> None:
    third = np.full(6, 1 / 3)
    for name in ("float16", "float32", "float64"):
        got = carried(Part(0, 1, 2, third), replace(TERMS, dtype=name))
        assert isinstance(got, Part)
        assert got.payload.dtype == name
        assert np.array_equal(got.payload, third.astype(name))
        with pytest.raises(ValueError, match="read-only"):
            got.payload[0] = 1
    assert wire_type(16) == "float16"
    with pytest.raises(ScenarioError, match="16, 32 or 64 bits"):
        wire_type(8)


def test_a_text_of_others_is_made_printable_and_short() -> None:
    got = carried(Refused("line\none\x1b[31m" + "x" * 5000))
    assert isinstance(got, Refused)
    assert got.reason.startswith("line\\none\\x1b[31mxxx")
    assert len(got.reason) == 2000


def test_what_is_infinite_arrives_so() -> None:
    view = View(1, 2, (0, 1), left_j=(math.inf, 0.1))
    got = carried(Refused("late", (view,)))
    assert isinstance(got, Refused)
    assert got.views == (view,)


def test_long_messages_take_several_packets_and_short_ones_share_one() -> None:
    terms = replace(TERMS, parameters=400_000)
    frames = [encode(Part(0, 1, n, np.full(400_000, n)), terms) for n in range(2)]
    frames += [encode(Fetch(0, n), terms) for n in range(50)]
    made = [packet for packet, _ in packets(frames)]
    assert max(map(len, made)) == FRAME_BYTES
    assert len(made) == math.ceil(sum(map(size_of, frames)) / FRAME_BYTES)
    unpacker = Unpacker(terms)
    got = [one for packet in made for one in unpacker.feed(packet)]
    assert [type(one) for one in got] == [Part] * 2 + [Fetch] * 50
    assert isinstance(got[1], Part)
    assert got[1].payload.sum() == 400_000


def test_a_header_is_bounded_on_its_way_out() -> None:
    many = tuple(View(n, 1, tuple(range(1000))) for n in range(40))
    with pytest.raises(TransportError, match="too large: a header of"):
        encode(Refused("late", many), TERMS)


def record(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(4, "big") + content


def header(**changed: Any) -> bytes:
    body = {"view": 0, "iteration": 3, "gift": False}
    return json.dumps({"kind": "fetch", "bytes": 0, "body": body} | changed).encode()


def tensor(**changed: Any) -> bytes:
    said = {"dtype": "F64", "shape": [6], "data_offsets": [0, 48]} | changed
    text = json.dumps({"payload": said}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(48)


def given_header(size: int, **changed: Any) -> bytes:
    return header(**{"kind": "given", "bytes": size, "body": BODY | {"payload": 0}} | changed)


def given_with(payload: bytes) -> bytes:
    return record(1, given_header(len(payload))) + record(2, payload)


BODY = {"view": 0, "iteration": 3, "gift": False}
WRONG: dict[str, tuple[bytes, Reason]] = {
    "not JSON": (record(1, b"\xff{"), Reason.MALFORMED),
    "not an object": (record(1, b"[]"), Reason.MALFORMED),
    "a key twice": (record(1, header()[:-1] + b', "kind": "fetch"}'), Reason.MALFORMED),
    "another field": (record(1, header(more=1)), Reason.MALFORMED),
    "no such kind": (record(1, header(kind="exec")), Reason.MALFORMED),
    "a kind that is a list": (record(1, header(kind=["fetch"])), Reason.MALFORMED),
    "a missing field": (record(1, header(body={"view": 0})), Reason.MALFORMED),
    "a field too many": (record(1, header(body=BODY | {"x": 1})), Reason.MALFORMED),
    "a truth as a number": (record(1, header(body=BODY | {"view": True})), Reason.MALFORMED),
    "a fraction": (record(1, header(body=BODY | {"view": 0.5})), Reason.MALFORMED),
    "a huge number": (record(1, header(body=BODY | {"view": 2**60})), Reason.MALFORMED),
    "a number as a truth": (record(1, header(body=BODY | {"gift": 1})), Reason.MALFORMED),
    "not a number": (record(1, header(body=BODY | {"view": math.nan})), Reason.MALFORMED),
    "nothing": (record(1, header(body=None)), Reason.MALFORMED),
    "deep": (record(1, b"[" * 30_000 + b"]" * 30_000), Reason.MALFORMED),
    "digits": (record(1, header()[:-3] + b", " + b"9" * 60_000 + b"]}"), Reason.MALFORMED),
    "negative size": (record(1, header(bytes=-1)), Reason.MALFORMED),
    "a size for what has none": (record(1, header(bytes=8)), Reason.TOO_LARGE),
    "a long header": (record(1, b" " * (HEADER_BYTES + 1)), Reason.TOO_LARGE),
    "a huge claim": (record(1, given_header(2**40)), Reason.TOO_LARGE),
    "another vector": (
        record(1, given_header(len(tensor()), body=BODY | {"payload": 1})) + record(2, tensor()),
        Reason.MALFORMED,
    ),
    "no vector": (record(1, given_header(0)), Reason.MALFORMED),
    "more than was claimed": (
        record(1, given_header(60)) + record(2, bytes(100)),
        Reason.TOO_LARGE,
    ),
    "an empty piece": (record(1, given_header(60)) + record(2, b""), Reason.MALFORMED),
    "a piece of nothing": (record(2, bytes(9)), Reason.MALFORMED),
    "a header amid a message": (record(1, given_header(60)) + record(1, b"{}"), Reason.MALFORMED),
    "an unknown record": (record(9, b""), Reason.MALFORMED),
    "beyond the packet": (record(1, header())[:-1], Reason.MALFORMED),
    "half a head": (b"\x01\x00", Reason.MALFORMED),
    "another type": (given_with(tensor(dtype="F32")), Reason.MALFORMED),
    "a shape of truths": (given_with(tensor(shape=[True])), Reason.MALFORMED),
    "other offsets": (given_with(tensor(data_offsets=[8, 48])), Reason.MALFORMED),
    "negative offsets": (given_with(tensor(data_offsets=[-48, 0])), Reason.MALFORMED),
    "a matrix": (given_with(tensor(shape=[2, 3])), Reason.MALFORMED),
    "too few numbers": (given_with(tensor()[:-8]), Reason.MALFORMED),
    "half a number": (given_with(tensor()[:-4]), Reason.MALFORMED),
    "a long safetensors header": (given_with(b"\xff" * 8 + bytes(48)), Reason.MALFORMED),
    "too many numbers": (given_with(tensor() + bytes(64)), Reason.TOO_LARGE),
    "a text that hides": (
        record(1, header(kind="refused", body={"reason": "a\x1b[2Jb", "views": []})),
        Reason.MALFORMED,
    ),
    "a flood of an unknown kind": (
        record(
            1,
            header(
                kind="flood",
                body={
                    "origin": 0,
                    "epoch": 1,
                    "sequence": 1,
                    "body": {"kind": "part", "view": 0},
                    "signature": "",
                },
            ),
        ),
        Reason.MALFORMED,
    ),
}


def test_what_the_wrong_ones_are_made_of_is_right() -> None:
    for packet in (record(1, header()), given_with(tensor())):
        assert len(Unpacker(TERMS).feed(packet)) == 1


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_by_name(case: str) -> None:
    packet, reason = WRONG[case]
    with pytest.raises(TransportError) as caught:
        Unpacker(TERMS).feed(packet)
    assert caught.value.reason is reason
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_claim_alone_takes_no_memory() -> None:
    terms = replace(TERMS, parameters=200_000_000)  # 1.6 GB
    claim = record(1, given_header(200_000_000 * 8 + 100))
    first = Unpacker(terms)
    first.feed(claim + record(2, bytes(1000)))
    assert first.amid
    before = resident_bytes()
    held = [Unpacker(terms) for _ in range(10)]
    for one in held:
        one.feed(claim + record(2, bytes(1000)))
    assert resident_bytes() - before < 2_000_000


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_wrong_headers_leave_nothing_behind() -> None:
    tracemalloc.start()
    try:
        for _ in range(3):
            before = tracemalloc.get_traced_memory()[0]
            for packet, _ in WRONG.values():
                with pytest.raises(TransportError):
                    Unpacker(TERMS).feed(packet)
            grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"wire": 1}, Reason.OTHER_VERSION),
        ({"wire": True}, Reason.OTHER_VERSION),
        ({"fleet": "meadow"}, Reason.OTHER_FLEET),
        ({"plan": "ffff"}, Reason.OTHER_PLAN),
        ({"plan": None}, Reason.OTHER_PLAN),
        ({"more": 1}, Reason.MALFORMED),
        ({"at": ["a b", 7100]}, Reason.MALFORMED),
        ({"at": ["ash.local", 0]}, Reason.MALFORMED),
        ({"at": ["ash.local", True]}, Reason.MALFORMED),
        ({"at": "ash.local"}, Reason.MALFORMED),
    ],
)
def test_a_greeting_says_what_both_sides_must_share(change: dict[str, Any], reason: Reason) -> None:
    said = json.loads(greeting(TERMS))
    assert check_greeting(json.dumps(said).encode(), TERMS) is None
    with pytest.raises(TransportError) as caught:
        check_greeting(json.dumps(said | change).encode(), TERMS)
    assert caught.value.reason is reason


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=1, max_size=400))
def test_random_packets_are_refused_and_nothing_else_happens(packet: bytes) -> None:
    for start in (b"", b"\x01", record(1, given_header(500))):
        unpacker = Unpacker(TERMS)
        with suppress(TransportError):
            assert unpacker.feed(start + packet) == []
            assert unpacker.amid or packet.endswith(GIVEN_UP)
