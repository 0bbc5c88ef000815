from __future__ import annotations

from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import joulemesh
from joulemesh.base.units import prefixed
from joulemesh.planning.plan import Account, Plan
from joulemesh.views.charts import (
    battery_left,
    departed,
    every,
    frame_m,
    link_energy_j,
    rounds_grid,
    route_words,
)


class FakePlan:
    """Only what `rounds_grid` looks at."""

    def __init__(self, rounds: NDArray[np.int64], active: NDArray[np.bool_]) -> None:
        self.rounds, self.active = rounds, active


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 12), st.integers(1, 12), st.data())
@settings(max_examples=60, deadline=None)
def test_grid_cells_are_means_over_those_present(
    rows: int, columns: int, n: int, count: int, data: st.DataObject
) -> None:
    seed = data.draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    leave = rng.integers(0, n + 1, count)
    active = np.arange(n)[:, None] < leave
    rounds = np.where(active, rng.integers(1, 9, (n, count)), 0)
    grid = rounds_grid(cast(Account, FakePlan(rounds, active)), rows, columns)
    height, width = min(rows, count), min(columns, n)
    assert grid.values.shape == (height, width)
    assert grid.sorted == (count > rows)

    lived = np.maximum(active.sum(axis=0), 1)
    order = sorted(range(count), key=lambda i: rounds[:, i].sum() / lived[i])
    order = order if grid.sorted else list(range(count))
    starts = [int(n * k / width + 1e-9) for k in range(width + 1)]
    for r in range(height):
        devices = [i for place, i in enumerate(order) if place * height // count == r]
        for c in range(width):
            cell = [(t, i) for t in range(starts[c], starts[c + 1]) for i in devices]
            there = [rounds[t, i] for t, i in cell if active[t, i]]
            if there:
                assert grid.values[r, c] == pytest.approx(np.mean(there))
            else:
                assert np.isnan(grid.values[r, c])


@given(st.integers(1, 5000), st.integers(2, 300))
@settings(max_examples=60, deadline=None)
def test_every_keeps_both_ends_and_the_limit(count: int, most: int) -> None:
    picked = every(count, most)
    assert picked[0] == 0
    assert picked[-1] == count - 1
    assert len(picked) <= most
    assert (np.diff(picked) >= 1).all()


@pytest.mark.parametrize("name", ["default", "leave", "gossip", "fading", "paper-grid"])
def test_batteries_end_at_the_plans_margin_and_never_rise(
    plans: dict[str, Plan], name: str
) -> None:
    plan = plans[name]
    when = every(plan.iterations + 1, 17)
    left = list(battery_left(plan, when))
    assert when[0] == 0
    assert when[-1] == plan.iterations
    assert np.allclose(left[-1], plan.margin_j / plan.energy_budget_j, atol=1e-12)
    assert (np.diff(left, axis=0) <= 1e-15).all()
    exchange = np.broadcast_to(plan.exchange_j, plan.rounds.shape)
    middle = when[8]
    spent = (plan.compute_j + exchange)[:middle].sum(axis=0)
    assert np.allclose(left[8], 1 - spent / plan.energy_budget_j)


@pytest.mark.parametrize("name", ["default", "paper-grid"])
def test_link_energies_add_up_to_the_exchange(plans: dict[str, Plan], name: str) -> None:
    plan = plans[name]  # a tree passes every link once up and once down, whoever pays
    energy = link_energy_j(plan, plan.timeline.route.link_index)
    assert energy.sum() == pytest.approx(plan.exchange_j[0].sum())


def test_who_left_and_which_route_is_drawn(plans: dict[str, Plan]) -> None:
    assert (
        np.flatnonzero(departed(plans["leave"])).tolist()
        == np.flatnonzero(plans["leave"].binding == "left").tolist()
    )
    assert departed(plans["leave"]).any()
    words = {name: route_words(plans[name]) for name in ("default", "fading", "leave", "gossip")}
    assert words == {
        "default": "tree",
        "fading": "tree as forecast",
        "leave": "tree of iteration 1",
        "gossip": "gossip of iteration 1",
    }


def test_the_frame_is_a_square_round_everybody(plans: dict[str, Plan]) -> None:
    for plan in plans.values():
        left, right, bottom, top = frame_m(plan)
        x, y = plan.world.graph.positions_m.T
        assert right - left == pytest.approx(top - bottom)
        assert left < x.min()
        assert x.max() < right
        assert bottom < y.min()
        assert y.max() < top


@pytest.mark.parametrize(
    ("top", "found"),
    [(1.0, (1.0, "J")), (0.999, (1e-3, "mJ")), (5e4, (1e3, "kJ")), (1e-15, (1e-12, "pJ"))],
)
def test_units(top: float, found: tuple[float, str]) -> None:
    assert prefixed(-top, "J") == found


def test_batteries_pay_for_rest_too() -> None:
    """What is left at the end is the plan's margin, whatever the joules went on."""
    changes = {"devices.idle_w": 0.5, "devices.receive_j_per_bit": 1e-8, "plan.iterations": 10}
    plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(changes))
    assert plan.idle_total_j.sum() > 0
    *_, last = battery_left(plan, np.array([0, 4, 10]))
    assert last == pytest.approx(plan.margin_j / plan.energy_budget_j, abs=1e-9)
