"""The plan of a view, as a device follows it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.view import View
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import digest_of
from joulemesh.registries import POLICIES, SCHEMES

SMALL: dict[str, Any] = {
    "devices.count": 6,
    "network.topology": "complete",
    "plan.iterations": 8,
    "budget.deadline_s": 1.0,
}


def small(**fields: Any) -> joulemesh.Scenario:
    """A few devices, all linked."""
    named = {name.replace("__", "."): value for name, value in fields.items()}
    return joulemesh.Scenario.preset("adaptive").override(SMALL | named)


def replanner(scenario: joulemesh.Scenario, device: int = 0) -> Replanner:
    return Replanner(Ground.of(scenario), device)


def full(
    scenario: joulemesh.Scenario, members: tuple[int, ...], share: float = 1.0
) -> tuple[float, ...]:
    """Joules of some members: a share of their batteries."""
    held = Ground.of(scenario).world.devices.energy_budget_j
    return tuple(float(held[i]) * share for i in members)


@pytest.mark.parametrize(
    "fields",
    [{"plan__aggregation": name} for name in SCHEMES.names()]
    + [{"plan__rounds": name} for name in POLICIES.names() if name != "theorem4-literal"]
    + [
        {"plan__exchange": {"every": 3, "final": True}},
        {"network__fading": "rayleigh", "plan__coordination": True},
        {"plan__rounds": "spread", "budget__total_s": 0.5, "plan__exchange": "neighbours"},
    ],
    ids=str,
)
def test_view_0_is_the_plan_itself(fields: dict[str, Any]) -> None:
    scenario = small(**fields)
    plan = joulemesh.plan(scenario)
    for device in (0, 5):
        mine = replanner(scenario, device).plan(first_view(6))
        assert mine.view == replace(first_view(6), digest=digest_of(plan))
        assert mine.last == plan.iterations
        exchange_j = np.broadcast_to(plan.exchange_j, plan.rounds.shape)
        for iteration in range(1, plan.iterations + 1):
            route, price = plan.route(iteration), mine.price(iteration)
            assert mine.rounds(iteration) == plan.rounds[iteration - 1, device]
            assert mine.active(iteration) == tuple(range(6))
            found = mine.route(iteration)
            if found is None:
                assert route is None or not len(route.edge)
            else:
                assert route is not None
                assert list(found.messages()) == list(route.messages())
            assert price.exchange_j == exchange_j[iteration - 1, device]
            assert price.exchange_s == plan.exchange_s[iteration - 1]
            assert price.iteration_s == plan.latency_s[iteration - 1]


def test_all_devices_make_the_same_plan_without_one_of_them() -> None:
    scenario, members = small(), (0, 1, 3, 4, 5)
    view = View(1, 4, members, left_j=full(scenario, members, 0.5))
    made = [replanner(scenario, device).plan(view) for device in members]
    assert len({one.view.digest for one in made}) == 1
    assert {one.active(4) for one in made} == {members}
    assert made[0].exact(4)
    others = replanner(scenario).plan(replace(view, left_j=full(scenario, members, 0.1)))
    assert others.view.digest != made[0].view.digest


def test_what_was_planned_stays_where_everybody_can_still_pay() -> None:
    """A fleet that is switched off and on again ends with the bits of an undisturbed run."""
    scenario = small()
    plan, maker = joulemesh.plan(scenario), replanner(scenario)
    spent = np.cumsum(plan.rounds * plan.world.devices.round_energy_j + plan.exchange_j, axis=0)
    left = plan.energy_budget_j - spent[2] - 0.9 * plan.margin_j  # a little is lost
    view = View(1, 4, tuple(range(6)), left_j=tuple(left.tolist()))
    made = maker.plan(view)
    assert [made.rounds(i) for i in range(4, 9)] == plan.rounds[3:, 0].tolist()
    poorer = maker.plan(replace(view, left_j=tuple((0.8 * left).tolist())))
    assert sum(poorer.rounds(i) for i in range(4, 9)) < plan.rounds[3:, 0].sum()


def test_a_link_that_is_cut_carries_nothing() -> None:
    scenario, members = small(), tuple(range(6))
    whole = replanner(scenario).plan(first_view(6)).route(1)
    assert whole is not None
    cut = tuple(whole.edges[0].tolist())
    view = View(1, 2, members, left_j=full(scenario, members, 0.5), cut=(cut,))
    route = replanner(scenario).plan(view).route(2)
    assert route is not None
    assert cut not in {tuple(link) for link in route.edges.tolist()}


def test_a_member_that_cannot_pay_takes_no_part_and_is_named() -> None:
    scenario, members = small(), tuple(range(6))
    left_j = (*full(scenario, members[:5], 0.5), 0.0)
    made = replanner(scenario, 5).plan(View(1, 2, members, left_j=left_j))
    assert made.active(2) == members[:5]
    assert (made.rounds(2), made.peer(2)) == (0, None)
    assert any("depleted 5" in note for note in made.notes)


def test_fewer_iterations_where_not_all_can_be_paid() -> None:
    scenario, members = small(plan__rounds="fixed", plan__fixed_rounds=2), tuple(range(6))
    need = replanner(scenario).plan(first_view(6)).price(1)
    enough = 3.5 * (2 * need.round_j + need.exchange_j)
    left_j = (enough, *full(scenario, members[1:]))
    made = replanner(scenario).plan(View(1, 2, members, left_j=left_j))
    assert made.last == 4
    assert any("iteration 4 instead of 8" in note for note in made.notes)


@pytest.mark.parametrize(
    ("view", "says"),
    [
        (View(1, 2, (0, 1, 2), left_j=(0.0, 0.0, 0.0)), "fewer than two devices can pay"),
        (View(1, 2, (3,), left_j=(50.0,)), "nobody to exchange with"),
        (View(1, 9, (0, 1, 2), left_j=(50.0,) * 3), "ends with iteration 8"),
        (View(1, 2, (0, 1, 9), left_j=(50.0,) * 3), "not different devices of 0..5"),
        (View(1, 2, (0, 1), left_j=(float("nan"), 1.0)), "finite numbers of joules"),
    ],
)
def test_a_view_without_a_plan_is_refused_in_one_line(view: View, says: str) -> None:
    answer = replanner(small()).answer(view)
    assert answer.plan is None
    assert says in answer.refusal
    assert len(answer.refusal.splitlines()) == 1


def test_no_time_left_is_refused_in_one_line() -> None:
    scenario, members = small(budget__total_s=5.0), tuple(range(6))
    view = View(1, 2, members, left_j=full(scenario, members), elapsed_s=5.0)
    answer = replanner(scenario).answer(view)
    assert answer.refusal.startswith("no time is left for iteration 2")


def test_the_digest_does_not_depend_on_the_last_bit_of_a_price() -> None:
    plan = joulemesh.plan(small())
    exchange = plan.timeline.exchange
    dearer = replace(exchange, transmit_j=np.nextafter(exchange.transmit_j, 1.0))
    nudged = replace(plan.timeline, exchange=dearer)
    assert digest_of(replace(plan, timeline=nudged)) == digest_of(plan)


def test_a_scheme_with_a_price_but_no_messages_is_refused_in_one_line() -> None:
    """Left alone by a ring that broke, the paper's gossip knows no messages of one device."""
    fields = {"plan__physics": "paper", "plan__aggregation": "gossip", "plan__gossip_rounds": 2}
    refusal = replanner(small(**fields)).answer(first_view(6)).refusal
    assert "no messages" in refusal
    assert len(refusal.splitlines()) == 1


