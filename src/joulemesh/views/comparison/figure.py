"""A comparison as a figure for print: accuracy against iterations, joules and seconds."""

from __future__ import annotations

__all__ = ["across", "band", "comparison_figure"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.results.comparison import AXES, Comparison
from joulemesh.results.entry import Entry
from joulemesh.results.statistics import estimate
from joulemesh.units import prefixed
from joulemesh.views.palette import CURVES
from joulemesh.views.style import styled

# Dashes tell curves apart in grey.
_DASHES: tuple[Any, ...] = ("-", (0, (6, 2)), (0, (2, 1.5)), (0, (7, 2, 1.5, 2)))

_NAMES = {"joules": ("energy of all devices", "J"), "seconds": ("simulated time", "s")}


def comparison_figure(study: Comparison, axes: Sequence[str] = AXES) -> Figure:
    """Accuracy of the mean model against iterations, joules or seconds.

    Args:
        study: what is drawn; methods that did not run are left out.
        axes: one panel for each of these, some of `AXES`.

    Returns:
        A figure that belongs to no window and no global state. Lines are means over seeds, bands
        their 95 % intervals, the dotted line is the target.
    """
    unknown = [axis for axis in axes if axis not in AXES]
    if unknown or not axes:
        raise ScenarioError(f"x = {unknown[:1] or 'nothing'}: use some of {', '.join(AXES)}")
    shown = [entry for entry in study.entries if entry.ran]
    with styled():
        width = 3.6 if len(axes) == 1 else 7.2
        figure = Figure(figsize=(width, 2.9), layout="constrained")
        panels = figure.subplots(1, len(axes), sharey=True, squeeze=False)[0]
        for axis, panel in zip(axes, panels, strict=True):
            _draw(panel, study, shown, axis)
        panels[0].set_ylabel("test accuracy of the mean model [%]")
        columns = min(max(len(shown), 1), 4 if len(axes) > 1 else 2)
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=columns,
            frameon=False,
        )
        figure.suptitle(f"Equal {study.equal}, {study.repeats}", fontsize=9, fontweight="bold")
    return figure


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
    index_of = {entry.name: k for k, entry in enumerate(study.entries)}
    for entry in shown:
        k = index_of[entry.name]
        style = {"color": CURVES[k % len(CURVES)], "linestyle": _DASHES[k % len(_DASHES)]}
        x = across(entry, axis) / scale
        mean, half = band(entry.curves["test_accuracy"])
        low, high = 100 * np.maximum(mean - half, 0), 100 * np.minimum(mean + half, 1)
        panel.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)
        panel.plot(x, 100 * mean, linewidth=1.3, label=entry.name, **style)
    if shown:
        panel.axhline(100 * study.target, color="0.4", linewidth=0.8, linestyle=":")
    panel.set_xlabel(label)
    panel.set_xlim(left=0)
    panel.grid(color="0.9", linewidth=0.5)
