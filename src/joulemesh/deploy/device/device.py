"""One device of a fleet as a process: everything that a node is driven with, made from its folder.

``run/`` in the device's folder holds the state (`store`), the joules that may have been spent
(`ceiling`) and the journal, and is locked while the node runs. Started again, it resumes.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh._version import __version__
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import FolderLock, make_folder, write_text
from joulemesh.base.optional import require
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.device.journal import Journal
from joulemesh.deploy.device.learner import LateLearner, Training, load_learner, own_vector
from joulemesh.deploy.device.meter import AUTO, RunMeter, Tariff, make_meter, trains_on_gpu
from joulemesh.deploy.device.model import FILE as MODEL_FILE
from joulemesh.deploy.device.model import save_model
from joulemesh.deploy.device.runner import Runner, Tally, Tools
from joulemesh.deploy.device.store import Ceiling, Owner, Store
from joulemesh.deploy.effects import Commit, Durable, End, Learner, Received
from joulemesh.deploy.fleet.certificates import FleetSigner
from joulemesh.deploy.fleet.fleet import HOSTS, Host, fill_in, require_addresses
from joulemesh.deploy.fleet.pack import ORDERS, DevicePack
from joulemesh.deploy.local.supervisor import Exit
from joulemesh.deploy.messages import Beat, FleetRoster, Given, Message, signed_text
from joulemesh.deploy.node.ending import RETIRED, Served, succeeded
from joulemesh.deploy.node.node import Node
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import read_history, views_of
from joulemesh.deploy.record.receipt import Receipt, planned, planned_again
from joulemesh.deploy.transport import Address, Reason, Refusal, Roster, Transport, TransportError
from joulemesh.deploy.wire import Terms, wire_type
from joulemesh.meters import MeterOptions
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.scenario.given import INPUTS, exists
from joulemesh.scenario.sections import FILES

if TYPE_CHECKING:
    from joulemesh.deploy.operator.standing import Control
    from joulemesh.planning.ground import Ground


JSON, CSV = "receipt.json", "receipt.csv"


def write_receipt(pack: DevicePack, plan: Plan, run: Path) -> Receipt:
    """Write ``receipt.json`` and ``receipt.csv`` of one device, in the format of the fleet's."""
    device = pack.device
    history = read_history(run, device, pack.name)
    before = planned(plan)
    after, _ = planned_again(plan, before, views_of([history]), pack.fleet.settings.reserve)
    receipt = Receipt(
        [history],
        before.only(device),
        after.only(device),
        fleet=pack.fleet.id,
        plan=pack.fleet.digest,
        battery_j=np.array([pack.part.battery_j]),
        deadline_s=pack.part.deadline_s,
        reserve=pack.fleet.settings.reserve,
    )
    write_text(run / JSON, receipt.to_json())
    write_text(run / CSV, receipt.to_csv())
    return receipt


_GAUGES = {
    "iteration": "the last iteration that is committed",
    "iterations": "iterations of the plan",
    "view": "number of the newest view",
    "spent_j": "joules spent, as metered",
    "planned_j": "joules that the plan gives up to this iteration",
    "battery_j": "joules that may be spent in all",
    "elapsed_s": "seconds taken so far",
    "planned_s": "seconds of the plan up to this iteration",
    "accuracy": "the last that was measured",
}
_UNITS = {"_j": "_joules", "_s": "_seconds"}