LIGHT = """
import sys, time
import joulemesh
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.planning.ground import Ground

begun = time.process_time()
Replanner(Ground.of(joulemesh.Scenario.preset("default")), 3).plan(first_view(20))
taken_s = time.process_time() - begun
heavy = {"jax", "torch", "pandas", "matplotlib"} & set(sys.modules)
status = open("/proc/self/status").read().split("VmHWM:")[1].split()[0]
print(int(status) * 1024 / 1e6, taken_s, *heavy)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
def test_planning_on_a_device_takes_little_memory_and_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True, timeout=60
    )
    peak_mb, taken_s, *heavy = done.stdout.split()
    assert not heavy
    assert float(peak_mb) < 95
    assert float(taken_s) < 3  # CPU seconds, about five times what it takes


DIGESTS = """
import joulemesh
from joulemesh.deploy.device.continuation import Replanner, first_view
from joulemesh.deploy.view import View
from joulemesh.planning.ground import Ground

for fields in (
    {},
    {"network.fading": "rayleigh", "plan.iterations": 20},
    {"plan.rounds": "spread", "plan.aggregation": "auto", "plan.iterations": 300},
):
    maker = Replanner(Ground.of(joulemesh.Scenario.preset("default").override(fields)), 0)
    left_j = tuple((0.5 * maker.ground.world.devices.energy_budget_j[:19]).tolist())
    for view in (first_view(20), View(1, 5, tuple(range(19)), left_j=left_j)):
        print(maker.plan(view).view.digest)
"""


@pytest.mark.slow
def test_a_processor_with_other_instructions_makes_the_same_plans() -> None:
    """NumPy's logarithms and powers differ in the last bit without its wide instructions."""
    machine = import_module("numpy._core._multiarray_umath")  # it has no type stubs
    wide = [name for name in machine.__cpu_dispatch__ if machine.__cpu_features__[name]]
    found = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NPY_DISABLE_CPU_FEATURES": ",".join(disabled)},
        ).stdout
        for disabled in ([], wide)
    ]
    assert len(found[0].split()) == 6
    assert found[0] == found[1]


@pytest.mark.parametrize("lost", range(5))
def test_whoever_is_lost_and_whenever_the_default_fleet_goes_on(lost: int) -> None:
    """By the plan's clock time is left after every iteration, though the total binds."""
    planner = replanner(joulemesh.Scenario(devices={"count": 5}))
    whole, members = planner.whole, tuple(one for one in range(5) if one != lost)
    timeline, round_s = whole.timeline, whole.world.devices.round_latency_s
    each_s = (timeline.rounds * round_s).max(axis=1) + timeline.exchange.seconds
    for start in (2, whole.iterations // 3, whole.iterations // 2, whole.iterations):
        done_s = float(each_s[: start - 1].sum()) * (1.0 - 1e-9)
        left_j = full(planner.ground.scenario, members, 1.0 - 0.9 * start / whole.iterations)
        view = View(1, start, members, left_j=left_j, elapsed_s=done_s)
        assert planner.plan(view).last >= start


@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_a_plan_made_after_a_fault_leaves_the_reserve_alone_if_it_can(share: float) -> None:
    scenario, members = small(plan__rounds="spread"), (0, 1, 2, 3, 5)
    held = Ground.of(scenario).world.devices.energy_budget_j
    view = View(1, 4, members, left_j=full(scenario, members, share))
    for device, left_j in zip(members, view.left_j, strict=True):
        planner = Replanner(Ground.of(scenario), device, reserve=0.05)
        assert planner.plan(view).rest_j(4) <= left_j - 0.05 * held[device] + 1e-9
    poor = replace(view, left_j=(0.05 * float(held[0]), *view.left_j[1:]))
    made = Replanner(Ground.of(scenario), 0, reserve=0.05).plan(poor)  # its reserve is all it has
    assert made.active(4) == members
