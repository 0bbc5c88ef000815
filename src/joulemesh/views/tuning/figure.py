"""What tuning found as a figure for print: candidates, their front, and the winner."""

from __future__ import annotations

__all__ = ["tuning_figure"]

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from joulemesh.results.statistics import estimate
from joulemesh.tuning.result import Final, Tuning, front
from joulemesh.units import prefixed
from joulemesh.views.palette import INK
from joulemesh.views.publication.curves import curve_look
from joulemesh.views.publication.printing import TWO_COLUMNS_IN, width_in
from joulemesh.views.style import styled
from joulemesh.views.tuning.table import share_words

_AXES = (("energy_j", "energy of all devices", "J"), ("time_s", "simulated time", "s"))


def tuning_figure(found: Tuning, width: str | float | None = None) -> Figure:
    """Accuracy of every candidate against its joules and its seconds.

    Args:
        found: what tuning found.
        width: for a paper (`joulemesh.views.publication.printing.WIDTHS`, or inches); a single
            column has the panels below each other. None for a screen.

    Returns:
        A figure that belongs to no window and no global state: a kind of mark for each share of
        the budget, a line through the candidates that no other beats, and winner and scenario as
        it is with the 95 % intervals of their fresh seeds.
    """
    inches = 7.2 if width is None else width_in(width)
    rows, columns = (2, 1) if inches < TWO_COLUMNS_IN else (1, 2)
    keys = max(1, int(inches / 1.5))
    height = 2.1 * rows + 0.16 * -(-(len(found.rungs) + 3) // keys)
    with styled(printed=width is not None):
        figure = Figure(figsize=(inches, height), layout="constrained")
        panels = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
        for panel, (name, label, unit) in zip(panels, _AXES, strict=True):
            _draw(panel, found, name, label, unit)
        for panel in panels[:: 1 if columns == 1 else 2]:
            panel.set_ylabel("test accuracy [%]")
        figure.legend(
            *panels[0].get_legend_handles_labels(),
            loc="outside lower center",
            ncols=keys,
            frameon=False,
        )
        if width is None:
            figure.suptitle(f"Tuning: {found.objective.words}", fontsize=9, fontweight="bold")
    return figure


def _draw(panel: Axes, found: Tuning, name: str, label: str, unit: str) -> None:
    judged = [one for rung in found.rungs for one in rung.rows if math.isfinite(one.accuracy)]
    ends = [one for one in (found.winner, found.given) if one is not None]
    costs = [float(getattr(one, name)) for one in (*judged, *ends)]
    scale, short = prefixed(max(costs), unit)
    for k, rung in enumerate(found.rungs):
        mine = [one for one in rung.rows if math.isfinite(one.accuracy)]
        look = {**curve_look(k), "linestyle": "none", "label": f"{share_words(rung)} of the budget"}
        panel.plot(
            [getattr(one, name) / scale for one in mine], [100 * one.accuracy for one in mine],
            **look, alpha=0.8,
        )  # fmt: skip
    best = front([getattr(one, name) for one in judged], [one.accuracy for one in judged])
    panel.plot(
        [getattr(judged[k], name) / scale for k in best], [100 * judged[k].accuracy for k in best],
        color=INK, linewidth=0.8, linestyle=(0, (2, 1.5)), label="beaten by none",
    )  # fmt: skip
    if found.given is not None and found.given is not found.winner:
        _end(panel, found.given, getattr(found.given, name) / scale, "as given", "X")
    _end(panel, found.winner, getattr(found.winner, name) / scale, "winner", "*")
    panel.set_xlabel(f"{label} [{short}]")
    panel.set_xlim(left=0)
    panel.grid(color="0.9", linewidth=0.5)


def _end(panel: Axes, one: Final, cost: float, label: str, marker: str) -> None:
    value = estimate(one.accuracy)
    half = 0.0 if math.isnan(value.half) else 100 * value.half
    panel.errorbar(
        cost, 100 * value.mean, half, color=INK, marker=marker, markersize=8.0, linestyle="none",
        markerfacecolor="white", markeredgewidth=0.8, elinewidth=0.8, capsize=2.0, label=label,
        zorder=5,
    )  # fmt: skip