class _Collector:
    """Asks the node when somebody asks for its metrics; costs nothing in between."""

    def __init__(self, standing: Callable[[], Standing], tally: Tally, kinds: Any) -> None:
        self._standing, self._tally, self._kinds = standing, tally, kinds

    def collect(self) -> Iterator[Any]:
        now = self._standing()
        for name, help_text in _GAUGES.items():
            value = getattr(now, name)
            if value is not None:
                yield self._kinds.GaugeMetricFamily(_full_name(name), help_text, value=value)
        doing = self._kinds.GaugeMetricFamily(
            "joulemesh_phase", "1 for what the node is doing", labels=["phase"]
        )
        doing.add_metric([now.phase or "unknown"], 1)
        yield doing
        for way, counted in (
            ("sent", self._tally.sent_bytes),
            ("received", self._tally.received_bytes),
        ):
            total = self._kinds.CounterMetricFamily(
                f"joulemesh_{way}_bytes", f"payload {way} in exchanges", labels=["neighbour"]
            )
            for neighbour, size in sorted(counted.copy().items()):
                total.add_metric([str(neighbour)], size)
            yield total


def _full_name(name: str) -> str:
    """A metric's name with its unit in full, as the conventions have it.

    >>> _full_name("spent_j"), _full_name("view")
    ('joulemesh_spent_joules', 'joulemesh_view')
    """
    for short, whole in _UNITS.items():
        if name.endswith(short):
            name = name.removesuffix(short) + whole
    return f"joulemesh_{name}"


def listen_on(text: str) -> tuple[str, int]:
    """Where metrics are served: ``PORT`` on this machine alone, or ``HOST:PORT``.

    >>> listen_on("9100"), listen_on("0.0.0.0:9100"), listen_on("[::]:9100")
    (('127.0.0.1', 9100), ('0.0.0.0', 9100), ('::', 9100))
    """
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise ScenarioError(f"--metrics {text:.80} is no port: write 9100, or HOST:9100")
    return host.strip("[]") or "127.0.0.1", int(port)


def serve_metrics(where: str, standing: Callable[[], Standing], tally: Tally) -> Callable[[], None]:
    host, port = listen_on(where)
    client = require("prometheus_client", "--metrics", "joulemesh[deploy]")
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(standing, tally, require("prometheus_client.core", "--metrics")))
    try:
        server, thread = client.start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise ScenarioError(
            f"--metrics {where}: cannot listen there ({error.strerror}); choose another port"
        ) from None

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


_FOLLOWED_S, _FAREWELL_S = 30.0, 20.0  # an operator who copies the journal does so often
_LATE_S = 300.0


def tcp_transport(device: Device, *, ended: bool = False) -> Transport:
    """The device's neighbours; on the same port the operator may ask how it stands."""
    from joulemesh.deploy.links.sessions import link_service
    from joulemesh.deploy.operator.standing import Control
    from joulemesh.deploy.transport.tcp import TcpTransport

    pack, fleet = device.pack, device.pack.fleet
    places = {one: Address(host.address, host.port) for one, host in pack.hosts.items()}
    own = places.pop(pack.device)
    require_addresses(pack.folder / HOSTS, {pack.name: pack.hosts[pack.device]}, [pack.name])

    def met(neighbour: int, address: Address) -> None:
        fill_in(pack.folder / HOSTS, [Host(fleet.names[neighbour], *address)])

    silent = ended and not device.has_last
    made = TcpTransport(
        pack.identity,
        Roster(pack.device, fleet.names, {} if silent else places, own),
        Terms(
            fleet.id,
            fleet.digest,
            fleet.work.parameters,
            wire_type(fleet.scenario.network.bits_per_parameter),
            packed=device.planner.ground.width is not None,
        ),
        pack.listens_on,
        refused=device.refused,
        met=met,
        rates_bps=_rates_bps(device.planner.ground, pack.device),
    )

    def standing() -> Standing:
        return replace(device.standing(), phase="ended") if ended else device.standing()

    device.control = Control(pack, standing, device.folder, device.settle, device.model)
    device.control.enrol = None if ended else device.enrol
    made.calls.update({**device.control.calls, **link_service(pack).calls})
    return made


def _rates_bps(ground: Ground, device: int) -> dict[int, float]:
    """The rates of the links to a device's neighbours, as forecast."""
    found = {}
    there_bps, back_bps = ground.forecast.payload_bps()
    for k, (i, j) in enumerate(ground.world.graph.edges.tolist()):
        if device in (i, j):
            found[i + j - device] = float(there_bps[k] if device == i else back_bps[k])
    return found


