"""The time line of an iteration: it ends when the plan says, and adds up to the plan's joules."""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.aggregation.air import Medium
from joulemesh.planning.gantt import Bar, Draft, Gantt
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES

FEW = {
    "devices.count": 7,
    "plan.iterations": 4,
    "plan.gossip_rounds": 3,
    "budget.deadline_s": 10.0,
    "budget.energy_j": 10.0,
    "network.topology": "complete",
}
MEDIA: dict[str, dict[str, object]] = {
    "orthogonal": {},
    "half": {"network.duplex": "half"},
    "broadcast": {"network.broadcast": True},
    "shared": {"network.medium": "shared"},
    "interference": {"network.medium": "shared", "network.interference_m": 200.0},
    "shared broadcast": {"network.medium": "shared", "network.broadcast": True},
    "paper": {"plan.physics": "paper"},
}
MESSAGES: dict[str, object] = {
    "network.header_bits": 720,
    "network.packet_s": 2e-5,
    "plan.message_s": 1e-3,
    "devices.message_j": 1e-5,
    "devices.receive_power_w": 0.2,
}
WORLDS: dict[str, dict[str, object]] = {
    "receiving": {"devices.receive_j_per_bit": 1e-8},
    "rest": {"devices.idle_w": 0.01},
    "besides": {"devices.overhead_s": [0.001, 0.01], "devices.idle_w": 0.01},
    "flooding": {"plan.coordination": True, "network.medium": "shared"},
    "fading": {"network.fading": "rayleigh", "plan.coordination": True},
    "lost packets": {"network.packet_error": 0.1, "network.broadcast": True},
    "messages": MESSAGES,
    "messages in turns": {**MESSAGES, "network.duplex": "half"},
    "messages in slots": {**MESSAGES, "network.medium": "shared", "network.broadcast": True},
    "messages lost": {**MESSAGES, "network.packet_error": 0.1, "network.broadcast": True},
    "seldom": {"plan.exchange": {"every": 2}, "plan.rounds": "spread"},
}


def _plan(changes: dict[str, object]) -> Plan:
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override({**FEW, **changes}))


