"""An exchange reaches what `execute` computes, in whatever order its messages come."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from joulemesh.aggregation.contract import execute
from joulemesh.aggregation.gossip import MetropolisPeer, PairPeer
from joulemesh.aggregation.peer import Vector
from joulemesh.aggregation.ring import RingPeer
from joulemesh.aggregation.route import Route
from joulemesh.deploy.node.exchange import Awaited, Exchange
from joulemesh.registries import SCHEMES
from joulemesh.testing.fleets.setup import Setup, exchanges

RING = ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))


def play(scheme: Any, route: Route, values: Vector, random: Random) -> Vector:
    """Carry the messages of all devices in a random order."""
    pumps = {
        device: Exchange(scheme.peer(device, route), Awaited(route, device), values[device])
        for device in np.unique(route.edges).tolist()
    }
    flying = [(me, *one) for me, pump in pumps.items() for one in pump.begin()]
    while flying:
        sender, step, to, payload = flying.pop(random.randrange(len(flying)))
        assert pumps[to].takes(step, sender)
        flying += [(to, *one) for one in pumps[to].receive(step, sender, payload)]
        assert not pumps[to].takes(step, sender)
    after = values.copy()
    for device, pump in pumps.items():
        assert pump.done
        assert not pump.waiting()
        after[device] = pump.finish()
    return after


@pytest.mark.parametrize("name", [kind.name for kind in SCHEMES])
def test_the_order_of_messages_does_not_matter(name: str) -> None:
    plan = exchanges(Setup(5, RING, name), (0, 1, 2, 3, 4), ())
    assert plan is not None
    route = plan.routes[0]
    assert route is not None
    values = np.random.default_rng(0).normal(size=(5, 12))
    expected = execute(plan.scheme, route, values)  # type: ignore[arg-type]
    for seed in range(5):
        assert np.array_equal(play(plan.scheme, route, values, Random(seed)), expected)


def test_a_message_that_is_missing_is_named() -> None:
    route = Route.build(
        "ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
        forward=[True, True, False], bits=8.0, repeats=2, uses=2,
    )  # fmt: skip
    pump = Exchange(_peer(route), Awaited(route, 1), np.array([3.0]))
    pump.begin()
    assert pump.waiting() == [(0, 0)]
    assert not pump.takes(0, 2)  # device 2 sends to device 0
    assert not pump.takes(2, 0)  # there are two steps


def _peer(route: Route) -> Any:
    return RingPeer(1, route)


def test_the_weight_of_a_device_that_is_gone_stays_with_oneself() -> None:
    route = Route.build(
        "metropolis", edges=[[0, 1], [1, 2]], edge=[0, 0, 1, 1], step=0,
        forward=[True, False] * 2, bits=8.0, repeats=2, uses=2,
    )  # fmt: skip
    pump = Exchange(MetropolisPeer(1, route), Awaited(route, 1), np.array([3.0]))
    pump.begin()
    pump.receive(0, 0, np.array([6.0]))
    assert pump.go_without(2) == [(1, 0, np.array([4.0])), (1, 2, np.array([4.0]))]
    pump.receive(1, 0, np.array([7.0]))
    assert pump.done
    assert pump.finish() == 4.0 + (7.0 - 4.0) / 3
    assert pump.absent == [(0, 2), (1, 2)]


def test_a_pair_whose_partner_is_gone_keeps_its_own() -> None:
    route = Route.build(
        "gossip", edges=[[0, 1]], edge=[0, 0], step=0, forward=[True, False],
        bits=8.0, repeats=1, uses=2,
    )  # fmt: skip
    pump = Exchange(PairPeer(0, route), Awaited(route, 0), np.array([3.0]))
    pump.begin()
    pump.go_without(1)
    assert pump.done
    assert pump.finish() == 3.0


def test_an_exact_mean_never_goes_without() -> None:
    route = Route.build(
        "ring", edges=[[0, 1], [1, 2], [0, 2]], edge=[0, 1, 2], step=0,
        forward=[True, True, False], bits=8.0, repeats=2, uses=2,
    )  # fmt: skip
    peer = _peer(route)
    peer.start(np.array([3.0]))
    with pytest.raises(RuntimeError, match="without it the mean is wrong"):
        peer.skip(0, 0)
