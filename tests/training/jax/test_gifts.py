"""Devices that come back begin with a neighbour's parameters: the engine equals the reference."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import from_arrays, partition
from joulemesh.models import build
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.reference import run_reference
from joulemesh.training.schedule import Options, Schedule

DEVICES = 5
AWAY = "t,device,available\n2,1,0\n3,1,1\n2,3,0\n4,3,1\n"


def engine_of(schedule: Schedule, machine: Machine | None = None, seeds: int = 1) -> Engine:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 4)).astype(np.float32)
    data = from_arrays(x[:60], np.arange(60) % 3, x[60:], np.arange(20) % 3)
    held = [
        partition(data.y_train, schedule.devices, kind="quantity", alpha=1.0, seed=seed)
        for seed in range(seeds)
    ]
    options = Options(batch_size=8, precision="float64", chunk_iterations=2, eval_every=1)
    model = build("mlp", data.shape, 3, (6,))
    return Engine(model, data, held, schedule, options, seeds=range(seeds), machine=machine)


def assert_equal(engine: Engine) -> None:
    slow = run_reference(engine)
    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for number, devices in enumerate(slow):
        for device, params in enumerate(devices):
            mine = jax.tree.map(lambda leaf, s=number, d=device: leaf[s, d], fast)
            for ours, theirs in zip(jax.tree.leaves(mine), jax.tree.leaves(params), strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10)


@pytest.mark.parametrize("scheme", ["tree", "metropolis", "gossip"])
def test_a_plan_with_devices_that_come_and_go(
    tmp_path: Path, scheme: str, unevaluated: Callable[[Engine], Engine]
) -> None:
    path = tmp_path / "away.csv"
    path.write_text(AWAY, "utf-8")
    plan = joulemesh.plan(
        joulemesh.Scenario(
            devices={"count": DEVICES, "availability": str(path)},
            network={"topology": "complete"},
            plan={
                "iterations": 4,
                "aggregation": scheme,
                "rounds": "fixed",
                "fixed_rounds": 2,
                "gossip_rounds": 2,
            },
        )
    )
    schedule = schedule_of(plan)
    assert {gift[:2] for gift in schedule.gifts} == {(2, 1), (3, 3)}
    assert not schedule.active[1, [1, 3]].any()
    assert_equal(unevaluated(engine_of(schedule)))


@pytest.mark.parametrize("machine", ["two processors", "rows together"], indirect=True)
def test_gifts_on_other_machines(machine: Machine, unevaluated: Callable[[Engine], Engine]) -> None:
    rounds = np.random.default_rng(1).integers(1, 5, (3, DEVICES))
    active = np.ones((3, DEVICES), bool)
    active[1, [2, 4]] = False
    rounds[~active] = 0
    schedule = Schedule(rounds, active, gifts=((2, 2, 0), (2, 4, 3)))
    assert_equal(unevaluated(engine_of(schedule, machine, seeds=2)))


def test_a_gift_makes_a_difference(unevaluated: Callable[[Engine], Engine]) -> None:
    active = np.ones((3, DEVICES), bool)
    active[1, 2] = False
    exchanged = np.array([True, True, False])
    found = []
    for gifts in ((), ((2, 2, 0),)):
        rounds = np.where(active, 1, 0)
        made = unevaluated(engine_of(Schedule(rounds, active, exchanged, gifts=gifts)))
        *_, (state, _) = made.train()
        found.append(jax.tree.leaves(made.params(state))[0][0, 2])
    assert not np.allclose(*found)


@pytest.mark.parametrize("gift", [(3, 0, 1), (0, 5, 1), (0, 1, 1), (-1, 0, 1)])
def test_gifts_that_cannot_be_given_are_refused(gift: Any) -> None:
    with pytest.raises(ScenarioError, match="must name an iteration below 3"):
        Schedule(np.ones((3, DEVICES), int), gifts=(gift,))


def test_an_iteration_without_anybody_leaves_parameters_as_they_are(
    tmp_path: Path, unevaluated: Callable[[Engine], Engine]
) -> None:
    path = tmp_path / "away.csv"
    rows = [f"2,{device},0\n3,{device},1\n" for device in range(1, DEVICES)]
    path.write_text("t,device,available\n" + "".join(rows), "utf-8")
    plan = joulemesh.plan(
        joulemesh.Scenario(
            devices={"count": DEVICES, "availability": str(path)},
            plan={"iterations": 3, "rounds": "fixed", "fixed_rounds": 1},
        )
    )
    assert not plan.active[1].any()
    schedule = schedule_of(plan)
    assert schedule.active[1].all()
    assert_equal(unevaluated(engine_of(schedule)))
