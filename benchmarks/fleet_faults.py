"""Real fleets of five processes, each with a fault drawn from its seed: do they always end?

``python -m benchmarks.fleet_faults 100 --out faults.jsonl`` runs the fleets of the seeds 0 … 99
that are not in the file yet, and adds a line of JSON for each; ``--seconds`` bounds the time of
all. A learner that sleeps logs every training outside the device's folder: the count of joules is
independent of the devices' own.
"""

from __future__ import annotations

__all__ = ["Wanted", "fleet_of", "main", "tried", "wanted"]

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import joulemesh
from joulemesh.aggregation.peer import Vector
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.local.emulate import emulated, why_not
from joulemesh.deploy.local.local import LocalFleet, open_fleet, states_of
from joulemesh.deploy.operator.standing import Standing
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan

DEVICES, SIZE = 5, 650
KINDS = ("freeze", "kill", "cut", "slow", "hang", "restart")
LEARNER = f"{__file__}:Logged"
ORDERS = "JOULEMESH_FLEET_FAULTS"  # names the folder in which learners find what they should do
SETTINGS = Settings(patience_s=3.0, starting_s=60.0, hang_s=12.0, minority_s=25.0)
GRACE_S = 60.0
_SLOW = 6.0


@dataclass(frozen=True)
class Wanted:
    """A fleet and its fault.

    Attributes:
        seed: from which it is drawn.
        kind: of `KINDS`.
        device: to whom it is done.
        at: the iteration in which it is done.
        lasts_s: how long a device is frozen or cut off.
        training_s: seconds of a training.
        iterations: of the plan.
        binds: do batteries hold hardly more than is planned?
    """

    seed: int
    kind: str
    device: int
    at: int
    lasts_s: float
    training_s: float
    iterations: int
    binds: bool


