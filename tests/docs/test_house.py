"""The pictures of the house are current; `python -m tools.house` draws them anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.house import LINE, ORDER
from tools.house_pictures import FIGURES, Station, drawn, rooms_svg, way_svg

ROOT = Path(__file__).parents[2]
WAY = """
from tools.house_pictures import entries
print("ENTERED", *(f"{station.line}:{station.name}" for station in entries()))
"""


def test_the_picture_of_the_rooms_is_current() -> None:
    assert (FIGURES / "house.svg").read_text("utf-8") == rooms_svg()


@pytest.mark.slow
def test_a_run_still_passes_every_station_of_the_picture() -> None:
    """How many calls there are inside may change without the picture; where they lead may not."""
    done = subprocess.run(
        [sys.executable, "-c", WAY], capture_output=True, text=True, check=True, cwd=ROOT
    )
    entered = set(done.stdout.rsplit("ENTERED", 1)[1].split())
    shown = {f"{one.line}:{one.name}" for one in drawn((FIGURES / "house-run.svg").read_text())}
    assert len(shown) > 15
    assert shown <= entered


def test_stations_stand_in_the_lines_of_their_rooms() -> None:
    drawn = way_svg([Station(LINE["planning"], "plan"), Station(LINE["training"], "Engine")])
    heights = [float(part.split('"')[0]) for part in drawn.split('cy="')[1:]]
    assert heights[1] - heights[0] == 30.0


def test_the_page_names_every_room() -> None:
    page = (ROOT / "docs" / "explanation" / "house.md").read_text("utf-8")
    for rooms in ORDER[2:-1]:
        for room in rooms:
            assert f"`{room}`" in page, room
