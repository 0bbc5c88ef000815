"""Planning as time goes by: what is known when, outages, and devices that leave."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.planning.plan import Plan
from joulemesh.world.topology import components


def scenario(**more: Any) -> joulemesh.Scenario:
    fields = {
        "devices.count": 8,
        "devices.cycles_per_sample": [1e4, 3e4],
        "budget.energy_j": 1.0,
        "budget.deadline_s": 0.05,
        "plan.iterations": 12,
    }
    return joulemesh.Scenario.preset("adaptive").override(
        fields | {k.replace("__", "."): v for k, v in more.items()}
    )


def make(**more: Any) -> Plan:
    return joulemesh.plan(scenario(**more))


def shape(plan: Plan, t: int) -> tuple[Any, ...]:
    """Everything about the route of an iteration (counted from 1)."""
    route = plan.route(t)
    return () if route is None else (route.root, tuple(route.messages()))


# The world does not depend on the plan ----------------------------------------------------------


@given(seed=st.integers(0, 1000))
@settings(max_examples=10, deadline=None)
def test_plan_options_do_not_change_the_world(seed: int) -> None:
    plain = make(seed=seed, network__fading="rayleigh")
    other = make(
        seed=seed,
        network__fading="rayleigh",
        network__channel_known=False,
        plan__aggregation="metropolis",
        plan__gossip_rounds=1,
        plan__rounds="backfill",
        plan__iterations=5,
        plan__on_depletion="leave",
        budget__deadline_s=0.2,
        training__learning_rate=0.3,
    )
    for t in range(12):
        np.testing.assert_array_equal(plain.world.channel.gain(t), other.world.channel.gain(t))
    np.testing.assert_array_equal(plain.world.graph.edges, other.world.graph.edges)
    np.testing.assert_array_equal(plain.world.graph.positions_m, other.world.graph.positions_m)
    np.testing.assert_array_equal(
        plain.world.devices.round_energy_j, other.world.devices.round_energy_j
    )


def test_another_seed_is_another_world() -> None:
    one, two = make(seed=1), make(seed=2)
    assert not np.array_equal(one.world.channel.mean_gain, two.world.channel.mean_gain)
    assert not np.array_equal(one.world.devices.round_energy_j, two.world.devices.round_energy_j)


# Causality -------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("policy", ["theorem4", "backfill", "uniform", "inverse"])
@pytest.mark.parametrize("fading", ["rayleigh", "rician", "nakagami"])
def test_the_past_does_not_depend_on_fades_to_come(
    known: bool, policy: str, fading: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Change the gains from iteration 6 on: iterations 0..5 must stay as they were."""
    from joulemesh.world.channel import Channel

    options = {
        "network__fading": fading,
        "network__topology": "complete",
        "network__channel_known": known,
        "plan__rounds": policy,
        "plan__aggregation": "tree",
    }
    plain = make(**options)
    gain = Channel.gain
    monkeypatch.setattr(
        Channel,
        "gain",
        lambda self, t, snapshot=None: gain(self, t) if t < 6 else gain(self, t + 50) * 0.3,
    )
    changed = make(**options)
    np.testing.assert_array_equal(plain.rounds[:6], changed.rounds[:6])
    np.testing.assert_array_equal(plain.exchange_j[:6], changed.exchange_j[:6])
    assert [shape(plain, t) for t in range(1, 7)] == [shape(changed, t) for t in range(1, 7)]
    assert not np.array_equal(plain.exchange_s[6:], changed.exchange_s[6:])


@pytest.mark.parametrize("duplex", ["orthogonal", "half"])
def test_a_planner_that_cannot_see_the_channel_does_not_follow_it(duplex: str) -> None:
    options = {
        "network__fading": "rayleigh",
        "network__topology": "complete",
        "network__duplex": duplex,
        "plan__aggregation": "tree",
        "plan__fade_quantile": 0.99,
        "plan__rounds": "uniform",
    }
    blind = make(network__channel_known=False, **options)
    assert len({shape(blind, t) for t in range(1, 13)} - {()}) == 1  # one tree, one root
    assert blind.exchanged.sum() >= 6
    # What is charged are the realised gains all the same.
    assert len({row.tobytes() for row in blind.exchange_j[blind.exchanged]}) > 1
    seeing = make(network__channel_known=True, **options)
    assert len({shape(seeing, t) for t in range(1, 13)}) > 1
    assert seeing.exchange_j.sum() < blind.exchange_j[blind.exchanged].sum()