async def farewell(device: Device, linger_s: float | None, say: Callable[[str], None]) -> None:
    """After a device's end, serve what it ended with.

    A neighbour that is not known to have finished may still come for the last parameters, and the
    operator for the journal and the model. An operator who has been copying the journal all along
    is waited for in any case, for a short while.
    """
    before = device.control
    if before is None:  # it was not driven over its port
        return
    late = device.may_come_late()
    followed = time.monotonic() - before.collected_at < _FOLLOWED_S
    asked_s = (_LATE_S if late else 0.0) if linger_s is None else linger_s
    within_s = max(asked_s, _FAREWELL_S if followed else 0.0)
    if not within_s:
        if linger_s is None:
            say(
                "joulemesh deploy collect and report get model and journal when it is started again"
            )
        return
    transport, loop = tcp_transport(device, ended=True), asyncio.get_running_loop()
    assert device.control is not None
    collected = followed or bool(linger_s)  # whether to wait for the operator
    waits = [device.control.collected] if collected else []
    serving = _Serving(device, transport, late)
    waits += [serving.done] if late else []
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await transport.start(serving.received)
    names = device.pack.fleet.names
    whom = [names[one] for one in late] + (["the operator"] if collected else [])
    say(f"serves its model to {' and '.join(whom)} for up to {within_s:g} s; Ctrl-C ends it")

    async def nobody_left() -> None:
        for one in waits:
            await one.wait()

    tasks = [asyncio.create_task(nobody_left()), asyncio.create_task(stopped.wait())]
    try:
        await asyncio.wait(tasks, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await serving.close()
        await transport.close()


class _Serving:
    """Answers neighbours that come late, until each has the last parameters."""

    def __init__(self, device: Device, transport: Transport, late: Collection[int]) -> None:
        self._served = device.served() if device.has_last else None
        self._transport, self._late = transport, set(late)
        self._within_s = device.pack.fleet.settings.patience_s
        self._sending: set[asyncio.Task[None]] = set()
        self.done = asyncio.Event()

    def received(self, sender: int, message: Message) -> None:
        for answer in self._served.answer(sender, message) if self._served else ():
            task = asyncio.ensure_future(self._send(sender, answer))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, to: int, message: Message) -> None:
        try:
            await self._transport.send(to, message, self._within_s)
        except TransportError:
            return  # it asks again
        if isinstance(message, Given):
            self._late.discard(to)
            if not self._late:
                self.done.set()

    async def close(self) -> None:
        if self._sending:
            await asyncio.wait(tuple(self._sending), timeout=2.0)


RUN = "run"
_POWER_CUT = 1 / 200  # of the battery may be counted as spent that was not, by a power cut
_WAIT_S = 5.0  # without a word
_SETTLE_S = 0.5  # a terminal and a parent may both pass on one Ctrl-C
_CODES = {signal.SIGINT: Exit.INTERRUPTED, signal.SIGTERM: Exit.TERMINATED}
Tell = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True)
class Wanted:
    """How a device is to be run."""

    data: Path | None = None  # its own samples in the place of those that the scenario gives it
    learner: str | None = None  # the user's own, ``FILE.py:NAME``
    # ``"modelled"``, ``"auto"`` or a meter of `joulemesh.meters` (see `make_meter`)
    meter: str = AUTO
    # that the user declares the machine to draw; None if it is measured or modelled
    watts: float | None = None
    # ``PORT`` or ``HOST:PORT`` where metrics are served; None for nowhere
    metrics: str | None = None
    # seconds after its end in which it still serves its last parameters to devices that come late,
    # and its journal and model to the operator; None: as long as such a device may come
    linger_s: float | None = 0.0
    # serves a page of the device: it takes what tells how the device stands, and gives what ends
    # it. None for no page.
    page: Callable[[Callable[[], Standing]], Callable[[], None]] | None = None


