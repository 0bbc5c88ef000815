"""Batteries that bind: the first plan spends all of them, and then a device crashes.

Plans made after a fault leave a reserve alone (`fleet.reserve`); the first plan, which is the
simulated one, leaves nothing. That is enough: joules that a crash costs are taken from the rounds
that are left.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.deploy.view import Settings
from tests.deploy.scheme_fleet import Crashes, SchemeFleet

ITERATIONS, DEVICES = 20, 5


class Drifts:
    """A learner without data: what it trains depends on its device and the iteration alone."""

    def __init__(self, device: int) -> None:
        self.device, self.at = device, np.zeros(650)

    def parameters(self) -> NDArray[np.float64]:
        return self.at

    def load(self, parameters: NDArray[np.float64]) -> None:
        self.at = np.array(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        draw = np.random.default_rng([self.device, iteration])
        self.at = 0.9 * self.at + draw.normal(size=self.at.shape)

    def evaluate(self) -> dict[str, float]:
        return {}

    def save(self) -> Mapping[str, NDArray[Any]]:
        return {}

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """It remembers nothing."""


@cache
def binding() -> joulemesh.Scenario:
    """Three rounds in each iteration take all joules of one device; `spread` takes everybody's."""
    scenario = joulemesh.Scenario(
        devices={"count": DEVICES},
        network={"topology": "complete"},
        budget={"energy_j": 1000.0, "deadline_s": 0.5},
        plan={"iterations": ITERATIONS, "rounds": "fixed", "fixed_rounds": 3},
        training={"model": "logistic", "eval_every": 1000},
    )
    plan = joulemesh.plan(scenario)
    exchange_j = np.broadcast_to(plan.exchange_j, (ITERATIONS, DEVICES))[0]
    needs_j = ITERATIONS * (3 * plan.world.devices.round_energy_j + exchange_j)
    return scenario.override({"budget.energy_j": float(needs_j.max()), "plan.rounds": "spread"})


def ends_short(seed: int) -> str:
    """What is wrong after one device was killed amid a training and started again at once."""
    random = Random(f"reserve {seed}")
    device, last = random.randrange(DEVICES), ITERATIONS - 1
    after = last - random.randrange(3) if seed % 2 else random.randrange(1, last)
    crashes: Crashes = {device: (after, random.uniform(0.05, 0.95), 0.05)}
    fleet = SchemeFleet(binding(), Drifts, crashes, seed=seed)
    for machine in fleet.machines:
        machine.replanner.reserve = Settings().reserve
    fleet.run()
    done = [machine.disk.state.commit.iteration for machine in fleet.machines]
    wrong = {end.reason for end in fleet.ends.values() if not end.complete}
    assert max(one.battery.spent_j() / one.battery.capacity_j for one in fleet.machines) < 1 + 1e-9
    return "" if done == [ITERATIONS] * DEVICES and not wrong else f"{seed}: {done} {wrong}"


def test_a_crash_costs_no_iteration_where_batteries_bind() -> None:
    assert not [wrong for wrong in map(ends_short, range(2)) if wrong]


@pytest.mark.slow
def test_twenty_crashes_cost_no_iteration_where_batteries_bind() -> None:
    assert not [wrong for wrong in map(ends_short, range(2, 20)) if wrong]
