"""All devices of a fleet as processes of this machine, followed through their journals."""

from __future__ import annotations

__all__ = [
    "Churn",
    "Follower",
    "LocalFleet",
    "Planned",
    "churn_of",
    "free_ports",
    "largest_difference",
    "open_fleet",
    "states_of",
    "steadfast",
]

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.bounded import (
    JOURNAL,
    JOURNAL_LINE,
    NODE_STATE,
    open_bounded,
    parse_json,
    read_bounded,
)
from joulemesh.base.cache import user_cache
from joulemesh.base.errors import ScenarioError
from joulemesh.base.lock import FolderLock
from joulemesh.deploy.device.store import Owner, Store
from joulemesh.deploy.effects import Durable
from joulemesh.deploy.fleet.fleet import FILE, Fleet, Settings
from joulemesh.deploy.fleet.hosts import HOSTS, Host, write_hosts
from joulemesh.deploy.fleet.pack import DEVICES, make_fleet, own_files, portable, refresh
from joulemesh.deploy.local.supervisor import Child, Job, Process, Supervisor, spawned
from joulemesh.deploy.local.template import NODE, SIMULATED, Template
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.costs import planned
from joulemesh.deploy.record.history import History, read_history
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.world.timed import Timed
from joulemesh.world.traces import read_availability

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

# What a device does after a line of this kind.
_AFTER = {
    "start": "starting",
    "trained": "exchanging",
    "committed": "training",
    "end": "ended",
}


@dataclass(frozen=True, eq=False)
class Planned:
    """What the plan gives a device up to each iteration.

    Attributes:
        joules: float64 [n + 1], of all iterations up to each; 0 at the beginning.
        seconds: float64 [n + 1], of the fleet.
        battery_j: what it may spend.
    """

    joules: NDArray[np.float64]
    seconds: NDArray[np.float64]
    battery_j: float

    @classmethod
    def of(cls, plan: Plan, device: int) -> Planned:
        """The part of one device in a plan.

        >>> import joulemesh
        >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
        >>> mine = Planned.of(made, 3)
        >>> len(mine.joules), bool(abs(mine.joules[-1] - made.spent_j[3]) < 1e-9)
        (101, True)
        """
        joules = np.nan_to_num(planned(plan).joules[:, device])
        return cls(_summed(joules), _summed(plan.latency_s), float(plan.energy_budget_j[device]))


def _summed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(values)])


class Follower:
    """Follows one device.

    Args:
        folder: where it writes ``journal.jsonl``.
        standing: its number and name.
        planned: what the plan gives it.
    """

    def __init__(self, folder: Path, standing: Standing, planned: Planned) -> None:
        self._path = folder / "journal.jsonl"
        self._planned = planned
        self._at: tuple[int, int] = (0, 0)  # the file's number and how far it was read
        self.started_at = 0.0
        self.standing = replace(
            standing, iterations=len(planned.joules) - 1, battery_j=planned.battery_j
        )

    def look(self) -> Standing:
        """How it stands now: what has been written since the last look is read."""
        for line in self._new_lines():
            with suppress(ValueError, TypeError, LookupError, AttributeError):  # cut short
                self._heed(parse_json(line))
        return self.standing

    def started_since(self, launched: float) -> bool:
        """Has it been started after a moment, in seconds since the epoch?"""
        self.look()
        return self.started_at >= launched

    def _new_lines(self) -> list[bytes]:
        """Whole lines; a journal that was put aside goes on in a new file."""
        try:
            with open_bounded(self._path, JOURNAL.now) as file:
                found = os.fstat(file.fileno())
                number, place = self._at
                if number != found.st_ino or place > found.st_size:
                    place = 0
                file.seek(place)
                text = file.read(JOURNAL_LINE.now)
        except (OSError, ScenarioError):  # not yet there
            return []
        whole = text.rfind(b"\n") + 1
        if not whole and len(text) == JOURNAL_LINE.now:
            whole = len(text)  # no line of ours is as long
        self._at = (found.st_ino, place + whole)
        return text[:whole].splitlines()

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
            changes["planned_j"] = float(self._planned.joules[iteration])
            changes["planned_s"] = float(self._planned.seconds[iteration])
        for figure in ("spent_j", "elapsed_s"):
            if figure in line:
                changes[figure] = float(line[figure])
        if kind == "view":
            changes["view"] = int(line["number"])
        if kind == "evaluated" and "accuracy" in line:
            changes["accuracy"] = float(line["accuracy"])
        if kind == "end" and not line.get("complete"):
            changes["trouble"] = str(line.get("reason", ""))
        if kind in ("not-saved", "not-trained"):
            changes["trouble"] = str(line.get("reason", ""))
        self.standing = replace(now, **changes)


_SIMULATED_ONLY = ("harvest_w", "capacity_j", "positions")


def steadfast(scenario: Scenario) -> Scenario:
    """The scenario as a fleet is to carry it out, in which everybody is there.

    Raises:
        ScenarioError: it says of its devices what only a simulation can do.

    >>> steadfast(Scenario()) == Scenario()
    True
    """
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
    """Who is there when; None if everybody always is.

    Raises:
        ScenarioError: the table cannot be read, or it leaves fewer than two devices in an
            iteration: a fleet counts iterations, so that none would follow.

    >>> churn_of(Scenario()) is None
    True
    """
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
    """Stops and starts the processes of a fleet.

    Journals tell of iterations up to a second late, so that a fast fleet may be far beyond a time
    of the table before it is known to have come there. No change is left out for that: the next
    one comes when the fleet has gone on with the one before.

    Attributes:
        trace: who is there when.
        supervisor: of the processes, by device.
        now: seconds of a clock.
    """

    trace: Timed
    supervisor: Supervisor
    now: Callable[[], float] = time.monotonic
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
        """Will somebody come back, though nobody is there now?"""
        if self._begun is None or not self.trace.seconds:
            return False
        away = any(process.state == "away" for process in self.supervisor.processes)
        later = self.trace.changes[-1] >= self.now() - self._begun
        return away and (bool(later) or self.trace.end == "repeat")


