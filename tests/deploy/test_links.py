"""Rates of links, measured on the loopback: by a token, in a fleet, and what is refused."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES, DevicePack
from joulemesh.deploy.links.sessions import (
    CALLER,
    LISTENER,
    Listener,
    listen,
    listen_in_fleet,
    measure_fleet,
    measure_listeners,
    new_token,
    pair_identity,
    parse_address,
    row_of,
    session,
    tell_all,
    update_links,
)
from joulemesh.deploy.links.transfers import (
    LEAST_LIMIT,
    MEASURE,
    MOST_TIMED,
    PULL,
    PUSH,
    LinkFigures,
    Rule,
    Timed,
    half_width,
    hello,
    pieces,
    rate_of,
    time_way,
)
from joulemesh.deploy.local.emulate import LinkRate, Namespaces, why_not
from joulemesh.deploy.operator.operator import Operator
from joulemesh.deploy.transport import Address, Reason, Refusal, TransportError
from joulemesh.deploy.transport.connection import Endpoint, Kind
from joulemesh.deploy.transport.gate import Caller
from joulemesh.tables import read_table
from tests.deploy.over_tcp import packed, small

HOME = "127.0.0.1"
BRIEF = Rule(20_000, within=1.0, seconds=0.2, least=3)
linux = pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's")


def carry_out(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


@asynccontextmanager
async def listening(token: str, name: str = "") -> AsyncIterator[tuple[Address, Any]]:
    """A listener on a free port: where, and a record of its refusals with how it ended."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    refusals: list[Refusal] = []
    task = asyncio.create_task(
        listen(
            Address(HOME, 0),
            token,
            name=name,
            within_s=20,
            refused=refusals.append,
            ready=port.set_result,
        )
    )
    try:
        yield Address(HOME, await port), (refusals, task)
    finally:
        await asyncio.wait({task}, timeout=0.5)  # after a session it ends by itself
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# By a token --------------------------------------------------------------------------------------


def test_a_link_is_measured_both_ways_alone_and_together() -> None:
    async def work() -> None:
        token, rule = new_token(), replace(BRIEF, payload_bytes=700_000)  # of several pieces
        async with listening(token, name="barn") as (address, (refusals, ended)):
            found = await measure_listeners([Listener(address, token, 3)], (0, "gate"), rule)
            assert await ended  # its one session is over
            assert not refusals
        assert [(one.i, one.j) for one in found] == [(0, 3), (3, 0)]
        for one, ends in zip(found, [("gate", "barn"), ("barn", "gate")], strict=True):
            for timed in (one.alone, one.together):
                assert timed is not None
                assert (timed.here, timed.there) == ends
                assert timed.payload_bytes == 700_000
                assert len(timed.seconds) >= 3
                assert 0 < timed.rate.low <= timed.rate.bps <= timed.rate.high

    carry_out(work)


@linux
def test_segments_are_counted_at_the_sender() -> None:
    async def work() -> None:
        token = new_token()
        async with listening(token) as (address, _), session(address, token) as found:
            for way in ("push", "pull"):
                timed = await time_way(found.caller, way, BRIEF, ("a", "b"))
                assert timed.segments is not None
                assert timed.segments >= len(timed.seconds)
                assert timed.retransmitted == 0.0

    carry_out(work)


def test_a_caller_with_another_token_is_refused_by_name_on_both_sides() -> None:
    async def work() -> None:
        async with listening(new_token()) as (address, (refusals, ended)):
            with pytest.raises(TransportError, match="has printed another token"):
                async with session(address, new_token()):
                    pass
            while not refusals:
                await asyncio.sleep(0.01)
            assert {one.reason for one in refusals} == {Reason.OTHER_AUTHORITY}
            assert not ended.done()  # and it goes on listening

    carry_out(work)


def test_a_token_is_good_for_one_session() -> None:
    async def work() -> None:
        token = new_token()
        async with listening(token) as (address, (_, ended)):
            async with session(address, token):
                pass
            assert await ended
            with pytest.raises(TransportError, match="Connection refused"):
                async with session(address, token):
                    pass

    carry_out(work)


