"""Rules of exchanges at numbers that are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from joulemesh import Scenario
from joulemesh.aggregation.air import (
    Medium,
    Reach,
    _until_all_have_it,
    bits_on_air,
    half_duplex_order,
    hang,
    levelled,
    on_air,
    route_j,
)
from joulemesh.aggregation.gossip import (
    PairPeer,
    activity,
    balance,
    draw_matchings,
    draw_ticks,
    matching_matrix,
    metropolis_mixing,
    metropolis_route,
    metropolis_weights,
    paper_gossip_route,
    paper_rounds,
    rounds_for,
    tick_mixing,
)
from joulemesh.aggregation.peer import RoundedPeer, rounded
from joulemesh.aggregation.play import (
    Paths,
    frame,
    in_frames_s,
    in_slots,
    least_slots_s,
    moments,
    paths,
    shared_s,
)
from joulemesh.aggregation.ring import RingPeer, exact_cycle, fit_ring, grow_cycle
from joulemesh.aggregation.route import Route, Subgraph
from joulemesh.aggregation.tree import (
    TreeChunkedPeer,
    _worth_trying,
    branch_sizes,
    choose_chunks,
    chunked_tree_route,
    device_joules,
    fewest_chunks,
    hull_of_trees,
    least_s,
    most_chunks,
    pipelined_s,
    spanning_tree,
    weighted_tree,
)
from joulemesh.scenario import PlanOptions
from joulemesh.world.links import Framing, LinkCosts

PATH = np.array([[0, 1], [1, 2]])
TRIANGLE = np.array([[0, 1], [0, 2], [1, 2]])
LINE_M = np.array([[0.0, 0.0], [3.0, 0.0], [7.0, 0.0]])


def alike(links: int) -> LinkCosts:
    return LinkCosts(*np.ones((4, links)))


def star(repeats: int = 1) -> Route:
    """Device 0 to devices 1 and 2, the same to both."""
    ends = {"edges": [[0, 1], [0, 2]], "edge": [0, 1], "forward": True, "step": 0}
    return Route.build("star", **ends, bits=8.0, repeats=repeats, uses=repeats).for_all()


def ring() -> Route:
    ends = {"edges": [[0, 1], [1, 2], [0, 2]], "edge": [0, 1, 2], "step": 0}
    return Route.build("ring", **ends, forward=[1, 1, 0], bits=8.0, repeats=2, uses=2)


TWICE = LinkCosts(*np.array([[1.0, 2.0]] * 4))


def test_a_broadcast_waits_for_the_slowest_and_pays_for_the_dearest() -> None:
    assert on_air(star(), TWICE, broadcast=False).seconds.tolist() == [8.0, 16.0]
    assert on_air(star(), TWICE, broadcast=True).seconds.tolist() == [16.0]
    assert route_j(star(), TWICE, 3, broadcast=False).tolist() == [24.0, 0.0, 0.0]
    assert route_j(star(), TWICE, 3, broadcast=True).tolist() == [16.0, 0.0, 0.0]
    assert levelled(star(), TWICE, broadcast=True).forward_s.tolist() == [2.0, 2.0]
    assert bits_on_air(star(3), broadcast=False) == 48.0
    assert bits_on_air(star(3), broadcast=True) == 24.0


def test_a_broadcast_is_repeated_until_all_have_it() -> None:
    often = _until_all_have_it(np.array([0.1, 0.1]), np.array([0, 0]), 2)
    assert often == pytest.approx([1.19])


def test_who_is_within_range() -> None:
    reach = Reach.of(LINE_M, 4.0)
    assert reach.lists() == [[1], [0, 2], [1]]
    assert reach.among(np.array([1, 2])).lists() == [[1], [0]]


def test_a_tree_is_served_in_the_best_order() -> None:
    costs = LinkCosts(*np.array([[3.0, 1.0, 1.0]] * 4))
    order = half_duplex_order(np.array([[0, 1], [0, 2], [2, 3]]), costs, 4, 0)
    assert order == [(3, 2), (1, 0), (2, 0), (0, 2), (0, 1), (2, 3)]
    levels = hang(PATH, alike(2), 3, 1).levels
    assert [sorted(level.tolist()) for level in levels] == [[1], [0, 2]]


def test_slots() -> None:
    path = metropolis_route(np.array([[0, 1], [1, 2], [2, 3]]), 8.0, 1)
    single, broadcast = (on_air(path, alike(3), broadcast=one) for one in (False, True))
    assert in_slots(single, 4, None).slot.tolist() == [0, 1, 2, 3, 0, 1]
    assert in_slots(broadcast, 4, None).slot.tolist() == [0, 1, 2, 0]
    triangle = metropolis_route(TRIANGLE, 8.0, 5)
    taken = [shared_s(triangle, alike(3), 3, Medium("", True, one)) for one in (False, True)]
    assert taken == [240.0, 120.0]
    short = metropolis_route(PATH, 8.0, 1)
    assert least_slots_s(on_air(short, alike(2), broadcast=False), 3) == 32.0


def test_frames_of_a_pipeline() -> None:
    ends = {"edge": [0, 1, 2], "step": [0, 1, 2], "bits": 12.0}
    line = [[0, 1], [1, 2], [2, 3]]
    path = Route.build("path", edges=line, forward=True, **ends, repeats=1, uses=1)
    air = on_air(path, alike(3), broadcast=False)
    seconds = in_frames_s(air, frame(air, 4, None))
    # The first and the last link share a slot.
    assert [seconds(chunks) for chunks in (1, 2, 3, 12)] == [36.0, 36.0, 32.0, 26.0]
    line[2] = [0, 2]
    round_ = Route.build("ring", edges=line, forward=[1, 1, 0], **ends, repeats=1, uses=1)
    assert frame(on_air(round_, alike(3), broadcast=False), 3, None).slot.tolist() == [0, 1, 2]


def test_moments_and_paths() -> None:
    ends = {"edges": PATH, "edge": [0, 1], "forward": True, "step": [0, 1]}
    route = Route.build("path", **ends, bits=8.0, repeats=1, uses=1)
    found = moments(route, alike(2), 3, "critical-path", Medium(), 16.0)
    assert (found.start_s.tolist(), found.end_s.tolist()) == ([[0.0, 8.0]], [[8.0, 16.0]])
    assert paths(PATH, TWICE, 3, 0).up_sum.tolist() == [0.0, 1.0, 3.0]
    one = np.ones(1)
    assert [Paths(one, one, one, one).seconds(8.0, chunks) for chunks in (1, 4)] == [16.0, 10.0]


def test_trees_by_weight() -> None:
    assert spanning_tree(TRIANGLE, np.array([3.0, 1.0, 2.0]), 3).tolist() == [1, 2]
    second, joule = np.array([1.0, 1.0, 9.0]), np.array([3.0, 1.0, 2.0])
    costs = LinkCosts(second, second, joule, joule)
    links = [weighted_tree(TRIANGLE, costs, 3, weight).links.tolist() for weight in (0.0, 1.0)]
    assert links == [[1, 2], [0, 1]]
    hull = hull_of_trees(TRIANGLE, costs, 3)
    assert [(tree.joules, tree.seconds) for tree in hull] == [(6.0, 20.0), (8.0, 4.0)]
    two = LinkCosts(*np.array([[1.0, 2.0]] * 2), *np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert device_joules(PATH, np.array([0, 1]), two, 3).tolist() == [1.0, 5.0, 4.0]


def test_branches_of_a_tree() -> None:
    ends = {"edges": PATH, "edge": [0, 1, 1, 0], "step": [0, 1, 2, 3], "forward": [1, 1, 0, 0]}
    route = Route.build("tree", **ends, bits=8.0, repeats=1, uses=2).rooted(2)
    assert branch_sizes(route) == {0: 1, 1: 2, 2: 3}


def test_how_many_chunks() -> None:
    sizes = [most_chunks(bits, 20) for bits in (159_010 * 32.0, 60_000.0, 100.0)]
    assert sizes == [424, 20, 1]
    assert _worth_trying(1000.0, 10, 100.0) == [1, 2, 3, 4, 5, 6, 7, 9, 10]
    for medium in (Medium(), Medium("half")):
        assert fewest_chunks(lambda chunks: 1.0 + 9.0 / chunks, 10_000, medium) == 826
    costs = LinkCosts(*np.full((4, 2), 1e-6))
    route = chunked_tree_route(PATH, np.arange(2), costs, 3, 1e6, Medium())
    assert choose_chunks(route, costs, 3, Medium()) == 46
    dear = costs.framed(PATH, Framing(12_000.0, message_s=0.1))
    assert choose_chunks(route, dear, 3, Medium()) == 3


@pytest.mark.parametrize(
    ("duplex", "least", "taken"),
    [("orthogonal", 12.0, [24.0, 18.0, 15.0, 13.0]), ("half", 48.0, [48.0] * 4)],
)
def test_seconds_by_chunks(duplex: str, least: float, taken: list[float]) -> None:
    """In half duplex the device in the middle is never idle."""
    route = chunked_tree_route(PATH, np.arange(2), alike(2), 3, 12.0, Medium())
    seconds = pipelined_s(route, alike(2), 3, Medium(duplex))
    assert [seconds(chunks) for chunks in (1, 2, 4, 12)] == taken
    assert least_s(PATH, alike(2), 3, 12.0, Medium(duplex)) == least


def test_searches_for_a_ring() -> None:
    order, proof, steps = exact_cycle([[1, 3], [0, 2], [1, 3], [0, 2]], limit=100)
    assert (order.tolist() if order is not None else None, proof, steps) == ([0, 1, 2, 3], False, 9)
    grown, _ = grow_cycle([[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]], limit=100)
    assert grown is not None
    assert grown.tolist() == [0, 3, 1, 2]
    reason = fit_ring(Subgraph(3, PATH, None), PlanOptions()).reason
    assert reason == "{device} has 1 link, a ring needs 2"


def test_gossip_weights_and_rounds() -> None:
    assert activity(PATH, 3, "matchings").tolist() == [0.5, 0.5]
    thirds = [[0.75, 0.25, 0.0], [0.25, 0.5, 0.25], [0.0, 0.25, 0.75]]
    assert matching_matrix(PATH, 3).toarray().tolist() == thirds
    halves = [[0.5, 0.5], [0.5, 0.5]]
    assert metropolis_mixing(metropolis_weights(PATH[:1], 2), 5).tolist() == halves
    assert tick_mixing(3, PATH, [[0, 1]])[0, 1].tolist() == [0.25, 0.25, 0.5]
    assert paper_gossip_route(PATH, bits=8.0, rounds=3).count == 6
    assert (paper_rounds(0.05), paper_rounds(0.06)) == (3, 3)
    assert rounds_for(0.05, 0.87268, mode="metropolis") == 22
    assert rounds_for(0.05, 0.98090, mode="ticks", guarantee="probability") == 467
    table = balance(
        0.5, mode="metropolis", round_energy_j=[1.0, 2.0], battery_j=100.0, iterations=5
    )
    assert (table.best, table.rounds.tolist()) == (3, list(range(1, 11)))
    assert table.share[:3] == pytest.approx([0.1, 0.2, 0.3])


def test_draws_of_gossip() -> None:
    assert draw_ticks(PATH, 3, 6, seed=0, iterations=1).tolist() == [1, 0, 1, 0, 1, 0]
    link, turn = draw_matchings(PATH, 3, 4, seed=0, iteration=1)
    assert (link.tolist(), turn.tolist()) == ([1, 0, 0, 0], [0, 1, 2, 3])


def test_what_peers_do_without_a_message() -> None:
    peer = RingPeer(1, ring())
    peer.start(np.array([3.0]))
    peer.lose(0, 0)
    peer.receive(1, 0, np.array([9.0]))
    assert peer.finish().tolist() == [5.0]  # the weight of what was lost stays with the device
    ends = {"edges": [[0, 1]], "edge": [0, 0], "forward": [True, False]}
    pair = PairPeer(1, Route.build("gossip", **ends, step=0, bits=8.0, repeats=1, uses=2))
    pair.start(np.array([3.0]))
    pair.skip(0, 0)
    assert pair.finish().tolist() == [3.0]
    route = Route.build("tree-chunked", **ends, step=[0, 1], bits=8.0, repeats=1, uses=2)
    chunked = TreeChunkedPeer(1, route.rooted(1).in_chunks(2))
    chunked.start(np.array([3.0, 5.0]))
    chunked.receive(1, 0, np.array([1.0]))  # its second chunk came first
    assert [(step, to, sent.tolist()) for step, to, sent in chunked.due()] == [(2, 0, [3.0])]
    with pytest.raises(RuntimeError, match="lacks a message of chunk 0 that it needs in step 1"):
        chunked.send(1)


def test_peers_keep_what_others_receive() -> None:
    half = np.dtype("float16")
    assert rounded(np.array([0.1, 1e-9]), half).tolist() == [float(np.float16(0.1)), 0.0]
    peer = RoundedPeer(RingPeer(1, ring()), half)
    peer.start(np.array([0.1]))
    ((to, sent),) = peer.send(0)
    assert (to, sent.tolist()) == (2, [float(np.float16(0.1))])


def test_the_default_medium() -> None:
    medium = Medium.of(Scenario(), np.zeros((20, 2)))
    assert (medium.shared, medium.broadcast, medium.turns) == (False, False, False)
    assert Medium(shared=True).turns
