"""Threads that save to one path: all succeed, and the file is one of theirs, whole."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

import joulemesh
from joulemesh.views.style import save_figure, styled

Save = Callable[[Path], object]
TIMES = 5


def plan_of(iterations: int) -> joulemesh.Plan:
    changes = {"devices.count": 4, "plan.iterations": iterations}
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(changes))


def figure_of(title: str) -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.suptitle(title)
    return figure


def savers(suffix: str) -> tuple[Save, Save]:
    if suffix in (".png", ".svg"):
        one, other = figure_of("one"), figure_of("other")
        return (
            lambda path: save_figure(one, path.with_suffix(""), suffix[1:]),
            lambda path: save_figure(other, path.with_suffix(""), suffix[1:]),
        )
    return plan_of(3).save, plan_of(4).save


@pytest.mark.parametrize("suffix", [".npz", ".json", ".csv", ".png", ".svg"])
def test_two_threads_save_to_one_path(tmp_path: Path, suffix: str) -> None:
    saves = savers(suffix)
    wanted = []
    for number, save in enumerate(saves):
        save(tmp_path / f"{number}{suffix}")
        wanted.append((tmp_path / f"{number}{suffix}").read_bytes())
    place, settings = tmp_path / "together" / f"same{suffix}", dict(mpl.rcParams)
    place.parent.mkdir()
    begin = threading.Barrier(2)

    def often(save: Save) -> list[bytes]:
        begin.wait()
        seen = []
        for _ in range(TIMES):
            save(place)
            seen.append(place.read_bytes())  # by either of them, and never half of one
        return seen

    with ThreadPoolExecutor(2) as pool:
        found = [seen for each in pool.map(often, saves) for seen in each]
    assert len(found) == 2 * TIMES
    assert set(found) <= set(wanted)
    assert [path.name for path in place.parent.iterdir()] == [place.name]
    assert dict(mpl.rcParams) == settings


def test_settings_of_threads_that_draw_together_stay_apart() -> None:
    before, inside = mpl.rcParams["savefig.dpi"], threading.Event()
    seen: list[float] = []

    def draw() -> None:
        inside.wait()
        with styled({"savefig.dpi": 123.0}):
            seen.append(mpl.rcParams["savefig.dpi"])

    other = threading.Thread(target=draw)
    other.start()
    with styled({"savefig.dpi": 77.0}):
        inside.set()
        other.join(0.2)  # it waits for this figure to be drawn
        assert mpl.rcParams["savefig.dpi"] == 77.0
    other.join()
    assert seen == [123.0]
    assert mpl.rcParams["savefig.dpi"] == before
