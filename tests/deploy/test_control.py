"""The operator's calls: real nodes' ports on the loopback, real certificates."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.device import farewell, listen_on, serve_metrics, tcp_transport
from joulemesh.deploy.device.model import read_model, save_model
from joulemesh.deploy.device.runner import Tally
from joulemesh.deploy.effects import Commit
from joulemesh.deploy.fleet.certificates import Authority, make_identity
from joulemesh.deploy.fleet.fleet import Host
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet
from joulemesh.deploy.links import transfers
from joulemesh.deploy.links.sessions import link_service
from joulemesh.deploy.local.local import free_ports
from joulemesh.deploy.messages import FleetRoster
from joulemesh.deploy.operator import standing as control
from joulemesh.deploy.operator.operator import HERE, Operator
from joulemesh.deploy.operator.standing import STATUS, Control, Probe, Standing, probe
from joulemesh.deploy.record.history import JournalTail
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, TransportError
from joulemesh.deploy.transport.connection import Endpoint, Kind
from joulemesh.deploy.transport.gate import Caller
from joulemesh.deploy.transport.tcp import TcpTransport
from joulemesh.deploy.wire import Terms, wire_type
from joulemesh.scenario import Scenario

NAMES = ("device-0", "device-1", "device-2", "device-3")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ring of four on the loopback."""
    folder = tmp_path_factory.mktemp("lab") / "fleet"
    plan = joulemesh.plan(Scenario(devices={"count": 4}, plan={"iterations": 3}))
    ports = free_ports(4)
    hosts = {name: Host(name, "127.0.0.1", port) for name, port in zip(NAMES, ports, strict=True)}
    make_fleet(folder, plan, hosts=hosts, with_keys=True)
    return folder


class Port:
    """A device's port without its node."""

    def __init__(self, folder: Path) -> None:
        self.pack = DevicePack.load(folder)
        self.run = folder / "run"
        self.run.mkdir(exist_ok=True)
        self.refusals: list[Refusal] = []
        fleet, hosts = self.pack.fleet, self.pack.hosts
        near = {one: Address(host.address, host.port) for one, host in hosts.items()}
        mine = near.pop(self.pack.device)
        terms = Terms(fleet.id, fleet.digest, fleet.work.parameters, wire_type(32))
        roster = Roster(self.pack.device, fleet.names, near)
        self.transport = TcpTransport(
            self.pack.identity, roster, terms, mine, refused=self.refusals.append
        )
        self.control = Control(self.pack, self.standing, self.run)
        self.transport.calls.update({**self.control.calls, **link_service(self.pack).calls})

    def standing(self) -> Standing:
        return Standing(self.pack.device, "forged\x1b", "training", iteration=2, iterations=3)


@asynccontextmanager
async def running(lab: Path, *names: str) -> AsyncIterator[dict[str, Port]]:
    ports = {name: Port(lab / "devices" / name) for name in names}
    for port in ports.values():
        await port.transport.start(lambda sender, message: None)
    try:
        yield ports
    finally:
        for port in ports.values():
            await port.transport.close()


def carry_out(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), 30))


def nothing_planned(here: str, there: str) -> float | None:
    return None


def test_standings_of_those_that_answer_and_why_others_do_not(lab: Path) -> None:
    async def work() -> None:
        async with running(lab, "device-0", "device-2"):
            found = await Operator.load(lab).standings()
        assert [one.device for one in found] == [0, 1, 2, 3]
        assert [one.name for one in found] == list(NAMES)  # the roster's, whatever they say
        assert [one.iteration for one in found] == [2, 0, 2, 0]
        assert [one.phase for one in found] == ["training", "", "training", ""]
        refused = r"device-1 at [0-9.:]+: Connection refused; is `joulemesh node run` running there"
        assert re.match(refused, found[1].trouble)  # the device is named once

    carry_out(work)


def test_a_roster_is_handed_to_one_device_that_takes_it(lab: Path) -> None:
    """Not to one that does not run, nor to one that has ended."""
    brought: list[FleetRoster] = []

    def enrol(roster: FleetRoster) -> int:
        brought.append(roster)
        if not roster.signature:
            raise TransportError(Reason.NOT_PERMITTED, "nobody has signed it")
        return 7

    async def work() -> None:
        async with running(lab, "device-1", "device-2") as ports:
            operator = Operator.load(lab)
            with pytest.raises(TransportError, match=r"device-0.*refused.*device-2 has ended"):
                await operator.enrol(FleetRoster(1))
            ports["device-2"].control.enrol = enrol
            with pytest.raises(TransportError, match="nobody has signed it"):
                await operator.enrol(FleetRoster(1))
            signed = FleetRoster(1, (2,), (), "so")
            assert await operator.enrol(signed) == ("device-2", 7)
            assert brought == [FleetRoster(1), signed]

    carry_out(work)


