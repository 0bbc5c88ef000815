"""The page of a sweep in a real browser: it draws what Python computes, and answers choices."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulemesh.study.sweep_result import Sweep
from joulemesh.views.sweep import render_sweep
from tests.browser import Browser

pytestmark = pytest.mark.slow

LINES = "document.querySelectorAll('#curves path.line').length"
TIP = "document.querySelector('#tip').textContent"
BROKEN = (
    "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some("
    "a => /NaN|undefined|Infinity/.test(a.value))).length"
)


@pytest.fixture
def page(chosen: Sweep, browser: Browser, tmp_path: Path) -> Browser:
    path = tmp_path / "report.html"
    path.write_text(render_sweep(chosen), "utf-8")
    browser.resize(1280, 900)
    browser.open(path)
    browser.settle()
    return browser


def read(page: Browser, key: str) -> list[str]:
    page.evaluate("document.querySelector('#curves svg').focus()")
    page.press(key)
    return str(page.evaluate(TIP)).splitlines()


def test_it_averages_as_python_does(page: Browser) -> None:
    assert page.errors == []
    assert page.evaluate(LINES) == 2
    assert page.evaluate(BROKEN) == 0
    where, first, second = read(page, "End")
    assert where == "devices.count 50"
    assert first == "adaptive: 31.0 % (18.3 to 43.7 %)"  # 0.31 ± 12.706 · 0.01
    assert second.endswith(": 41.0 % (28.3 to 53.7 %)")


def test_other_fields_can_be_held(page: Browser) -> None:
    hidden = "[...document.querySelectorAll('.others label')].map(e => e.hidden)"
    assert page.evaluate(hidden) == [True, False]
    page.evaluate(
        "(() => { const s = document.querySelectorAll('.others select')[1]; s.value = '1';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    lines = read(page, "End")
    assert lines[1].startswith("adaptive: 51.0 %")
    assert lines[2].endswith(": –")  # it cannot run there
    page.click("#curves button[data-x='1']")
    assert page.evaluate(hidden) == [False, True]
    assert page.evaluate(LINES) == 0  # words are points with whiskers
    assert page.evaluate("document.querySelectorAll('#curves circle.dot').length") == 4
    for figure in range(6):
        page.click(f"#curves button[data-y='{figure}']")
        assert page.evaluate(BROKEN) == 0
    page.click("#curves .legend button[data-line='1']")
    assert page.evaluate("document.querySelectorAll('#curves circle.dot').length") == 2
    assert page.errors == []


def test_it_fits_a_phone(page: Browser) -> None:
    page.resize(360, 740)
    page.settle()
    wide = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll')"
        " && e.getBoundingClientRect().right > 360).map(e => e.outerHTML.slice(0, 80))"
    )
    assert page.evaluate(wide) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
