"""Plans that choose transmit powers: what they keep, what they save, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.base.errors import ScenarioError
from joulemesh.planning.export import load_plan
from joulemesh.planning.ground import Ground
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import StaticPlanner
from joulemesh.planning.walk import Remaining, continue_plan

BASE: dict[str, Any] = {
    "devices.count": 8,
    "network.profile": "ideal",
    "devices.power_range_w": [0.01, 1.0],
    "devices.circuit_w": 0.1,
    "training.model": "logistic",
    "budget.energy_j": [2.0, 6.0],
    "budget.total_s": 0.5,
    "plan.iterations": 12,
}
LEVELS = [0.05, 0.1, 0.2, 0.4, 0.7, 0.8, 0.9, 0.95, 1.0]
WORLDS: dict[str, dict[str, Any]] = {
    "tree": {"plan.aggregation": "tree"},
    "pipelined": {"plan.aggregation": "tree-chunked"},
    "gossip": {"plan.aggregation": "gossip", "plan.gossip_rounds": 9},
    "pattern": {"plan.exchange": {"every": 3, "between": "neighbours", "final": True}},
    "shared": {"network.medium": "shared", "network.broadcast": True},
    "listening": {"devices.receive_power_w": 0.3, "devices.idle_w": 0.05},
    "levels": {"devices.power_range_w": None, "devices.power_levels_w": LEVELS},
    "fading": {"network.fading": "rayleigh"},
    "leaving": {"devices.leave": [[3, 5]], "network.topology": "complete"},
    "coordination": {"plan.coordination": True, "plan.aggregation": "tree"},
}


@cache
def planned(world: str, power: str) -> Plan:
    return joulemesh.plan(Scenario().override({**BASE, **WORLDS[world], "plan.power": power}))


@pytest.mark.parametrize("world", WORLDS)
def test_just_in_time_keeps_everything_but_joules(world: str) -> None:
    full, just = planned(world, "full"), planned(world, "just-in-time")
    assert np.array_equal(full.rounds, just.rounds)
    assert np.array_equal(full.latency_s, just.latency_s)
    assert (just.exchange_j <= full.exchange_j * (1 + 1e-9)).all()
    assert just.exchange_j.sum() < 0.99 * full.exchange_j.sum()
    assert (just.spent_j <= full.spent_j * (1 + 1e-9)).all()
    for t in range(1, full.iterations + 1):
        sent, kept = just.route(t), full.route(t)
        assert (sent is None) == (kept is None)
        if sent is not None and kept is not None:
            assert list(sent.messages()) == list(kept.messages())


@pytest.mark.parametrize("world", WORLDS)
def test_auto_trains_no_less_and_stays_within_every_budget(world: str) -> None:
    full, auto = planned(world, "full"), planned(world, "auto")
    assert auto.rounds.sum() >= (1.0 if world != "fading" else 0.98) * full.rounds.sum()
    assert (auto.margin_j >= -1e-9 * auto.energy_budget_j).all()
    assert auto.total_s is not None
    assert auto.time_s <= auto.total_s * (1 + 1e-9)
    powers = auto.link_power_w
    assert powers is not None
    assert 0.01 * (1 - 1e-12) <= powers.min() <= powers.max() <= 1.0
    if world == "levels":
        assert np.isin(powers, LEVELS).all()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("power", ["just-in-time", "auto"])
def test_the_time_line_adds_up_to_the_ledger(world: str, power: str) -> None:
    plan = planned(world, power)
    for iteration in (1, 6, plan.iterations):
        bars = plan.gantt(iteration).bars
        own = np.zeros(8)
        for bar in bars:
            own[bar.device] += bar.joules
        assert np.allclose(own, plan.ledger.energy_j[iteration - 1], rtol=1e-9, atol=1e-12)
        assert max(bar.end_s for bar in bars) <= plan.latency_s[iteration - 1] * (1 + 1e-9)


def test_more_chunks_make_room_for_lower_powers_in_the_same_time() -> None:
    """A pipeline whose links all send as slowly as the slowest, in the seconds of full power."""
    fields = {
        **{name: value for name, value in BASE.items() if not name.startswith("budget")},
        "devices.count": 20,
        "training.model": "mlp",
        "training.hidden": [200],
        "training.dataset": "fashion-mnist",
        "plan.aggregation": "tree-chunked",
        "budget.energy_j": 300.0,
        "budget.total_s": 60.0,
    }
    full, just = (
        joulemesh.plan(Scenario().override({**fields, "plan.power": power}))
        for power in ("full", "just-in-time")
    )
    assert just.timeline.route.chunks > full.timeline.route.chunks
    assert just.exchange_j.sum() < 0.45 * full.exchange_j.sum()
    assert np.array_equal(just.latency_s, full.latency_s)
    assert np.array_equal(just.rounds, full.rounds)
    assert (just.spent_j <= full.spent_j * (1 + 1e-9)).all()
    assert max(bar.end_s for bar in just.gantt(1).bars) <= just.latency_s[0] * (1 + 1e-9)
    assert "the same time, in" in just.notes[0]
    with_chunks = {**fields, "plan.power": "just-in-time", "plan.chunks": 40}
    asked = joulemesh.plan(Scenario().override(with_chunks))
    assert asked.timeline.route.chunks == 40


def test_longer_exchanges_are_chosen_where_joules_are_short() -> None:
    fields = {**BASE, "budget.energy_j": 0.9, "budget.total_s": 2.0, "network.bandwidth_hz": 1e5}
    found = {
        power: joulemesh.plan(Scenario().override({**fields, "plan.power": power}))
        for power in ("just-in-time", "auto")
    }
    assert found["auto"].ground.stretch > 1.0
    assert found["auto"].rounds.sum() > 1.05 * found["just-in-time"].rounds.sum()
    assert found["auto"].exchange_j.sum() < found["just-in-time"].exchange_j.sum()


def test_unknown_gains_are_planned_with_by_their_quantile() -> None:
    fields = {**BASE, "network.fading": "rayleigh", "network.channel_known": False}
    plan = joulemesh.plan(Scenario().override({**fields, "plan.power": "just-in-time"}))
    assert plan.link_power_w is not None
    forecast = plan.ground.latest_forecast(0)
    route = plan.route(1)
    assert route is not None
    believed = plan.ground.pricer.sent(route, forecast)
    assert believed.power_w is not None
    assert np.array_equal(believed.power_w, plan.link_power_w)
    assert (plan.margin_j >= -1e-9 * plan.energy_budget_j).all()


def test_lost_packets_are_those_of_the_highest_powers() -> None:
    fields = {**BASE, "network.packet_error": 0.2, "network.tries": 2, "plan.aggregation": "tree"}
    runs = [
        carried_out(joulemesh.plan(Scenario().override({**fields, "plan.power": power})))
        for power in ("full", "just-in-time")
    ]
    assert runs[0].drawn is not None
    assert runs[1].drawn is not None
    for mine, other in zip(runs[0].drawn.lost, runs[1].drawn.lost, strict=True):
        assert np.array_equal(mine, other)
    assert runs[1].spent_j.sum() < runs[0].spent_j.sum()


def test_what_is_left_of_a_plan_is_sent_at_its_powers() -> None:
    plan = planned("tree", "just-in-time")
    left_j = 0.5 * plan.energy_budget_j
    rest = Remaining.of(plan.ground, start=5, members=range(1, 8), left_j=left_j[1:].tolist())
    made = continue_plan(plan, rest)
    route = made.route(6)
    assert route is not None
    costs = plan.ground.costs(5)
    want = plan.ground.pricer.beside(route, costs).exchange_j[0]
    assert np.allclose(made.exchange_j(6), want, rtol=1e-9, atol=1e-15)
    full = plan.ground.decided_on.pricer.beside(route, costs).exchange_j[0]
    assert made.exchange_j(6).sum() < 0.99 * full.sum()


def test_powers_are_written_and_read(tmp_path: Path) -> None:
    plan = planned("tree", "auto")
    assert plan.power_w is not None
    assert plan.link_power_w is not None
    record = json.loads(plan.to_json())
    assert record["exchange_stretch"] == plan.ground.stretch
    assert np.allclose(record["power_w"], plan.power_w)
    assert np.shape(record["link_power_w"]) == (len(plan.world.graph.edges), 2)
    plan.save(tmp_path / "plan.npz")
    with np.load(tmp_path / "plan.npz") as file:
        assert np.array_equal(file["link_power_w"], plan.link_power_w)
    again = load_plan(tmp_path / "plan.npz", plan.scenario)
    assert np.array_equal(again.exchange_j, plan.exchange_j)
    assert again.notes[0].startswith('plan.power = "auto": an exchange takes')
    assert "power_w" not in json.loads(planned("tree", "full").to_json())


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"devices.power_range_w": [1.0, 0.01]}, "runs backwards"),
        ({"devices.power_range_w": [0.0, 1.0]}, "greater than 0"),
        ({"devices.power_range_w": [0.01]}, "lowest, highest"),
        ({"devices.power_range_w": [0.01, 2.0]}, "above the limit"),
        ({"devices.power_range_w": [[0.01, 1.0], [0.1, 1.0]]}, "2 ranges for 8 devices"),
        ({"devices.power_levels_w": [0.1, 1.0]}, "two statements of the same"),
        ({"devices.power_range_w": None, "devices.power_levels_w": [0.1, 1.5]}, "above the limit"),
        ({"devices.power_range_w": None, "devices.power_levels_w": [-0.1, 1.0]}, "greater than 0"),
        ({"devices.send_j_per_bit": 1e-8}, "fixes the joules of a bit"),
        ({"devices.power_range_w": None}, "no powers to choose from"),
        ({"devices.circuit_w": None, "devices.power_drawn_w": [0.2, 1.0]}, "power_levels_w"),
    ],
)
def test_powers_that_make_no_sense_are_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        joulemesh.plan(Scenario().override({**BASE, "plan.power": "just-in-time", **fields}))


def test_powers_of_each_device() -> None:
    """A pair for each, and two columns of the table, are what they say."""
    pairs = [[0.01 * (i + 1), 0.5 + 0.05 * i] for i in range(8)]
    plan = joulemesh.plan(Scenario().override({**BASE, "devices.power_range_w": pairs}))
    assert plan.world.devices.lowest_w is not None
    assert np.allclose(plan.world.devices.lowest_w, np.array(pairs)[:, 0])
    assert np.allclose(plan.world.devices.transmit_power_w, np.array(pairs)[:, 1])


def test_columns_of_the_table_give_ranges(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    rows = [f"{0.01 * (i + 1)},{0.5 + 0.05 * i}" for i in range(8)]
    table.write_text("\n".join(["low_w,high_w", *rows]) + "\n", "utf-8")
    changes = {"devices.table": str(table), "devices.power_range_w": ["low_w", "high_w"]}
    fields = {name: value for name, value in BASE.items() if name != "devices.count"}
    plan = joulemesh.plan(Scenario().override(fields | changes))
    assert plan.world.devices.transmit_power_w[7] == pytest.approx(0.85)


def test_without_a_choice_plans_are_what_they_were() -> None:
    plain = {name: value for name, value in BASE.items() if "power" not in name}
    one = joulemesh.plan(Scenario().override(plain))
    other = joulemesh.plan(Scenario().override({**plain, "devices.power_range_w": [0.01, 1.0]}))
    assert np.array_equal(one.ledger.energy_j, other.ledger.energy_j)
    assert np.array_equal(one.rounds, other.rounds)
    assert one.power_w is None


@pytest.mark.parametrize("seed", range(6))
def test_no_powers_train_more_than_the_certificate_allows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fields = {
        **BASE,
        "seed": seed,
        "plan.aggregation": "tree",
        "plan.iterations": 20,
        "network.bandwidth_hz": float(rng.choice([1e5, 1e6])),
        "budget.energy_j": float(rng.uniform(0.9, 3.0)),
        "budget.total_s": float(rng.uniform(2.0, 5.0)),
        "devices.circuit_w": float(rng.choice([0.0, 0.1])),
    }
    if seed % 2:
        fields |= {"devices.power_range_w": None, "devices.power_levels_w": LEVELS}
    if seed % 3 == 2:
        fields |= {"devices.idle_w": 0.02}
    scenario = Scenario().override({**fields, "plan.power": "auto"})
    just = joulemesh.plan(scenario.override({"plan.power": "just-in-time"}))
    bound = just.certificate
    assert bound.powers
    ground, most = Ground.of(scenario), 0
    for stretch in (1.0, 1.05, 1.2, 1.5, 2.0, 4.0):
        planner = StaticPlanner(replace(ground, stretch=stretch))
        scheme = planner.ground.ready(20)
        made = planner.static(scheme, planner.prices(scheme, 20), 20)
        most = max(most, int(made.rounds.sum()))
        assert made.rounds.sum() <= bound.most_rounds
    assert bound.most_rounds <= 1.6 * most  # it says something
    assert "at any powers" in bound.text()