def test_every_link_is_probed_from_both_ends(lab: Path) -> None:
    async def work() -> None:
        async with running(lab, "device-0", "device-1", "device-3"):
            found = await Operator.load(lab).check(lambda here, there: 1e6)
        by = {(one.here, one.there): one for one in found}
        assert {there for here, there in by if here == HERE} == set(NAMES)
        good = by["device-0", "device-1"]
        assert good.reachable
        assert good.certificate.startswith("valid until 20")
        assert abs(good.clock_s or 9) < 1
        assert good.version == joulemesh.__version__
        assert (good.rate_bps or 0) > 1e6
        assert good.planned_bps == 1e6
        assert good.trouble == ""
        lost = by["device-1", "device-2"]
        assert not lost.reachable
        assert lost.trouble.startswith("unreachable: device-2 at 127.0.0.1:")
        assert lost.trouble.count("device-2") == 1
        assert ("device-0", "device-2") not in by  # they share no link

    carry_out(work)


def test_rates_are_left_out_if_nobody_wants_them(lab: Path) -> None:
    async def work() -> None:
        async with running(lab, "device-0", "device-1"):
            found = await Operator.load(lab).check(nothing_planned, rate=False)
        assert {one.rate_bps for one in found} == {None}

    carry_out(work)


def test_only_the_operator_may_ask(lab: Path) -> None:
    async def work() -> None:
        async with running(lab, "device-0") as ports:
            other = DevicePack.load(lab / "devices" / "device-1")
            place = Address("127.0.0.1", ports["device-0"].pack.hosts[0].port)
            caller = Caller(Endpoint(other.identity, "device-0", place))
            for call in (STATUS, control.PROBE, control.JOURNAL_CALL):
                with pytest.raises(TransportError, match="only the operator may ask") as refused:
                    await caller.ask(call, b"{}")
                assert refused.value.reason is Reason.NOT_PERMITTED
            caller.close()
            assert ports["device-0"].refusals[0].reason == Reason.NOT_PERMITTED
            assert ports["device-0"].refusals[0].peer == "device-1"

    carry_out(work)


def test_only_neighbours_and_the_operator_may_probe(lab: Path) -> None:
    async def work() -> None:
        async with running(lab, "device-0") as ports:
            host, plan = ports["device-0"].pack.hosts[0], ports["device-0"].pack.fleet.digest
            far = DevicePack.load(lab / "devices" / "device-2").identity
            found = await probe(far, "device-2", host, plan)
            assert "device-2 is no neighbour of device-0" in found.trouble
            foreign = make_identity(Authority.make("other"), "operator", role="operator")
            found = await probe(foreign, HERE, host, plan)
            assert found.reachable
            assert "certificate" in found.trouble

    carry_out(work)


@pytest.mark.parametrize("question", [b"", b"[]", b'{"a": "b"}', b'{"a": 1.5}', b"\xff", b"[" * 9])
def test_questions_that_make_no_sense_are_refused(lab: Path, question: bytes) -> None:
    async def work() -> None:
        async with running(lab, "device-0"):
            host = Operator.load(lab).hosts["device-0"]
            with Operator.load(lab).call(host) as caller, pytest.raises(TransportError) as refused:
                await caller.ask(control.PROBE, question)
            assert "makes no sense" in str(refused.value)

    carry_out(work)


