"""What is shown of a sweep: panels, figure, tables, the page."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario.varied import Varied, labelled
from joulemesh.study.sweep_result import Sweep
from joulemesh.views.figures import literal, sweep_figure
from joulemesh.views.latex import escape, sweep_table
from joulemesh.views.style import save_figure
from joulemesh.views.sweep import panel_of, render_sweep, show_sweep
from tests.views.markup import Page
from tests.views.sweep.conftest import NASTY, run, summary

T_95 = 12.706204736  # Student's t, 0.975, one degree of freedom


def test_a_line_is_a_mean_over_the_same_settings_everywhere(chosen: Sweep) -> None:
    panel = panel_of(chosen, 0)
    # The hostile topology lacks a method at 50 devices: all lines are of the ring alone.
    assert [line.settings for line in panel.lines] == [1, 1]
    assert panel.settings == 2
    assert panel.note == "mean over 1 of 2 settings"
    np.testing.assert_allclose(panel.lines[0].mean, [0.11, 0.21, 0.31])
    np.testing.assert_allclose(panel.lines[1].mean, [0.21, 0.31, 0.41])
    np.testing.assert_allclose(panel.lines[0].half, T_95 * 0.01)  # s/√2 of two seeds 0.02 apart


def test_a_field_is_averaged_over_all_settings_that_have_all(chosen: Sweep) -> None:
    panel = panel_of(chosen, 1)
    assert [line.settings for line in panel.lines] == [2, 2]  # 10 and 20 devices
    np.testing.assert_allclose(panel.lines[0].mean, [0.16, 0.36])
    np.testing.assert_allclose(panel.lines[1].mean, [0.26, 0.46])


def test_seeds_that_did_not_reach_the_target_leave_no_figure(chosen: Sweep) -> None:
    panel = panel_of(chosen, 0, "energy_to_target_j")
    assert np.isnan(panel.lines[0].mean[0])  # one of its two seeds never did
    np.testing.assert_allclose(panel.lines[0].mean[1:], 2.0)


def test_a_method_without_a_common_setting_is_named(chosen: Sweep) -> None:
    points = list(chosen.points)
    nothing = tuple({**row, "accuracy": None} for row in points[0].runs[2:])
    points[0] = replace(points[0], runs=(*points[0].runs[:2], *nothing))
    panel = panel_of(replace(chosen, points=tuple(points)), 0)
    assert [line.index for line in panel.lines] == [0]
    assert panel.missing == (chosen.methods[1],)
    assert panel.note == f"mean over 2 settings of the rest; no line: {chosen.methods[1]}"


def test_the_figure_has_a_panel_for_each_field(chosen: Sweep, tmp_path: Path) -> None:
    figure = sweep_figure(chosen)
    first, second = figure.axes
    assert first.get_xscale() == "log"
    assert first.get_xlabel() == "number of devices N"
    assert first.get_ylabel() == "test accuracy of the mean model [%]"
    np.testing.assert_allclose(np.asarray(first.lines[0].get_xdata()), [10, 20, 50])
    np.testing.assert_allclose(np.asarray(first.lines[0].get_ydata()), [11, 21, 31])
    assert len(first.collections) == 2  # a band each
    assert second.get_xticklabels()[0].get_text() == "ring"
    assert len(second.containers) == 2  # points with whiskers
    save_figure(figure, tmp_path / "figure", "png,svg,pdf")
    assert sweep_figure(chosen, "energy_j").axes[0].get_ylabel() == "energy of all devices [kJ]"
    narrow = sweep_figure(chosen, width="ieee")
    assert round(float(narrow.get_size_inches()[0]), 2) == 3.49
    with pytest.raises(ScenarioError, match="is not a figure of a sweep: use one of accuracy"):
        sweep_figure(chosen, "loss")


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_the_figure_names_methods_that_did_not_run(chosen: Sweep) -> None:
    assert legend_of(sweep_figure(chosen)) == [
        "adaptive",
        literal(f"{NASTY} (infeasible in 1 of 6)"),
    ]
    points = []
    for point in chosen.points:
        runs = [run(NASTY, seed, None, None) for seed in (0, 1)]
        rows = (point.methods[0], summary(NASTY, ran=False))
        points.append(replace(point, runs=(*point.runs[:2], *runs), methods=rows))
    figure = sweep_figure(replace(chosen, points=tuple(points)), width="ieee")
    assert legend_of(figure) == ["adaptive", literal(f"{NASTY} (infeasible)")]
    assert figure.axes[0].get_title().endswith(literal(f"no line: {NASTY}"))
    assert figure.axes[0].get_ylabel() == "accuracy [%]"


def test_labels_are_those_of_the_user_or_of_the_description(chosen: Sweep) -> None:
    fields = labelled(chosen.varied, {"devices.count": "fleet size"})
    named = replace(chosen, varied=fields)
    assert [axes.get_xlabel() for axes in sweep_figure(named).axes] == [
        "fleet size",
        Varied("network.topology", ()).words,
    ]
    assert "fleet size & " in sweep_table(named)
    assert "number of devices N & " in sweep_table(chosen)
    with pytest.raises(ScenarioError, match=r"'devices\.cpu_hz' names no varied field: use dev"):
        labelled(chosen.varied, {"devices.cpu_hz": "speed"})
    with pytest.raises(ScenarioError, match="has 0 characters: give 1 to 100"):
        labelled(chosen.varied, {"devices.count": ""})


@pytest.mark.parametrize("narrow", [False, True])
def test_the_table_for_a_paper_has_every_combination_and_method(
    chosen: Sweep, narrow: bool
) -> None:
    text = sweep_table(chosen, narrow=narrow)
    assert text.startswith(r"% Needs \usepackage{booktabs}.")
    body = text.partition(r"\midrule")[2].partition(r"\bottomrule")[0].strip().splitlines()
    assert len(body) == len(chosen.points) * len(chosen.methods)
    columns = text.partition(r"\toprule")[2].strip().splitlines()[0].count("&")
    assert {line.count(" & ") for line in body} == {columns}
    first = [line.split(" & ")[0].strip() for line in body]
    assert first[::2] == ["10", "10", "20", "20", "50", "50"]
    assert set(first[1::2]) == {""}
    assert sum("infeasible" in line for line in body) == 1
    note = f"{escape(NASTY)} could not run in 1 of 6 combinations: why."
    assert note in text
    assert text.count(r"\begin{table*}") == (not narrow)


def test_values_stand_in_order_whatever_the_order_given(chosen: Sweep) -> None:
    fields = (Varied("devices.count", (50, 10, 20)), chosen.varied[1])
    line = sweep_figure(replace(chosen, varied=fields)).axes[0].lines[0]
    np.testing.assert_allclose(np.asarray(line.get_xdata()), [10, 20, 50])
    np.testing.assert_allclose(np.asarray(line.get_ydata()), [21, 31, 11])


def test_the_page_carries_every_run_and_no_hostile_text(chosen: Sweep) -> None:
    page = Page(render_sweep(chosen, versions={"joulemesh": "1"}, when="2026-01-01"))
    assert "b" not in page.seen
    data = page.data
    assert [field["log"] for field in data["fields"]] == [True, False]
    assert data["fields"][1]["numbers"] is None
    assert data["cells"][0][:4] == [0.1, 0.12, 0.2, 0.22]
    assert data["cells"][0][-2:] == [None, None]
    assert data["quantile"][2] == pytest.approx(T_95)
    assert len(data["cells"]) == len(data["figures"]) == 6
    assert page.seen.count("select") == 2


def test_the_terminal_says_what_did_not_run(chosen: Sweep) -> None:
    console = Console(width=160, record=True)
    show_sweep(chosen, console)
    shown = re.sub(r"\s+", " ", console.export_text())
    assert shown.count("infeasible") == 1
    assert "1 of 6 combinations: " in shown
    assert "paired by seed" in shown
