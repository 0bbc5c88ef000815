"""The page of a comparison in a real browser: it draws, answers clicks, and fits any screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from joulemesh.study.comparison import Comparison
from joulemesh.training.jax.engine import Engine
from joulemesh.views.comparison import render_comparison
from tests.browser import Browser

pytestmark = pytest.mark.slow

LINES = "document.querySelectorAll('#curves path.line').length"
BROKEN = (
    "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some("
    "a => /NaN|undefined|Infinity/.test(a.value))).length"
)


@pytest.fixture
def page(seven: tuple[Comparison, list[Engine]], browser: Browser, tmp_path: Path) -> Browser:
    path = tmp_path / "report.html"
    path.write_text(render_comparison(seven[0]), "utf-8")
    browser.resize(1280, 900)
    browser.open(path)
    browser.settle()
    return browser


def test_it_draws_and_switches(page: Browser) -> None:
    assert page.errors == []
    assert page.evaluate(LINES) == 7
    label = "document.querySelector('#curves .x-label').textContent"
    assert page.evaluate(label).startswith("energy spent by all devices")
    for axis, text in (("iterations", "iteration"), ("seconds", "simulated time")):
        page.click(f"#curves button[data-x={axis}]")
        assert page.evaluate(label).startswith(text)
    for curve in (
        "device_accuracy_mean",
        "device_accuracy_min",
        "test_loss",
        "consensus",
        "test_accuracy",
    ):
        page.click(f"#curves button[data-y={curve}]")
        assert page.evaluate(LINES) == 7
        assert page.evaluate(BROKEN) == 0
    page.click("#curves .legend button[data-line=pens]")
    assert page.evaluate(LINES) == 6
    assert page.errors == []


def test_it_reads_in_per_cent_with_intervals(page: Browser) -> None:
    ticks = page.evaluate(
        "[...document.querySelectorAll('#curves text[text-anchor=end]')].map(e => e.textContent)"
    )
    assert all(re.fullmatch(r"(target )?[\d.]+ %", tick) for tick in ticks)
    page.evaluate("document.querySelector('#curves svg').focus()")
    page.press("End")
    lines = page.evaluate("document.querySelector('#tip').textContent").splitlines()
    assert len(lines) == 8  # where, and seven methods
    said = r"adaptive: [\d.]+ % \([\d.]+( to [\d.]+)? %\)(, ended)?"
    assert re.fullmatch(said, lines[1])


def test_the_method_that_is_pointed_at_comes_forward(page: Browser) -> None:
    x, y = page.evaluate(
        "(() => { document.querySelector('#curves').scrollIntoView();"
        "const p = document.querySelector('#curves path.line[data-line=pens]');"
        "const q = p.getPointAtLength(p.getTotalLength() / 2).matrixTransform(p.getScreenCTM());"
        "return [q.x, q.y]; })()"
    )
    page.settle()
    page.move(x, y)
    near = "[...document.querySelectorAll('#curves path.near')].map(e => e.dataset.line)"
    assert len(set(page.evaluate(near))) == 1
    assert page.evaluate("document.querySelectorAll('#curves path.far').length") == 12
    page.move(5, 5)
    assert page.evaluate("document.querySelectorAll('#curves .near, #curves .far').length") == 0


def test_the_table_fits_a_desktop(page: Browser) -> None:
    wide = "(() => { const s = document.querySelector('#table .scroll');"
    assert page.evaluate(wide + "return s.scrollWidth - s.clientWidth; })()") <= 0


def test_it_fits_a_phone_in_the_dark(page: Browser) -> None:
    page.scheme("dark")
    page.resize(360, 740, mobile=True)
    page.settle()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    inside = "[...document.querySelectorAll('.switch button')].every(b => "
    inside += "b.getBoundingClientRect().right <= innerWidth)"
    assert page.evaluate(inside)
    assert page.evaluate(BROKEN) == 0
    assert page.errors == []