def test_a_fade_lasts_for_its_coherence() -> None:
    plan = make(
        network__fading="rayleigh",
        network__topology="complete",
        network__coherence_iterations=4,
        plan__rounds="fixed",
        plan__fixed_rounds=2,
    )
    for first in (0, 4, 8):
        block = range(first, first + 4)
        assert len({shape(plan, t + 1) for t in block}) == 1
        assert len({plan.exchange_j[t].tobytes() for t in block}) == 1
    assert len({plan.exchange_j[t].tobytes() for t in (0, 4, 8)}) == 3


def test_with_ample_batteries_every_iteration_is_filled_as_its_own_fade_allows() -> None:
    options = {
        "network__fading": "rayleigh",
        "plan__aggregation": "ring-chunked",
        "plan__fade_quantile": 0.5,
        "plan__rounds": "uniform",
        "budget__energy_j": 1000.0,
        "budget__deadline_s": 0.03,
    }
    seeing = make(**options)
    round_s = seeing.world.devices.round_latency_s
    assert seeing.deadline_s is not None
    room_s = seeing.deadline_s - seeing.exchange_s[:, None]
    assert seeing.rounds.tolist() == np.floor(room_s / round_s).astype(int).tolist()
    assert len(set(seeing.exchange_s.tolist())) == 12
    # Who cannot see plans for the quantile, and skips the exchange where that was too bold.
    blind = make(network__channel_known=False, **options)
    assert len({tuple(row) for row in blind.rounds.tolist()}) == 1
    late = seeing.exchange_s + (blind.rounds * round_s).max(axis=1) > blind.deadline_s
    assert late.any()
    assert (~blind.exchanged).tolist() == late.tolist()


def test_without_fading_the_blind_and_the_seeing_pay_the_same() -> None:
    blind = make(plan__aggregation="tree", network__channel_known=False)
    seeing = make(plan__aggregation="tree")
    np.testing.assert_array_equal(blind.rounds, seeing.rounds)
    np.testing.assert_array_equal(blind.exchange_j, seeing.exchange_j)


# Outages ---------------------------------------------------------------------------------------


def test_a_fade_too_deep_for_the_deadline_is_an_outage() -> None:
    open_ended = make(network__fading="rayleigh", plan__rounds="fixed", plan__fixed_rounds=1)
    assert open_ended.exchanged.all()
    slow = np.sort(open_ended.exchange_s)
    round_s = open_ended.world.devices.round_latency_s.max()
    # The quantile's exchange must fit, or the plan is refused; the fades beyond it are skipped.
    tight = make(
        network__fading="rayleigh",
        plan__rounds="fixed",
        plan__fixed_rounds=1,
        plan__fade_quantile=0.5,
        budget__deadline_s=float((slow[-1] + slow[-2]) / 2 + round_s),
    )
    assert (~tight.exchanged).sum() >= 1
    skipped = ~tight.exchanged
    assert not tight.exchange_j[skipped].any()
    assert not tight.exchange_s[skipped].any()
    assert (tight.rounds[skipped] == 1).all()  # training goes on
    assert all(tight.route(int(t) + 1) is None for t in np.flatnonzero(skipped))
    outages = [e.iteration - 1 for e in tight.events if e.kind == "outage"]
    assert outages == np.flatnonzero(skipped).tolist()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("scheme", ["tree", "ring"])
@pytest.mark.parametrize("coordination", [True, False])
def test_the_least_battery_that_is_not_refused_lasts_to_the_end(
    known: bool, scheme: str, coordination: bool
) -> None:
    """Whatever the fades, half of them beyond the forecast: rounds to come are never sold."""
    options = {
        "network__fading": "rayleigh",
        "network__channel_known": known,
        "plan__aggregation": scheme,
        "plan__coordination": coordination,
        "plan__fade_quantile": 0.5,
    }
    for seed in range(6):
        with pytest.raises(joulemesh.InfeasibleError) as refusal:
            make(seed=seed, budget__energy_j=1e-3, **options)
        found = re.search(r"budget\.energy_j to at least ([\d.e+-]+)", str(refusal.value))
        assert found is not None
        plan = make(seed=seed, budget__energy_j=float(found[1].rstrip(",")), **options)
        assert (plan.margin_j >= 0).all()
        assert (plan.rounds >= 1).all()


