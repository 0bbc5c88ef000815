"""Pictures of the reproduction: legends, colours, points that would hide each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from matplotlib.colors import to_hex

from yan_li_2024.outcome import Panel, Picture, Series, band, lines, rows_csv
from yan_li_2024.pictures import draw_picture


def series(label: str, height: float = 0.5) -> Series:
    mean = np.full(3, height)
    return Series(label, np.array([10.0, 20.0, 30.0]), mean, mean - 0.1, mean + 0.1)


def panel(labels: Sequence[str], *, marks: bool = False, steps: bool = False) -> Panel:
    curves = tuple(series(label) for label in labels)
    return Panel("(a)  one", "iteration", "accuracy", curves, marks=marks, steps=steps)


def texts(legend: object) -> list[str]:
    return [text.get_text() for text in legend.get_texts()]  # type: ignore[attr-defined]


def test_panels_that_share_curves_share_a_legend() -> None:
    panels = (panel(["a", "b"]), panel(["b", "c"]), panel(["d", "e"]))
    figure = draw_picture(Picture("fig0", "Nothing", panels, 3))
    assert [texts(legend) for legend in figure.legends] == [["a", "b", "c"]]
    assert [axes.get_legend() is not None for axes in figure.axes] == [False, False, True]
    assert texts(figure.axes[2].get_legend()) == ["d", "e"]


def test_equal_labels_have_equal_colours_and_strangers_begin_anew() -> None:
    panels = (panel(["a", "b"]), panel(["b"]), panel(["c"]))
    first, second, third = draw_picture(Picture("fig0", "Nothing", panels, 3)).axes
    colours = [to_hex(line.get_color()) for axes in (first, second, third) for line in axes.lines]
    assert colours[1] == colours[2]
    assert colours[3] == colours[0] != colours[1]


def test_points_of_equal_curves_stand_side_by_side() -> None:
    picture = Picture("fig0", "Nothing", (panel(["a", "b", "c"], marks=True),), 1)
    (axes,) = draw_picture(picture).axes
    marked = [line for line in axes.lines if line.get_marker() in ("o", "s", "^")]
    places = [float(np.asarray(line.get_xdata(), float)[0]) for line in marked]
    assert places[1] == 10.0
    assert 9.0 < places[0] < 10.0 < places[2] < 11.0
    assert axes.get_xticks().tolist() == [10, 20, 30]


def test_a_staircase_has_no_markers() -> None:
    (axes,) = draw_picture(Picture("fig0", "Nothing", (panel(["a"], steps=True),), 1)).axes
    assert axes.lines[0].get_drawstyle() == "steps-mid"
    assert axes.lines[0].get_marker() == ""


@pytest.mark.parametrize("bands", ["bands: all of it", ""])
def test_the_title_says_what_the_bands_are(bands: str) -> None:
    picture = Picture("fig0", "Nothing", (panel(["a"]),), 1, bands=bands)
    wanted = f"Nothing  ({bands})" if bands else "Nothing"
    assert draw_picture(picture).get_suptitle() == wanted


def test_curves_come_back_from_their_table() -> None:
    """Two seeds, the second of which diverged: nothing there, and the band is of the first."""
    rows = [
        {"scheme": "a", "seed": seed, "iteration": t, "y": t / 8 if seed == 3 else float("nan")}
        for seed in (3, 4)
        for t in (1, 2)
    ]
    text = rows_csv(rows).splitlines()
    head, cells = text[0].split(","), [line.split(",") for line in text[1:]]
    read = [dict(zip(head, line, strict=True)) for line in cells]
    for table in (rows, read):
        where, what = lines(table, ["scheme"], "y")["a",]
        assert where.tolist() == [1, 2]
        np.testing.assert_array_equal(what, [[1 / 8, np.nan], [2 / 8, np.nan]])
        assert band("a", where, what).mean.tolist() == [1 / 8, 2 / 8]