class Device:
    """A device's node with all that it is driven with."""

    def __init__(
        self,
        pack: DevicePack,
        wanted: Wanted,
        tell: Tell = lambda kind, figures: None,
        transport: Callable[[Device], Transport] | None = None,
    ) -> None:
        self.pack, self.folder = pack, make_folder(pack.folder / RUN)
        self.control: Control | None = None
        fleet, device = pack.fleet, pack.device
        store = Store(self.folder, Owner(fleet.id, fleet.digest, device))
        ground = fleet.ground()
        self.planner = Replanner(ground, device, fleet.settings.reserve)
        self.planner.alone = fleet.settings.quorum == "one"
        self.learner = learner = LateLearner(partial(_learner, pack, wanted), fleet.work.parameters)
        require_data(pack, wanted)
        state = store.load() or self._first(learner)
        self.state, self.dtype = state, state.commit.vector.dtype
        wire = np.dtype(wire_type(fleet.scenario.network.bits_per_parameter))
        self.planner.wire = wire if wire.itemsize < self.dtype.itemsize else None
        battery_j = _battery_j(pack, ground)
        ceiling = Ceiling(self.folder, _POWER_CUT * battery_j)
        tariff = Tariff.of(ground, device, self.dtype.itemsize)
        spent_j = max(state.commit.spent_j, ceiling.joules)
        options = MeterOptions(watts=wanted.watts, accelerator=trains_on_gpu())
        self.meter: RunMeter = make_meter(wanted.meter, battery_j, tariff, spent_j, options)
        self.meter.iteration = state.commit.iteration + 1
        own = wanted.data is not None or wanted.learner is not None
        every = fleet.scenario.training.eval_every
        self.tools = Tools(
            transport=(transport or tcp_transport)(self),
            store=store,
            training=Training(learner, every, None if own else device),
            planner=self.planner,
            meter=self.meter,
            ceiling=ceiling,
            journal=Journal(self.folder),
        )
        signer = FleetSigner(pack.identity, fleet.names, f"{fleet.id} {fleet.digest}")
        epoch = secrets.randbits(48)
        self._signer = signer
        node = Node(
            device, fleet.links, state, self.meter, fleet.settings, signer, epoch, fleet.spares
        )
        self.runner = Runner(node, self.tools, tell, self.dtype)
        self.meter.when_unread = lambda reason: self.runner.write("meter", {"reason": reason})
        self.runner.iteration, self.runner.view = state.commit.iteration, state.views[-1].number
        self.runner.elapsed_s = state.commit.elapsed_s
        self.runner.punctuality.deadline_s = pack.part.deadline_s
        self._planned = (0, 0.0, 0.0)

    def _first(self, learner: Learner) -> Durable:
        fleet = self.pack.fleet
        view = self.planner.plan(first_view(len(fleet.names), fleet.spares)).view
        if view.digest != fleet.digest:
            raise ScenarioError(
                f"this device makes another plan of the scenario ({view.digest[:12]}) than the "
                f"fleet's ({fleet.digest[:12]}); use Joulemesh {fleet.version} here (now "
                f"{__version__})"
            )
        vector = np.array(learner.parameters())
        memory = {name: np.array(one) for name, one in learner.save().items()}
        owed = np.zeros_like(vector) if self.planner.ground.width is not None else None
        start = Commit(0, own_vector(vector, like=vector), memory, owed=owed)
        return Durable(0, (view,), start)

    async def run(self) -> End:
        commit, fleet = self.state.commit, self.pack.fleet
        self.tools.journal.write(
            "start",
            {
                "device": self.pack.device,
                "name": self.pack.name,
                "incarnation": self.state.incarnation + 1,
                "fleet": fleet.id,
                "plan": fleet.digest,
                "version": __version__,
                "meter": self.meter.source,
                "iteration": commit.iteration,
                "battery_j": self.pack.part.battery_j,
                "spent_j": self.meter.spent_j(),
            },
        )
        return await self.runner.run()

    async def settle(self) -> None:
        """Wait until the journal is on disk as far as it goes."""
        await self.runner.flushed()

    async def model(self) -> Path | None:
        """Write the model as it is on disk now; None before the first iteration."""
        return await asyncio.to_thread(self.write_model)

    def write_model(self) -> Path | None:
        """Write the parameters of the last commit by name, with a card: the folder ``model``."""
        state = self._durable
        if not state.commit.iteration:
            return None
        return save_model(
            self.pack.folder,
            self.pack.fleet,
            self.pack.device,
            state.commit,
            self.learner.named(state.commit.vector),
            torch=self.learner.torch,
            iterations=self._iterations,
            complete=succeeded(state.ended),
            spent_j=self.meter.spent_j(),
            figures=self.runner.figures,
        )

    @property
    def _durable(self) -> Durable:
        return self.runner.saved or self.state

    @property
    def has_last(self) -> bool:
        """Has the device ended with the parameters that the fleet ended with?"""
        return succeeded(self._durable.ended)

    def served(self) -> Served:
        """What answers neighbours after the end, as a run of its own."""
        return Served(self.pack.device, self._durable, self.meter, secrets.randbits(48))

    def enrol(self, roster: FleetRoster) -> int:
        """Take a roster that the operator has brought; the number of the newest one here."""
        if not self._signer.authorised(signed_text(roster), roster.signature):
            raise TransportError(Reason.NOT_PERMITTED, "this fleet's authority has not signed it")
        self.runner.take(Received(self.pack.device, roster))
        return max(roster.number, self._durable.roster.number)

    def may_come_late(self) -> tuple[int, ...]:
        """Neighbours that may still come for the parameters that this device ended with.

        They are those that are not known to have finished; all of them if the device is started
        after its end.
        """
        if not self.has_last:
            return ()
        sign = self.runner.beat if self.runner.saved else None
        roster, spares = self._durable.roster, self.pack.fleet.spares
        absent = set(spares).difference(roster.added).union(roster.retired)
        done = absent.union(() if sign is None else sign.finished)
        return tuple(one for one in self.pack.neighbours if one not in done)

    @property
    def _iterations(self) -> int:
        plan = self.runner.plan
        return self.pack.part.iterations if plan is None else plan.last

    def refused(self, refusal: Refusal) -> None:
        """Journal what the transport would not take."""
        who = refusal.peer or refusal.address
        figures = {"sender": who, "reason": str(refusal.reason), "detail": refusal.detail}
        self.runner.write("refused", figures)

    def standing(self) -> Standing:
        runner, names = self.runner, self.pack.fleet.names
        beat, iteration = runner.beat, runner.iteration
        planned_j, planned_s = self._up_to(iteration)
        phase = beat.phase if beat else "starting"
        return Standing(
            device=self.pack.device,
            name=self.pack.name,
            phase="finishing" if phase == "ended" else phase,  # its last lines are not written yet
            view=runner.view,
            iteration=iteration,
            iterations=self._iterations,
            spent_j=self.meter.spent_j(),
            planned_j=planned_j,
            battery_j=self.pack.part.battery_j,
            elapsed_s=runner.elapsed_s,
            planned_s=planned_s,
            waiting=tuple(sorted(names[one] for one in self._waits_for(beat))),
            accuracy=runner.figures.get("accuracy"),
            trouble=runner.trouble,
            late=(runner.punctuality.timed, runner.punctuality.late),
            worst=runner.punctuality.worst,
        )

    def _waits_for(self, beat: Beat | None) -> set[int]:
        """The neighbours for which it waits: to be there at first, for their messages later."""
        if beat is None or beat.phase == "starting":
            return set(self.pack.neighbours) - self.runner.heard
        return {one for one, _ in beat.waiting}

    def _up_to(self, iteration: int) -> tuple[float, float]:
        """Joules and seconds that plans give the device up to an iteration."""
        plan, (done, joules, seconds) = self.runner.plan, self._planned
        if plan is None:
            return joules, seconds
        for t in range(max(done + 1, plan.view.start), min(iteration, plan.last) + 1):
            price = plan.price(t)
            joules += plan.rounds(t) * price.round_j + price.exchange_j + price.rest_j
            seconds += price.iteration_s
            self._planned = (t, joules, seconds)
        return joules, seconds