def _adds_up(plan: Plan, iteration: int) -> Gantt:
    """Check a time line against the plan's own ledger."""
    chart, row = plan.gantt(iteration), iteration - 1
    seconds = plan.latency_s[row]
    assert chart.seconds == seconds
    working = [bar for bar in chart.bars if bar.kind != "rest"]
    assert max(bar.end_s for bar in working) == pytest.approx(seconds, rel=1e-12)
    assert chart.phases[-1].end_s == pytest.approx(seconds, rel=1e-12)
    assert all(one.end_s == two.start_s for one, two in pairwise(chart.phases))
    exchange_j, receive_j = (
        np.broadcast_to(part, plan.rounds.shape)[row] for part in (plan.exchange_j, plan.receive_j)
    )
    np.testing.assert_allclose(chart.joules("send"), exchange_j - receive_j, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(chart.joules("receive"), receive_j, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(chart.joules("train"), plan.compute_j[row], rtol=1e-12)
    np.testing.assert_allclose(chart.joules("rest"), plan.idle_j(row), rtol=1e-12)
    assert all(0 <= bar.ready_s <= bar.start_s <= bar.end_s for bar in chart.bars)
    merged = plan.gantt(iteration, merged=True)
    np.testing.assert_allclose(merged.joules(), chart.joules(), rtol=1e-9)
    assert len(merged.bars) <= len(chart.bars)
    assert max(bar.end_s for bar in merged.bars) == max(bar.end_s for bar in chart.bars)
    for whole in (chart, merged):
        _only_some(plan, whole, merged=whole is merged)
    return chart


def _only_some(plan: Plan, whole: Gantt, *, merged: bool) -> None:
    """Check that a draft makes the bars of some devices as it does among all."""
    draft = Draft(plan, whole.iteration, merged=merged)
    some = range(0, whole.devices, 3)
    assert draft.gantt(some).bars == tuple(bar for bar in whole.bars if bar.device in some)
    assert not draft.gantt([]).bars
    working = [bar for bar in whole.bars if bar.kind != "rest"]
    for device in range(whole.devices):
        ends = [bar.end_s for bar in working if bar.device == device]
        assert (draft.counts[device], draft.until_s[device]) == (len(ends), max(ends, default=0.0))
    assert draft.resting.tolist() == [bar.device for bar in whole.bars if bar.kind == "rest"]


def _one_at_a_time(bars: list[Bar]) -> None:
    ordered = sorted(bars, key=lambda bar: (bar.start_s, bar.end_s))
    for one, two in pairwise(ordered):
        assert one.end_s <= two.start_s * (1 + 1e-9), (one, two)


def _keeps_apart(chart: Gantt, medium: Medium) -> None:
    """No device, or no direction of a link, carries two messages at once."""
    places: dict[object, list[Bar]] = defaultdict(list)
    for bar in chart.bars:
        if bar.kind in ("send", "receive") and medium.turns:
            places[bar.device].append(bar)
        elif bar.kind == "send":
            for other in bar.others:
                places[bar.device, other].append(bar)
    for bars in places.values():
        _one_at_a_time(bars)


def _drowned(chart: Gantt, medium: Medium) -> bool:
    """Does a sender within range of a receiver send at the same time?"""
    near = [set(others) for others in medium.reach.lists()] if medium.reach else []
    sent = [bar for bar in chart.bars if bar.kind == "send"]
    return any(
        any(receiver in near[two.device] for receiver in one.others)
        for one in sent
        for two in sent
        if one is not two and one.start_s < two.end_s * (1 - 1e-9) and near
        if two.start_s < one.end_s * (1 - 1e-9)
    )


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("scheme", [kind.name for kind in SCHEMES])
def test_every_scheme_adds_up_in_every_medium(scheme: str, medium: str) -> None:
    plan = _plan({"plan.aggregation": scheme, **MEDIA[medium]})
    chart = _adds_up(plan, 2)
    air = plan.ground.pricer.medium
    assert chart.ordered is (medium != "paper")
    if chart.ordered:
        _keeps_apart(chart, air)
        assert not _drowned(chart, air)


@pytest.mark.parametrize("scheme", ["tree", "tree-chunked", "ring-chunked", "gossip"])
@pytest.mark.parametrize("world", WORLDS)
def test_whatever_a_plan_pays_for_is_in_its_time_line(world: str, scheme: str) -> None:
    plan = _plan({"plan.aggregation": scheme, **WORLDS[world]})
    for iteration in range(1, plan.iterations + 1):
        _adds_up(plan, iteration)


def test_a_device_that_comes_back_is_sent_parameters_first(tmp_path: Path) -> None:
    away = tmp_path / "away.csv"
    away.write_text("t,device,available\n2,3,0\n3,3,1\n")
    plan = _plan({"devices.availability": str(away), "plan.aggregation": "tree"})
    assert plan.timeline.handed
    charts = {t: _adds_up(plan, t) for t in range(1, plan.iterations + 1)}
    back = plan.timeline.handed[0][0] + 1
    gifts = [bar for bar in charts[back].bars if bar.phase == "gifts" and bar.kind == "send"]
    assert [bar.others for bar in gifts] == [(3,)]
    assert charts[back].phases[0].name == "gifts"


def test_a_path_by_hand() -> None:
    """Three devices in a row: both ends send to the middle, the middle answers both."""
    plan = _plan({"devices.count": 3, "plan.aggregation": "tree"})
    chart, route = plan.gantt(1), plan.route(1)
    assert route is not None
    root = route.root
    trained = max(bar.end_s for bar in chart.bars if bar.kind == "train")
    sent = [bar for bar in chart.bars if bar.kind == "send"]
    gathered = [bar for bar in sent if bar.others == (root,)]
    assert [bar.start_s for bar in gathered] == [trained] * len(gathered)
    answers = [bar for bar in sent if bar.device == root]
    assert min(bar.start_s for bar in answers) == max(bar.end_s for bar in gathered)


def test_files_hold_every_bar(tmp_path: Path) -> None:
    chart = _plan({"plan.aggregation": "ring"}).gantt(1)
    chart.save(tmp_path / "line.csv")
    chart.save(tmp_path / "line.json")
    with (tmp_path / "line.csv").open() as file:
        rows = list(csv.DictReader(file))
    record = json.loads((tmp_path / "line.json").read_text())
    assert len(rows) == len(record["bars"]) == len(chart.bars)
    assert sum(float(row["joules"]) for row in rows) == pytest.approx(chart.joules().sum())
    assert record["bars"][-1]["others"] == list(chart.bars[-1].others)
    with pytest.raises(joulemesh.ScenarioError, match=r"end in \.csv or \.json, not '\.txt'"):
        chart.save(tmp_path / "line.txt")


def test_too_many_messages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan({"plan.aggregation": "ring"})
    monkeypatch.setattr("joulemesh.planning.gantt._MOST_MESSAGES", 10)
    with pytest.raises(
        joulemesh.ScenarioError, match="iteration 1 sends 42 messages, more than 10"
    ):
        plan.gantt(1)
    assert plan.gantt(1, merged=True).bars
    with pytest.raises(joulemesh.ScenarioError, match=r"iteration 9 is not one of 1\.\.4"):
        plan.gantt(9)


def test_the_rest_of_a_plan_has_time_lines_too() -> None:
    """Of a timeline that begins later, too, the scheme of an iteration is found."""
    whole = _plan({"network.fading": "rayleigh", "plan.aggregation": "tree"})
    rest = replace(whole, timeline=whole.timeline.from_row(2))
    assert rest.scheme_at(1) is whole.scheme_at(3)
    one, two = rest.gantt(1), whole.gantt(3)
    assert one.bars == two.bars