def test_strangers_get_nothing_sent() -> None:
    async def work() -> None:
        async with listening(new_token()) as (address, (refusals, _)):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET /joulemesh.Links/Pull HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert len(answer) < 100  # an alert of TLS at the most: nothing to amplify
            assert refusals[0].reason is Reason.NOT_TLS

    carry_out(work)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (json.dumps({"bytes": LEAST_LIMIT + 1}).encode(), Reason.TOO_LARGE),
        (b'{"bytes": -1}', Reason.MALFORMED),
        (b'{"bytes": 1e3}', Reason.MALFORMED),
        (b"[" * 1000, Reason.MALFORMED),
    ],
)
def test_a_caller_cannot_ask_for_anything(request_: bytes, reason: Reason) -> None:
    async def work() -> None:
        token = new_token()
        async with listening(token) as (address, (refusals, _)):
            async with session(address, token) as found:
                with pytest.raises(TransportError) as refused:
                    await found.caller.ask(PULL, request_)
                assert refused.value.reason is reason
            assert [one.reason for one in refusals] == [reason]

    carry_out(work)


def test_more_than_the_limit_is_not_taken() -> None:
    async def work() -> None:
        token = new_token()
        async with listening(token) as (address, (refusals, _)):
            async with session(address, token) as found:
                with pytest.raises(TransportError, match="is not taken here"):
                    await found.caller.ask(PUSH, pieces(LEAST_LIMIT + 1), 20)
            assert [one.reason for one in refusals] == [Reason.TOO_LARGE]

    carry_out(work)


def test_nobody_has_many_transfers_under_way() -> None:
    async def work() -> None:
        token = new_token()
        async with listening(token) as (address, (refusals, _)):
            async with session(address, token) as found:
                there = Endpoint(pair_identity(token, CALLER), LISTENER, address)
                slow = [await there.connect() for _ in range(2)]
                for one in slow:
                    one.write(Kind.CALL, PUSH.encode())
                    one.write(Kind.DATA, b"first")

                async def until_refused() -> None:  # which is when both have begun
                    while True:
                        await hello(found.caller)

                with pytest.raises(TransportError, match="2 transfers under way already"):
                    await until_refused()
                for one in slow:
                    one.write(Kind.END)
                    assert (await one.receive())[0] == Kind.DATA
                    one.close()
            assert {one.reason for one in refusals} == {Reason.TOO_MANY}

    carry_out(work)


def test_nobody_gives_orders_to_a_listener_without_a_fleet() -> None:
    async def work() -> None:
        token = new_token()
        async with listening(token) as (address, _), session(address, token) as found:
            with pytest.raises(TransportError, match="not the operator"):
                await found.caller.ask(MEASURE, b"{}")

    carry_out(work)


def test_a_token_must_be_whole() -> None:
    token = new_token()
    assert pair_identity(token.upper().replace("-", " "), "caller").bearer.name == "caller"
    with pytest.raises(ScenarioError, match="31 characters are no token; paste the 32"):
        pair_identity(token[:-1], "caller")


