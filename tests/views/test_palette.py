"""Colours and Matplotlib's settings stand in one place, and pages use the same ones."""

from __future__ import annotations

import re
from pathlib import Path

import joulemesh
from joulemesh.views.palette import BINDING, CURVES

HOME = Path(joulemesh.__file__).parent


def test_no_other_module_names_a_colour_or_font() -> None:
    named = re.compile(r"#[0-9A-Fa-f]{6}\b|rc_context|rcParams\[|font\.family")
    found = {
        path.relative_to(HOME).as_posix()
        for path in HOME.rglob("*.py")
        if named.search(path.read_text("utf-8"))
    }
    assert found == {"views/palette.py", "views/style.py"}


def test_reports_colour_devices_as_figures_do() -> None:
    css = (HOME / "views" / "assets" / "report.css").read_text("utf-8")
    by_day = css[: css.index("@media")]
    for kind in ("energy", "deadline", "policy"):
        assert f"--{kind}: {BINDING[kind].lower()};" in by_day


def test_curves_have_different_colours() -> None:
    assert len(set(CURVES)) == len(CURVES) == 8
