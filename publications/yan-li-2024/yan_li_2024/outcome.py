"""What redoing a figure gives: rows for a table, curves to draw, findings."""

from __future__ import annotations

__all__ = [
    "SHARE",
    "Line",
    "Outcome",
    "Panel",
    "Picture",
    "Row",
    "Series",
    "band",
    "lines",
    "rows_csv",
    "spread",
]

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.study.statistics import estimate
from yan_li_2024.claims import Finding

FloatArray = NDArray[np.float64]
Row: TypeAlias = Mapping[str, Any]
Line: TypeAlias = tuple[FloatArray, FloatArray]
"""Where a curve was measured [points], and what was found [points, seeds]."""

SHARE = (0.0, 1.0)  # an accuracy lies within


@dataclass(frozen=True, eq=False)
class Series:
    """One curve with its band.

    Attributes:
        label: of the legend; the same label has the same colour in every panel of a picture.
        x, mean, low, high: float64 [points]; NaN where there is no band.
    """

    label: str
    x: FloatArray
    mean: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes:
        title: what it shows.
        x_label, y_label: with units.
        series: the curves.
        log: a logarithmic vertical axis.
        level: a horizontal line at this height, for instance a target.
        marks: a few points with error bars, side by side where they would hide each other.
        steps: a staircase, for whole numbers.
        within: what the vertical axis can mean at all; bands are cut there.
    """

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log: bool = False
    level: float | None = None
    marks: bool = False
    steps: bool = False
    within: tuple[float, float] = (-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class Picture:
    """One image file: panels in rows of so many columns.

    Attributes:
        name: of the file, without suffix.
        title: in a few words.
        panels: row by row.
        columns: panels in a row.
        bands: what the bands are, in words; nothing where there are none.
        share: which panels have the same heights: those of a row, of a column, all or none.
    """

    name: str
    title: str
    panels: tuple[Panel, ...]
    columns: int
    bands: str = "bands: 95 % t interval over seeds"
    share: Literal["none", "row", "col", "all"] = "none"


@dataclass(frozen=True, eq=False)
class Outcome:
    """All that redoing a table or figure gives.

    Attributes:
        name: ``"table1"``, ``"fig4"`` and so on.
        rows: of its CSV file, all with the same keys.
        pictures: to draw.
        findings: on the claims that it decides.
        notes: what a reader should know, one line each.
        setup: what was run, and which choices the paper leaves open.
    """

    name: str
    rows: Sequence[Row]
    pictures: tuple[Picture, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    setup: str = ""


def lines(
    rows: Sequence[Row], names: Sequence[str], y: str, x: str = "iteration"
) -> dict[tuple[str, ...], Line]:
    """The curves in a table that has a row for every seed and evaluation.

    Args:
        rows: as they were made, or as they were read from a CSV file.
        names: columns that tell the curves apart.
        y: the column that is drawn.
        x: the column against which.

    Returns:
        Every curve by its values of these columns, as text.

    >>> rows = [{"a": 1, "seed": s, "iteration": t, "y": s + t} for s in (0, 1) for t in (5, 10)]
    >>> where, what = lines(rows, ["a"], "y")["1",]
    >>> where.tolist(), what.tolist()
    ([5.0, 10.0], [[5.0, 6.0], [10.0, 11.0]])
    """
    found: dict[tuple[str, ...], dict[str, list[tuple[float, float]]]] = {}
    for row in rows:
        curve = found.setdefault(tuple(str(row[name]) for name in names), {})
        curve.setdefault(str(row["seed"]), []).append((_number(row[x]), _number(row[y])))
    made: dict[tuple[str, ...], Line] = {}
    for key, seeds in found.items():
        points = np.array(list(seeds.values()), np.float64)  # [seeds, points, 2]
        made[key] = points[0, :, 0], points[:, :, 1].T
    return made


def _number(value: Any) -> float:
    """A cell as a number; an empty one is none (`rows_csv`)."""
    return float("nan") if value == "" else float(value)


def band(label: str, x: ArrayLike, values: ArrayLike) -> Series:
    """A curve with its 95 % t interval over seeds.

    Args:
        label: of the legend.
        x: [points].
        values: [points, seeds]; NaN where a seed diverged.

    Returns:
        The series.

    >>> one = band("a", [1], [[1.0, 2.0, 3.0]])
    >>> one.mean.tolist(), one.low.round(3).tolist()
    ([2.0], [-0.484])
    """
    found = [estimate(row) for row in np.asarray(values, np.float64)]
    mean = np.array([one.mean for one in found])
    half = np.array([one.half for one in found])
    return Series(label, np.asarray(x, np.float64), mean, mean - half, mean + half)


def spread(label: str, x: ArrayLike, values: ArrayLike) -> Series:
    """A curve of means with the whole range of the values, [points, cases], as its band.

    >>> one = spread("a", [1], [[1.0, 3.0]])
    >>> one.mean.tolist(), one.low.tolist(), one.high.tolist()
    ([2.0], [1.0], [3.0])
    """
    many = np.asarray(values, np.float64)
    wide = np.asarray(x, np.float64)
    return Series(label, wide, many.mean(axis=1), many.min(axis=1), many.max(axis=1))


def rows_csv(rows: Sequence[Row]) -> str:
    """Rows as CSV; floats with 8 significant digits.

    >>> rows_csv([{"n": 1, "a": 1 / 3}])
    'n,a\\n1,0.33333333\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(list(rows[0]))
    writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return f"{value:.8g}" if np.isfinite(value) else ""
    return value
