"""The page of a deployment: whole, self-contained, names and figures of the journals in it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.deploy.record.history import (
    Event,
    History,
    disagreements,
    history_of,
    presence,
    read_history,
    views_of,
)
from joulemesh.deploy.record.receipt import Receipt, planned, simulated
from joulemesh.planning.plan import Plan
from joulemesh.views.deployment import (
    Curve,
    DeploymentView,
    chart_data,
    render_deployment,
)
from joulemesh.views.words import Subject
from tests.browser import Browser
from tests.deploy.journals import Fleet, Outage
from tests.views.markup import Page

NAMES = ("gate", "barn", "mast", "pump")
NASTY = "</script><script>alert('x')</script>"
BROKEN = (
    "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some("
    "a => a.name !== 'href' && /NaN|undefined|Infinity/.test(a.value))).length"
)


def make_plan(count: int = 4, iterations: int = 12, **budget: float) -> Plan:
    changes: dict[str, Any] = {"devices.count": count, "plan.iterations": iterations}
    changes |= {f"budget.{name}": value for name, value in budget.items()}
    return joulemesh.plan(joulemesh.Scenario.preset("default").override(changes))


def histories_of(fleet: Fleet) -> list[History]:
    began = fleet.began()
    return [
        history_of([json.dumps(line).encode() for line in fleet.lines(k, began)], k, name)
        for k, name in enumerate(fleet.names)
    ]


def make_view(
    fleet: Fleet, histories: Sequence[History] | None = None, **fields: Any
) -> DeploymentView:
    found = histories_of(fleet) if histories is None else histories
    before = planned(fleet.plan)
    after = simulated(before, [(view, before) for view in fleet.views()])
    battery_j = fleet.plan.energy_budget_j
    receipt = Receipt(found, before, after, fleet="farm", plan="ab", battery_j=battery_j)
    return DeploymentView.of(fleet.plan, receipt, found, subject=Subject("farm"), **fields)


def make_curve(plan: Plan) -> Curve:
    when = np.arange(1, plan.iterations + 1)
    return Curve("run of 2 seeds", when, np.stack([when / 20, when / 21]))


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(make_plan(), NAMES, [Outage(device=2, after=4, back=8)])


def test_a_whole_page_that_asks_for_nothing(fleet: Fleet) -> None:
    text = render_deployment(make_view(fleet, curve=make_curve(fleet.plan)))
    page = Page(text)
    assert page.open == []
    assert page.addresses == ["data:,"]
    assert "default-src 'none'" in text
    assert {"learning", "timeline", "costs", "bars", "cells", "links", "events"} <= page.ids
    for name in NAMES:
        assert name in page.text
    assert "Membership changed 2 times; 4 devices were members at the end." in page.text
    assert "no beat for 2 s" in page.text


def test_the_flow_shows_what_was_spent_and_says_how_that_is_known(fleet: Fleet) -> None:
    view = make_view(fleet)
    flow, receipt = Page(render_deployment(view)).data["flow"], view.receipt
    assert flow["title"] == "Where the joules went (charged)"
    uses = [one["key"] for one in flow["uses"]]
    assert uses[:2] == ["train", "exchange"]
    table = np.array([one["joules"] for one in flow["sources"]])
    assert [one["name"] for one in flow["sources"]] == list(receipt.names)
    spent = table[:, [k for k, use in enumerate(uses) if use != "left"]].sum(axis=1)
    np.testing.assert_allclose(spent, receipt.spent_j, rtol=1e-4)
    # A device that spent more than its battery held has nothing left.
    supplied = np.maximum(receipt.battery_j, receipt.spent_j)
    np.testing.assert_allclose(table.sum(axis=1), supplied, rtol=1e-4)


def test_before_any_journal_the_flow_is_the_plan_s_and_says_so(fleet: Fleet) -> None:
    view = make_view(fleet)
    silent = [history_of([], k, name) for k, name in enumerate(view.receipt.names)]
    costs = planned(fleet.plan)
    nothing = Receipt(
        silent, costs, costs, fleet="f", plan="p", battery_j=fleet.plan.energy_budget_j
    )
    flow = chart_data(DeploymentView.of(fleet.plan, nothing, silent))["flow"]
    assert flow["title"] == "Where the planned joules go"
    assert "send" in [one["key"] for one in flow["uses"]]


def curve_of(chart: dict[str, Any], key: str, kind: str) -> list[float]:
    (along,) = [one for one in chart["along"] if one["key"] == key]
    return next(line["mean"] for line in along["lines"] if line["key"] == kind)


def test_the_charts_have_the_receipts_figures(fleet: Fleet) -> None:
    view = make_view(fleet, curve=make_curve(fleet.plan))
    data = Page(render_deployment(view)).data
    receipt = view.receipt
    for kind in ("planned", "simulated", "metered"):
        joules = np.nansum(getattr(receipt, kind).joules)
        seconds = np.nansum(np.nanmax(getattr(receipt, kind).seconds, axis=1))
        assert curve_of(data["costs"], "joules", kind)[-1] == pytest.approx(joules, rel=1e-5)
        assert curve_of(data["costs"], "seconds", kind)[-1] == pytest.approx(seconds, rel=1e-5)
        each = curve_of(data["costs"], "joules per iteration", kind)
        assert np.nansum(np.array(each, float)) == pytest.approx(joules, rel=1e-4)
    assert data["bars"]["joules"]["metered"] == pytest.approx(receipt.spent_j.tolist(), rel=1e-4)
    assert data["metered"] == {"joules": "charged", "seconds": "measured"}
    rows, columns = data["cells"]["shape"]
    raw = base64.b64decode(data["cells"]["maps"]["joules"]["cells"])
    cells = np.frombuffer(raw, "<u2").reshape(rows, columns)
    absent = np.isnan(receipt.metered.joules.T)
    assert np.array_equal(cells == 65535, absent)
    top = data["cells"]["maps"]["joules"]["top"]
    assert np.allclose(
        cells[~absent] / 65534 * top, receipt.metered.joules.T[~absent], atol=top / 6e4
    )
    shares = [one["measured"] / one["planned"] for one in data["links"]]
    assert shares == pytest.approx([0.9] * len(shares), rel=0.1)
    (measured,) = [one for one in data["learning"]["along"][0]["lines"] if one["key"] == "metered"]
    assert data["learning"]["points"][measured["points"]]["iterations"] == [5, 10, 12]
    assert measured["counts"] == [3, 4, 4]


def test_the_time_line_shows_who_was_away(fleet: Fleet) -> None:
    data = chart_data(make_view(fleet))["timeline"]
    assert [len(spans) for spans in data["up"]] == [1, 1, 2, 1]
    assert [view["members"] for view in data["views"]] == [3, 4]
    kinds = {kind for device, _, kind, _ in data["marks"] if device == 2}
    assert {"start", "gift", "end"} <= kinds
    assert all(0 <= when <= data["span"] + 1 for _, when, _, _ in data["marks"])


def test_presence_ends_with_the_last_line_before_a_start(fleet: Fleet) -> None:
    mast = histories_of(fleet)[2]
    (_, first_end), (second, last_end) = presence(mast)
    assert first_end == mast.column("at")[mast.iterations <= 4].max()
    assert second == mast.starts[1].at
    assert last_end == mast.last_at


def test_text_of_others_stays_text() -> None:
    nasty = Fleet(make_plan(), (NASTY, *NAMES[1:]))
    histories = histories_of(nasty)
    bad = Event(histories[0].first_at + 1, 0, NASTY, {"reason": NASTY, "meter": NASTY})
    first = histories[0]
    fields = {**first.__dict__, "events": (*first.events, bad)}
    page = render_deployment(make_view(nasty, [History(**fields), *histories[1:]]))
    assert "<script>alert" not in page
    assert len(Page(page).scripts) == 2
    assert NASTY in Page(page).data["names"]


def test_missing_and_damaged_journals_are_said(fleet: Fleet) -> None:
    histories = histories_of(fleet)
    began = fleet.began()
    lines = [json.dumps(line).encode() for line in fleet.lines(3, began)]
    histories[3] = history_of([*lines, b'{"at'], 3, "pump")
    histories[1] = history_of([], 1, "barn")
    page = Page(render_deployment(make_view(fleet, histories)))
    assert "No journal of barn: not in any sum below." in page.text
    assert "could not be read and are left out: 1." in page.text
    assert "3 of 4" in page.text
    assert page.open == []


def test_no_journal_at_all_and_no_curve(fleet: Fleet) -> None:
    histories = [history_of([], k, name) for k, name in enumerate(NAMES)]
    page = Page(render_deployment(make_view(fleet, histories)))
    assert page.open == []
    assert "0 of 12 iterations" in page.text


def test_devices_that_tell_different_views_are_named(fleet: Fleet) -> None:
    histories = histories_of(fleet)
    assert disagreements(histories) == ()
    other = Event(0.0, 1, "view", {"number": 1, "start": 9, "members": [0, 1]})
    fields = {**histories[1].__dict__, "events": (*histories[1].events, other)}
    histories[1] = History(**fields)
    assert disagreements(histories) == ("view 1 is not the same on gate and barn",)
    assert "DISAGREEMENT: view 1" in render_deployment(make_view(fleet, histories))


def test_views_that_cannot_be_read_are_left_to_the_events(fleet: Fleet) -> None:
    histories = histories_of(fleet)
    odd = Event(0.0, 0, "view", {"number": "x"})
    fields = {**histories[0].__dict__, "events": (odd, *histories[0].events)}
    assert [seen.view.number for seen in views_of([History(**fields)])] == [1, 2]


@pytest.mark.slow
def test_a_large_fleet_stays_small_and_readable(browser: Browser, tmp_path: Path) -> None:
    plan = make_plan(200, 1000, deadline_s=0.2, energy_j=400.0)
    names = [f"sensor-{k:03d}" for k in range(200)]
    large = Fleet(plan, names, [Outage(k, 10 * k, 10 * k + 5) for k in range(1, 20)])
    large.write(tmp_path)
    begun = time.process_time()
    histories = [read_history(tmp_path / name, k, name) for k, name in enumerate(names)]
    view = make_view(large, histories, curve=make_curve(plan))
    page = render_deployment(view)
    view.receipt.to_csv()
    view.receipt.to_json()
    assert time.process_time() - begun < 40  # of which there are 10 on one core of 2026
    assert len(page) < 2_000_000
    (tmp_path / "report.html").write_text(page, "utf-8")
    browser.resize(1280, 900)
    browser.open(tmp_path / "report.html")
    browser.settle()
    assert browser.errors == []
    assert browser.evaluate(BROKEN) == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1280
    began = browser.evaluate("performance.now()")
    browser.click('[data-map="seconds"]')
    assert browser.evaluate("performance.now()") - began < 10_000


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_draws_answers_and_fits(
    fleet: Fleet, browser: Browser, tmp_path: Path, width: int, scheme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_deployment(make_view(fleet, curve=make_curve(fleet.plan))), "utf-8")
    browser.resize(width, 900)
    browser.scheme(scheme)
    browser.open(path)
    browser.settle()
    pressed = ("x=joules", "y=seconds per iteration", "bar=seconds", "map=seconds")
    for button in (f'[data-{one.replace("=", "=" + chr(34))}"]' for one in pressed):
        browser.click(button)
        assert browser.evaluate(f"document.querySelector('{button}').ariaPressed") == "true"
    assert browser.errors == []
    assert browser.evaluate(BROKEN) == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("document.querySelectorAll('#timeline .up').length") == 5
    assert browser.evaluate("document.querySelectorAll('#costs .line').length") == 3
    browser.evaluate("document.querySelector('#learning svg').focus()")
    browser.press("End")
    assert "measured on the devices" in browser.evaluate(
        "document.querySelector('#tip').textContent"
    )
    assert len(browser.print_pdf()) > 10_000
    browser.scheme("light")
