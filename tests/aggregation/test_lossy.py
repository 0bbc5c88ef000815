"""Messages that are lost: every scheme's devices go on, and each ends with a convex combination."""

from __future__ import annotations

import numpy as np
import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.aggregation import execute
from joulemesh.aggregation.contract import Lost, lossy_mixing
from joulemesh.aggregation.peer import RoutePeer, Vector
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.base.errors import ScenarioError
from joulemesh.registries import SCHEMES

CASES = [
    *((name, {}) for name in SCHEMES.names()),
    ("gossip", {"plan.gossip_mode": "matchings"}),
    ("tree", {"plan.exchange": {"every": 2}}),
    ("tree-chunked", {"plan.chunks": 3}),
]


def _ready(name: str, more: dict[str, object], devices: int = 6) -> tuple[Scheme, Route]:
    scenario = Scenario().override(
        {
            "devices.count": devices,
            "network.topology": "quasi-ring",
            "budget.energy_j": 500.0,
            "plan.aggregation": name,
            "plan.rounds": "spread",
            "plan.iterations": 4,
            **more,
        }
    )
    plan = joulemesh.plan(scenario)
    route = plan.route(1)
    assert route is not None
    return plan.scheme_at(1), route


def _some(route: Route, share: float, seed: int) -> Lost:
    keep = np.random.default_rng(seed)
    return {message[:3] for message in route.messages() if keep.random() < share}


@pytest.mark.parametrize(("name", "more"), CASES)
def test_every_device_ends_with_a_convex_combination(name: str, more: dict[str, object]) -> None:
    scheme, route = _ready(name, more)
    for seed, share in enumerate((0.0, 0.1, 0.5, 1.0)):
        mixing = lossy_mixing(scheme, route, 6, _some(route, share, seed))
        assert mixing.min() >= 0.0
        np.testing.assert_allclose(mixing.sum(axis=2), 1.0, atol=1e-12)
        if share == 0.0:
            np.testing.assert_allclose(mixing, np.tile(scheme.mixing(0, 1), (len(mixing), 1, 1)))
        if share == 1.0:  # nothing came: all keep their own
            np.testing.assert_allclose(mixing, np.tile(np.eye(6), (len(mixing), 1, 1)), atol=1e-12)


@pytest.mark.parametrize(("name", "more"), CASES)
def test_the_matrices_are_what_the_devices_do(name: str, more: dict[str, object]) -> None:
    scheme, route = _ready(name, more)
    lost = _some(route, 0.3, 7)
    mixing = lossy_mixing(scheme, route, 6, lost)
    values = np.random.default_rng(0).normal(size=(6, 4 * len(mixing) + 1))
    parts = np.array_split(values, len(mixing), axis=1)
    by_hand = np.concatenate([one @ part for one, part in zip(mixing, parts, strict=True)], axis=1)
    np.testing.assert_allclose(execute(scheme, route, values, lost), by_hand, atol=1e-12)


def test_a_branch_that_is_lost_counts_as_its_receiver() -> None:
    """A path 0-1-2-3 with root 3: the sum of 0 and 1 is lost on its way to 2."""
    scheme, _ = _ready("tree", {})
    route = Route.build(
        "tree",
        edges=[[0, 1], [1, 2], [2, 3]],
        edge=[0, 1, 2, 2, 1, 0],
        forward=[True, True, True, False, False, False],
        step=range(6),
        bits=8.0,
        repeats=1,
        uses=2,
    ).rooted(3)
    up = lossy_mixing(scheme, route, 4, {(1, 1, 2)})[0]
    np.testing.assert_allclose(up, np.tile([0.0, 0.0, 0.75, 0.25], (4, 1)))
    down = lossy_mixing(scheme, route, 4, {(4, 2, 1)})[0]
    np.testing.assert_allclose(down[[2, 3]], 0.25)
    np.testing.assert_allclose(down[[0, 1]], np.tile([0.5, 0.5, 0.0, 0.0], (2, 1)))
    chunked = lossy_mixing(_ready("tree-chunked", {})[0], route.in_chunks(2), 4, {(2, 1, 2)})
    np.testing.assert_allclose(chunked[0], 0.25)
    np.testing.assert_allclose(chunked[1], np.tile([0.0, 0.0, 0.75, 0.25], (4, 1)))