def _battery_j(pack: DevicePack, ground: Ground) -> float:
    """What the device may spend, by the plan that all devices make from ``fleet.json``."""
    battery_j = float(ground.world.devices.energy_budget_j[pack.device])
    if pack.part.battery_j != battery_j:
        raise ScenarioError(
            f"{pack.folder / ORDERS}: battery_j is {pack.part.battery_j:g} J, and {battery_j:g} "
            "J in the fleet's plan; copy the file again, or make a new fleet with another budget"
        )
    return battery_j


def require_data(pack: DevicePack, wanted: Wanted) -> None:
    """Refuse to start without the samples that the device is to train on."""
    data = pack.fleet.scenario.training.dataset
    path = FILES["training.dataset"].path_in(data)
    if wanted.data is None and wanted.learner is None and path and not exists(Path(path)):
        inputs = pack.folder / INPUTS
        raise ScenarioError(
            f"the fleet trains on {Path(path).name}, which is not here: give this device's samples "
            f"with --data FILE, or put {Path(path).name} into {inputs}"
        )


def _learner(pack: DevicePack, wanted: Wanted) -> Learner:
    """The learner that is asked for; only this loads JAX, and only for the scenario's own."""
    if wanted.learner is not None:
        seed = pack.fleet.scenario.seed
        given = {"device": pack.device, "name": pack.name, "seed": seed, "data": wanted.data}
        return load_learner(wanted.learner, given)
    from joulemesh.deploy.device.simulated import simulated_learner

    return simulated_learner(pack.fleet, pack.device, wanted.data, name=pack.name)


