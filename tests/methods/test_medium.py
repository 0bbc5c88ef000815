"""Every method in a shared medium and with broadcasts: within the budget, by its own messages."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.methods import Setting, build, names
from joulemesh.methods.pens import Sent
from joulemesh.scenario import Scenario
from joulemesh.tolerance import within

SHARED: dict[str, Any] = {"network.medium": "shared", "network.interference_m": 150.0}


@pytest.fixture(scope="module")
def dense(small: Scenario) -> Scenario:
    """Six devices that all hear each other."""
    return small.override(
        {"network.topology": "complete", "network.area_m": 100.0, "budget.total_s": 3.0}
    )


@pytest.mark.parametrize("name", names())
def test_every_method_keeps_its_budget_and_follows_the_medium(name: str, dense: Scenario) -> None:
    found = {}
    for medium, changes in {
        "orthogonal": {},
        "broadcast": {"network.broadcast": True},
        "shared": SHARED,
        "both": {**SHARED, "network.broadcast": True},
    }.items():
        setting = Setting(dense.override(changes), "budget")
        found[medium] = ledger = build(name, setting).reserve
        assert within(setting.battery_j, ledger.spent_j).all()
        assert ledger.seconds.sum() <= 3.0
    first = {medium: ledger[:1] for medium, ledger in found.items()}
    same = [np.array_equal(one.compute_j, first["shared"].compute_j) for one in first.values()]
    if all(same):  # a plan may change with its prices
        assert first["shared"].seconds[0] > first["orthogonal"].seconds[0]
        assert first["both"].seconds[0] <= first["shared"].seconds[0] * (1 + 1e-12)
        assert first["broadcast"].bits[0] <= first["orthogonal"].bits[0]
        assert first["broadcast"].exchange_j.sum() <= first["orthogonal"].exchange_j.sum()


def test_a_neighbour_exchange_by_hand(dense: Scenario) -> None:
    """All within range: one transmission after another; by broadcast one for each device."""
    for broadcast in (False, True):
        setting = Setting(dense.override({**SHARED, "network.broadcast": broadcast}), "budget")
        ledger = build("d-psgd", setting).reserve
        costs, edges = setting.costs(0), setting.world.graph.edges
        there, back = costs.forward_s, costs.backward_s
        each = [[*there[edges[:, 0] == i], *back[edges[:, 1] == i]] for i in range(6)]
        wanted = sum(max(one) if broadcast else sum(one) for one in each)
        slowest = float(setting.world.devices.round_latency_s.max())
        bits = setting.work.model_bits
        assert ledger.seconds[0] == pytest.approx(slowest + bits * wanted, rel=1e-12)
        assert ledger.bits[0] == bits * (6 if broadcast else 30)
        assert ledger.exchange_j[0].sum() == pytest.approx(bits * wanted, rel=1e-12)  # at 1 W


@pytest.mark.parametrize("seed", range(5))
def test_pens_takes_no_more_slots_than_it_has_reserved(seed: int, dense: Scenario) -> None:
    setting = Setting(dense.override({**SHARED, "network.interference_m": 40.0}), "budget")
    made = build("pens:phase1=1,sampled=2", setting)
    n, rng = made.reserve.iterations, np.random.default_rng(seed)
    asked = np.where(rng.random((n, 6, 5)) < 0.5, np.arange(5), -1)  # places of neighbours
    asked[:, 0, 0] = 0
    assert made.settle is not None
    settled = made.settle(Sent(jnp.asarray(asked), jnp.zeros((n, 6))))
    assert (settled.seconds[1:] <= made.reserve.seconds[1:] * (1 + 1e-12)).all()
