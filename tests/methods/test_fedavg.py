from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.fedavg import star_costs
from joulemesh.scenario import Scenario
from joulemesh.training import Schedule
from tests.ideal import ideal


def test_price_of_a_star_by_hand() -> None:
    # One device 300 m, one 400 m from the middle; powers 1 W and 3 W, so the server sends with 2.
    scenario = ideal(
        devices={
            "count": 2,
            "x_m": {"values": (200.0, 500.0)},
            "y_m": {"values": (500.0, 900.0)},
            "transmit_power_w": {"values": (1.0, 3.0)},
        },
        network={"topology": "complete", "area_m": 1000.0},
        budget={"energy_j": 100.0, "deadline_s": 10.0},
        plan={"iterations": 2},
    )
    made = build("fedavg:1", scenario)
    bits, noise_w = 4810 * 32.0, 20e6 * 10**-17.4 * 1e-3

    def seconds(power_w: float, away_m: float) -> float:
        gain = 10 ** (-(128.1 + 37.6 * np.log10(away_m / 1000)) / 10)
        return float(bits / (20e6 * np.log2(1 + power_w * gain / noise_w)))

    up, down = [seconds(1, 300), seconds(3, 400)], [seconds(2, 300), seconds(2, 400)]
    ledger = made.ledger()
    np.testing.assert_allclose(ledger.exchange_j[0], [1 * up[0], 3 * up[1]])
    np.testing.assert_allclose(ledger.server_j, [2 * sum(down)] * 2)
    np.testing.assert_allclose(ledger.bits, [4 * bits] * 2)
    trained_s = Setting(scenario).world.devices.round_latency_s.max()
    np.testing.assert_allclose(ledger.seconds, [trained_s + max(up) + max(down)] * 2)
    half = build("fedavg:1", scenario.override({"network.duplex": "half"})).ledger()
    np.testing.assert_allclose(half.seconds, [trained_s + sum(up) + sum(down)] * 2)
    both = build("fedavg:1", scenario.override({"plan.accounting": "both-ends"})).ledger()
    np.testing.assert_allclose(both.exchange_j[0], [up[0] + 2 * down[0], 3 * up[1] + 2 * down[1]])


def test_the_servers_links_do_not_fade(small: Scenario) -> None:
    fading = small.override({"network.fading": "rayleigh", "network.shadowing_db": 8.0})
    calm, rough = (star_costs(Setting(s)) for s in (small, fading))
    np.testing.assert_array_equal(calm.forward_j, rough.forward_j)
    assert len(np.unique(build("fedavg:2", fading).ledger().exchange_j[:, 0])) == 1


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_equals_exact_averaging(small: Scenario, train: Callable[..., Any], weights: str) -> None:
    made = build("fedavg:2", small.override({"plan.iterations": 3}))
    ours, _ = train(made, precision="float64", weights=weights)
    np.testing.assert_allclose(ours[0], np.tile(ours[0, 0], (6, 1)), rtol=1e-12)
    # The same as a matrix whose every row is the weights.
    from joulemesh.data import load, partition

    sizes = partition(load("digits").y_train[:240], 6, kind="quantity", seed=0).sizes
    share = sizes / sizes.sum() if weights == "samples" else np.full(6, 1 / 6)
    matrix = np.tile(share, (1, 6, 1))
    dense = Contender(
        "dense", Schedule(made.schedule.rounds, mixing=matrix), None, made.reserve, made.battery_j
    )
    theirs, _ = train(dense, precision="float64", weights=weights)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)