def run_device(folder: Path, wanted: Wanted, tell: Tell, say: Callable[[str], None]) -> int:
    """Run the device of a folder until it ends, or until somebody stops it."""
    pack = DevicePack.load(folder)
    make_folder(folder / RUN)
    with ExitStack() as stack:
        stack.enter_context(FolderLock(folder / RUN))
        with _ended_by_signals():
            device = Device(pack, wanted, tell)
        stack.callback(device.tools.store.close)
        stack.callback(device.meter.close)
        if device.state.ended:
            say(f"{pack.name} has ended: {device.state.ended}; it only serves what it has")
            _keep_model(device, say)
            asyncio.run(farewell(device, wanted.linger_s, say))
            done = succeeded(device.state.ended) or device.state.ended == RETIRED
            return Exit.DONE if done else Exit.ENDED
        if wanted.metrics is not None:
            stack.callback(serve_metrics(wanted.metrics, device.standing, device.runner.tally))
        if wanted.page is not None:
            stack.callback(wanted.page(device.standing))
        code = asyncio.run(_until_stopped(device, say))
        _keep_receipt(device, say)
        _keep_model(device, say)
        if code in (Exit.DONE, Exit.ENDED):
            asyncio.run(farewell(device, wanted.linger_s, say))
    if device.runner.busy:  # a training that nobody waits for must not delay the end
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _keep_receipt(device: Device, say: Callable[[str], None]) -> None:
    """Write what the device has spent; the journal holds the same if that cannot be."""
    try:
        write_receipt(device.pack, device.planner.whole, device.folder)
    except JoulemeshError as refusal:
        say(f"{device.pack.name} has no receipt: {' '.join(str(refusal).split())}")


