"""The plan of one device: equal to the plan, and readable without the planner."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.planning.orders import Orders, digest_of, orders
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as make_plan
from joulemesh.registries import SCHEMES
from joulemesh.scenario import Scenario

SMALL: dict[str, Any] = {
    "devices.count": 6,
    "network.topology": "ring",
    "plan.iterations": 12,
    "plan.gossip_rounds": 3,
    "budget.energy_j": 20.0,
    "budget.deadline_s": 1.0,
}
KINDS: dict[str, dict[str, Any]] = {
    "static": {},
    "faded": {"network.fading": "rayleigh", "network.coherence_iterations": 5},
    "faded, unknown": {"network.fading": "rayleigh", "network.channel_known": False},
    "leaving": {
        "budget.energy_j": {"values": (0.3, 20.0, 20.0, 20.0, 20.0, 20.0)},
        "plan.on_depletion": "leave",
        "plan.rounds": "fixed",
        "plan.iterations": 200,
    },
}


def planned(scheme: str, kind: str) -> Plan:
    return make_plan(Scenario().override({**SMALL, **KINDS[kind], "plan.aggregation": scheme}))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", SCHEMES.names())
def test_all_orders_together_are_the_plan(scheme: str, kind: str) -> None:
    plan = planned(scheme, kind)
    every = [orders(plan, device) for device in range(6)]
    if kind == "leaving":
        assert not plan.active.all()
    for t in range(1, plan.iterations + 1):
        assert [mine.rounds_of(t) for mine in every] == plan.rounds[t - 1].tolist()
        parts = [mine.exchange_of(t) for mine in every]
        route = plan.route(t)
        expected = [] if route is None else sorted(route.messages())
        sent = [(s, i, j, b) for i, part in enumerate(parts) if part for s, j, b in part.sent()]
        heard = [
            (s, i, j, b) for j, part in enumerate(parts) if part for s, i, b in part.received()
        ]
        assert sorted(sent) == sorted(heard) == expected
        assert {part.scheme for part in parts if part} <= {plan.scheme_at(t).name}
    linked = {(i, j) for i, j in plan.world.graph.edges.tolist()}
    for i, mine in enumerate(every):
        assert all((min(i, j), max(i, j)) in linked for j in mine.neighbours)
        assert mine.battery_j == plan.energy_budget_j[i]
        facts = (mine.deadline_s, mine.iterations, mine.seed, mine.plan)
        assert facts == (plan.deadline_s, plan.iterations, plan.scenario.seed, digest_of(plan))


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["tree", "tree-chunked", "gossip"])
def test_files_hold_the_orders_exactly(scheme: str, kind: str, suffix: str, tmp_path: Path) -> None:
    mine, path = orders(planned(scheme, kind), 0), tmp_path / f"device0{suffix}"
    mine.save(path)
    assert Orders.load(path) == mine


READER = """
import json, sys
told = json.load(open(sys.argv[1]))
rounds = [value for value, count in told["rounds"] for _ in range(count)]
sent = []
for index, count in told["schedule"]:
    part = told["exchanges"][index] if index >= 0 else None
    steps = [] if part is None else [
        [play * part["steps"] + chunk + step, to, bits / part["chunks"]]
        for play in range(part["repeats"]) for chunk in range(part["chunks"])
        for step, to, bits in part["sends"]]
    sent += [steps] * count
print(json.dumps([rounds, sent, sorted(m for m in sys.modules if "joulemesh" in m)]))
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scheme", ["tree", "tree-chunked"])
def test_the_standard_library_reads_them(scheme: str, kind: str, tmp_path: Path) -> None:
    plan, path = planned(scheme, kind), tmp_path / "device2.json"
    orders(plan, 2).save(path)
    told = subprocess.run(
        [sys.executable, "-I", "-c", READER, str(path)], capture_output=True, text=True, check=True
    )
    rounds, sent, ours = json.loads(told.stdout)
    assert ours == []
    assert rounds == plan.rounds[:, 2].tolist()
    for t, steps in enumerate(sent, 1):
        route = plan.route(t)
        messages = [] if route is None else route.messages()
        assert sorted(steps) == sorted([s, j, b] for s, i, j, b in messages if i == 2)


def test_what_repeats_is_written_once() -> None:
    plan = planned("ring", "static")
    mine = orders(plan, 1)
    assert mine.schedule == ((0, 12),)
    (part,) = mine.exchanges
    assert (part.repeats, len(part.sends)) == (5, 1)  # N − 1 plays of one step
    faded = orders(planned("tree", "faded"), 1)
    assert len(faded.schedule) <= 3  # blocks of 5 iterations: 5, 5 and 2
    assert sum(count for _, count in faded.schedule) == 12


def test_another_plan_has_another_digest() -> None:
    plan = planned("tree", "static")
    assert digest_of(plan) == digest_of(planned("tree", "static"))
    other = make_plan(plan.scenario.override({"budget.energy_j": 20.5}))
    assert digest_of(plan) != digest_of(other)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "[]",
        "no",
        '{"format": "joulemesh orders 9"}',
    ],
)
def test_what_holds_no_orders_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ScenarioError, match="the text holds no orders") as refusal:
        Orders.from_json(text)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("rounds", [[3, 11]], "rounds are not of 12 iterations"),
        ("schedule", [[7, 12]], "an exchange that is not there"),
        ("schedule", [[0, 5]], "schedule are not of 12 iterations"),
        ("rounds", [["many", 12]], "invalid literal"),
        ("more", 1, "unexpected keyword"),
    ],
)
def test_damaged_orders_are_refused(name: str, value: object, match: str, tmp_path: Path) -> None:
    record = json.loads(orders(planned("tree", "static"), 0).to_json())
    (tmp_path / "o.json").write_text(json.dumps({**record, name: value}))
    with pytest.raises(ScenarioError, match=match):
        Orders.load(tmp_path / "o.json")


def test_devices_iterations_and_suffixes_that_do_not_exist(tmp_path: Path) -> None:
    plan = planned("tree", "static")
    with pytest.raises(ScenarioError, match=r"device 6 is not one of 0\.\.5"):
        orders(plan, 6)
    with pytest.raises(ScenarioError, match=r"iteration 13 is not one of 1\.\.12"):
        orders(plan, 0).exchange_of(13)
    with pytest.raises(ScenarioError, match=r"orders end in \.json or \.npz, not '\.toml'"):
        orders(plan, 0).save(tmp_path / "device.toml")
    assert np.array_equal(plan.rounds[:, 0], [orders(plan, 0).rounds_of(t) for t in range(1, 13)])
