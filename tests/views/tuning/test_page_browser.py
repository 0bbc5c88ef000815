"""The page of a tuning in a real browser: it draws every candidate, answers, and fits."""

from __future__ import annotations

from pathlib import Path

import pytest

import joulemesh
from joulemesh.study.tuning import Tuned
from joulemesh.views.tuning import render_tuning
from tests.browser import Browser

pytestmark = pytest.mark.slow

BROKEN = (
    "[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some("
    "a => /NaN|undefined|Infinity/.test(a.value))).length"
)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {"devices.count": 4, "plan.iterations": 20, "training.model": "logistic"}
    )
    space = {
        "plan.iterations": [20, 30, 100_000],
        "training.learning_rate": [1e-6, 0.1, 0.3, 1e38],
    }
    folder = tmp_path_factory.mktemp("cache")
    return joulemesh.tune(scenario, space, seeds=2, search_seeds=1, cache=folder)


@pytest.mark.parametrize("width", [1280, 400])
def test_it_draws_every_candidate_and_fits(
    tuned: Tuned, browser: Browser, tmp_path: Path, width: int
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_tuning(tuned), "utf-8")
    browser.resize(width, 900)
    browser.open(path)
    browser.settle()
    assert browser.errors == []
    good = sum(
        row.score is not None and row.score.rank < 2 for rung in tuned.rungs for row in rung.rows
    )
    for chart in ("joules", "seconds", "rungs"):
        assert browser.evaluate(f"document.querySelectorAll('#{chart} .dot').length") == good
    assert browser.evaluate("document.querySelectorAll('#joules .mark').length") in (1, 2)
    assert browser.evaluate(BROKEN) == 0
    assert browser.evaluate("document.documentElement.scrollWidth") <= width


def test_its_text_says_what_was_found(tuned: Tuned) -> None:
    page = render_tuning(tuned, versions={"joulemesh": "1"}, when="2026-11-16")
    assert "Tuning of adaptive, 16 November 2026" in page
    assert tuned.winner.candidate.name in page
    assert "diverged" in page
    assert "100000 iterations" in page or "100,000" in page
    assert "on 180 test samples that no choice was made by" in page
