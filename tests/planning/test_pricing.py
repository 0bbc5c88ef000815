"""Prices of schemes over several iterations."""

from __future__ import annotations

import numpy as np
import pytest

import joulemesh
from joulemesh.aggregation.gossip import GossipMatchings, GossipTicks
from joulemesh.planning.pricing import Pricer


@pytest.mark.parametrize("mode", ["ticks", "matchings"])
@pytest.mark.parametrize("duplex", ["orthogonal", "half"])
def test_random_exchanges_cost_the_same_priced_in_pairs_and_by_their_routes(
    mode: str, duplex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random scheme need not exchange in pairs."""
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": 6,
            "network.duplex": duplex,
            "plan.aggregation": "gossip",
            "plan.gossip_mode": mode,
            "plan.gossip_rounds": 9,
            "plan.iterations": 5,
            "budget.deadline_s": 1.0,
        }
    )
    plan = joulemesh.plan(scenario)
    pricer = Pricer(scenario, plan.world, plan.work.model_bits)
    costs, scheme = plan.world.costs(plan.world.channel.gain(0)), plan.scheme_at(1)
    fast = pricer.scheme(scheme, costs, 0, 5)
    for kind in (GossipTicks, GossipMatchings):
        monkeypatch.setattr(kind, "pairs", lambda self, start, stop: None)
    slow = pricer.scheme(scheme, costs, 0, 5)
    np.testing.assert_allclose(slow.energy_j, fast.energy_j, rtol=1e-12)
    np.testing.assert_allclose(slow.seconds, fast.seconds, rtol=1e-12)
    np.testing.assert_array_equal(slow.bits, fast.bits)
