"""What a notebook shows: whole, escaped, self-contained, legible on light and on dark ground."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Entry
from joulemesh.study.result import Result
from joulemesh.views.charts import curves, few_digits, line
from joulemesh.views.notebook import _sketch
from tests.browser import Browser
from tests.views.markup import Page
from tests.views.publication.studies import study

VOID = {"meta", "hr", "br", "img", "image", "path", "polyline", "polygon"}


def whole(page: str) -> Page:
    """A fragment that is well-formed, runs nothing and asks for nothing."""
    tags = Page(page)
    assert tags.open == []
    assert tags.seen[0] == "div"
    assert "script" not in tags.seen
    assert "http" not in page
    assert re.search(r"[\s\",>]nan\b", page, re.IGNORECASE) is None
    return tags


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return Scenario.preset("adaptive").override(
        {
            "devices.count": 4,
            "devices.profile": "raspberry-pi-4",
            "plan.iterations": 6,
            "training.model": "logistic",
            "training.l2": 0.01,
            "training.eval_every": 2,
        }
    )


@pytest.fixture(scope="module")
def result(scenario: Scenario) -> Result:
    return joulemesh.run(scenario, seeds=2)


@pytest.fixture(scope="module")
def comparison(scenario: Scenario, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("cache")
    return joulemesh.compare(scenario, ["adaptive", "fixed:1"], seeds=2, cache=folder)


def test_a_scenario_says_what_was_set(scenario: Scenario) -> None:
    tags = whole(scenario._repr_html_())
    assert "4 devices (raspberry-pi-4) on a ring learn digits" in tags.text
    assert "cpu_hz 1.8 GHz" in tags.text
    assert "noise_dbm_per_hz = -174.0" in tags.text  # among all fields
    assert "Every field has its default" in whole(Scenario()._repr_html_()).text


@pytest.mark.parametrize(
    "changes",
    [
        {"devices.cpu_hz": [1e9, 2e9, 3e9, 1e9]},
        {"devices.cpu_hz": {"values": [1e9, 2e9]}},
        {"devices.profile": ["esp32", "laptop"]},
        {"network.topology": [[0, 1], [1, 2]], "network.gains": [1e-9, 1e-9]},
        {"plan.iterations": "longest"},
        {"training.optimizer": "<script>alert(1)</script>"},
    ],
)
def test_every_kind_of_value_is_shown(changes: dict[str, Any]) -> None:
    tags = whole(Scenario().override(changes)._repr_html_())
    assert tags.text.count("learn digits with an MLP") == 1


@pytest.mark.parametrize(
    "name", ["default", "paper-grid", "fading", "leave", "gossip", "tiny", "many"]
)
def test_every_kind_of_plan_is_shown(plans: dict[str, Plan], name: str) -> None:
    plan = plans[name]
    page = plan._repr_html_()
    tags = whole(page)
    assert len(page) < 250_000
    assert tags.seen.count("svg") == 2
    if name == "many":
        assert tags.seen.count("image") == 1
    else:
        assert tags.seen.count("circle") == len(plan.energy_budget_j)
    assert tags.seen.count("tr") == min(len(plan.energy_budget_j), 200) + 1


def test_a_result_is_shown(result: Result) -> None:
    tags = whole(result._repr_html_())
    assert f"{100 * result.summary()['accuracy']:.1f}\xa0%" in tags.text
    assert "mean and range of 2 seeds" in tags.text
    assert tags.seen.count("polygon") == 1


def test_a_comparison_is_shown(comparison: Comparison) -> None:
    tags = whole(comparison._repr_html_())
    assert tags.seen.count("tr") == 3
    assert "fixed:1" in tags.text
    assert tags.seen.count("polyline") == tags.seen.count("polygon") == 2


def sketch(x: list[int], y: list[float], **look: bool) -> dict[str, Any]:
    drawn = {"lines": [line("a", "a", "a", few_digits(np.array(y)))], **look}
    return _sketch(curves([{"iterations": x}], [drawn]))


def test_a_curve_by_hand() -> None:
    drawn = sketch([1, 11], [0.0, 2.0], zero=True)
    # From the lower left to the upper right of the frame 44..350 × 8..128.
    assert drawn["lines"][0]["points"] == "44.0,128.0 350.0,8.0"
    assert [label[3] for label in drawn["labels"]] == ["0", "2", "1", "11"]
    flat = sketch([5], [0.3], share=True)
    assert flat["lines"][0]["points"] == "44.0,128.0"
    assert flat["labels"][0][3] == "30.0 %"
    assert sketch([1, 2], [np.nan, np.nan]) == {"empty": True}
    part = sketch([1, 2, 3], [1.0, np.nan, 2.0])
    assert part["lines"][0]["points"] == "44.0,128.0 350.0,8.0"


CONTRAST = """(() => {
  const lum = c => { const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const ground = lum(getComputedStyle(document.body).backgroundColor);
  const ratio = c => { const l = lum(c);
    return (Math.max(l, ground) + .05) / (Math.min(l, ground) + .05); };
  const inks = [...document.querySelectorAll('.joulemesh p, .joulemesh td, .joulemesh th')]
    .map(e => getComputedStyle(e).color);
  const dots = [...document.querySelectorAll('.joulemesh circle')].map(
    e => getComputedStyle(e).fill);
  return [Math.min(...inks.map(ratio)), Math.min(...dots.map(ratio))]; })()"""


@pytest.mark.parametrize(
    "ground", ["background:#fff;color:#222", "background:#111;color:#ddd"], ids=["light", "dark"]
)
def test_it_is_legible_in_a_browser(
    browser: Browser,
    scenario: Scenario,
    result: Result,
    comparison: Comparison,
    plans: dict[str, Plan],
    tmp_path: Path,
    ground: str,
) -> None:
    shown = (scenario, plans["leave"], result, comparison)
    parts = "<hr>".join(one._repr_html_() for one in shown)
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8"><body style="{ground}">{parts}', "utf-8")
    browser.resize(1060, 900)
    browser.open(page)
    browser.settle()
    assert browser.errors == []
    ink, dots = browser.evaluate(CONTRAST)
    assert ink > 7
    assert dots > 3
    browser.resize(420, 900)
    wide = browser.evaluate("document.documentElement.scrollWidth")
    assert wide <= 420


def test_a_comparison_shows_all_its_columns(browser: Browser, tmp_path: Path) -> None:
    """Also beside a method that could not run, whose reason is long."""
    found = study({"spread": (0.9, 0.91, 0.93), "adaptive": (0.8, 0.81, 0.83)})
    why = "device 3 cannot pay for 20 iterations from its battery of 50 mJ: the exchanges need " * 3
    refused = Entry.refused("fixed:3", why, 3, 2)
    found = dataclasses.replace(found, entries=(*found.entries, refused))
    page = tmp_path / "page.html"
    page.write_text(f'<!doctype html><meta charset="utf-8">{found._repr_html_()}', "utf-8")
    browser.resize(1060, 900)
    browser.open(page)
    browser.settle()
    cut = "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)"
    assert browser.evaluate(cut) == [0]
