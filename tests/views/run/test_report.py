from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.metrics import Reported
from joulemesh.planning.plan import Plan
from joulemesh.views import charts, report, words
from joulemesh.views import charts as digest
from joulemesh.views.charts import link_energy_j
from joulemesh.views.report import ReportView, Summary, render_report, write_report
from tests.views.markup import Page

KINDS = ["default", "paper-grid", "fading", "leave", "gossip", "tiny", "many"]
NASTY = "</script><script>alert('x')</script><!-- & \"$title\""


@pytest.mark.parametrize("name", KINDS)
def test_a_whole_page_that_asks_for_nothing(
    plans: dict[str, Plan], make_view: Callable[..., ReportView], name: str
) -> None:
    text = render_report(make_view(plans[name]))
    page = Page(text)
    assert page.open == []
    assert page.addresses == ["data:,"]
    assert not re.search(r"@import|url\(|https:|import\(|fetch\(|XMLHttpRequest", page.scripts[1])
    assert "default-src 'none'" in text
    sections = {"learning", "map", "rounds", "batteries", "labels", "devices", "scenario"}
    assert sections <= page.ids
    assert len(page.scripts) == 2


def test_text_of_the_user_stays_text(
    plans: dict[str, Plan], make_view: Callable[..., ReportView]
) -> None:
    view = make_view(
        plans["default"],
        subject=words.Subject(NASTY, "2026-11-15T08:00:00+00:00", dataset=NASTY, model=NASTY),
        scenario_toml=f"# {NASTY}",
        versions={NASTY: NASTY},
        class_names=[NASTY] + [str(k) for k in range(9)],
    )
    page = Page(render_report(view))
    assert page.open == []
    assert len(page.scripts) == 2
    assert Page(render_report(view)).data["labels"]["classes"][0] == NASTY
    assert page.text.count(NASTY) == 6  # <title>, heading, model, scenario, a version and its name


def test_a_hundred_devices_and_four_hundred_iterations_stay_small(
    make_view: Callable[..., ReportView],
) -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {
            "devices.count": 100,
            "network.topology": "complete",
            "plan.iterations": 400,
            "plan.zeta": 500.0,
            "budget.energy_j": [60.0, 300.0],
            "budget.deadline_s": 0.06,
        }
    )
    page = render_report(make_view(joulemesh.plan(scenario), seeds=(0, 1, 2)))
    assert len(page.encode()) < 2_000_000


def test_assumed_figures_are_named_and_all_have_an_origin(
    plans: dict[str, Plan], make_view: Callable[..., ReportView]
) -> None:
    assert "Assumed (not given)" not in render_report(make_view(plans["default"]))
    plan = joulemesh.plan(joulemesh.Scenario(budget={"energy_j": 20.0}))
    page = render_report(make_view(plan))
    assert "Assumed (not given): [budget] total_s 4 s; [devices] count 20," in page
    assert "<td>budget.energy_j</td><td>20 J</td><td>given</td>" in page


def cells_of(data: dict[str, Any]) -> NDArray[np.float64]:
    cells = np.frombuffer(base64.b64decode(data["cells"]), "<u2").reshape(data["shape"])
    return np.where(cells == 65535, np.nan, cells * data["scale"])


def test_the_heat_map_is_exact_where_it_can_be(plans: dict[str, Plan]) -> None:
    plan = plans["leave"]
    values = cells_of(charts.rounds_data(plan))
    assert np.array_equal(np.isnan(values).T, ~plan.active)
    assert np.array_equal(np.nan_to_num(values).T, plan.rounds)


