"""Faults of real processes: devices of a local fleet are killed or frozen at random moments."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

import joulemesh
from benchmarks.common import progress
from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.local.local import RUN, LocalFleet, open_fleet, states_of
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.record.history import History, read_history
from joulemesh.deploy.view import Settings

DEVICES_COUNT = 8
PATIENCE_S = 4.0
GRACE_S = 5.0  # survivors go on within patience and this
FREEZE_S = 60.0
PACE_S = 0.05
LEARNER = f"{__file__}:Paced"

Kind = Literal["kill", "freeze"]


@dataclass(frozen=True)
class Fault:
    """Something that is done to a process.

    Attributes:
        at_s: when, in seconds after all devices have committed their first iteration.
        kind: ``"kill"`` (SIGKILL) or ``"freeze"`` (SIGSTOP, and SIGCONT later).
        device: to whom.
        lasts_s: how long a device is frozen.
    """

    at_s: float
    kind: Kind
    device: int
    lasts_s: float = 0.0


@dataclass(frozen=True)
class Happened:
    """A fault that was done.

    Attributes:
        fault: which.
        at: when, in seconds since the epoch.
        iteration: the last that the device had committed.
    """

    fault: Fault
    at: float
    iteration: int


class Injector:
    """Does faults to a fleet while it runs: its `look` is what the fleet's ``watch`` calls.

    A fault whose device is just starting, frozen or done waits until it can be done.
    """

    def __init__(self, running: LocalFleet, faults: Sequence[Fault]) -> None:
        self._running, self._left = running, sorted(faults, key=lambda fault: fault.at_s)
        self._begun: float | None = None
        self._thaw: dict[int, tuple[int, float]] = {}  # process and when, by device
        self.happened: list[Happened] = []

    @property
    def left(self) -> list[Fault]:
        """Faults that have not been done."""
        return list(self._left)

    def look(self, standings: Sequence[Standing]) -> None:
        """Do what is due."""
        now = time.time()
        for device, (pid, until) in tuple(self._thaw.items()):
            if now >= until:
                os.kill(pid, signal.SIGCONT)
                del self._thaw[device]
        if self._begun is None:
            if all(one.iteration for one in standings):
                self._begun = now
            return
        for fault in tuple(self._left):
            if now >= self._begun + fault.at_s and self._do(fault, standings[fault.device], now):
                self._left.remove(fault)

    def _do(self, fault: Fault, standing: Standing, now: float) -> bool:
        process = self._running.processes[fault.device]
        if process.state != "running" or fault.device in self._thaw or not process.pid:
            return False
        os.kill(process.pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
        if fault.kind == "freeze":
            self._thaw[fault.device] = (process.pid, now + fault.lasts_s)
        self.happened.append(Happened(fault, now, standing.iteration))
        return True


def kills(count: int, seed: int, spacing_s: tuple[float, float] = (1.0, 12.0)) -> list[Fault]:
    """So many kills of random devices at random moments, one after the other."""
    draw = np.random.default_rng(seed)
    times = itertools.accumulate(draw.uniform(*spacing_s, count).tolist())
    return [Fault(at, "kill", int(draw.integers(DEVICES_COUNT))) for at in times]


def freezes(count: int, seed: int) -> list[Fault]:
    """So many devices frozen for a minute, one after the other."""
    draw = np.random.default_rng(seed)
    pauses = (FREEZE_S + draw.uniform(8.0, 15.0, count)).tolist()
    times = itertools.accumulate([draw.uniform(1.0, 3.0), *pauses[:-1]])
    return [Fault(at, "freeze", int(draw.integers(DEVICES_COUNT)), FREEZE_S) for at in times]


@dataclass(frozen=True)
class Verdict:
    """What became of a run with faults.

    Attributes:
        complete: did every device end with the plan carried out?
        faults: how many were done.
        longest_pause_s: of a device without a fault of its own: between two commits, or from the
            last fault in between.
        rejoined: after how many of the faults the device committed again.
        overdrawn: devices that spent more than their battery holds.
        same_bits: do all devices end with the same parameters, bit for bit?
        views: number of the last view.
        seconds: of the run.
    """

    complete: bool
    faults: int
    longest_pause_s: float
    rejoined: int
    overdrawn: int
    same_bits: bool
    views: int
    seconds: float

    @property
    def good(self) -> bool:
        """Does everything hold that must?"""
        return (
            self.complete
            and self.same_bits
            and not self.overdrawn
            and self.rejoined == self.faults
            and self.longest_pause_s <= PATIENCE_S + GRACE_S
        )


class Paced:
    """A learner without JAX that takes some time for an iteration, however fast the machine."""

    def __init__(self, device: int) -> None:
        self.device, self.at = device, np.zeros(650)

    def parameters(self) -> Vector:
        return self.at

    def load(self, parameters: Vector) -> None:
        self.at = np.array(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        time.sleep(PACE_S)
        draw = np.random.default_rng([self.device, iteration])
        self.at = 0.9 * self.at + draw.normal(size=self.at.shape)

    def evaluate(self) -> dict[str, float]:
        return {"accuracy": 0.0}


def tried(folder: Path, faults: Sequence[Fault], learner: str | None = LEARNER) -> Verdict:
    """A run that outlasts its faults, and what became of it."""
    last_s = max(fault.at_s + fault.lasts_s for fault in faults)
    plan = joulemesh.plan(scenario(int((last_s + 3 * PATIENCE_S) / PACE_S)))
    fleet, _ = open_fleet(folder, plan, settings=Settings(patience_s=PATIENCE_S))
    running = LocalFleet(folder, fleet, plan, learner=learner, restarts=len(faults) + 5)
    injector, begun = Injector(running, faults), time.monotonic()
    running.run(injector.look, every_s=0.1)
    for fault in injector.left:
        progress(f"the run ended before a fault could be done: {fault}")
    return verdict(running, injector.happened, time.monotonic() - begun)


def vectors(folder: Path, fleet: Fleet) -> list[Vector]:
    """The parameters that the devices of a fleet have on disk."""
    return [state.commit.vector for state in states_of(folder, fleet)]


def verdict(running: LocalFleet, happened: Sequence[Happened], seconds: float) -> Verdict:
    """What became of a run, from the journals and the states of its devices."""
    fleet = running.fleet
    runs = [running.folder / DEVICES / name / RUN for name in fleet.names]
    histories = [
        read_history(run, device, name)
        for device, (run, name) in enumerate(zip(runs, fleet.names, strict=True))
    ]
    states = states_of(running.folder, fleet)
    battery_j = running.plan.energy_budget_j
    return Verdict(
        complete=running.complete,
        faults=len(happened),
        longest_pause_s=max(_longest_pause(one, happened) for one in histories),
        rejoined=sum(_rejoined(one, histories[one.fault.device]) for one in happened),
        overdrawn=sum(
            bool(one.column("spent_j").max(initial=0.0) > battery_j[one.device])
            for one in histories
        ),
        same_bits=len({state.commit.vector.tobytes() for state in states}) == 1,
        views=max(state.views[-1].number for state in states),
        seconds=seconds,
    )


def _longest_pause(history: History, happened: Sequence[Happened]) -> float:
    """Seconds to the next commit, from the one before it or from the last fault in between."""
    own = [one for one in happened if one.fault.device == history.device]
    others = [one.at for one in happened if one.fault.device != history.device]
    commits = np.sort(history.column("at")).tolist()
    return max(
        (
            after - max([before, *(at for at in others if before < at < after)])
            for before, after in pairwise(commits)
            if not any(before <= one.at + one.fault.lasts_s and one.at <= after for one in own)
        ),
        default=0.0,
    )


def _rejoined(one: Happened, history: History) -> bool:
    """Did the device commit again? One that was killed at its very end has nothing left to do."""
    end = history.end
    later = bool((history.column("at") > one.at + one.fault.lasts_s).any())
    return later or (end is not None and bool(end.figures.get("complete")))


def scenario(iterations: int) -> joulemesh.Scenario:
    """Eight devices that average exactly, with batteries for several repetitions."""
    return joulemesh.Scenario(
        devices={"count": DEVICES_COUNT},
        network={"profile": "ideal", "topology": "complete"},
        budget={"energy_j": 1000.0, "deadline_s": 0.05},
        plan={
            "iterations": iterations,
            "rounds": "fixed",
            "fixed_rounds": 3,
            "aggregation": "theorem3",
        },
        training={"model": "logistic", "eval_every": 50},
    )


def measure(place: Path) -> list[dict[str, Any]]:
    """20 kills over four runs, the last with JAX, and 5 devices frozen for a minute."""
    runs: list[tuple[str, list[Fault], str | None]] = [
        *((f"5 kills, seed {seed}", kills(5, seed), LEARNER) for seed in range(3)),
        ("5 kills, seed 3, learner with JAX", kills(5, 3), None),
        ("5 devices frozen for 60 s", freezes(5, 0), LEARNER),
    ]
    found = []
    for number, (name, faults, learner) in enumerate(runs):
        progress(f"faults: {name}")
        came = tried(place / str(number), faults, learner)
        found.append({"name": name, "good": came.good, **asdict(came)})
    return found