def test_coordination_is_paid_before_every_tree_that_is_computed() -> None:
    options = {
        "network__fading": "rayleigh",
        "network__topology": "complete",
        "network__coherence_iterations": 3,
        "plan__rounds": "fixed",
        "plan__fixed_rounds": 1,
        "plan__aggregation": "tree",
    }
    for known, when in ((True, [0, 3, 6, 9]), (False, [0])):
        plain = make(network__channel_known=known, **options)
        flooded = make(network__channel_known=known, plan__coordination=True, **options)
        assert plain.exchanged.all()
        assert flooded.exchanged.all()
        more = (flooded.exchange_j - plain.exchange_j).sum(axis=1)
        assert np.flatnonzero(more > 1e-12).tolist() == when
        assert np.flatnonzero(flooded.timeline.flooded).tolist() == when
        assert not plain.timeline.flooded.any()


def test_coordination_that_an_outage_put_off_is_paid_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first iteration of a block fails: its tree is still to be agreed in the second."""
    from joulemesh.planning.walk import CausalPlanner

    payable = CausalPlanner._payable
    monkeypatch.setattr(
        CausalPlanner, "_payable", lambda self, t, *rest: t != 3 and payable(self, t, *rest)
    )
    plan = make(
        network__fading="rayleigh",
        network__coherence_iterations=3,
        plan__coordination=True,
        plan__rounds="fixed",
        plan__fixed_rounds=1,
    )
    assert np.flatnonzero(~plan.exchanged).tolist() == [3]
    assert np.flatnonzero(plan.timeline.flooded).tolist() == [0, 4, 6, 9]


def test_theorem4_literal_cannot_plan_as_time_goes_by() -> None:
    with pytest.raises(joulemesh.ScenarioError, match=r'set plan\.rounds = "theorem4"'):
        make(network__fading="rayleigh", plan__rounds="theorem4-literal")


# Departures ------------------------------------------------------------------------------------


def leave(folder: Path, pairs: list[tuple[int, int]], energy_j: list[float], **more: Any) -> Plan:
    """Devices on an edge list, one round each iteration, equal links."""
    count = len(energy_j)
    graph, gains = folder / "graph.csv", folder / "gains.csv"
    graph.write_text("i,j\n" + "".join(f"{i},{j}\n" for i, j in pairs))
    gains.write_text("i,j,gain\n" + "".join(f"{i},{j},1e-9\n" for i, j in pairs))
    return make(
        devices__count=count,
        devices__cycles_per_sample=1e4,
        network__topology=str(graph),
        network__gains=str(gains),
        budget__energy_j={"values": energy_j},
        budget__deadline_s=10.0,
        plan__on_depletion="leave",
        plan__rounds="fixed",
        plan__fixed_rounds=1,
        **more,
    )


RICH = 10.0
ONE_ROUND_J = 1e-27 * 1e4 * 32 * 4e18
POOR = 3.5 * ONE_ROUND_J


def test_the_tree_is_rebuilt_without_the_one_who_left(tmp_path: Path) -> None:
    plan = leave(tmp_path, [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3)], [RICH, RICH, POOR, RICH])
    gone = int(np.argmin(plan.active[:, 2]))
    assert 0 < gone < 12
    assert plan.active[:gone].all()
    assert plan.active[gone:].tolist() == [[True, True, False, True]] * (12 - gone)
    for t in range(gone, 12):
        route = plan.route(t + 1)
        assert route is not None
        assert sorted(map(tuple, route.edges.tolist())) == [(0, 1), (1, 3)]
    assert plan.iterations == 12
    assert plan.binding.tolist()[2] == "left"


def test_who_cannot_pay_even_once_is_not_in_the_plans_edges(tmp_path: Path) -> None:
    pairs = [(0, 1), (1, 2), (0, 2), (2, 3), (1, 3)]
    plan = leave(tmp_path, pairs, [RICH, RICH, ONE_ROUND_J / 2, RICH])
    assert plan.iterations == 12
    assert not plan.active[:, 2].any()
    assert plan.edges.tolist() == [[0, 1], [1, 3]]
    assert plan.timeline.route.root != 2
    assert plan.spent_j[2] == 0


def test_those_who_are_cut_off_leave_too(tmp_path: Path) -> None:
    # The bridge 2 leaves: 3 and 4 lose the larger part {0, 1, 5}.
    pairs = [(0, 1), (0, 5), (1, 2), (2, 3), (3, 4)]
    plan = leave(tmp_path, pairs, [RICH, RICH, POOR, RICH, RICH, RICH])
    kinds = [(event.kind, event.devices) for event in plan.events]
    assert kinds == [("depleted", (2,)), ("cut-off", (3, 4))]
    assert plan.active[-1].tolist() == [True, True, False, False, False, True]
    assert not plan.rounds[-1, 2:5].any()
    assert plan.exchange_j[-1, [0, 1, 5]].all()


def test_a_plan_ends_when_fewer_than_two_remain(tmp_path: Path) -> None:
    plan = leave(tmp_path, [(0, 1), (1, 2)], [RICH, POOR, RICH])
    assert 1 <= plan.iterations < 12
    assert plan.active.all()
    kinds = [event.kind for event in plan.events]
    assert kinds == ["depleted", "cut-off", "ended"]
    assert plan.spent_j[1] <= POOR
    assert plan.exchange_j.shape == (plan.iterations, 3)


def test_nobody_leaves_who_can_pay() -> None:
    refuse, may_leave = make(), make(plan__on_depletion="leave")
    assert may_leave.events == ()
    np.testing.assert_array_equal(refuse.rounds, may_leave.rounds)


def test_a_device_stays_as_long_as_it_can_pay(tmp_path: Path) -> None:
    plan = leave(tmp_path, [(0, 1), (1, 2), (0, 2)], [RICH, RICH, POOR])
    stayed = int(plan.active[:, 2].sum())
    price = float(plan.exchange_j[0, 2]) + ONE_ROUND_J
    assert stayed == int(POOR / price)


@pytest.mark.parametrize("name", ["ring", "ring-chunked"])
def test_a_ring_is_closed_again_or_gives_way(name: str, tmp_path: Path) -> None:
    # A square with one diagonal: without device 3 the triangle 0-1-2 is a ring.
    pairs = [(0, 1), (1, 2), (2, 3), (0, 3), (0, 2)]
    closed = leave(tmp_path, pairs, [RICH, RICH, RICH, POOR], plan__aggregation=name)
    last = closed.route(closed.iterations)
    assert last is not None
    assert last.scheme == name
    assert set(last.edges.ravel().tolist()) == {0, 1, 2}
    # Without the diagonal only a path is left: Theorem 3 decides, and says so.
    broken = leave(tmp_path, pairs[:4], [RICH, RICH, RICH, POOR], plan__aggregation=name)
    last = broken.route(broken.iterations)
    assert last is not None
    assert last.scheme == "tree"
    assert f"the {name} broke" in broken.scheme_at(broken.iterations).reason
    left = next(event.iteration for event in broken.events if event.kind == "depleted")
    names = [broken.scheme_at(t).name for t in range(1, broken.iterations + 1)]
    assert names == [name] * (left - 1) + ["tree"] * (broken.iterations - left + 1)
    routes = [broken.route(t) for t in range(1, broken.iterations + 1)]
    assert [route.scheme for route in routes if route is not None] == names
    for beyond in (0, broken.iterations + 1):
        for ask in (broken.route, broken.scheme_at):
            with pytest.raises(joulemesh.ScenarioError, match=rf"iteration {beyond} is not one of"):
                ask(beyond)
    assert broken.scheme == name


def test_a_ring_that_breaks_before_it_is_used_gives_way_too(tmp_path: Path) -> None:
    pairs = [(0, 1), (1, 2), (2, 3), (0, 3)]
    plan = leave(tmp_path, pairs, [RICH, RICH, RICH, ONE_ROUND_J / 2], plan__aggregation="ring")
    assert plan.scheme == "tree"
    assert "the ring broke" in plan.reason
    assert not plan.active[:, 3].any()


@given(seed=st.integers(0, 10**6), energy=st.floats(0.01, 0.2))
@settings(max_examples=40, deadline=None)
def test_departures_keep_the_network_connected(seed: int, energy: float) -> None:
    try:
        plan = make(
            seed=seed,
            network__topology="geometric",
            network__mean_degree=3.0,
            budget__energy_j=[energy, 3 * energy],
            plan__on_depletion="leave",
        )
    except joulemesh.InfeasibleError:
        return
    for active in plan.active:
        inside = plan.world.graph.edges[active[plan.world.graph.edges].all(axis=1)]
        label = components(inside, len(active))[1]
        assert len(set(label[active].tolist())) == 1
    left = {device for event in plan.events for device in event.devices if event.kind != "ended"}
    assert set(np.flatnonzero(~plan.active[-1]).tolist()) <= left
