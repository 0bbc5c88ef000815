"""Every page for everybody: axe-core finds nothing grave, colours have contrast."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.planning.plan import Plan
from joulemesh.study.sweep_result import Sweep
from joulemesh.views.comparison import render_comparison
from joulemesh.views.deployment import render_deployment
from joulemesh.views.page import asset
from joulemesh.views.report import ReportView, render_report
from joulemesh.views.sweep import render_sweep
from joulemesh.views.tuning import render_tuning
from joulemesh.views.words import Subject
from tests.axe import OPEN_ALL, grave, needs_axe
from tests.browser import Browser
from tests.comparisons import seven_methods
from tests.deploy.journals import Fleet, Outage
from tests.hostile import NAMES
from tests.legible import illegible
from tests.views.deployment import test_page as deployed

MakeView = Callable[..., ReportView]
WIDTHS = (1280, 390)
TINY = {"devices.count": 4, "plan.iterations": 12, "training.model": "logistic"}


def sunny() -> Plan:
    changes = {"devices.harvest_w": [0.1, 1.5], "devices.idle_w": 0.02, "plan.iterations": 10}
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(changes))


def shown(browser: Browser, path: Path, text: str, scheme: str, width: int) -> Browser:
    path.write_text(text, "utf-8")
    browser.resize(width, 900, mobile=width < 500)
    browser.scheme(scheme)
    browser.open(path)
    browser.evaluate(OPEN_ALL)
    return browser


def test_axe_finds_what_is_wrong(browser: Browser, tmp_path: Path) -> None:
    """A check that finds nothing must be able to find something."""
    needs_axe()
    faulty = "<!doctype html><html lang=en><title>x</title><main><h1>x</h1>"
    hidden = "<details><summary>x</summary><button></button></details>"  # until it is opened
    found = grave(shown(browser, tmp_path / "faulty.html", faulty + hidden, "light", 1280))
    assert [one[0] for one in found] == ["button-name"]


@pytest.fixture(scope="module")
def pages(
    plans: dict[str, Plan], make_view: MakeView, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Callable[[], str]]:
    """Every kind of page, made when it is asked for."""
    cache = tmp_path_factory.mktemp("cache")
    tiny = joulemesh.Scenario.preset("adaptive").override(TINY)

    def deployment() -> str:
        fleet = Fleet(deployed.make_plan(), deployed.NAMES, [Outage(device=2, after=4, back=8)])
        return render_deployment(deployed.make_view(fleet, curve=deployed.make_curve(fleet.plan)))

    def tuning() -> str:
        space = {"plan.iterations": [12, 16], "training.learning_rate": [0.1, 0.3]}
        return render_tuning(joulemesh.tune(tiny, space, seeds=2, search_seeds=1, cache=cache))

    def sweep() -> str:
        found: Sweep = joulemesh.sweep(
            tiny, {"plan.iterations": [4, 8]}, "adaptive,fixed:1", seeds=2, out=cache / "sweep"
        )
        return render_sweep(found)

    makers = {
        "run": lambda: render_report(make_view(plans["leave"], seeds=(0, 1))),
        "harvest": lambda: render_report(make_view(sunny())),
        "comparison": lambda: render_comparison(seven_methods()[0]),
        "deployment": deployment,
        "tuning": tuning,
        "sweep": sweep,
    }
    return {name: functools.cache(make) for name, make in makers.items()}


EVERY = ("run", "harvest", "comparison", "deployment", "tuning", "sweep")


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", EVERY)
def test_no_page_has_a_grave_fault(
    pages: dict[str, Callable[[], str]], browser: Browser, tmp_path: Path, name: str, scheme: str
) -> None:
    needs_axe()
    text = pages[name]()
    for width in WIDTHS:
        page = shown(browser, tmp_path / "page.html", text, scheme, width)
        assert grave(page) == [], (scheme, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.errors == []
    charts = page.evaluate("document.querySelectorAll('section:not([hidden]) .chart svg').length")
    tables = page.evaluate("document.querySelectorAll('section:not([hidden]) .tools table').length")
    assert charts == tables > 0  # each chart can be read as a table
    silent = "section:not([hidden]) .chart svg:not([tabindex])"
    assert page.evaluate(f"document.querySelectorAll('{silent}').length") == 0
    browser.scheme("light")


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_texts_do_not_lie_on_each_other(
    pages: dict[str, Callable[[], str]], browser: Browser, tmp_path: Path, name: str
) -> None:
    """On a phone, on a projector at 200 % (1400 pixels are then 700), and on a desk."""
    path = tmp_path / "page.html"
    path.write_text(pages[name](), "utf-8")
    for width in (390, 700, 1400):
        browser.resize(width, 900, mobile=width < 500)
        browser.open(path)
        browser.settle()
        assert illegible(browser) == [], width


def test_texts_that_lie_on_each_other_are_found(browser: Browser, tmp_path: Path) -> None:
    text = "<!doctype html><title>x</title><svg width=90><text y=20>one</text><text y=22 x=9>two"
    (tmp_path / "page.html").write_text(text, "utf-8")
    browser.open(tmp_path / "page.html")
    assert illegible(browser) == ["one | two"]


# Contrast ---------------------------------------------------------------------------------------

TEXT = 4.5  # WCAG 2.2, AA
SHAPES = 3.0


def colours(css: str) -> list[dict[str, str]]:
    """The custom colours by day and by night."""
    found = re.compile(r"--([a-z0-9-]+): (#[0-9a-f]{3,6});")
    day, _, night = css.partition("@media screen and (prefers-color-scheme: dark)")
    by_day = dict(found.findall(day))
    return [by_day, {**by_day, **dict(found.findall(night.partition("\n}")[0]))}]


def light(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(2 * one for one in colour[1:])
    parts = np.array([int(digits[k : k + 2], 16) / 255 for k in (0, 2, 4)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_of_text_and_shapes_have_contrast() -> None:
    for theme in colours(asset("report.css")):
        text = [(ink, ground) for ink in ("ink", "soft", "accent") for ground in ("paper", "card")]
        text += [("on-accent", "accent"), ("card", "deadline"), ("card", "time")]
        text += [("number", kind) for kind in ("energy", "policy", "idle", "left")]
        for ink, ground in text:
            assert contrast(theme[ink], theme[ground]) >= TEXT, (ink, ground)
        kinds = ("energy", "deadline", "time", "policy", "idle", "left", "a", "b", "halo-ink")
        for kind in (*kinds, "train", "send", "receive", "rest"):
            assert contrast(theme[kind], theme["card"]) >= SHAPES, kind


# Hostile names ----------------------------------------------------------------------------------


def test_names_of_devices_and_scenarios_are_only_names(
    browser: Browser, make_view: MakeView, tmp_path: Path
) -> None:
    names = [NAMES[k % len(NAMES)] + str(k) for k in range(20)]
    table = tmp_path / "devices.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("name", "cpu_hz"), *((name, 2e9) for name in names)])
    scenario = joulemesh.Scenario.preset("adaptive").override({"devices.table": str(table)})
    plan = joulemesh.plan(scenario)
    assert plan.names[0] == names[0]
    for attack in (NAMES[0], NAMES[2], NAMES[6], NAMES[7]):
        text = render_report(make_view(plan, subject=Subject(attack, dataset=attack)))
        page = shown(browser, tmp_path / "page.html", text, "light", 1280)
        assert page.evaluate("window.harmed === undefined")
        assert page.evaluate("document.querySelectorAll('img, iframe, main script').length") == 0
        assert page.evaluate("document.title") == f"Run of {attack}".strip()
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        assert page.errors == []
    rows = "[...document.querySelectorAll('#gantt svg text.name')].length"
    assert page.evaluate(rows) >= 20


def test_only_the_page_itself_may_run(browser: Browser, tmp_path: Path) -> None:
    """The policy allows the page's own script and style by their digests, and no others."""
    foreign = "<script>window.harmed = 1</script><p id=p style='color: red'>x</p>"
    text = render_comparison(seven_methods()[0]).replace("<main>", f"<main>{foreign}")
    page = shown(browser, tmp_path / "page.html", text, "light", 1280)
    assert page.evaluate("window.harmed === undefined")
    assert page.evaluate("getComputedStyle(document.getElementById('p')).color") != "rgb(255, 0, 0)"
    assert len(page.errors) == 2  # what was refused is said in the console