def test_a_lost_chunk_of_the_ring_counts_as_its_receiver() -> None:
    """Three devices: the second chunk's sum of 1 and 2 is lost on its way to 0."""
    scheme, route = _ready("ring-chunked", {"network.topology": "ring"}, devices=3)
    order = route.sender[:3].tolist()
    first, second, third = order
    lost = {(1, third, first)}
    mixing = lossy_mixing(scheme, route, 3, lost)
    whole = [k for k in range(3) if np.allclose(mixing[k], 1 / 3)]
    assert len(whole) == 2
    (other,) = {0, 1, 2} - set(whole)
    expected = np.zeros((3, 3))
    expected[:, first] = 1.0
    np.testing.assert_allclose(mixing[other], expected)
    assert second in order


def test_a_scheme_that_does_not_say_how_to_go_on_is_refused() -> None:
    class Silent(RoutePeer):
        def take(self, step: int, arrived: dict[int, Vector]) -> None:
            """Keep everything."""

    _, route = _ready("ring", {})
    step, sender, receiver, _ = next(route.messages())
    peer = Silent(receiver, route)
    peer.start(np.zeros(1))
    with pytest.raises(ScenarioError, match=r"Silent.*set network\.packet_error = 0"):
        peer.lose(step, sender)


def test_lossy_gossip_contracts_in_mean_square_as_its_expectation_says() -> None:
    """E[W'(I − J)W] of drawn exchanges against the same by the law of one pair, Monte Carlo.

    Devices i and j average; each direction fails with probability q, independently. Then
    W = I + a·½·e_i(e_j − e_i)' + b·½·e_j(e_i − e_j)' with a, b ~ Bernoulli(1 − q), and
    W'W = I + … has the expectation that is written out below.
    """
    q, devices = 0.3, 4
    scheme, route = _ready("gossip", {"plan.gossip_rounds": 1}, devices=devices)
    (i, j), *_ = {message[1:3] for message in route.messages()}
    rng = np.random.default_rng(1)
    mean = np.full((devices, devices), 1 / devices)
    drawn = np.zeros((devices, devices))
    count = 4000
    keys = [message[:3] for message in route.messages()]
    cache = {}
    for _ in range(count):
        lost = frozenset(key for key in keys if rng.random() < q)
        if lost not in cache:
            one = lossy_mixing(scheme, route, devices, lost)[0]
            cache[lost] = one.T @ (np.eye(devices) - mean) @ one
        drawn += cache[lost] / count
    expected = np.zeros((devices, devices))
    for a, b, weight in (
        (1, 1, (1 - q) ** 2),
        (1, 0, q * (1 - q)),
        (0, 1, q * (1 - q)),
        (0, 0, q * q),
    ):
        w = np.eye(devices)
        w[i, [i, j]] += np.array([-0.5, 0.5]) * a
        w[j, [j, i]] += np.array([-0.5, 0.5]) * b
        expected += weight * w.T @ (np.eye(devices) - mean) @ w
    np.testing.assert_allclose(drawn, expected, atol=0.02)
    # On average it still brings devices together, though less than without losses.
    spread = np.random.default_rng(2).normal(size=(devices, 1))
    spread -= spread.mean()
    lossless = lossy_mixing(scheme, route, devices, frozenset())[0]
    left = ((np.eye(devices) - mean) @ lossless @ spread) ** 2
    assert left.sum() < float((spread.T @ expected @ spread)[0, 0]) < float((spread**2).sum())
