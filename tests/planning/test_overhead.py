"""Seconds of an iteration besides rounds and sending, which every exchange is priced with."""

from __future__ import annotations

import numpy as np
import pytest

import joulemesh
from joulemesh.planning.ground import Ground
from joulemesh.registries import SCHEMES


def scenario(scheme: str, **changes: object) -> joulemesh.Scenario:
    plain = {
        "devices.count": 6,
        "plan.aggregation": scheme,
        "plan.iterations": 4,
        "plan.epsilon": 0.3,
        "plan.rounds": "fixed",
        "plan.fixed_rounds": 1,
        "budget.energy_j": 1e3,
        "budget.deadline_s": 10.0,
    }
    return joulemesh.Scenario.preset("adaptive").override({**plain, **changes})


@pytest.mark.parametrize("scheme", list(SCHEMES.names()))
def test_every_exchange_waits_for_the_longest_overhead(scheme: str) -> None:
    without = joulemesh.plan(scenario(scheme))
    given = {"devices.overhead_s": [0.01, 0.02, 0.125, 0.0, 0.01, 0.02]}
    made = joulemesh.plan(scenario(scheme, **given))
    assert np.allclose(made.exchange_s, without.exchange_s + 0.125)
    assert np.allclose(made.latency_s, without.latency_s + 0.125)
    assert np.array_equal(made.exchange_j, without.exchange_j)


def test_caps_leave_room_for_it_and_rest_is_paid_through_it() -> None:
    tight = {"plan.rounds": "theorem4", "budget.deadline_s": 0.3, "devices.idle_w": 0.5}
    without = joulemesh.plan(scenario("tree", **tight))
    made = joulemesh.plan(scenario("tree", **tight, **{"devices.overhead_s": "100 ms"}))
    assert made.latency_s.max() <= 0.3
    assert made.rounds.max() < without.rounds.max()
    assert np.allclose(made.idle_j(0), 0.5 * made.latency_s[0])


def test_no_overhead_changes_nothing() -> None:
    ground = Ground.of(scenario("tree", **{"devices.overhead_s": 0.0}))
    assert ground.world.devices.overhead_s is None
