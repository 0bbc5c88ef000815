"""Pages use the palette's colours."""

from __future__ import annotations

from pathlib import Path

import joulemesh
from joulemesh.views.printing import BINDING, CURVES

HOME = Path(joulemesh.__file__).parent


def test_reports_colour_devices_as_figures_do() -> None:
    css = (HOME / "views" / "assets" / "report.css").read_text("utf-8")
    by_day = css[: css.index("@media")]
    for kind in ("energy", "deadline", "policy"):
        assert f"--{kind}: {BINDING[kind].lower()};" in by_day


def test_whatever_binds_has_a_colour() -> None:
    css = (HOME / "views" / "assets" / "report.css").read_text("utf-8")
    by_day, by_night = css.split("@media screen", 1)
    for kind in BINDING:
        assert f"--{kind}: #" in by_day
        assert f"--{kind}: #" in by_night


def test_curves_have_different_colours() -> None:
    assert len(set(CURVES)) == len(CURVES) == 8
