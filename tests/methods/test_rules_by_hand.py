"""Rules of methods at numbers that are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from joulemesh import Scenario
from joulemesh.methods import split
from joulemesh.methods.adaptive import paper_plan, scheme_prices
from joulemesh.methods.balanced import CooperativeBound
from joulemesh.methods.base import entry, number
from joulemesh.methods.choco import Compressor, Links, compress, compressor, largest
from joulemesh.methods.fedavg import star_mixing, star_route
from joulemesh.methods.led import without
from joulemesh.methods.pens import Tally, selected
from joulemesh.methods.sampling import hashed, neighbours_of, permuted
from joulemesh.methods.setting import Setting, equal_terms
from joulemesh.methods.skiptrain import Blocks, trained
from joulemesh.methods.walk import chances, exact_scheme, first_mixing
from joulemesh.registries import POLICIES
from joulemesh.world.topology import Graph

ADAPTIVE = Scenario.preset("adaptive")


def graph(*edges: tuple[int, int]) -> Graph:
    return Graph(3, np.array(edges), np.zeros((3, 2)))


def test_what_is_equal() -> None:
    assert [equal_terms(one) for one in ("energy", "budget")] == ["batteries", "budget"]
    presets = [Scenario.preset(one) for one in ("default", "paper")]
    assert [equal_terms(None, one) for one in presets] == ["budget", "batteries"]


def test_texts_of_methods() -> None:
    several = "adaptive,balanced:tau1=4,tau2=2,fixed:3"
    assert split(several) == ["adaptive", "balanced:tau1=4,tau2=2", "fixed:3"]
    assert (number().read("0.1"), entry(POLICIES).read("backfill")) == (0.1, "backfill")


def test_federated_averaging() -> None:
    sent = [(0, 0, 2, 8.0), (0, 1, 2, 8.0), (1, 2, 0, 8.0), (1, 2, 1, 8.0)]
    assert list(star_route(2, 8.0).messages()) == sent
    mixing = star_mixing(3, np.array([1, 5]))
    assert mixing.tolist() == [[0.5, 0.0, 0.5], [0.5, 0.0, 0.5], [0.0, 0.0, 1.0]]


def test_neighbours() -> None:
    assert neighbours_of(graph((0, 1), (0, 2))).table.tolist() == [[1, 2], [0, 1], [0, 2]]
    path = neighbours_of(graph((0, 1), (1, 2)))
    route = path.route(np.array([2]), np.array([1]), np.array([8.0]), 1.0)
    assert list(route.messages()) == [(0, 2, 1, 8.0)]
    ring = neighbours_of(graph((0, 1), (0, 2), (1, 2)))
    left = ring.all_but(np.array([2]), np.array([0]))
    assert left.tolist() == [[True, False], [True, True], [True, True]]


def test_chance() -> None:
    assert int(hashed(np.array([1], np.uint32))[0]) == 1364076727
    key = (np.zeros(1, np.uint32), np.ones(1, np.uint32))
    assert sorted(permuted(key, np.arange(7, dtype=np.uint32), 7).tolist()) == list(range(7))


def test_blocks_of_skiptrain() -> None:
    assert Blocks(2, 1).allowed(4).tolist() == [True, True, False, True]
    assert Blocks(2, 1).count([1, 4]).tolist() == [1, 3]
    who = trained(0, Blocks(1, 1), 100, np.array([50, 25, 0]))
    assert who[:, 0].sum() == 50
    assert not who[1::2].any()
    assert who[:, 1].sum() <= 25


def test_the_bound_of_balanced() -> None:
    figures = {"learning_rate": 0.1, "smoothness": 1.0, "variance": 1.0, "gap": 5.0}
    bound = CooperativeBound(contraction=0.0, devices=4, **figures)
    assert bound.of(2, 1, 10) == pytest.approx(5 + 0.025 + 0.01 * (2 - 1))


def test_compression() -> None:
    assert compressor("qsgd:8") == Compressor("qsgd", 8.0)
    topk = Compressor("topk", 0.1)
    assert (topk.kept(4810), topk.bits(1000, 32), topk.step(1000)) == (481, 4200.0, 0.2)
    assert Compressor("qsgd", 8).bits(1000, 32) == 5064.0
    identity, randk = Compressor("identity"), Compressor("randk", 0.1)
    assert (identity.step(1000), identity.passes(1000), randk.passes(1000)) == (1.0, 1.0, 0.1)
    assert largest(np.array([[1.0, 3.0, 1.0, 2.0]]), 3).tolist() == [[True, True, False, True]]
    x = np.array([[3.0, -4.0, 0.0, 1.0]])
    kept = compress(Compressor("topk", 0.5), x, (np.zeros(1, np.uint32),) * 2)
    assert kept.tolist() == [[3.0, -4.0, 0.0, 0.0]]
    links = Links.of(np.array([0, 1]), np.array([1, 0]), np.full(2, 0.5))
    every = [part.tolist() for part in (links.heard, links.said, links.weight)]
    assert every == [[[1], [0]], [[0], [1]], [[0.5], [0.5]]]


def test_mixing_without_pairs() -> None:
    left = without(np.full((2, 2), 0.5), np.array([[0, 1], [0, 1]]))
    assert left.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_who_is_selected() -> None:
    tally = Tally(np.array([[3, 1]]), np.array([[4, 4]]))
    assert selected(tally, np.array([1]), np.array([2])).tolist() == [[True, False]]


def test_exchanges_of_a_setting() -> None:
    setting = Setting(ADAPTIVE)
    assert first_mixing(setting, 8.0).count == 40  # a ring of 20
    assert scheme_prices(setting, 3)(0, 50).iterations == 1  # all alike
    lossy = {"network.packet_error": 0.5, "network.tries": 2, "network.packet_bits": 1000}
    two_packets = chances(Setting(ADAPTIVE.override(lossy)), 2000.0)
    assert two_packets.min() == 0.5625
    scheme, words = exact_scheme(Setting(ADAPTIVE.override({"plan.aggregation": "gossip"})))
    assert scheme.exact
    assert words == "averages exactly along a tree in chunks, the exact scheme of least joules"


def test_a_plan_as_in_the_paper() -> None:
    plan = paper_plan(Setting(Scenario.preset("default")), "theorem4")
    assert plan.scheme == "tree"
    assert plan.rounds.min() >= 1
