"""What every registered scheme promises, and that the check notices when a promise is broken."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from joulemesh.aggregation.air import Medium
from joulemesh.aggregation.contract import check, execute
from joulemesh.aggregation.peer import RoutePeer, Vector
from joulemesh.aggregation.ring import Ring, RingPeer
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.scheme import Conditions, Scheme, choose
from joulemesh.aggregation.tree import TreePeer
from joulemesh.base.errors import ScenarioError
from joulemesh.registries import SCHEMES
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import LinkCosts, link_costs
from joulemesh.world.topology import Graph

# What a scheme is also tried with; every registered one is tried as it is.
ALSO: dict[str, list[dict[str, Any]]] = {
    "gossip": [{"gossip_mode": "ticks"}, {"gossip_mode": "matchings"}],
    "tree": [{"tree": "fair"}, {"tree": "rotate"}],
    "tree-chunked": [
        {"tree": "fair"},
        {"tree": "rotate"},
        {"chunks": 2},
        {"chunks": 7, "tree_slack": 0.0},
        {"chunks": 40},
    ],
    "metropolis": [{"gossip_rounds": 1}, {"gossip_rounds": "balanced"}],
}
CASES = [
    pytest.param(name, options, duplex, id="-".join([name, *map(str, options.values()), duplex]))
    for name in SCHEMES.names()
    for options in [{}, *ALSO.get(name, [])]
    for duplex in ("orthogonal", "half")
]


def costs_of(graph: Graph, seed: int) -> LinkCosts:
    rng = np.random.default_rng(seed)
    gain = 10 ** rng.uniform(-4, 0, len(graph.edges))
    return link_costs(graph.edges, gain, 10 ** rng.uniform(-1, 1, graph.devices), 1e6, 1e-9)


@st.composite
def networks(draw: st.DrawFn) -> tuple[Subgraph, LinkCosts, Subgraph, LinkCosts]:
    """Some devices of a graph with a ring through them; and of one where all are linked."""
    devices = draw(st.integers(3, 9))
    gone = draw(st.sets(st.integers(0, devices - 1), max_size=devices - 3))
    order = draw(st.permutations([i for i in range(devices) if i not in gone]))
    every = list(combinations(range(devices), 2))
    pairs = {(min(a, b), max(a, b)) for a, b in zip(order, [*order[1:], order[0]], strict=True)}
    pairs |= set(draw(st.lists(st.sampled_from(every), max_size=6)))
    active = np.isin(np.arange(devices), order)
    seed = draw(st.integers(0, 1000))
    found: list[Any] = []
    for links in (sorted(pairs), every):
        graph = Graph(devices, np.array(links, np.int64), np.zeros((devices, 2)))
        found += [Subgraph.of(graph, active), costs_of(graph, seed)]
    return tuple(found)


def ready(
    name: str, network: tuple[Any, ...], options: dict[str, Any], duplex: str = "orthogonal"
) -> tuple[Scheme, LinkCosts]:
    """The scheme on the graph, or on the complete one if that graph cannot carry it."""
    asked = PlanOptions(aggregation=name, **options)
    kind = SCHEMES[name]
    part, costs = network[:2] if kind.fit(network[0], asked).possible else network[2:]
    assert kind.fit(part, asked).possible, f"no graph of this suite can carry {name}"
    conditions = Conditions(
        part,
        costs,
        96.0,
        asked,
        Medium(duplex),
        channel_known=True,
        seed=3,
        battery_j=np.full(int(part.members.max()) + 1, 1.0),
        iterations=4,
    )
    return choose(conditions).ready(conditions), costs


@pytest.mark.parametrize(("name", "options", "duplex"), CASES)
@given(network=networks(), iteration=st.integers(0, 3), seed=st.integers(0, 1000))
@settings(max_examples=15, deadline=None)
def test_devices_route_and_mixing_matrix_describe_one_exchange(
    name: str,
    options: dict[str, Any],
    duplex: str,
    network: tuple[Any, ...],
    iteration: int,
    seed: int,
) -> None:
    scheme, costs = ready(name, network, options, duplex)
    check(scheme, costs, iteration, seed=seed)
    for route in scheme.routes(costs)(costs, iteration):  # what may be taken under fading, too
        values = np.random.default_rng(seed).normal(size=(int(scheme.graph.members.max()) + 1, 4))
        mixing = scheme.mixing(iteration, iteration + 1)[0]
        after = execute(scheme, route, values)[scheme.graph.members]
        np.testing.assert_allclose(after, mixing @ values[scheme.graph.members], atol=1e-10)


@pytest.mark.parametrize("name", SCHEMES.names())
@given(network=networks(), size=st.integers(1, 13))
@settings(max_examples=15, deadline=None)
def test_any_number_of_parameters_is_averaged_for_what_is_paid(
    name: str, network: tuple[Any, ...], size: int
) -> None:
    """Chunks of unequal length, and empty ones, still add up to the bits of the route."""
    scheme, costs = ready(name, network, {})
    route = scheme.route(costs)
    values = np.random.default_rng(size).normal(size=(int(scheme.graph.members.max()) + 1, size))
    peers = {i: scheme.peer(i, route) for i in np.unique(route.edges).tolist()}
    for i, peer in peers.items():
        peer.start(values[i])
    sent = 0
    for step in range(route.length):
        now = [(i, *message) for i, peer in peers.items() for message in peer.send(step)]
        for sender, receiver, payload in now:
            peers[receiver].receive(step, sender, payload)
            sent += payload.nbytes
    paid = route.bits.sum() * route.repeats / scheme.bits * values[0].nbytes
    assert sent == pytest.approx(paid, rel=1e-12)
    members = scheme.graph.members
    after = execute(scheme, route, values)
    np.testing.assert_allclose(
        after[members], scheme.mixing(0, 1)[0] @ values[members], rtol=0, atol=1e-10
    )


@pytest.mark.parametrize("kind", [*SCHEMES], ids=lambda kind: kind.name)
def test_a_record_says_what_the_scheme_is(kind: Any) -> None:
    scheme, _ = ready(kind.name, TRIANGLE, {})
    assert scheme.kind is kind
    assert (scheme.name, scheme.exact, scheme.reason) == (kind.name, kind.exact, scheme.reason)
    assert scheme.reason.startswith("asked for")
    assert kind.description
    assert kind.words
    assert set(kind.parameters) <= set(PlanOptions.model_fields)
    assert (scheme.rounds == 0) == kind.exact
    assert scheme.error == 0 or not kind.exact
    assert scheme.with_rounds(2).rounds == (0 if kind.exact else 2)


def test_theorem_3_has_one_scheme_for_each_case() -> None:
    numbers = [kind.case.number for kind in SCHEMES if kind.case is not None]
    assert sorted(numbers) == [1, 2, 3]


def test_the_papers_gossip_is_a_price_that_no_device_can_follow() -> None:
    scheme, costs = ready("gossip", TRIANGLE, {"physics": "paper"})
    with pytest.raises(ScenarioError, match=r'plan\.physics = "physical"'):
        execute(scheme, scheme.route(costs), np.zeros((3, 2)))


# Broken promises ------------------------------------------------------------------------------

GRAPH = Graph(3, np.array([[0, 1], [0, 2], [1, 2]]), np.zeros((3, 2)), np.arange(3))
TRIANGLE = (Subgraph.of(GRAPH), costs_of(GRAPH, 0)) * 2


class Forgetful(RingPeer):
    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        (self.held,) = arrived.values()
        self._vectors = {self.device: self.held}


class Rotated(RingPeer):
    """It adds up from another device on than the others do."""

    def result(self) -> Vector:
        total = self._vectors[self.device]
        for origin in self._origin:
            total = total + self._vectors[origin]
        return total / (1 + len(self._origin))


class Hasty(TreePeer):
    """It adds up what comes in the order in which it comes."""

    def start(self, own: Vector) -> None:
        super().start(own)
        self.came: list[int] = []

    def receive(self, step: int, sender: int, payload: Vector) -> None:
        super().receive(step, sender, payload)
        self.came.append(sender)

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        super().take(step, {sender: arrived[sender] for sender in self.came if sender in arrived})


class InPlace(RingPeer):
    def start(self, own: Vector) -> None:
        super().start(own)
        own += 0.0
        own *= 2.0
        self._vectors[self.device] = self.held = own / 2.0


class Chatty(RingPeer):
    def send(self, step: int) -> list[tuple[int, Vector]]:
        return super().send(step) * 2


class Silent(RingPeer):
    def send(self, step: int) -> list[tuple[int, Vector]]:
        super().send(step)
        return []

    def _end_steps_before(self, step: int) -> None:
        self._next = step


class Squeezed(RingPeer):
    def payload(self, step: int) -> Vector:
        return self.held[: len(self.held) // 2]

    def take(self, step: int, arrived: dict[int, Vector]) -> None:
        pass


class Doubled(RingPeer):
    def result(self) -> Vector:
        return np.asarray(super().result(), np.float64)


@pytest.mark.parametrize(
    ("peer", "said"),
    [
        (Forgetful, "from the mixing matrix"),
        (Rotated, "means that differ by"),
        (InPlace, "in place"),
        (Chatty, "expects no message"),
        (Silent, "does not send to"),
        (Squeezed, "bits in step 0, of which 96 are paid for"),
        (Doubled, "32 bits"),
    ],
)
def test_a_broken_device_is_noticed(
    peer: type[RoutePeer], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, costs = ready("ring", TRIANGLE, {})
    monkeypatch.setattr(Ring, "peer", lambda self, device, route: peer(device, route))
    with pytest.raises((AssertionError, RuntimeError), match=said):
        check(scheme, costs)


def test_a_result_that_depends_on_who_comes_first_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    middle = Graph(9, np.array([[0, i] for i in range(1, 9)]), np.zeros((9, 2)))
    network = (Subgraph.of(middle), costs_of(middle, 0)) * 2
    scheme, costs = ready("tree", network, {})
    monkeypatch.setattr(type(scheme), "peer", lambda self, device, route: Hasty(device, route))
    with pytest.raises(AssertionError, match="order in which messages"):
        check(scheme, costs)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"link_index": np.array([1, 0, 2])}, "link 1 of the route joins"),
        ({"bits": np.full(3, 95.0)}, "of which 95 are paid for"),
        ({"repeats": 1}, "from the mixing matrix"),
    ],
)
def test_a_broken_route_is_noticed(
    change: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme, costs = ready("ring", TRIANGLE, {})
    own = Ring.route
    monkeypatch.setattr(
        Ring, "route", lambda self, costs, iteration=0: replace(own(self, costs), **change)
    )
    with pytest.raises(AssertionError, match=said):
        check(scheme, costs)


def test_a_matrix_that_does_not_keep_the_mean_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    scheme, costs = ready("ring", TRIANGLE, {})

    def mixing(self: Ring, start: int, stop: int) -> NDArray[np.float64]:
        return np.tile([1.0, 0.0, 0.0], (1, 3, 1))

    monkeypatch.setattr(Ring, "mixing", mixing)
    with pytest.raises(AssertionError, match="columns of the mixing matrix"):
        check(scheme, costs)


# One device alone -----------------------------------------------------------------------------


def ring_peer() -> RingPeer:
    scheme, costs = ready("ring", TRIANGLE, {})
    peer = RingPeer(1, scheme.route(costs))
    peer.start(np.array([1.0]))
    return peer


def test_a_message_may_arrive_before_its_step() -> None:
    peer = ring_peer()
    sender = peer.senders(0)[0]
    peer.receive(1, sender, np.array([5.0]))
    peer.send(0)
    peer.receive(0, sender, np.array([3.0]))
    peer.send(1)
    assert peer.finish().tolist() == [3.0]  # (1 + 3 + 5) / 3


@pytest.mark.parametrize(("step", "sender"), [(0, 1), (2, 0), (-1, 0), (0, 7)])
def test_a_message_that_the_route_does_not_have_is_refused(step: int, sender: int) -> None:
    with pytest.raises(RuntimeError, match="expects no message"):
        ring_peer().receive(step, sender, np.zeros(1))


def test_a_message_that_comes_twice_or_late_is_refused() -> None:
    peer = ring_peer()
    sender = peer.senders(0)[0]
    peer.receive(0, sender, np.zeros(1))
    with pytest.raises(RuntimeError, match="expects no message"):
        peer.receive(0, sender, np.zeros(1))
    peer.send(1)
    with pytest.raises(RuntimeError, match="expects no message"):
        peer.receive(0, sender, np.zeros(1))


def test_a_device_does_not_end_without_the_messages_that_it_needs() -> None:
    peer = ring_peer()
    peer.send(0)
    with pytest.raises(RuntimeError, match="has no message of device"):
        peer.finish()


def test_a_device_can_begin_again() -> None:
    peer = ring_peer()
    sender = peer.senders(0)[0]
    for start in (1.0, 4.0):
        peer.start(np.array([start]))
        for step in (0, 1):
            peer.send(step)
            peer.receive(step, sender, np.array([5.0]))
        assert peer.finish().tolist() == [pytest.approx((10.0 + start) / 3)]


def test_an_unknown_route_is_not_followed() -> None:
    """A device that is not on the route has nothing to do and keeps what it has."""
    route = Route.build("tree", edges=[[0, 1]], edge=[0, 0], forward=[True, False], step=[0, 1],
                        bits=1.0, repeats=1, uses=2).rooted(1)  # fmt: skip
    scheme, _ = ready("tree", TRIANGLE, {})
    after = execute(scheme, route, np.array([[0.0], [2.0], [5.0]]))
    assert after.tolist() == [[1.0], [1.0], [5.0]]