def test_journals_are_copied_once_and_again_when_they_have_grown(lab: Path) -> None:
    async def work() -> None:
        async with running(lab, "device-0") as ports:
            run, operator = ports["device-0"].run, Operator.load(lab)
            (run / "journal-000001.jsonl").write_bytes(b"a" * 200_000)
            (run / "journal.jsonl").write_bytes(b"")
            failed = await operator.collect()
            assert set(failed) == set(NAMES[1:])
            place = lab / "journals" / "device-0"
            assert (place / "journal-000001.jsonl").read_bytes() == b"a" * 200_000
            first = (place / "journal-000001.jsonl").stat().st_mtime_ns
            (run / "journal.jsonl").write_bytes(b'{"kind": "start"}\n')
            await operator.collect()
            assert (place / "journal.jsonl").read_bytes() == b'{"kind": "start"}\n'
            assert (place / "journal-000001.jsonl").stat().st_mtime_ns == first

    carry_out(work)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": "0.0.1"}, r"it has Joulemesh 0\.0\.1, here is"),
        ({"plan": "0" * 64}, "it carries out another plan"),
        ({"at": 1e9}, "its clock is off by"),
        ({"until": 2.0}, "its certificate expires in"),
    ],
)
def test_what_is_wrong_with_a_device_that_answers_is_said(
    lab: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], said: str
) -> None:
    true = transfers.Hello

    def lie(*figures: Any) -> Any:
        return replace(true(*figures), **change)

    monkeypatch.setattr(transfers, "Hello", lie)

    async def work() -> None:
        async with running(lab, "device-0") as ports:
            own, operator = ports["device-0"].pack, Operator.load(lab)
            found = await probe(operator.identity, HERE, own.hosts[0], own.fleet.digest)
            assert found.reachable
            assert re.search(said, found.trouble)

    carry_out(work)


class Ended:
    """As much of a device as its port needs to know."""

    def __init__(self, folder: Path) -> None:
        self.pack, self.folder = DevicePack.load(folder), folder / "run"
        self.folder.mkdir(exist_ok=True)
        self.planner = SimpleNamespace(ground=self.pack.fleet.ground())
        self.control: Control | None = None
        self.refusals: list[Refusal] = []
        self.refused = self.refusals.append

    def standing(self) -> Standing:
        return Standing(self.pack.device, self.pack.name, "exchanging", iteration=3)

    async def settle(self) -> None:
        """Everything is on disk."""

    async def model(self) -> Path:
        fleet, params = self.pack.fleet, {"w": np.arange(3.0)}
        commit = Commit(3, np.arange(3.0))
        done: dict[str, Any] = {"iterations": 3, "complete": True, "spent_j": 1.0, "figures": {}}
        return save_model(
            self.pack.folder, fleet, self.pack.device, commit, params, torch=False, **done
        )

    def enrol(self, roster: FleetRoster) -> int:
        return roster.number

    has_last = False  # it did not end with the fleet's model

    def may_come_late(self) -> tuple[int, ...]:
        return ()


def test_after_its_end_a_device_waits_for_its_journal_to_be_copied(lab: Path) -> None:
    async def work() -> None:
        device: Any = Ended(lab / "devices" / "device-1")
        tcp_transport(device)
        (device.folder / "journal.jsonl").write_bytes(b'{"kind": "end"}\n')
        waiting = asyncio.create_task(farewell(device, 20.0, lambda line: None))
        operator = Operator.load(lab)
        while (await operator.standings())[1].phase != "ended":
            await asyncio.sleep(0.01)
        assert not waiting.done()
        near = DevicePack.load(lab / "devices" / "device-0").identity
        place = Address("127.0.0.1", device.pack.hosts[1].port)
        connection = await Endpoint(near, "device-1", place).connect()
        connection.write(Kind.GREETING, b"greeting")
        with pytest.raises(TransportError, match="no neighbour"):
            await connection.receive()
        connection.close()
        await operator.collect(models=True)
        await asyncio.wait_for(waiting, 5)
        assert (lab / "journals" / "device-1" / "journal.jsonl").read_bytes().endswith(b'"end"}\n')
        copied = read_model(lab / "models" / "device-1")
        assert (copied.iteration, copied.params["w"].tolist()) == (3, [0.0, 1.0, 2.0])

    carry_out(work)


def test_nobody_waits_for_an_operator_who_does_not_copy_journals(lab: Path) -> None:
    async def work() -> None:
        device: Any = Ended(lab / "devices" / "device-2")
        await farewell(device, 20.0, lambda line: None)  # it was not driven over its port
        tcp_transport(device)
        said: list[str] = []
        await farewell(device, 0.0, said.append)
        assert said == []
        assert device.control is not None
        device.control.collected_at = time.monotonic()  # somebody has been copying all along
        waiting = asyncio.create_task(farewell(device, 0.0, said.append))
        while not said:
            await asyncio.sleep(0.01)
        await Operator.load(lab).collect()
        await asyncio.wait_for(waiting, 5)

    carry_out(work)


