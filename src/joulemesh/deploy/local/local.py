"""All devices of a fleet as processes of this machine."""

from __future__ import annotations

__all__ = ["LocalFleet", "free_ports", "open_fleet"]

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from joulemesh.base.cache import user_cache
from joulemesh.base.errors import ScenarioError
from joulemesh.base.lock import FolderLock
from joulemesh.deploy.fleet.deployable import own_files, portable
from joulemesh.deploy.fleet.fleet import FILE, Fleet, Settings
from joulemesh.deploy.fleet.hosts import HOSTS, Host, write_hosts
from joulemesh.deploy.fleet.pack import DEVICES, make_fleet, refresh
from joulemesh.deploy.local.churn import Churn
from joulemesh.deploy.local.following import Follower, Planned
from joulemesh.deploy.local.supervisor import Child, Job, Process, Supervisor, spawned
from joulemesh.deploy.local.template import NODE, SIMULATED, Template
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import History, read_history
from joulemesh.planning.plan import Plan
from joulemesh.world.timed import Timed

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
