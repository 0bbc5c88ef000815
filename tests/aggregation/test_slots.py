"""Slots of a shared medium: no conflicts, the price of every message, and how far from the best."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation.air import Medium, OnAir, Reach, on_air
from joulemesh.aggregation.gossip import metropolis_route
from joulemesh.aggregation.play import (
    Slots,
    exchange_energy_j,
    exchange_latency_s,
    frame,
    in_slots,
    least_slots_s,
    shared_s,
)
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import Conditions, Scheme, choose
from joulemesh.base.errors import ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts
from joulemesh.world.topology import Graph
from tests import by_message
from tests.by_message import Sent

BITS = 96.0
RANGES = (None, 0.2, 0.5, 2.0)  # of a square of side 1: nobody, some, many, everybody
ALSO: dict[str, list[dict[str, Any]]] = {
    "gossip": [{"gossip_mode": "matchings", "gossip_rounds": 5}, {"gossip_rounds": 9}],
    "tree-chunked": [{"chunks": 2}, {"chunks": 9, "tree_slack": 0.0}, {"chunks": 40}],
    "metropolis": [{"gossip_rounds": 2}],
}


class Net:
    """A random connected graph with places and unequal links in both directions."""

    def __init__(self, devices: int, more: float, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.devices, self.at = devices, rng.random((devices, 2))
        order = rng.permutation(devices)
        pairs = {tuple(sorted(pair)) for pair in zip(order, np.roll(order, 1), strict=True)}
        pairs |= {pair for pair in combinations(range(devices), 2) if rng.random() < more}
        self.edges = np.array(sorted(pairs), np.int64)
        # Few different lengths, so that ties are frequent; exact, whichever way they are computed.
        self.costs = LinkCosts(*(2.0 ** rng.integers(-3, 4, (4, len(self.edges)))))
        self.link = {tuple(pair): k for k, pair in enumerate(self.edges.tolist())}

    def _of(self, sender: int, receiver: int, unit: str) -> float:
        way = "forward" if sender < receiver else "backward"
        link = self.link[min(sender, receiver), max(sender, receiver)]
        return float(getattr(self.costs, f"{way}_{unit}")[link])

    def seconds(self, sender: int, receiver: int, bits: float) -> float:
        return bits * self._of(sender, receiver, "s")

    def joules(self, sender: int, receiver: int, bits: float) -> float:
        return bits * self._of(sender, receiver, "j")

    def hears(self, range_: float | None) -> Callable[[int, int], bool]:
        if range_ is None:
            return lambda sender, receiver: False
        return lambda i, j: float(np.linalg.norm(self.at[i] - self.at[j])) <= range_

    def medium(self, range_: float | None, *, shared: bool = True, broadcast: bool) -> Medium:
        reach = None if range_ is None else Reach.of(self.at, range_)
        return Medium(shared=shared, broadcast=broadcast, reach=reach)

    def scheme(self, name: str, medium: Medium, gone: int = -1, **options: Any) -> Scheme:
        graph = Graph(self.devices, self.edges, self.at)
        part = Subgraph.of(graph, np.arange(self.devices) != gone)
        asked = PlanOptions(aggregation=name, **options)
        battery = np.full(self.devices, 1e9)
        conditions = Conditions(part, self.costs, BITS, asked, medium, True, 3, battery, 4)
        return choose(conditions).ready(conditions)


def nets(largest: int = 9) -> st.SearchStrategy[Net]:
    return st.builds(
        Net, st.integers(3, largest), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 10_000)
    )


def sent_of(air: OnAir) -> list[Sent]:
    rows = zip(air.step, air.sender, air.receivers(), air.bits, air.seconds, strict=True)
    return [Sent(int(k), int(i), tuple(to), float(b), float(s)) for k, i, to, b, s in rows]


def assert_no_conflict(sent: list[Sent], slots: Slots, net: Net, range_: float | None) -> None:
    hears = net.hears(range_)
    for one, other in combinations(range(len(sent)), 2):
        if slots.slot[one] == slots.slot[other]:
            assert not by_message.conflict(sent[one], sent[other], hears)
    for each, slot in zip(sent, slots.slot, strict=True):
        assert each.seconds <= slots.lengths_s[slot]


# The price is that of the messages ----------------------------------------------------------------


CASES = [(name, also) for name in SCHEMES.names() for also in [{}, *ALSO.get(name, [])]]


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda one: str(one))
@given(
    net=nets(7),
    range_=st.sampled_from(RANGES),
    broadcast=st.booleans(),
    iteration=st.integers(0, 3),
)
@settings(max_examples=6, deadline=None)
def test_every_scheme_takes_the_slots_of_its_messages(
    name: str,
    options: dict[str, Any],
    net: Net,
    range_: float | None,
    broadcast: bool,
    iteration: int,
) -> None:
    medium = net.medium(range_, broadcast=broadcast)
    scheme = net.scheme(name, medium, **options)
    for route in (
        scheme.route(net.costs, iteration),
        *scheme.routes(net.costs)(net.costs, iteration),
    ):
        found = exchange_latency_s(route, net.costs, net.devices, "critical-path", medium, BITS)
        wanted = by_message.shared_s(route, net, net.hears(range_), broadcast=broadcast)
        assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("name", SCHEMES.names())
@given(net=nets(), both=st.booleans(), shared=st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_broadcast_is_paid_for_once(name: str, net: Net, both: bool, shared: bool) -> None:
    medium = net.medium(None, shared=shared, broadcast=True)
    route = net.scheme(name, medium).route(net.costs)
    found = exchange_energy_j(
        route, net.costs, net.devices, "both-ends" if both else "transmitter", medium
    )
    spent = [0.0] * net.devices
    for one in by_message.transmissions(route.messages(), net, together=route.same_to_all):
        price = max(net.joules(one.sender, receiver, one.bits) for receiver in one.receivers)
        for device in (one.sender, *(one.receivers if both else ())):
            spent[device] += price
    np.testing.assert_allclose(found, spent, rtol=1e-12)


@pytest.mark.parametrize("name", ["tree", "tree-chunked", "metropolis"])
@given(net=nets(), chunks=st.integers(1, 9))
@settings(max_examples=10, deadline=None)
def test_on_orthogonal_links_all_receivers_wait_for_the_slowest(
    name: str, net: Net, chunks: int
) -> None:
    medium = net.medium(None, shared=False, broadcast=True)
    more = {"chunks": chunks} if name == "tree-chunked" else {}
    route = net.scheme(name, medium, **more).route(net.costs)
    found = exchange_latency_s(route, net.costs, net.devices, "critical-path", medium, BITS)
    assert found == pytest.approx(by_message.levelled_s(route, net), rel=1e-12)


# No slot has a conflict ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCHEMES.names())
@given(net=nets(), range_=st.sampled_from(RANGES), broadcast=st.booleans())
@settings(max_examples=10, deadline=None)
def test_slots_never_conflict_and_nothing_is_sent_before_it_is_held(
    name: str, net: Net, range_: float | None, broadcast: bool
) -> None:
    medium = net.medium(range_, broadcast=broadcast)
    route = net.scheme(name, medium).route(net.costs)
    air = on_air(route, net.costs, broadcast=broadcast)
    sent, slots = sent_of(air), in_slots(air, net.devices, medium.reach)
    assert_no_conflict(sent, slots, net, range_)
    for one, slot in zip(sent, slots.slot, strict=True):
        for other, earlier in zip(sent, slots.slot, strict=True):
            if other.step < one.step and one.sender in other.receivers:
                assert earlier < slot
    assert_no_conflict(sent, frame(air, net.devices, medium.reach), net, range_)


@given(net=nets(), gone=st.integers(0, 8), range_=st.sampled_from([0.2, 0.5]))
@settings(max_examples=30, deadline=None)
def test_devices_that_have_left_interfere_with_nobody(net: Net, gone: int, range_: float) -> None:
    medium, rest = net.medium(range_, broadcast=False), np.arange(net.devices) != gone
    own = medium.among(np.flatnonzero(rest)).reach
    assert own is not None
    wanted = Reach.of(net.at[rest], range_)
    assert own.lists() == wanted.lists()


# How far from the best ----------------------------------------------------------------------------


def best_slots_s(sent: list[Sent], hears: Callable[[int, int], bool]) -> float:
    """The least seconds of any slots, by trying all."""
    order = sorted(sent, key=lambda one: -one.seconds)
    best = sum(one.seconds for one in order)
    slots: list[list[Sent]] = []

    def extend(number: int, taken: float) -> None:
        nonlocal best
        if taken >= best:
            return
        if number == len(order):
            best = taken
            return
        one = order[number]
        for slot in slots:
            if not any(by_message.conflict(one, other, hears) for other in slot):
                slot.append(one)
                extend(number + 1, taken)
                slot.pop()
        slots.append([one])
        extend(number + 1, taken + one.seconds)
        slots.pop()

    extend(0, 0.0)
    return best


@given(net=nets(5), range_=st.sampled_from([None, 0.3]), broadcast=st.booleans())
@settings(max_examples=40, deadline=None)
def test_slots_of_one_step_are_near_the_best(
    net: Net, range_: float | None, broadcast: bool
) -> None:
    """Twice the best at most, if only common ends conflict; never below the bound from below."""
    edges = net.edges[:5]
    air = on_air(metropolis_route(edges, BITS, 1), net.costs, broadcast=broadcast)
    reach = None if range_ is None else Reach.of(net.at, range_)
    found = in_slots(air, net.devices, reach).seconds
    best = best_slots_s(sent_of(air), net.hears(range_))
    assert least_slots_s(air, net.devices) <= best * (1 + 1e-12)
    assert best <= found * (1 + 1e-12)
    if range_ is None and not broadcast:
        assert found < 2 * best


@given(net=nets(30), seed=st.integers(0, 100))
@settings(max_examples=30, deadline=None)
def test_where_only_ends_conflict_slots_are_less_than_twice_the_bound(net: Net, seed: int) -> None:
    some = np.random.default_rng(seed).random(len(net.edges)) < 0.6
    if not some.any():
        return
    costs = net.costs.take(np.flatnonzero(some))
    air = on_air(metropolis_route(net.edges[some], BITS, 1), costs, broadcast=False)
    found, least = in_slots(air, net.devices, None).seconds, least_slots_s(air, net.devices)
    assert least <= found * (1 + 1e-12)
    assert found < 2 * least


def test_where_everybody_interferes_transmissions_follow_one_another() -> None:
    net = Net(8, 0.3, 1)
    route = metropolis_route(net.edges, BITS, 3)
    alone = 3 * float(route.seconds(net.costs).sum())
    every = Reach.of(net.at, 1.5)
    assert every.everyone
    assert shared_s(route, net.costs, 8, Medium(shared=True, reach=every)) == pytest.approx(alone)
    spelled_out = Reach(8, np.arange(9) * 7, np.concatenate(every.lists()))
    assert shared_s(route, net.costs, 8, Medium(shared=True, reach=spelled_out)) == pytest.approx(
        alone
    )


def test_a_range_with_too_many_pairs_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("joulemesh.aggregation.air._MOST_PAIRS", 20)
    at: NDArray[np.float64] = np.random.default_rng(0).random((10, 2))
    with pytest.raises(ScenarioError, match=r"interference_m = 0.7 puts \d+ pairs .* lower it"):
        Reach.of(at, 0.7)


# By hand ------------------------------------------------------------------------------------------


def path(bits: float = 8.0) -> tuple[Route, LinkCosts]:
    """0 - 1 - 2 - 3; seconds of a bit are 1, 2, 4 one way and 1, 1, 1 the other."""
    edges = np.array([[0, 1], [1, 2], [2, 3]])
    ones = np.ones(3)
    return metropolis_route(edges, bits, 1), LinkCosts(np.array([1.0, 2.0, 4.0]), *[ones] * 3)


def test_a_path_by_hand() -> None:
    route, costs = path()
    # 2→3 takes 4, and beside it 0→1 or 1→0; 1→2 (2) by itself; 2→1, 3→2 beside the other two.
    air = on_air(route, costs, broadcast=False)
    slots = in_slots(air, 4, None)
    assert slots.slot.tolist() == [0, 2, 1, 3, 0, 2]
    assert slots.lengths_s.tolist() == [32.0, 16.0, 8.0, 8.0]
    # By broadcast, 2 serves 1 and 3 in 4, 1 serves 0 and 2 in 2; 0 and 3 speak at the same time,
    # unless they hear each other's receivers.
    air = on_air(route, costs, broadcast=True)
    assert in_slots(air, 4, None).lengths_s.tolist() == [32.0, 16.0, 8.0]
    line = np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0], [30.0, 0.0]])
    assert in_slots(air, 4, Reach.of(line, 20.0)).lengths_s.tolist() == [32.0, 16.0, 8.0, 8.0]


def test_a_leaf_near_the_root_sends_while_others_are_farther_away() -> None:
    """0 - 1 - 2 - 3 with a leaf 4 at 1: towards 0, its message does not wait for the last step."""
    route = Route.build(
        "up", edges=[[0, 1], [1, 2], [2, 3], [1, 4]], edge=[2, 1, 3, 0], forward=False,
        step=[0, 1, 1, 2], bits=8.0, repeats=1, uses=1,
    )  # fmt: skip
    air = on_air(route, LinkCosts(*np.ones((4, 4))), broadcast=False)
    assert in_slots(air, 5, None).slot.tolist() == [0, 1, 0, 2]


# Packets that are lost ----------------------------------------------------------------------------


def test_a_broadcast_is_repeated_until_all_have_it_by_hand() -> None:
    """Two receivers lose every tenth packet, and 2 tries: 1 + (1 - 0.9²) = 1.19, not 1.1."""
    once = LinkCosts(*np.array([[1.0, 2.0]] * 4))
    lost = np.array([0.1, 0.1])
    costs = once.scaled(1.1, 1.1).expected(lost, lost, 2)
    star = metropolis_route(np.array([[0, 1], [0, 2]]), 10.0, 1)
    air = on_air(star, costs, broadcast=True)  # 0 to both; 1 and 2 back, each by itself
    np.testing.assert_allclose(air.seconds, [10 * 2.0 * 1.19, 10 * 1.0 * 1.1, 10 * 2.0 * 1.1])
    np.testing.assert_allclose(air.joules, air.seconds)
    np.testing.assert_allclose(on_air(star, costs, broadcast=False).seconds, [11, 11, 22, 22])


@given(
    errors=st.lists(st.sampled_from([0.0, 0.2, 0.7]), min_size=1, max_size=4),
    tries=st.integers(1, 6),
)
@settings(max_examples=25, deadline=None)
def test_expected_tries_of_a_broadcast_are_those_of_all_outcomes(
    errors: list[float], tries: int
) -> None:
    """By the probability of every number of tries that every receiver may need."""
    count = len(errors)
    one = np.ones(count)
    lost = np.array(errors)
    often = (1 - lost**tries) / (1 - lost)
    costs = LinkCosts(one, one, one, one).scaled(often, often).expected(lost, lost, tries)
    edges = np.array([[0, j + 1] for j in range(count)])
    route = Route.build(
        "star", edges=edges, edge=np.arange(count), forward=True, step=0, bits=1.0, repeats=1,
        uses=1,
    ).for_all()  # fmt: skip
    wanted = 0.0
    for needed in np.ndindex(*[tries] * count):  # tries less one; the last, whatever its outcome
        chance = 1.0
        for p, k in zip(errors, needed, strict=True):
            chance *= p**k * ((1 - p) if k < tries - 1 else 1.0)
        wanted += chance * (max(needed) + 1)
    assert on_air(route, costs, broadcast=True).seconds[0] == pytest.approx(wanted, rel=1e-12)
