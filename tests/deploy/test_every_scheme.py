"""Every scheme deploys: nodes that talk to each other compute what the simulator computes."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.node.exchange import Awaited, Exchange
from joulemesh.deploy.record.replay import plans_of, replay
from joulemesh.deploy.view import FINISHED
from joulemesh.planning.ground import Ground
from joulemesh.registries import SCHEMES
from joulemesh.testing.fleets.network import Weather
from tests.deploy.scheme_fleet import Crashes, SchemeFleet, apart
from tests.deploy.test_continuation import small
from tests.deploy.test_replay import Pull
from tests.samples import sample

FEW: dict[str, Any] = {"plan__rounds": "fixed", "plan__fixed_rounds": 2, "plan__gossip_rounds": 2}
CASES: dict[str, dict[str, Any]] = {
    **{name: {"plan__aggregation": name} for name in SCHEMES.names()},
    "neighbours": {"plan__exchange": "neighbours"},
    "exact now and then": {"plan__exchange": {"every": 3, "final": True, "times": 2}},
    "nothing between": {"plan__exchange": {"between": "none", "every": 3}},
    "skip": {"plan__exchange": {"train": 2, "mix": 1, "final": True}, "plan__rounds": "spread"},
    "spread": {"plan__rounds": "spread", "budget__total_s": 60.0, "budget__deadline_s": None},
    "fading": {"network__fading": "rayleigh", "plan__aggregation": "tree-chunked"},
    "8 bits": {"plan__aggregation": "tree-chunked", "plan__bits": 8, "plan__chunks": 3},
    "4 bits": {"plan__aggregation": "ring-chunked", "plan__bits": 4, "plan__rounds": "spread"},
    "4 bits now and then": {"plan__exchange": {"between": "none", "every": 3}, "plan__bits": 4},
    "around a ring": {"plan__aggregation": "metropolis", "network__topology": "ring"},
}
# Who is started again while others average does not know what its messages have lost.
WHOLE = [name for name in CASES if "bits" not in name]
KILLED = (
    "tree",
    "spread",
    "exact now and then",
    "8 bits",
    "around a ring",
)  # the others are slow tests


def scenario(name: str) -> joulemesh.Scenario:
    return small(**FEW | CASES[name])


def check(fleet: SchemeFleet, dtype: str) -> None:
    """Everybody holds what a simulated run with the same views holds, and nobody overdraws."""
    learners = [Pull(device, dtype) for device in range(6)]
    plans = plans_of(fleet.ground, fleet.wire)
    vectors = {run.iteration: run.vectors for run in replay(fleet.course, plans, learners)}
    assert apart(fleet, vectors) < (1e-10 if dtype == "float64" else 1e-5)
    assert all(machine.battery.left_j() >= 0 for machine in fleet.machines)


@pytest.mark.parametrize("name", CASES)
def test_with_no_fault_devices_compute_what_is_simulated(name: str) -> None:
    fleet = SchemeFleet(scenario(name), Pull)
    fleet.run()
    assert all(fleet.ends[device].complete for device in range(6)), fleet.ends
    assert all(view.digest == FINISHED for view in fleet.views.values() if view.number)
    assert set(fleet.commits) == {(t, device) for t in range(9) for device in range(6)}
    check(fleet, "float64")


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(CASES, 4))
def test_the_same_with_32_bits(name: str) -> None:
    fleet = SchemeFleet(scenario(name), lambda device: Pull(device, "float32"), seed=1)
    fleet.run()
    assert {commit.vector.dtype for commit in fleet.commits.values()} == {np.dtype("float32")}
    check(fleet, "float32")


@pytest.mark.parametrize(
    "name",
    [name if name in KILLED else pytest.param(name, marks=pytest.mark.slow) for name in CASES],
)
def test_killed_started_again_and_rejoined_it_is_still_the_simulated_run(name: str) -> None:
    fleet = SchemeFleet(scenario(name), Pull, {2: (2, 0.6, 2.4)})
    fleet.run()
    assert all(fleet.ends[device].complete for device in range(6)), fleet.ends
    assert [view for view in fleet.views.values() if 2 not in view.members]
    assert 2 in fleet.views[max(fleet.views)].members
    assert (8, 2) in fleet.commits
    check(fleet, "float64")
    if name == "around a ring":  # some were ahead; its neighbours finished the mixing without it
        assert any(sender == 2 for gone in fleet.course.absent.values() for _, sender in gone)


@pytest.mark.parametrize("name", ["tree-chunked", "metropolis"])
def test_numbers_that_travel_with_fewer_digits_are_the_same_on_all_devices(name: str) -> None:
    fleet = SchemeFleet(scenario(name), Pull, wire=np.dtype("float32"))
    fleet.run()
    check(fleet, "float64")
    if name == "tree-chunked":
        assert len({fleet.commits[8, device].vector.tobytes() for device in range(6)}) == 1


def test_started_again_at_once_everything_is_as_if_nothing_had_happened() -> None:
    quiet = SchemeFleet(scenario("tree"), Pull)
    everybody: Crashes = {device: (3, 0.4 + 0.1 * device, 0.3) for device in range(6)}
    shaken = SchemeFleet(scenario("tree"), Pull, everybody)
    for fleet in (quiet, shaken):
        fleet.run()
    assert set(quiet.commits) == set(shaken.commits)
    for place, commit in quiet.commits.items():
        assert np.array_equal(commit.vector, shaken.commits[place].vector)


@pytest.mark.parametrize("name", ["8 bits", "4 bits now and then"])
def test_what_quantised_messages_have_lost_outlives_a_crash(name: str) -> None:
    quiet = SchemeFleet(scenario(name), Pull)
    shaken = SchemeFleet(scenario(name), Pull, {2: (3, 0.4, 0.3), 4: (5, 0.5, 0.3)})
    for fleet in (quiet, shaken):
        fleet.run()
    for place, commit in quiet.commits.items():
        again = shaken.commits[place]
        assert np.array_equal(commit.vector, again.vector)
        assert commit.owed is not None
        assert again.owed is not None
        assert np.array_equal(commit.owed, again.owed)
    assert any(np.any(commit.owed) for commit in quiet.commits.values() if commit.iteration)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), sample(product(WHOLE, range(6)), 8))
def test_random_crashes_in_bad_weather(name: str, seed: int) -> None:
    """Two devices crash at any moment, one of them for good perhaps; messages get lost."""
    rng = Random(f"{name} {seed}")
    again = (0.2, 2.5, 4.0, 4.0 if name == "around a ring" else None)  # nobody is cut off for good
    crashes: Crashes = {
        device: (rng.randint(0, 6), 1.5 * rng.random(), rng.choice(again))
        for device in rng.sample(range(6), 2)
    }
    weather = Weather(loss=0.02, twice=0.05, held=0.05, held_s=0.5)
    fleet = SchemeFleet(scenario(name), Pull, crashes, seed, weather)
    fleet.run()
    others = [device for device in range(6) if device not in crashes]
    assert all((8, device) in fleet.commits for device in others), fleet.ends
    check(fleet, "float64")


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
