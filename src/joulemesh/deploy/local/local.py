"""All devices of a fleet as processes of this machine, followed through their journals."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import (
    NODE_STATE,
    FolderLock,
    parse_json,
    read_bounded,
    user_cache,
)
from joulemesh.deploy.device.store import Owner, Store
from joulemesh.deploy.effects import Durable
from joulemesh.deploy.fleet.fleet import FILE, HOSTS, Fleet, Host, write_hosts
from joulemesh.deploy.fleet.pack import DEVICES, make_fleet, own_files, portable, refresh
from joulemesh.deploy.local.supervisor import (
    COMMAND,
    Job,
    Process,
    Supervisor,
    fork_server,
    spawned,
)
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import FileTail, History, read_history
from joulemesh.deploy.record.receipt import planned
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.world.traces import Timed, read_availability

# What a device does after a line of this kind.
_AFTER = {
    "start": "starting",
    "trained": "exchanging",
    "committed": "training",
    "end": "ended",
}


@dataclass(frozen=True, eq=False)
class Planned:
    """What the plan gives the devices up to each iteration."""

    joules: NDArray[np.float64]  # [n + 1, N], of all iterations up to each; 0 at the beginning
    seconds: NDArray[np.float64]  # [n + 1], of the fleet
    battery_j: NDArray[np.float64]  # [N], what each may spend

    @classmethod
    def of(cls, plan: Plan) -> Planned:
        joules = np.nan_to_num(planned(plan).joules)
        return cls(_summed(joules), _summed(plan.latency_s), plan.energy_budget_j)


def _summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


class Follower(FileTail):
    """Follows one device through the journal that it writes."""

    def __init__(self, folder: Path, standing: Standing, planned: Planned) -> None:
        super().__init__(folder, standing.device, standing.name)
        self._planned = planned
        self.started_at = 0.0
        battery_j = float(planned.battery_j[standing.device])
        self.standing = replace(standing, iterations=len(planned.seconds) - 1, battery_j=battery_j)

    def now(self) -> Standing:
        """How it stands, after what has been written since the last call."""
        with suppress(OSError, ScenarioError):  # not yet there
            self.look()
        return self.standing

    def started_since(self, launched: float) -> bool:
        """Has it been started after a moment, in seconds since the epoch?"""
        self.now()
        return self.started_at >= launched

    def take(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            with suppress(ValueError, TypeError, LookupError, AttributeError):  # cut short
                self._heed(parse_json(line))

    def _heed(self, line: dict[str, Any]) -> None:
        kind, now = line["kind"], self.standing
        changes: dict[str, Any] = {}
        if kind in _AFTER:
            changes["phase"] = _AFTER[kind]
        if kind == "start":
            self.started_at = float(line["at"])
            changes["trouble"] = ""
        if kind in ("start", "committed"):
            iteration = min(int(line["iteration"]), now.iterations)
            changes["iteration"] = iteration
            changes["planned_j"] = float(self._planned.joules[iteration, self.device])
            changes["planned_s"] = float(self._planned.seconds[iteration])
        for figure in ("spent_j", "elapsed_s"):
            if figure in line:
                changes[figure] = float(line[figure])
        if kind == "view":
            changes["view"] = int(line["number"])
        if kind == "evaluated" and "accuracy" in line:
            changes["accuracy"] = float(line["accuracy"])
        ended = kind == "end" and not line.get("complete")
        if ended or kind in ("not-saved", "not-trained"):
            changes["trouble"] = str(line.get("reason", ""))
        self.standing = replace(now, **changes)


_SIMULATED_ONLY = ("harvest_w", "capacity_j", "positions")


def steadfast(scenario: Scenario) -> Scenario:
    """The scenario as a fleet is to carry it out, in which everybody is there."""
    for name in _SIMULATED_ONLY:
        if getattr(scenario.devices, name) is not None:
            raise ScenarioError(
                f"devices.{name} is for simulation: what a deployed device holds and where it is, "
                "its own meter and radio tell; leave it out"
            )
    if scenario.devices.availability is None:
        return scenario
    return scenario.override({"devices.availability": None})


def churn_of(scenario: Scenario) -> Timed | None:
    if scenario.devices.availability is None:
        return None
    trace = read_availability(scenario)
    for t in [] if trace.seconds else trace.changes.tolist():
        there = int(trace.at(t).sum())
        if there < 2:
            raise ScenarioError(
                f"{trace.path} leaves {there} of {scenario.devices.count} devices in iteration "
                f"{t:g}: a fleet would wait for ever; keep two of them, or give seconds (time_s)"
            )
    return trace


@dataclass
class Churn:
    """Stops and starts the processes of a fleet."""

    # Journals tell of iterations up to a second late, so that a fast fleet may be far beyond a time
    # of the table before it is known to have come there. No change is left out for that: the next
    # one comes when the fleet has gone on with the one before.

    trace: Timed  # who is there when
    supervisor: Supervisor  # of the processes, by device
    now: Callable[[], float] = time.monotonic  # seconds of a clock
    _begun: float | None = field(default=None, init=False)
    _stage: float = field(default=0.0, init=False)  # the time of the table that is carried out
    _since: int | None = field(default=None, init=False)  # iterations when it had been

    def look(self, standings: Sequence[Standing]) -> None:
        """See how far the fleet has come, and who is to be there then."""
        if self._begun is None:
            if not all(one.known or one.over for one in self.supervisor.processes):
                return  # a fleet begins with everybody
            self._begun, self._stage = self.now(), self.trace.start
        committed = max((one.iteration for one in standings), default=0)
        if self.trace.seconds:
            self._stage = self.now() - self._begun
        else:
            self._go_on(committed)
        for device, here in enumerate(self._present):
            if here:
                self.supervisor.bring_back(device)
            else:
                self.supervisor.send_away(device)

    @property
    def _present(self) -> list[bool]:
        return [bool(here > 0) for here in self.trace.at(self._stage)[:, 0]]

    def _go_on(self, committed: int) -> None:
        """Turn to the next change, if the fleet is there and has gone on since the last."""
        if self._since is None and self._done():
            self._since = committed
        following = self.trace.next_change(self._stage)
        reached = self.trace.when(committed, 0.0) >= following
        if reached and self._since is not None and committed > self._since:
            self._stage, self._since = following, None

    def _done(self) -> bool:
        """Are those there who are to be, and the others away?"""
        processes = self.supervisor.processes
        return all(
            process.state in (("running",) if here else ("away",)) or process.state == "done"
            for process, here in zip(processes, self._present, strict=True)
        )

    def expects(self) -> bool:
        if self._begun is None or not self.trace.seconds:
            return False
        away = any(process.state == "away" for process in self.supervisor.processes)
        later = self.trace.changes[-1] >= self.now() - self._begun
        return away and (bool(later) or self.trace.end == "repeat")


def states_of(folder: Path, fleet: Fleet) -> list[Durable]:
    found = []
    for device, name in enumerate(fleet.names):
        run = folder / DEVICES / name / RUN
        state = Store(run, Owner(fleet.id, fleet.digest, device)).load()
        if state is None:
            raise ScenarioError(f"{run} holds no state; start {name} first")
        found.append(state)
    return found


def largest_difference(folder: Path, fleet: Fleet, model: Path) -> float | None:
    """The largest difference of the devices' mean parameters from a simulated run's."""
    from safetensors.numpy import load

    states = states_of(folder, fleet)
    if len({state.commit.iteration for state in states}) > 1 or any(
        state.views[-1].number for state in states
    ):
        return None
    arrays = load(read_bounded(model, NODE_STATE.now))
    wanted = np.concatenate([arrays[name].ravel() for name in sorted(arrays)])
    found = np.mean([state.commit.vector for state in states], axis=0, dtype=np.float64)
    return float(np.abs(found - wanted).max()) if found.shape == wanted.shape else None


RUN, LOG = "run", "node.log"
_PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections

# Many processes share the CPUs: one thread each, and whatever one has compiled serves all.
_ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_XLA_FLAGS = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

# What a device is doing, where its process tells more than its journal.
_PHASES = {
    "to start": "not started",
    "lost": "crashed",
    "refused": "refused",
    "stopped": "stopped",
    "away": "away",
}
_IMPORTED = (  # what every node imports
    "joulemesh.cli",
    "joulemesh.deploy.device.device",
    "joulemesh.deploy.operator.standing",
    "joulemesh.deploy.transport.tcp",
)
_CHURN_S = 0.05  # how often a trace of comings and goings is looked at


def free_ports(count: int) -> list[int]:
    # Processes look from different places on, so that two fleets rarely meet.
    found: list[int] = []
    for step in range(len(_PORTS)):
        port = _PORTS[(os.getpid() * 97 + step) % len(_PORTS)]
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ScenarioError(
        f"this machine has {len(found)} free ports for {count} devices; stop what uses them"
    )


def open_fleet(
    folder: Path, plan: Plan, *, settings: Settings, code: Sequence[Path] = ()
) -> tuple[Fleet, bool]:
    """The fleet of a plan in a folder, with the keys of all devices; packed if it is not there."""
    if plan.scenario.devices.leave:
        raise ScenarioError(
            "spare places (devices.leave) are for devices that come to a running fleet (joulemesh "
            "deploy init, deploy add); leave them out here"
        )
    if not (folder / FILE).exists():
        return make_fleet(folder, plan, with_keys=True, settings=settings, code=code), False
    fleet = Fleet.load(folder)
    another = "give another --out, or remove the folder to start again"
    if fleet.digest != portable(plan)[1]:
        raise ScenarioError(f"{folder} holds the fleet of another plan; {another}")
    if fleet.settings != settings:
        was, now = (set(asdict(one).items()) for one in (fleet.settings, settings))
        name, value = sorted(was - now)[0]
        raise ScenarioError(f"{folder} holds a fleet with {name} = {value}; {another}")
    return fleet, True


@dataclass
class LocalFleet:
    """A fleet whose devices are processes of this machine."""

    folder: Path
    fleet: Fleet
    plan: Plan  # what it carries out
    code: Sequence[Path] = ()  # the user's own files, which each process loads
    # the user's own learner (``FILE.py:NAME``) in the place of the scenario's
    learner: str | None = None
    restarts: int = 5  # how often one device is started again after a crash
    addresses: Sequence[str] = ()  # of the devices; by default, all are this machine
    # makes of a device's command the one that is run
    wrap: Callable[[int, Sequence[str]], Sequence[str]] = lambda device, command: command
    trace: Timed | None = None  # when devices are there; they always are unless it is given
    _followers: list[Follower] = field(init=False)
    supervisor: Supervisor = field(init=False)

    def __post_init__(self) -> None:
        part = Planned.of(self.plan)
        self._followers = [
            Follower(self._home(device) / RUN, Standing(device, name), part)
            for device, name in enumerate(self.fleet.names)
        ]
        jobs = [self._job(device) for device in range(len(self.fleet.names))]
        self.supervisor = Supervisor(jobs, restarts=self.restarts)

    def _home(self, device: int) -> Path:
        return self.folder / DEVICES / self.fleet.names[device]

    def _job(self, device: int) -> Job:
        home = self._home(device)
        files = own_files(self.plan.scenario, self.code)
        loads = [word for path in files for word in ("--load", str(path.absolute()))]
        own = [] if self.learner is None else ["--learner", self.learner]
        node = [*COMMAND, "node", "run", str(home), "--linger", "0 s", "--meter", "modelled"]
        follower = self._followers[device]
        return Job(
            name=self.fleet.names[device],
            command=self.wrap(device, [*node, *loads, *own]),
            log=home / LOG,
            environment=environment(),
            ready=follower.started_since,
        )

    def run(self, watch: Callable[[Sequence[Standing]], None], every_s: float = 0.5) -> None:
        with FolderLock(self.folder):
            if not self.addresses:  # a command in a namespace cannot be forked
                own = () if self.learner else ("joulemesh.deploy.device.simulated",)
                self.supervisor.start = fork_server(environment(), (*_IMPORTED, *own)) or spawned
            self._give_addresses()
            if self.trace is None:
                self.supervisor.run(lambda: watch(self.standings()), every_s)
                return
            churn = Churn(self.trace, self.supervisor)

            def look() -> None:
                standings = self.standings()
                churn.look(standings)
                watch(standings)

            self.supervisor.expects = churn.expects
            self.supervisor.run(look, min(every_s, _CHURN_S))

    def _give_addresses(self) -> None:
        """Write where devices are reached, anew each time: ports may have been taken since."""
        names = self.fleet.names
        if self.addresses:
            hosts = [Host(name, one) for name, one in zip(names, self.addresses, strict=True)]
        else:
            ports = free_ports(len(names))
            hosts = [Host(name, "127.0.0.1", port) for name, port in zip(names, ports, strict=True)]
        write_hosts(self.folder / HOSTS, hosts)
        refresh(self.folder)

    @property
    def processes(self) -> Sequence[Process]:
        return self.supervisor.processes

    def standings(self) -> list[Standing]:
        """How all devices stand: by their journals, and by their processes where these say more."""
        return [
            _told(follower.now(), process)
            for follower, process in zip(self._followers, self.processes, strict=True)
        ]

    def histories(self) -> list[History]:
        found = []
        for device, name in enumerate(self.fleet.names):
            with suppress(ScenarioError):  # it was never started
                found.append(read_history(self._home(device) / RUN, device, name))
        return found

    @property
    def complete(self) -> bool:
        """Has every device carried out its part? Who is away at the end has none."""
        states = {process.state for process in self.processes}
        return "done" in states and states <= {"done", "away"}


def _told(standing: Standing, process: Process) -> Standing:
    phase = _PHASES.get(process.state, "") or standing.phase or "starting"
    trouble = standing.trouble
    if process.state in ("lost", "refused", "ended"):
        trouble = process.last_words() or trouble
    elif process.restarts and not trouble:
        trouble = f"crashed {process.restarts} time{'' if process.restarts == 1 else 's'}"
    return replace(standing, phase=phase, trouble=trouble)


def environment() -> Mapping[str, str]:
    """What is set for the processes of a local fleet, where the user has not set it."""
    flags = " ".join(part for part in (os.environ.get("XLA_FLAGS", ""), _XLA_FLAGS) if part)
    cache = {"JAX_COMPILATION_CACHE_DIR": str(user_cache() / "xla")}
    wanted = {**_ENVIRONMENT, **cache}
    return {"XLA_FLAGS": flags, **{k: v for k, v in wanted.items() if k not in os.environ}}
