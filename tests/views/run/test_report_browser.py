"""The report in a real browser: it draws, answers clicks and keys, and fits any screen."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.planning.plan import Plan
from joulemesh.views.charts import gantt_data
from joulemesh.views.report import ReportView, write_report
from joulemesh.views.words import Subject
from tests.browser import Browser

X_LABEL = "document.querySelector('#learning .x-label').textContent"
Y_LABEL = "document.querySelector('#learning .y-label').textContent"
LINKS = """(() => { const svg = document.querySelector('#map svg'), copy = svg.cloneNode();
  svg.exported(copy); return [...copy.querySelectorAll('line:not(.edge)')]; })()"""
MOST_LINKS = 4_000
FIRST_PATH = "document.querySelector('#learning path.line').getAttribute('d')"


@pytest.fixture
def page(
    browser: Browser, plans: dict[str, Plan], make_view: Callable[..., ReportView], tmp_path: Path
) -> Callable[..., Browser]:
    """Opens the report of a plan, on a wide light screen."""

    def show(name: str = "default", **fields: Any) -> Browser:
        path = tmp_path / f"{name}.html"
        write_report(path, make_view(plans[name], **fields))
        browser.resize(1280, 900)
        browser.scheme("light")
        browser.open(path)
        browser.settle()
        return browser

    return show


def pressed(browser: Browser) -> Any:
    return browser.evaluate(
        "[...document.querySelectorAll('[aria-pressed=true]')].map(b => b.textContent)"
    )


@pytest.mark.parametrize("name", ["default", "leave"])
def test_the_time_line_says_which_iteration_it_is(
    page: Callable[..., Browser], plans: dict[str, Plan], name: str
) -> None:
    browser = page(name)
    shown = [chart["iteration"] for chart in gantt_data(plans[name])]
    heading = "document.getElementById('h-gantt').textContent"
    assert browser.evaluate(heading) == f"One iteration: t = {shown[0]}"
    for k, iteration in enumerate(shown if len(shown) > 1 else []):
        browser.evaluate(f"document.querySelectorAll('#gantt .iterations button')[{k}].click()")
        assert browser.evaluate(heading) == f"One iteration: t = {iteration}"


@pytest.mark.parametrize(
    "name", ["default", "paper-grid", "fading", "leave", "gossip", "tiny", "many"]
)
def test_every_kind_of_plan_is_drawn_without_a_complaint(
    page: Callable[..., Browser], plans: dict[str, Plan], name: str
) -> None:
    browser, plan = page(name, seeds=(0, 1)), plans[name]
    assert browser.errors == []
    charts = browser.evaluate("document.querySelectorAll('.chart > svg[aria-label]').length")
    assert charts == 7
    broken = "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some("
    broken += "a => a.name !== 'href' && /NaN|undefined|Infinity/.test(a.value))).length"
    assert browser.evaluate(broken) == 0
    dots = "document.querySelectorAll('#map circle.device').length"
    assert browser.evaluate(dots) == len(plan.energy_budget_j)
    used = len(np.unique(plan.timeline.route.link_index))
    others = min(len(plan.world.graph.edges) - used, MOST_LINKS)
    assert browser.evaluate(f"{LINKS}.length") == used + others
    bars = "document.querySelectorAll('#labels .shield').length"
    assert browser.evaluate(bars) == min(len(plan.energy_budget_j), 200)


def test_switches_change_axes_and_lines(page: Callable[..., Browser]) -> None:
    browser = page()
    assert pressed(browser)[:2] == ["accuracy", "iterations"]
    assert browser.evaluate(X_LABEL) == "iteration"
    seen = {browser.evaluate(FIRST_PATH)}
    browser.click("[data-x=joules]")
    assert browser.evaluate(X_LABEL) == "energy spent by all devices [J]"
    seen.add(browser.evaluate(FIRST_PATH))
    browser.click("[data-y=loss]")
    assert browser.evaluate(Y_LABEL) == "loss of the mean model"
    seen.add(browser.evaluate(FIRST_PATH))
    browser.click("[data-x=seconds]")
    assert browser.evaluate(X_LABEL) == "simulated time [s]"
    seen.add(browser.evaluate(FIRST_PATH))
    browser.click("[data-y=consensus]")
    assert browser.evaluate(Y_LABEL) == "relative consensus error (logarithmic)"
    seen.add(browser.evaluate(FIRST_PATH))
    assert pressed(browser)[:2] == ["consensus error", "seconds"]
    assert len(seen) == 5
    assert browser.errors == []


def test_keys_press_the_switches_and_read_the_chart(
    page: Callable[..., Browser], plans: dict[str, Plan]
) -> None:
    browser = page()
    browser.evaluate("document.querySelector('[data-y=loss]').focus()")
    browser.press("Enter", "\r")
    assert pressed(browser)[:2] == ["loss", "iterations"]
    browser.evaluate("document.querySelector('#learning svg').focus()")
    browser.press("End")
    tip = "document.querySelector('#tip').textContent"
    assert browser.evaluate(tip).startswith(f"iteration {plans['default'].iterations}\n")
    browser.press("ArrowLeft")
    assert browser.evaluate(tip).startswith(f"iteration {plans['default'].iterations - 1}\n")
    assert browser.errors == []


def test_pointing_at_things_names_them(
    page: Callable[..., Browser], plans: dict[str, Plan]
) -> None:
    browser = page()
    tip = (
        "document.querySelector('#tip').hidden ? null : document.querySelector('#tip').textContent"
    )
    browser.move(*browser.centre("#map circle.device"))
    assert browser.evaluate(tip).startswith("device 0: battery binds\n")
    browser.move(*browser.centre("#rounds .shield"))
    assert " rounds" in browser.evaluate(tip)
    browser.move(*browser.centre("#batteries .shield"))
    assert "% left after iteration" in browser.evaluate(tip)
    assert browser.evaluate("document.querySelectorAll('#batteries .near').length") == 1
    browser.move(*browser.centre("#labels .shield"))
    assert browser.evaluate(tip).startswith("device 0: ")
    browser.move(*browser.centre("h1"))
    assert browser.evaluate(tip) is None
    assert browser.errors == []


@pytest.mark.parametrize("name", ["default", "fading", "many"])
@pytest.mark.parametrize("width", [320, 390, 820])
def test_narrow_screens_never_scroll_sideways(
    page: Callable[..., Browser], name: str, width: int
) -> None:
    browser = page(name, subject=Subject("a-file-with-a-name-that-never-ends-" * 5))
    browser.resize(width, 844, mobile=True)
    for part in ("devices", "scenario", "provenance"):
        browser.evaluate(f"document.getElementById('{part}').open = true")
    browser.settle()
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    drawn = browser.evaluate("document.querySelector('#map svg').viewBox.baseVal.width")
    assert drawn < width
    assert browser.errors == []


def test_dark_mode_changes_page_and_charts(page: Callable[..., Browser]) -> None:
    browser = page()
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('#learning path.line')).stroke"
    heat = "document.querySelector('#rounds image').getAttribute('href')"
    light = [browser.evaluate(question) for question in (ground, ink, heat)]
    browser.scheme("dark")
    dark = [browser.evaluate(question) for question in (ground, ink, heat)]
    assert all(a != b for a, b in zip(light, dark, strict=True))
    assert max(map(int, re.findall(r"\d+", dark[0]))) < 60
    browser.scheme("light")
    assert [browser.evaluate(question) for question in (ground, ink, heat)] == light
    assert browser.errors == []


def test_text_of_the_user_does_not_run(page: Callable[..., Browser]) -> None:
    attack = "</script><script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'>"
    browser = page(
        subject=Subject(attack, dataset=attack, model=attack),
        scenario_toml=attack,
        versions={attack: attack},
        class_names=[attack] * 10,
    )
    browser.move(*browser.centre("#labels .shield"))
    assert browser.evaluate("window.harmed === undefined")
    assert browser.evaluate("document.title") == f"Run of {attack}"
    assert browser.errors == []


LEGEND = "[...document.querySelectorAll('#learning .legend li')].map(e => e.textContent)"
LINES = "[...document.querySelectorAll('#learning path.line')].map(e => e.dataset.line)"


def learned(when: int, **changes: Any) -> dict[str, NDArray[Any]]:
    """Curves that cost nothing to make: devices two points below the mean model."""
    accuracy = 0.9 - 0.5 / np.arange(1, when + 1)
    curves = {name: np.arange(1.0, when + 1) for name in ("iteration", "energy_j", "time_s")}
    curves |= {"test_accuracy": accuracy, "test_loss": 1 - accuracy, "train_loss": 1 - accuracy}
    curves |= {f"device_accuracy_{kind}": accuracy - 0.02 for kind in ("mean", "min", "max")}
    return {name: np.broadcast_to(v, when) for name, v in {**curves, **changes}.items()}


def test_devices_that_agree_are_one_line(page: Callable[..., Browser]) -> None:
    same = learned(4)["test_accuracy"] + 1e-9  # rounding
    counts = {"test_samples": 360, "device_samples": 360, "train_samples": 500}
    own = {f"device_accuracy_{kind}": same for kind in ("mean", "min", "max")}
    browser = page(series=learned(4, **counts, **own))
    assert browser.evaluate(LINES) == ["test_accuracy"]
    assert browser.evaluate(LEGEND) == [
        "mean model and every device’s own, which are the same (360 test samples)"
    ]
    assert browser.errors == []


def test_the_legend_counts_the_samples_behind_each_line(page: Callable[..., Browser]) -> None:
    counts = {"test_samples": [1000, 1000, 1000, 10_000], "device_samples": [100] * 3 + [10_000]}
    browser = page(series=learned(4, **counts, train_samples=500))
    assert browser.evaluate(LINES) == ["test_accuracy", "device_accuracy_mean"]
    assert browser.evaluate(LEGEND) == [
        "mean model (1,000 test samples)",
        "devices’ own models, mean (compared with the mean model on 100 of these samples)",
        "devices, worst to best",
        "the last point: all 10,000 test samples",
    ]
    browser.click("[data-y=loss]")
    assert browser.evaluate(LEGEND) == [
        "test (1,000 test samples)",
        "training (500 training samples)",
        "the last point: all 10,000 test samples",
    ]
    assert browser.errors == []


def test_bands_are_read_by_pointing(page: Callable[..., Browser]) -> None:
    browser = page(seeds=(0, 1, 2))
    browser.evaluate("document.querySelector('#learning svg').focus()")
    browser.press("End")
    first, mean, own, devices = browser.evaluate(
        "document.querySelector('#tip').textContent"
    ).splitlines()
    assert re.fullmatch(r"iteration \d+", first)
    span = r"\d+\.\d( to \d+\.\d)? %"
    assert re.fullmatch(rf"mean model: \d+\.\d % \(seeds {span}\)", mean)
    assert re.fullmatch(rf"devices’ own models, mean: \d+\.\d % \(seeds {span}\)", own)
    assert re.fullmatch(rf"devices, worst to best: {span}", devices)
    ticks = browser.evaluate(
        "[...document.querySelectorAll('#learning text[text-anchor=end]')].map(e => e.textContent)"
    )
    assert {"0 %", "100 %"} <= set(ticks)


WEIGHT = """(() => {
  const svg = document.querySelector('#map svg'), copy = svg.cloneNode();
  svg.exported(copy);  // what its canvas shows, as lines
  document.querySelector('#map .chart').append(copy);
  const ground = getComputedStyle(document.querySelector('#map')).backgroundColor;
  const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
    return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255; };
  const all = (kind) => [...copy.querySelectorAll(`line.${kind}`)];
  const weight = (kind) => Math.max(...all(kind).map((e) => {
    const s = getComputedStyle(e);
    return parseFloat(s.strokeWidth) * (parseFloat(s.strokeOpacity) || 1) *
      Math.abs(light(s.stroke) - light(ground));
  }));
  return [weight('edge'), weight('unused')];
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_route_is_the_boldest_on_the_map(
    page: Callable[..., Browser], plans: dict[str, Plan], scheme: str
) -> None:
    """Width times contrast with the ground: a cheap link is dark, and a dark page hides it."""
    browser, plan = page("fading"), plans["fading"]
    browser.scheme(scheme)
    route, unused = browser.evaluate(WEIGHT)
    assert route > 4 * unused
    used = len(np.unique(plan.timeline.route.link_index))
    for kind, count in (("route", used), ("unused", len(plan.world.graph.edges) - used)):
        mine = f"{LINKS}.filter((e) => e.getAttribute('class') === '{kind}').length"
        assert browser.evaluate(mine) == count
    legend = "[...document.querySelectorAll('#map .legend li')].map(e => e.textContent)"
    assert f"links not used ({len(plan.world.graph.edges) - used})" in browser.evaluate(legend)


def test_a_single_evaluation_is_a_dot(page: Callable[..., Browser]) -> None:
    once = {"iteration": [3], "energy_j": [1.0], "time_s": [2.0], "test_accuracy": [0.5]}
    browser = page(series={name: np.array(values) for name, values in once.items()})
    assert browser.errors == []
    dots = "document.querySelectorAll('#learning circle.alone').length"
    assert browser.evaluate(dots) == 1


def test_a_plan_alone_and_a_print(page: Callable[..., Browser]) -> None:
    browser = page(series={}, histogram=None)
    assert browser.errors == []
    visible = "[...document.querySelectorAll('main > section')].filter(s => s.offsetHeight).length"
    assert (
        browser.evaluate(visible) == 7
    )  # map, rounds, iteration, batteries, flow, events, details
    assert browser.print_pdf().startswith(b"%PDF")
    assert browser.evaluate("document.querySelectorAll('details[open]').length") == 0
    assert browser.errors == []