def wanted(seed: int) -> Wanted:
    """The fleet of a seed; two in a row differ in their budgets only by chance.

    >>> wanted(3) == wanted(3)
    True
    """
    random = Random(f"fleet {seed}")
    training_s = round(random.choice((0.1, 0.3, 1.0, 2.0, 5.0)) * random.uniform(0.8, 1.2), 2)
    iterations = max(6, min(20, round(12.0 / training_s)))
    return Wanted(
        seed,
        KINDS[seed % len(KINDS)],
        random.randrange(DEVICES),
        random.randint(2, iterations - 2),
        round(random.uniform(1.0, 12.0), 1),
        training_s,
        iterations,
        bool((seed // len(KINDS)) % 2),
    )


class Logged:
    """A learner that sleeps, and writes down every training before it begins."""

    def __init__(self, device: int) -> None:
        self.device, self.at = device, np.zeros(SIZE)
        self.folder = Path(os.environ[ORDERS])
        self.wanted = Wanted(**json.loads((self.folder / "wanted.json").read_text()))

    def parameters(self) -> Vector:
        """[P]."""
        return self.at

    def load(self, parameters: Vector) -> None:
        """Take up parameters."""
        self.at = np.array(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        """Write it down, and sleep; hang or be slow, if that is what is wanted."""
        one = self.wanted
        with (self.folder / f"truth-{self.device}.txt").open("a") as file:
            file.write(f"{iteration} {rounds}\n")
        mine, seconds = self.device == one.device, one.training_s
        hung = self.folder / "hung"
        if mine and one.kind == "hang" and iteration >= one.at and not hung.exists():
            hung.touch()
            seconds = 3600.0
        if mine and one.kind == "slow" and iteration >= one.at:
            seconds *= _SLOW
        time.sleep(seconds)
        draw = np.random.default_rng([self.device, iteration])
        self.at = 0.9 * self.at + draw.normal(size=self.at.shape)

    def evaluate(self) -> dict[str, float]:
        """Nothing."""
        return {"accuracy": 0.0}


def fleet_of(one: Wanted) -> Plan:
    """The plan of a fleet; where budgets bind, all but a little of each battery is planned."""
    scenario = joulemesh.Scenario(
        devices={"count": DEVICES},
        network={"topology": "complete"},
        budget={"energy_j": 1000.0, "deadline_s": 0.5},
        plan={"iterations": one.iterations, "rounds": "fixed", "fixed_rounds": 3},
        training={"model": "logistic", "eval_every": 1000},
    )
    plan = joulemesh.plan(scenario)
    if not one.binds:
        return plan
    round_j = plan.world.devices.round_energy_j
    exchange_j = plan.exchange_j[0] if plan.exchange_j.ndim > 1 else plan.exchange_j
    needed_j = float((one.iterations * (3 * round_j + exchange_j)).max())
    binding = {"budget.energy_j": 1.02 * needed_j, "plan.rounds": "spread"}
    return joulemesh.plan(scenario.override(binding))


class _Faults:
    """Does the fault of a fleet when its device is there."""

    def __init__(self, running: LocalFleet, one: Wanted, until: float) -> None:
        self._running, self._one, self._until = running, one, until
        self._since: float | None = None
        self._over = one.kind in ("slow", "hang")
        self._pid = 0
        self.overran = False

    def look(self, standings: Sequence[Standing]) -> None:
        """Do what is due."""
        one, now = self._one, time.monotonic()
        if now > self._until and not self.overran:
            self.overran = True
            self._running.supervisor.stop()
        process = self._running.processes[one.device]
        if self._over:
            return
        if self._since is None:
            due = standings[one.device].iteration >= one.at - 1 and process.state == "running"
            if due and process.pid:
                self._since, self._pid = now, process.pid
                self._do()
        elif now - self._since > one.lasts_s:
            self._undo()

    def _do(self) -> None:
        kind = self._one.kind
        if kind in ("kill", "restart"):
            os.kill(self._pid, signal.SIGKILL)
            self._over = True
        elif kind == "freeze":
            os.kill(self._pid, signal.SIGSTOP)
        else:
            self._link("down")

    def _undo(self) -> None:
        self._over = True
        if self._one.kind == "freeze":
            os.kill(self._pid, signal.SIGCONT)
        else:
            self._link("up")

    def _link(self, state: str) -> None:
        inside = self._running.wrap
        shown = subprocess.run(
            inside(self._one.device, ["ip", "-o", "link"]), capture_output=True, text=True
        ).stdout
        names = [line.split(":")[1].strip().split("@")[0] for line in shown.splitlines()]
        for name in names:
            if name != "lo":
                command = ["ip", "link", "set", "dev", name, state]
                subprocess.run(inside(self._one.device, command), check=True)


@contextmanager
def _running(folder: Path, one: Wanted, plan: Plan, fleet: Fleet) -> Iterator[LocalFleet]:
    restarts = 0 if one.kind == "kill" else 3
    if one.kind == "cut":
        with emulated(folder, fleet, plan, learner=LEARNER, restarts=restarts) as running:
            yield running
    else:
        yield LocalFleet(folder, fleet, plan, learner=LEARNER, restarts=restarts)


def tried(one: Wanted, place: Path) -> dict[str, Any]:
    """Run a fleet, and say what became of it."""
    if one.kind == "cut" and why_not():
        return {**asdict(one), "skipped": why_not()}
    orders = place / "orders"
    orders.mkdir(parents=True)
    (orders / "wanted.json").write_text(json.dumps(asdict(one)))
    os.environ[ORDERS] = str(orders)
    plan = fleet_of(one)
    fleet, _ = open_fleet(place / "fleet", plan, settings=SETTINGS)
    factor = _SLOW if one.kind == "slow" else 1.0
    allowed_s = factor * one.iterations * (one.training_s + 0.5) + one.lasts_s + GRACE_S + 30.0
    began = time.monotonic()
    with _running(place / "fleet", one, plan, fleet) as running:
        faults = _Faults(running, one, began + allowed_s)
        running.run(faults.look, every_s=0.1)
    took = {"seconds": round(time.monotonic() - began, 1), "allowed_s": round(allowed_s)}
    return {**asdict(one), **_judged(running, plan, orders), "hang": faults.overran, **took}


def _judged(running: LocalFleet, plan: Plan, orders: Path) -> dict[str, Any]:
    """What the devices ended with, by their exit codes, disks and journals, and by the truth."""
    fleet = running.fleet
    states = states_of(running.folder, fleet)
    codes = [process.state for process in running.processes]
    ends = [history.end for history in running.histories()]
    reasons = [str(end.figures.get("reason", ""))[:160] if end else "" for end in ends]
    crc = [f"{zlib.crc32(state.commit.vector.tobytes()):08x}" for state in states]
    at = [state.commit.iteration for state in states]
    done = {(at[k], crc[k]) for k in range(DEVICES) if codes[k] == "done"}
    round_j, battery_j = plan.world.devices.round_energy_j, plan.energy_budget_j
    true_j = [_true_rounds(orders, device) * float(round_j[device]) for device in range(DEVICES)]
    return {
        "states": codes,
        "iterations_done": at,
        "crc": crc,
        "reasons": reasons,
        "views": max(state.views[-1].number for state in states),
        "overdrawn": sum(true_j[k] > float(battery_j[k]) for k in range(DEVICES)),
        "other_model": len(done) > 1,
        "complete": codes.count("done"),
        "unexplained": sum(
            codes[k] not in ("done", "lost") and not reasons[k] for k in range(DEVICES)
        ),
    }


def _true_rounds(orders: Path, device: int) -> int:
    path = orders / f"truth-{device}.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return sum(int(line.split()[1]) for line in lines)


def good(line: dict[str, Any]) -> bool:
    """Does everything hold that must?"""
    return "skipped" in line or not (
        line["hang"] or line["overdrawn"] or line["other_model"] or line["unexplained"]
    )


def main(arguments: list[str] | None = None) -> int:
    """Run fleets; 1 if one of them is not as it must be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_faults")
    parser.add_argument("fleets", type=int, help="run the seeds below this one")
    parser.add_argument("--first", type=int, default=0, help="seed to begin with")
    parser.add_argument("--out", type=Path, default=Path("fleet-faults.jsonl"))
    parser.add_argument("--seconds", type=float, default=3600.0, help="begin none after so many")
    parser.add_argument("--only", type=int, help="run this seed, whatever the file holds")
    asked = parser.parse_args(arguments)
    had = asked.out.read_text().splitlines() if asked.out.exists() else []
    lines = [json.loads(line) for line in had]
    known, began = {line["seed"] for line in lines}, time.monotonic()
    seeds = [asked.only] if asked.only is not None else range(asked.first, asked.fleets)
    for seed in seeds:
        if (seed in known and asked.only is None) or time.monotonic() - began > asked.seconds:
            continue
        with tempfile.TemporaryDirectory() as place:
            line = tried(wanted(seed), Path(place))
        lines.append(line)
        with asked.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)
    counts = Counter((line["kind"], "good" if good(line) else "BAD") for line in lines)
    print({f"{kind} {how}": number for (kind, how), number in sorted(counts.items())})
    return int(not all(map(good, lines)))


if __name__ == "__main__":
    sys.exit(main())
