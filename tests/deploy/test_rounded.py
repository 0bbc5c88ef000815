"""Numbers that travel with fewer digits: every exact scheme still ends with one model."""

from __future__ import annotations

import numpy as np
import pytest

import joulemesh
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.node.exchange import Awaited, Exchange
from joulemesh.planning.ground import Ground
from joulemesh.registries import SCHEMES


def ends(scheme: str, wire: str | None, network: str) -> tuple[list[np.ndarray], np.ndarray]:
    """What six devices hold after an exchange of float64 over a narrower network; their mean."""
    changes = {"devices.count": 6, "plan.iterations": 3, "plan.aggregation": scheme}
    scenario = joulemesh.Scenario.preset("adaptive").override(changes)
    ground = Ground.of(scenario)
    vectors = np.random.default_rng(1).normal(size=(6, 650))
    exchanges = []
    for device in range(6):
        planner = Replanner(ground, device)
        planner.wire = None if wire is None else np.dtype(wire)
        plan = planner.plan(first_view(6))
        route, peer = plan.route(1), plan.peer(1)
        assert route is not None
        assert peer is not None
        exchanges.append(Exchange(peer, Awaited(route, device), vectors[device]))
    waiting = [(device, sent) for device in range(6) for sent in exchanges[device].begin()]
    while waiting:
        sender, (step, to, payload) = waiting.pop(0)
        came = payload.astype(network).astype(np.float64)
        waiting += [(to, sent) for sent in exchanges[to].receive(step, sender, came)]
    assert all(exchange.done for exchange in exchanges)
    return [exchange.finish() for exchange in exchanges], vectors.mean(axis=0)


EXACT = [
    name for name in SCHEMES.names() if name in ("tree", "ring", "tree-chunked", "ring-chunked")
]


@pytest.mark.parametrize("scheme", EXACT)
@pytest.mark.parametrize(("wire", "close"), [("float32", 1e-6), ("float16", 1e-2)])
def test_all_devices_hold_the_same_bits(scheme: str, wire: str, close: float) -> None:
    found, mean = ends(scheme, wire, wire)
    assert len({one.tobytes() for one in found}) == 1
    assert found[0].dtype == np.float64
    assert np.abs(found[0] - mean).max() < close


def test_without_rounding_they_would_not() -> None:
    found, _ = ends("tree", None, "float32")
    assert len({one.tobytes() for one in found}) > 1


def test_where_nothing_is_narrower_nothing_changes() -> None:
    found, mean = ends("tree", None, "float64")
    assert len({one.tobytes() for one in found}) == 1
    assert np.abs(found[0] - mean).max() < 1e-12