def test_check_and_status_in_a_terminal(
    lab: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from joulemesh.cli.main import main

    def typed(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["joulemesh", "deploy", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return int(end.value.code or 0), capsys.readouterr().out

    code, out = typed("status", str(lab))
    assert code == 1
    assert "0 of 4 devices answer" in out
    code, out = typed("check", str(lab), "--no-rate", "--json")
    assert code == 1
    assert len(json.loads(out)) == 4
    assert all(Probe(**one).trouble for one in json.loads(out))


def test_the_operator_follows_a_journal_and_only_what_is_new_is_sent(
    lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []
    pieces = control._pieces

    def counted(path: Path, begin: int, end: int) -> Any:
        sent.append(end - begin)
        return pieces(path, begin, end)

    line = b'{"at": %d.0, "kind": "left"}\n'

    async def work() -> None:
        async with running(lab, "device-2") as ports:
            operator, tail = Operator.load(lab), JournalTail(2, "device-2")
            assert await operator.follow(tail) == ""  # no journal yet
            path = ports["device-2"].run / "journal.jsonl"
            path.write_bytes(line % 1 + line % 2)
            assert await operator.follow(tail) == ""
            assert [event.at for event in tail.history().events] == [1.0, 2.0]
            monkeypatch.setattr(control, "_pieces", counted)
            with path.open("ab") as file:
                file.write(line % 3)
            assert await operator.follow(tail) == ""
            assert sent[-1] == len(line % 3)
            assert len(tail.history().events) == 3
            path.write_bytes(line % 4 + line % 5 + line % 6 + line % 7)  # the one before is full
            assert await operator.follow(tail) == ""
            assert [event.at for event in tail.history().events] == [4.0, 5.0, 6.0, 7.0]
            path.unlink()
        assert "is `joulemesh node run` running there?" in await operator.follow(tail)
        assert len(tail.history().events) == 4

    carry_out(work)


def test_following_does_not_count_as_collecting(lab: Path) -> None:
    """A node that waits to be collected goes on waiting."""

    async def work() -> None:
        async with running(lab, "device-0") as ports:
            operator = Operator.load(lab)
            (ports["device-0"].run / "journal.jsonl").write_bytes(b'{"at": 1.0, "kind": "left"}\n')
            assert await operator.follow(JournalTail(0, "device-0")) == ""
            assert not ports["device-0"].control.collected.is_set()
            await operator.collect()
            assert ports["device-0"].control.collected.is_set()

    carry_out(work)


def test_what_is_served_is_openmetrics_and_current() -> None:
    standing = Standing(3, "farm-03", "training", iteration=7, spent_j=1.5, battery_j=9.0)
    tally, (port,) = Tally(), free_ports(1)
    stop = serve_metrics(str(port), lambda: standing, tally)
    try:
        tally.sent(1, 4, 1000)
        accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
        with urlopen(Request(f"http://127.0.0.1:{port}/metrics", headers=accept)) as answer:
            kind, text = answer.headers["Content-Type"], answer.read().decode()
        with pytest.raises(ScenarioError, match=r"cannot listen there .*choose another port"):
            serve_metrics(str(port), lambda: standing, tally)
    finally:
        stop()
    assert "openmetrics-text" in kind
    assert text.endswith("# EOF\n")
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(found["joulemesh_iteration"]) == 7
    assert float(found["joulemesh_spent_joules"]) == 1.5
    assert float(found['joulemesh_sent_bytes_total{neighbour="4"}']) == 1000
    assert float(found['joulemesh_phase{phase="training"}']) == 1
    assert "joulemesh_accuracy" not in found  # nothing was measured


@pytest.mark.parametrize("text", ["", "http", "70000", "localhost:", "9100x"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match="is no port: write 9100, or HOST:9100"):
        listen_on(text)


def test_the_dashboard_asks_for_metrics_that_are_served() -> None:
    text = (Path(__file__).parents[2] / "examples/deploy/grafana-dashboard.json").read_text("utf-8")
    board = json.loads(text)
    asked = [query["expr"] for panel in board["panels"] for query in panel["targets"]]
    wanted = {name for one in asked for name in re.findall(r"joulemesh_\w+", one)}
    tally, (port,) = Tally(), free_ports(1)
    tally.sent(1, 4, 1000)
    standing = Standing(3, "farm-03", "training", accuracy=0.5)
    stop = serve_metrics(str(port), lambda: standing, tally)
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            served = {
                line.split("{")[0].split(" ")[0] for line in answer.read().decode().splitlines()
            }
            served |= {f"joulemesh_{way}_bytes_total" for way in ("sent", "received")}
    finally:
        stop()
    assert wanted <= served
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) >= 10