def states_of(folder: Path, fleet: Fleet) -> list[Durable]:
    """What all devices of a fleet have on this machine's disk.

    Args:
        folder: of the fleet.
        fleet: what it holds.

    Raises:
        ScenarioError: a device has none, or it is damaged.
    """
    found = []
    for device, name in enumerate(fleet.names):
        run = folder / DEVICES / name / RUN
        state = Store(run, Owner(fleet.id, fleet.digest, device)).load()
        if state is None:
            raise ScenarioError(f"{run} holds no state; start {name} first")
        found.append(state)
    return found


def largest_difference(folder: Path, fleet: Fleet, model: Path) -> float | None:
    """The largest difference of the devices' mean parameters from a simulated run's.

    Args:
        folder: of the fleet.
        fleet: what it holds.
        model: ``model.safetensors`` of the simulated run: the mean of its devices.

    Returns:
        The difference; None if devices joined or left meanwhile, or have not all finished: then
        there is no such run.

    Raises:
        ScenarioError: a file cannot be read.
    """
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
_CHURN_S = 0.05  # how often a trace of comings and goings is looked at


def free_ports(count: int) -> list[int]:
    """TCP ports of this machine that nobody uses.

    Processes look from different places on, so that two fleets rarely meet.

    Raises:
        ScenarioError: there are not as many.

    >>> len(set(free_ports(3)))
    3
    """
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
    """The fleet of a plan in a folder, with the keys of all devices; packed if it is not there.

    Args:
        folder: of the fleet; a new one, or that of an earlier call.
        plan: what the fleet carries out.
        settings: how devices treat each other.
        code: the user's own files that were loaded before planning.

    Returns:
        The fleet, and whether it was there already.

    Raises:
        ScenarioError: the folder holds something else.
    """
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
    """A fleet whose devices are processes of this machine.

    Attributes:
        folder: of the fleet.
        fleet: what it holds.
        plan: what it carries out.
        code: the user's own files, which each process loads.
        learner: the user's own learner (``FILE.py:NAME``) in the place of the scenario's.
        restarts: how often one device is started again after a crash.
        addresses: of the devices; by default, all are this machine.
        wrap: makes of a device's command the one that is run.
        trace: when devices are there; they always are unless it is given.
    """

    folder: Path
    fleet: Fleet
    plan: Plan
    code: Sequence[Path] = ()
    learner: str | None = None
    restarts: int = 5
    addresses: Sequence[str] = ()
    wrap: Callable[[int, Sequence[str]], Sequence[str]] = lambda device, command: command
    trace: Timed | None = None
    _followers: list[Follower] = field(init=False)
    supervisor: Supervisor = field(init=False)
    _template: Template | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._followers = [
            Follower(
                self._home(device) / RUN, Standing(device, name), Planned.of(self.plan, device)
            )
            for device, name in enumerate(self.fleet.names)
        ]
        jobs = [self._job(device) for device in range(len(self.fleet.names))]
        self.supervisor = Supervisor(jobs, restarts=self.restarts, start=self._start)

    def _home(self, device: int) -> Path:
        return self.folder / DEVICES / self.fleet.names[device]

    def _job(self, device: int) -> Job:
        home = self._home(device)
        files = own_files(self.plan.scenario, self.code)
        loads = [word for path in files for word in ("--load", str(path.absolute()))]
        own = [] if self.learner is None else ["--learner", self.learner]
        command = [
            sys.executable,
            "-m",
            "joulemesh",
            "node",
            "run",
            str(home),
            "--linger",
            "0 s",
            "--meter",
            "modelled",
            *loads,
            *own,
        ]
        follower = self._followers[device]
        return Job(
            name=self.fleet.names[device],
            command=self.wrap(device, command),
            log=home / LOG,
            environment=environment(),
            ready=follower.started_since,
        )

    def run(self, watch: Callable[[Sequence[Standing]], None], every_s: float = 0.5) -> None:
        """Start all devices, and see them to their ends.

        Args:
            watch: shown how all devices stand, now and then and at the end.
            every_s: how often.
        """
        with ExitStack() as stack:
            stack.enter_context(FolderLock(self.folder))
            if Template.can() and any(Template.fits(one.job) for one in self.processes):
                made = Template(environment(), SIMULATED if self.learner is None else NODE)
                self._template = stack.enter_context(made)
            self._give_addresses()
            churn = None if self.trace is None else Churn(self.trace, self.supervisor)
            if churn is None:
                self.supervisor.run(lambda: watch(self.standings()), every_s)
                return

            def look() -> None:
                standings = self.standings()
                churn.look(standings)
                watch(standings)

            self.supervisor.expects = churn.expects
            self.supervisor.run(look, min(every_s, _CHURN_S))

    def _start(self, job: Job) -> Child:
        """Start a device: by the template if it can, which spares it the imports."""
        ready = self._template if self._template and self._template.starts(job) else None
        return (ready and ready.start(job)) or spawned(job)

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
        """One for each device."""
        return self.supervisor.processes

    def standings(self) -> list[Standing]:
        """How all devices stand: by their journals, and by their processes where these say more."""
        return [
            _told(follower.look(), process)
            for follower, process in zip(self._followers, self.processes, strict=True)
        ]

    def histories(self) -> list[History]:
        """What the devices did, from the journals of those that have any."""
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
