"""The page of a comparison in a real browser: it draws, answers clicks, and fits any screen."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joulemesh.runs.compare import Comparison
from joulemesh.training.engine import Engine
from joulemesh.views.comparison_page import render_comparison

pytestmark = pytest.mark.slow

LINES = "document.querySelectorAll('#curves path.line').length"
BROKEN = (
    "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some("
    "a => /NaN|undefined|Infinity/.test(a.value))).length"
)


@pytest.fixture
def page(seven: tuple[Comparison, list[Engine]], tmp_path: Path) -> Iterator[Any]:
    place = Path(__file__).parents[1] / "browser.py"
    spec = importlib.util.spec_from_file_location("browser", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    program = module.find_browser()
    if program is None:
        pytest.skip("no chromium or google-chrome on PATH")
    path = tmp_path / "report.html"
    path.write_text(render_comparison(seven[0]), "utf-8")
    with module.Browser(program) as browser:
        browser.resize(1280, 900)
        browser.open(path)
        browser.settle()
        yield browser


def test_it_draws_and_switches(page: Any) -> None:
    assert page.errors == []
    assert page.evaluate(LINES) == 7
    label = "document.querySelector('#curves .x-label').textContent"
    assert page.evaluate(label).startswith("energy spent by all devices")
    for axis, text in (("iterations", "iteration"), ("seconds", "simulated time")):
        page.click(f"#curves button[data-x={axis}]")
        assert page.evaluate(label).startswith(text)
    for curve in ("devices", "weakest", "loss", "consensus", "accuracy"):
        page.click(f"#curves button[data-y={curve}]")
        assert page.evaluate(LINES) == 7
        assert page.evaluate(BROKEN) == 0
    page.click("#curves .legend button[data-method=pens]")
    assert page.evaluate(LINES) == 6
    assert page.errors == []


def test_it_fits_a_phone_in_the_dark(page: Any) -> None:
    page.scheme("dark")
    page.resize(360, 740, mobile=True)
    page.settle()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    inside = "[...document.querySelectorAll('.switch button')].every(b => "
    inside += "b.getBoundingClientRect().right <= innerWidth)"
    assert page.evaluate(inside)
    assert page.evaluate(BROKEN) == 0
    assert page.errors == []