@pytest.mark.parametrize("text", ["nowhere", "host:", "host:70000", ":7200", "7200", "a:b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="nor HOST:PORT; correct it"):
        parse_address(text)


# In a fleet --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    """A ring of four on the loopback."""
    return packed(tmp_path_factory.mktemp("links") / "fleet", small("tree"))


@asynccontextmanager
async def devices_listening(fleet: Fleet, *numbers: int) -> AsyncIterator[list[Any]]:
    packs = [DevicePack.load(fleet.folder / DEVICES / fleet.names[one]) for one in numbers]
    refusals: list[Refusal] = []
    tasks = [asyncio.create_task(listen_in_fleet(one, 20, refusals.append)) for one in packs]
    await asyncio.sleep(0.2)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_fleet_measures_every_link_and_the_planned_ones_at_once(fleet: Fleet) -> None:
    async def work() -> None:
        async with devices_listening(fleet, 0, 1, 2, 3) as listeners:
            operator = Operator.load(fleet.folder)
            found = await measure_fleet(operator, fleet.links, BRIEF, planned=fleet.links[:3])
            await tell_all(operator)
            assert await asyncio.gather(*listeners) == [True] * 4
        both = {pair for i, j in fleet.links for pair in ((i, j), (j, i))}
        assert {(one.i, one.j) for one in found} == both
        assert not [one.trouble for one in found if one.trouble]
        busy = {(one.i, one.j) for one in found if one.together is not None}
        assert busy == {pair for i, j in fleet.links[:3] for pair in ((i, j), (j, i))}
        assert all(one.alone and one.alone.here == fleet.names[one.i] for one in found)

    carry_out(work)


def test_a_device_that_is_silent_is_named_and_the_others_are_measured(fleet: Fleet) -> None:
    async def work() -> None:
        async with devices_listening(fleet, 0, 1):
            operator = Operator.load(fleet.folder)
            links = [(0, 1), (1, 2)]
            found = await measure_fleet(operator, links, BRIEF, modes=["alone"])
        by = {(one.i, one.j): one for one in found}
        assert not by[0, 1].trouble
        assert not by[1, 0].trouble
        assert by[1, 2].trouble.startswith("unreachable")
        assert "is it listening?" in by[2, 1].trouble

    carry_out(work)


def test_only_the_operator_gives_orders_and_only_neighbours_transfer(fleet: Fleet) -> None:
    async def work() -> None:
        plan = fleet.neighbours(0)
        stranger = next(one for one in range(4) if one not in (0, *plan))
        async with devices_listening(fleet, 0):
            host = DevicePack.load(fleet.folder / DEVICES / fleet.names[0]).hosts[0]
            address = Address(host.address, host.port)
            for device, words in ((plan[0], "not the operator"), (stranger, "no neighbour")):
                pack = DevicePack.load(fleet.folder / DEVICES / fleet.names[device])
                caller = Caller(Endpoint(pack.identity, host.name, address))
                asked = hello(caller) if device == stranger else caller.ask(MEASURE, b"{}")
                with pytest.raises(TransportError, match=words):
                    await asked
                caller.close()

    carry_out(work)


@pytest.mark.parametrize(
    "rule",
    [Rule(0), Rule(10, seconds=1e6), Rule(10, least=10**6)],
    ids=["nothing", "for ever", "too often"],
)
def test_orders_have_limits(fleet: Fleet, rule: Rule) -> None:
    async def work() -> None:
        async with devices_listening(fleet, 0):
            operator = Operator.load(fleet.folder)
            (found, _) = await measure_fleet(operator, [(0, 1)], rule, modes=["alone"])
            assert "measured for 300 s at the most" in found.trouble

    carry_out(work)


def test_measuring_ends_in_any_case() -> None:
    uneven = [1.0, 9.0] * (MOST_TIMED // 2)
    rule = Rule(100, within=0.001, seconds=60.0)
    assert not rule.enough(uneven[:-1], 1.0)
    assert rule.enough(uneven, 1.0)  # what more there is would say little
    assert not replace(rule, together=True).enough(uneven, 59.0)  # others need the load
    assert replace(rule, together=True).enough(uneven, 60.0)
    assert not rule.enough(uneven[:4], 60.0)  # of so few transfers there is no interval


def test_an_answer_of_many_neighbours_fits_into_a_message() -> None:
    timed = Timed("a" * 63, "b" * 63, 10**9, (1.2345678901234567e-3,) * MOST_TIMED, 0.1, 10**9, 0)
    assert 60 * len(json.dumps(asdict(timed))) < 4 * 2**20


# Figures and the table ---------------------------------------------------------------------------


def test_the_interval_is_students() -> None:
    # 2.776445 is the 97.5 % quantile of t with 4 degrees of freedom.
    seconds = [0.9, 1.0, 1.1, 1.0, 1.0]
    assert half_width(seconds) == pytest.approx(2.776445 * (0.005**0.5) / 5**0.5, rel=1e-6)
    rate = rate_of(8e6, seconds)
    assert rate.bps == pytest.approx(8e6)
    assert rate.low == pytest.approx(8e6 / (1 + half_width(seconds)))
    assert rate.high == pytest.approx(8e6 / (1 - half_width(seconds)))


def link(i: int, j: int, seconds: float) -> LinkFigures:
    return LinkFigures(i, j, Timed(f"d{i}", f"d{j}", 1000, (seconds,) * 3, 0.001))


def test_rows_are_replaced_and_added_and_what_others_wrote_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "links.csv"
    assert update_links(path, [row_of(link(0, 1, 0.1)), row_of(link(1, 0, 0.2))]) == 2
    assert list(read_table(path)) == list(row_of(link(0, 1, 0.1)))
    text = path.read_text().splitlines()
    path.write_text(
        "\n".join(["energy_j_per_bit," + text[0], *("1e-7," + one for one in text[1:])])
    )
    assert update_links(path, [row_of(link(1, 0, 0.4)), row_of(link(1, 2, 0.1))]) == 3
    table = read_table(path)
    assert table["rate_bps"] == ["80000", "20000", "80000"]
    assert table["energy_j_per_bit"] == ["1e-7", "1e-7", ""]
    assert len(list(tmp_path.iterdir())) == 1  # no draft is left


def test_a_table_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "devices.csv"
    path.write_text("name,energy_j\na,1\n")
    with pytest.raises(ScenarioError, match="no i and j; give another --out"):
        update_links(path, [row_of(link(0, 1, 0.1))])
    assert path.read_text() == "name,energy_j\na,1\n"


# On links of known rates -------------------------------------------------------------------------

_REFUSAL = why_not()


@pytest.mark.slow
@pytest.mark.skipif(bool(_REFUSAL), reason=_REFUSAL)
@pytest.mark.parametrize("payload", ["100kB", "1MB"])
def test_measured_rates_are_those_of_shaped_links(tmp_path: Path, payload: str) -> None:
    """8 Mbit/s one way and 40 the other, by a token bucket: each measured within 10 %."""
    with Namespaces(2, [LinkRate((0, 1), 8e6, 40e6)]) as network:

        def command(device: int, *words: str) -> list[str]:
            program = [sys.executable, "-m", "joulemesh", "calibrate", "links", *words]
            return network.command(device, program)

        where = f"{network.address(1)}:7200"
        listener = subprocess.Popen(
            command(1, "--listen", where), stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        assert listener.stdout is not None
        listener.stdout.readline()
        token = listener.stdout.readline().split("--token ")[1].split()[0]
        words = [where, "--token", token, "--size", payload, "--time", "5s", "--only", "alone"]
        subprocess.run(command(0, *words), check=True, cwd=tmp_path, timeout=60)
        assert listener.wait(timeout=20) == 0
    table = read_table(tmp_path / "links.csv")
    rates = dict(
        zip(zip(table["i"], table["j"], strict=True), map(float, table["rate_bps"]), strict=True)
    )
    assert rates["0", "1"] == pytest.approx(8e6, rel=0.1)
    assert rates["1", "0"] == pytest.approx(40e6, rel=0.1)


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[Any, str]]:
    from joulemesh.cli.main import main

    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[Any, str]:
        monkeypatch.setattr(sys, "argv", ["joulemesh", "calibrate", "links", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "name a fleet's folder or HOST:PORT"),
        (("nowhere",), "nor HOST:PORT"),
        (("127.0.0.1:1",), "0 tokens for 1 listeners; add --token"),
        (("127.0.0.1:1", "--token", "a" * 32), "give --scenario FILE"),
        (("127.0.0.1:1", "--token", "a" * 32, "--here", "1", "--there", "1"), "all different"),
        (("127.0.0.1:1", "--token", "a" * 32, "--here", "me"), "'me' is no device"),
        (("127.0.0.1:1", "--token", "a" * 32, "--size", "1kB"), "Connection refused"),
        (("127.0.0.1:1", "--token", "a" * 31, "--size", "1kB"), "are no token"),
        (("127.0.0.1:1", "--listen", "7200"), "measures nothing itself"),
        (("--listen", "192.0.2.1:7200"), "cannot listen on 192.0.2.1:7200"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(
    command: Any, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, said = command(*arguments)
    assert code == 2
    assert words in said
    assert len(said.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_port_is_not_everybodys() -> None:
    """A port alone means one address of this machine, never all of them."""
    with socket.socket() as probe:
        probe.bind((HOME, 0))
    assert parse_address(":7200", HOME).host == HOME
