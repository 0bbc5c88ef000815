"""A comparison as a figure for print: the score against iterations, joules and seconds."""

from __future__ import annotations

__all__ = ["across", "band", "comparison_figure"]

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.results.comparison import AXES, Comparison
from joulemesh.results.entry import Entry
from joulemesh.results.statistics import estimate
from joulemesh.units import prefixed
from joulemesh.views.publication.curves import curve_look, legend_columns
from joulemesh.views.publication.printing import width_in
from joulemesh.views.style import styled

_MARKED = 8  # markers on a curve
_BELOW = 15.0  # points below the lowest final accuracy that a paper's panel shows
_NARROWEST_INCH = 1.7  # of panels side by side
_NAMES = {"joules": ("energy of all devices", "J"), "seconds": ("simulated time", "s")}


def comparison_figure(
    study: Comparison, axes: Sequence[str] = AXES, width: str | float | None = None
) -> Figure:
    """Accuracy of the mean model, or another score, against iterations, joules or seconds.

    Args:
        study: what is drawn; methods that did not run are left out.
        axes: one panel for each of these, some of `AXES`.
        width: for the column of a paper (`joulemesh.views.publication.printing.WIDTHS`, or
            inches), where the caption takes the place of the title; None for a screen.

    Returns:
        A figure that belongs to no window and no global state. Lines are means over seeds, bands
        their 95 % intervals, the dotted line is the target.
    """
    unknown = [axis for axis in axes if axis not in AXES]
    if unknown or not axes:
        raise ScenarioError(f"x = {unknown[:1] or 'nothing'}: use some of {', '.join(AXES)}")
    shown = [entry for entry in study.entries if entry.ran]
    inches = (3.6 if len(axes) == 1 else 7.2) if width is None else width_in(width)
    side_by_side = len(axes) * _NARROWEST_INCH <= inches
    rows, columns = (1, len(axes)) if side_by_side else (len(axes), 1)
    keys = legend_columns([entry.name for entry in shown], inches)
    legend = 0.16 * -(-len(shown) // keys)  # its height
    height = 2.9 if width is None else (2.0 if rows == 1 else 1.8) * rows + legend
    with styled(printed=width is not None):
        figure = Figure(figsize=(inches, height), layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=True):
            _draw(panel, study, shown, axis)
        label = _heading(study, short=width is not None)
        for panel in panels if columns == 1 else panels[:1]:
            panel.set_ylabel(label)
        if len(study.entries) > 1:
            figure.legend(
                *panels[0].get_legend_handles_labels(),
                loc="outside lower center",
                ncols=keys,
                frameon=False,
                handlelength=3.0,
            )
        if width is not None:
            panels[0].set_ylim(bottom=_floor(study, shown))
        else:
            title = f"Equal {study.equal}, {study.repeats}"
            figure.suptitle(title, fontsize=9, fontweight="bold")
    return figure


def _heading(study: Comparison, *, short: bool) -> str:
    metric = study.metric
    of = "" if short else " of the mean model"
    return f"test {metric.label}{of}{' [%]' if metric.share else ''}"


def _floor(study: Comparison, shown: Sequence[Entry]) -> float | None:
    """Per cent from which a small panel is drawn, so that it shows in what methods differ."""
    finals = [estimate(entry.scores).mean for entry in shown]
    if not finals or not study.metric.share:
        return None
    lowest, highest = 100 * min(finals), 100 * max(finals)
    floor = lowest - max(_BELOW, 1.5 * (highest - lowest))
    return floor if floor > 0 else None


def across(entry: Entry, axis: str) -> NDArray[np.float64]:
    """[E]: where a method's evaluations stand on a horizontal axis, mean over seeds."""
    if axis == "iterations":
        return entry.iteration.astype(np.float64)
    costs = entry.energy_j if axis == "joules" else entry.time_s
    return np.asarray(np.nanmean(costs, axis=1))


def band(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and half-width of its 95 % interval at every evaluation: [E] each, 0 for one seed.

    >>> mean, half = band(np.array([[0.5, 0.7], [0.8, 0.8]]))
    >>> mean.round(3).tolist(), half.round(3).tolist()  # 12.706 · 0.1414/√2
    ([0.6, 0.8], [1.271, 0.0])
    """
    found = [estimate(row) for row in values]
    half = np.array([one.half for one in found])
    return np.array([one.mean for one in found]), np.nan_to_num(half)


def _draw(panel: Axes, study: Comparison, shown: Sequence[Entry], axis: str) -> None:
    scale, label = 1.0, "iteration"
    if axis in _NAMES:
        label, unit = _NAMES[axis]
        top = max((float(across(entry, axis)[-1]) for entry in shown), default=1.0)
        scale, name = prefixed(float(top), unit)
        label = f"{label} [{name}]"
    times = 100 if study.metric.share else 1
    index_of = {entry.name: k for k, entry in enumerate(study.entries)}
    for entry in shown:
        k, x = index_of[entry.name], across(entry, axis) / scale
        look, step = curve_look(k), max(1, -(-len(x) // _MARKED))
        mean, half = band(entry.curves[f"test_{study.score}"])
        low, high = mean - half, mean + half
        if study.metric.share:
            low, high = np.maximum(low, 0), np.minimum(high, 1)
        low, high = times * low, times * high
        panel.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        # Markers of different curves are offset, so that curves on top of each other both show.
        panel.plot(x, times * mean, label=entry.name, markevery=(k % step, step), **look)
    if shown:
        panel.axhline(times * study.target, color="0.4", linewidth=0.8, linestyle=":")
    panel.set_xlabel(label)
    panel.set_xlim(left=0)
    panel.grid(color="0.9", linewidth=0.5)