def test_the_heat_map_is_binned_and_close_where_it_is_not(plans: dict[str, Plan]) -> None:
    plan = plans["many"]
    data = charts.rounds_data(plan)
    values = cells_of(data)
    assert values.shape == (400, plan.iterations)
    assert data["sorted"]
    assert values.max() == pytest.approx(data["most"])
    order = np.argsort(plan.rounds.mean(axis=0), kind="stable")
    top_row = [i for place, i in enumerate(order) if place * 400 // 700 == 399]
    expected = plan.rounds[:, top_row].mean(axis=1)
    assert np.allclose(values[-1], expected, atol=data["most"] / 65534)


def test_the_map_lists_each_link_once(plans: dict[str, Plan]) -> None:
    plan = plans["gossip"]
    data = charts.map_data(plan)
    ends = data["route"]["ends"] + data["links"]["ends"]
    assert sorted(ends) == plan.world.graph.edges.tolist()
    every = plan.world.graph.edges.tolist()
    joules = link_energy_j(plan, np.arange(len(every)))
    energy = dict(zip(map(tuple, every), joules, strict=True))
    shown = data["route"]["energy"] + data["links"]["energy"]
    assert shown == pytest.approx([energy[tuple(pair)] for pair in ends], rel=1e-3)


def test_a_crowded_map_says_how_many_links_it_leaves_out(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plans["many"]
    links, used = len(plan.world.graph.edges), len(plan.edges)
    monkeypatch.setattr(digest, "_MOST_LINKS", 50)
    data = charts.map_data(plan)
    assert data["drawn"] == [["links", 100, links]]
    assert (data["count"], data["used"], len(data["at"])) == (links, used, 700)


def test_very_many_devices_are_summarised_in_cells(
    plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plans["many"]
    monkeypatch.setattr(digest, "MOST_DOTS", 500)
    data = charts.map_data(plan)
    assert "at" not in data
    cells, joints = data["cells"], data["joints"]
    assert sum(cell["count"] for cell in cells) == 700
    bound = [sum(cell["binding"].get(kind, 0) for cell in cells) for kind in data["bound"]]
    assert bound == [int((plan.binding == kind).sum()) for kind in data["bound"]]
    # Links within a cell are not drawn; all others are between two different cells.
    assert sum(joint["links"] for joint in joints) <= len(plan.world.graph.edges)
    assert all(len(set(joint["ends"])) == 2 for joint in joints)
    assert 0 < sum(joint["route"] for joint in joints) <= len(plan.edges)


def test_batteries_are_lines_for_few_and_bands_for_many(plans: dict[str, Plan]) -> None:
    plan = plans["leave"]
    data = charts.battery_data(plan)
    assert [line["device"] for line in data["lines"]] == list(range(20))
    last = [line["left"][-1] for line in data["lines"]]
    assert last == pytest.approx(plan.margin_j / plan.energy_budget_j, abs=1e-3)
    assert [line["kind"] for line in data["lines"]] == plan.binding.tolist()

    crowd = plans["many"]
    data = charts.battery_data(crowd)
    assert not data["lines"]
    assert sum(band["count"] for band in data["bands"]) == 700
    for band in data["bands"]:
        mine = crowd.binding == band["kind"]
        left = (crowd.margin_j / crowd.energy_budget_j)[mine]
        assert band["middle"][-1] == pytest.approx(np.median(left), abs=1e-3)
        low, middle, high = (np.array(band[name]) for name in ("low", "middle", "high"))
        assert (low <= middle).all()
        assert (middle <= high).all()


def test_seeds_give_a_mean_and_a_range_and_gaps_stay_gaps() -> None:
    when = np.array([1.0, 2.0])
    series = {"iteration": when, "energy_j": when, "time_s": when}
    series["test_accuracy"] = np.array([[0.2, 0.5], [0.4, np.nan]])
    (line,) = charts.learning(series, Reported())["along"][0]["lines"]
    assert (line["mean"], line["low"], line["high"]) == ([0.3, None], [0.2, None], [0.4, None])


def test_labels_of_at_most_two_hundred_devices(plans: dict[str, Plan]) -> None:
    many = len(plans["many"].energy_budget_j)
    counts = np.arange(many * 3).reshape(many, 3)
    data = charts.label_data(plans["many"], counts.__getitem__, ())
    assert len(data["devices"]) == 200 < many
    assert data["of"] == many
    assert data["classes"] == ["0", "1", "2"]
    assert data["counts"] == counts[data["devices"]].tolist()


def test_events_are_told(plans: dict[str, Plan]) -> None:
    lead, table = report.events(plans["leave"])
    gone = (plans["leave"].binding == "left").sum()
    assert lead == f"0 of 100 exchanges skipped, {gone} devices left."
    assert "depleted" in {row[1] for row in table.rows}
    outages = plans["fading"]
    lead, table = report.events(outages)
    assert lead.startswith(f"{(~outages.exchanged).sum()} of 100 exchanges skipped")
    assert [row[1] for row in table.rows] == ["outage"]
    assert not report.events(plans["default"])[1].rows


def test_the_device_table_has_the_ledger(plans: dict[str, Plan]) -> None:
    plan, table = plans["default"], report.devices(plans["default"])
    row = dict(zip(table.names, table.rows[14], strict=True))
    assert row["device"] == "14"
    assert row["local rounds"] == f"{plan.rounds[:, 14].sum():,}"
    assert row["what binds"] == "deadline"
    spent = sum(float(str(row[f"{name} [J]"])) for name in ("training",))
    assert spent == pytest.approx(plan.compute_total_j[14], rel=1e-2)
    many = report.devices(plans["many"])
    assert (len(many.rows), many.rest) == (200, "The 200 of 700 devices with the least left.")


def test_a_plan_that_was_not_run_has_no_learning_section(plans: dict[str, Plan]) -> None:
    page = render_report(ReportView(plans["default"], Summary(339.0, 3.97)))
    assert re.search(r'id="learning"[^>]* hidden>', page)
    assert re.search(r'id="labels"[^>]* hidden>', page)
    assert Page(page).data["labels"] is None
    assert "iterations = 100" in page  # the plan's own scenario


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"series": {"acuracy": np.zeros(3)}}, "series 'acuracy' is unknown; known series: iter"),
        ({"series": {"iteration": np.zeros(3)}}, "series 'energy_j' is missing"),
        (
            {"series": {name: np.zeros(3 + (name == "time_s")) for name in
                        ("iteration", "energy_j", "time_s")}},
            r"series 'time_s' has the shape \(4,\); give \(3,\) or \(1, 3\)",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    plans: dict[str, Plan], fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        ReportView(plans["default"], Summary(1.0, 1.0), **fields)


def test_written_whole_or_refused(
    plans: dict[str, Plan], make_view: Callable[..., ReportView], tmp_path: Path
) -> None:
    view = make_view(plans["tiny"])
    write_report(tmp_path / "report.html", view)
    assert (tmp_path / "report.html").read_text("utf-8") == render_report(view)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "folder" / "report.html").mkdir(parents=True)
    with pytest.raises(ScenarioError, match=r"cannot write .*report\.html.*: Is a directory"):
        write_report(tmp_path / "folder" / "report.html", view)
    assert len(list((tmp_path / "folder").iterdir())) == 1