def _keep_model(device: Device, say: Callable[[str], None]) -> None:
    """Write the model; the state on disk holds the same parameters if that cannot be."""
    if device.runner.busy and not device.learner.made:  # it would be waited for in vain
        return
    try:
        place = device.write_model()
    except Exception as error:  # whatever a learner's code may raise
        say(f"{device.pack.name} has no model file: {' '.join(str(error).split())}")
    else:
        if place is not None:
            say(f"wrote {place / MODEL_FILE}, after iteration {device.runner.iteration}")


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """While data and learner are loaded, a signal ends the process: nothing has been begun."""
    main = threading.current_thread() is threading.main_thread()
    before = {
        number: signal.signal(number, lambda got, frame: os._exit(_CODES[signal.Signals(got)]))
        for number in (_CODES if main else ())
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_WAITS = {
    "starting": "for {} to be there",
    "exchanging": "for messages of {}",
    "fetching": "for parameters that it lacks",
    "frozen": "for the devices to agree on who goes on",
    "waiting": "to be taken in by the other devices",
    "finishing": "for the others to finish",
}


async def _say_waits(standing: Callable[[], Standing], say: Callable[[str], None]) -> None:
    """Say for whom a device waits, from the fifth second on, and again after twice as long."""
    clock = asyncio.get_running_loop().time
    before, since, due_s = None, clock(), _WAIT_S
    while True:
        await asyncio.sleep(_WAIT_S / 10)
        now = standing()
        seen = (now.phase, now.iteration, now.waiting)
        if seen != before:
            before, since, due_s = seen, clock(), _WAIT_S
        elif clock() - since >= due_s and now.phase in _WAITS:
            whom = ", ".join(now.waiting) or "its neighbours"
            say(
                f"{now.name} has waited {clock() - since:.0f} s {_WAITS[now.phase].format(whom)} "
                f"(after iteration {now.iteration} of {now.iterations})"
            )
            due_s *= 2


async def _until_stopped(device: Device, say: Callable[[str], None]) -> int:
    """Run a device; the first signal asks it to stop, the second ends it at once."""
    loop, asked = asyncio.get_running_loop(), list[tuple[float, signal.Signals]]()

    def on_signal(number: signal.Signals) -> None:
        if asked and loop.time() - asked[0][0] > _SETTLE_S:
            os._exit(_CODES[number])
        if not asked:
            asked.append((loop.time(), number))
            say("stopping, everything is being saved; once more to stop at once")
            device.runner.stop("Ctrl-C" if number == signal.SIGINT else number.name)

    for number in _CODES:
        loop.add_signal_handler(number, on_signal, number)
    waits = loop.create_task(_say_waits(device.standing, say))
    try:
        end = await device.run()
    except JoulemeshError:
        raise
    except Exception as error:  # a defect: nothing that is saved is lost
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:400]
        say(
            f"{device.pack.name} failed after iteration {device.runner.iteration}: {reason}; its "
            "journal says where; started again, it resumes"
        )
        return Exit.FAILED
    finally:
        waits.cancel()
        for number in _CODES:
            loop.remove_signal_handler(number)
    if device.runner.punctuality.late:
        say(f"{device.pack.name}: {device.runner.punctuality}")
    if end.complete:
        plan, iterations = device.runner.plan, device.pack.part.iterations
        fewer = plan is not None and plan.last < iterations
        less = f", {device.runner.iteration} of {iterations}: what was left paid for no more"
        say(f"{device.pack.name}: {end.reason}{less if fewer else ''}")
        return Exit.DONE
    again = "; started again, it resumes" if end.resumable else ""
    at = device.runner.iteration
    say(f"{device.pack.name} stopped after iteration {at}: {end.reason}{again}")
    if asked:
        return _CODES[asked[0][1]]
    if end.reason == RETIRED:  # as it was told
        return Exit.DONE
    # What is neither over for good nor may be tried again, the user has to correct.
    return Exit.ENDED if end.resumable or device.runner.ended else Exit.REFUSED
