"""Plans whose batteries are recharged, and whose devices come back: drawn and said in full."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.container import BarContainer

import joulemesh
from joulemesh.planning.plan import Plan
from joulemesh.views.charts import route_words
from joulemesh.views.plan_figure import energy_bands, plan_figure


@functools.cache
def harvesting() -> Plan:
    """Four devices that spend several times what they begin with."""
    return joulemesh.plan(
        joulemesh.Scenario(
            devices={"count": 4, "step_s": 1.0, "step_j": 3.0, "harvest_w": 3.5},
            budget={"energy_j": 60.0, "deadline_s": 30.0},
            plan={"iterations": 20, "rounds": "fixed", "fixed_rounds": 5},
        )
    )


def test_bars_end_below_what_batteries_hold_and_gain() -> None:
    plan = harvesting()
    assert (plan.spent_j > plan.energy_budget_j).all()
    axes = plan_figure(plan).axes[2]
    outline = [one for one in axes.containers if isinstance(one, BarContainer)][-1]
    heights = np.array([bar.get_height() for bar in outline])
    assert heights == pytest.approx(plan.supplied_j)
    assert axes.get_ylim()[1] > heights.max()
    keys = axes.get_legend()
    assert keys is not None
    assert keys.get_texts()[-1].get_text() == "battery and harvest"
    assert energy_bands(plan, 2)[1].mean() == pytest.approx(plan.supplied_j.mean())


def test_no_more_than_all_of_the_energy_is_left_over() -> None:
    plan = harvesting()
    said = re.search(r"([\d.]+) % of the energy", str(plan.answer))
    assert said
    share = plan.margin_j.sum() / plan.supplied_j.sum()
    assert float(said[1]) == pytest.approx(100 * share, abs=0.6)


def test_a_route_that_changes_is_said_to_be_the_first(tmp_path: Path) -> None:
    absent = tmp_path / "who.csv"
    absent.write_text("t,device,available\n1,2,0\n3,2,1\n", "utf-8")
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"devices.count": 6, "plan.iterations": 5, "plan.rounds": "spread"}
    )
    assert route_words(joulemesh.plan(scenario)) == "tree"
    plan = joulemesh.plan(scenario.override({"devices.availability": str(absent)}))
    assert plan.active[-1].all()
    assert route_words(plan) == "tree of iteration 1"
    moving = tmp_path / "where.csv"
    places = [(t, i, 80 * i * t, 40 * i) for t in (1, 2) for i in range(6)]
    rows = "".join("{},{},{},{}\n".format(*row) for row in places)
    moving.write_text(f"t,device,x_m,y_m\n{rows}", "utf-8")
    changes = {"devices.positions": str(moving), "devices.trace_end": "hold"}
    plan = joulemesh.plan(scenario.override({**changes, "budget.deadline_s": 10.0}))
    assert route_words(plan) == "tree of iteration 1"
