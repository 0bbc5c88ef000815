"""An automatic check that a page is accessible, by axe-core, where it has been fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser

SCRIPT = Path(__file__).parents[1] / ".bench" / "axe" / "package" / "axe.min.js"
_RUN = """axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
  .filter((one) => ['serious', 'critical'].includes(one.impact))
  .map((one) => [one.id, one.impact, one.help, one.nodes.slice(0, 4).map((n) => n.html.slice(0, 160)
    + ' | ' + n.failureSummary.slice(0, 200))]))"""


# Everything that can be opened is: what a chart's table holds is made when it is opened.
OPEN_ALL = """(() => { for (const one of document.querySelectorAll('details')) one.open = true;
  return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))); })()"""
UNFILLED = """[...document.querySelectorAll('.tools table')].filter((one) =>
  one.checkVisibility() && !one.querySelector('tbody tr')).length"""
# Rows of such a table are alike, and thousands of cells would take minutes.
_FEW = """for (const one of document.querySelectorAll('.tools tbody'))
  one.replaceChildren(...[...one.rows].slice(0, 10))"""


def needs_axe() -> None:
    """Skip where axe-core is not there."""
    if not SCRIPT.exists():
        pytest.skip("axe-core is not there; fetch it with `make axe` (npm)")


def grave(browser: Browser) -> list[Any]:
    """What axe-core calls serious or critical about the page with all of it, tables too, open."""
    browser.evaluate(OPEN_ALL)
    browser.wait(f"{UNFILLED} === 0")
    browser.evaluate(_FEW)
    browser.send("Runtime.evaluate", expression=SCRIPT.read_text("utf-8"))
    found: list[Any] = browser.evaluate(_RUN)
    return found
