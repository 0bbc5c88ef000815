"""The curves and the figures of a run's evaluations, for its report."""

from __future__ import annotations

__all__ = ["evaluated"]

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.metrics.curves import COUNTS, column_names
from joulemesh.metrics.losses import reported
from joulemesh.metrics.metric import score_metric
from joulemesh.results.target import to_target
from joulemesh.views.run.metrics import metric_tiles
from joulemesh.views.run.report import ReportView, Summary
from joulemesh.views.run.target import target_tile

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace


def evaluated(
    view: ReportView,
    trace: Trace,
    costs: tuple[NDArray[Any], NDArray[Any]],
    target: float | None,
) -> ReportView:
    """The view of a report, with curves and figures.

    Args:
        view: all that the page shows but these.
        trace: the evaluations.
        costs: joules and seconds after each of them, [evaluations] or [evaluations, seeds].
        target: accuracy, or other score, asked for as target, or None.

    Returns:
        The view as it was if nothing has been evaluated.
    """
    if not len(trace.iteration):
        return view
    energy, clock = costs
    series: dict[str, NDArray[Any]] = {
        "iteration": trace.iteration,
        "energy_j": energy.T,
        "time_s": clock.T,
    }
    measured = reported(view.plan.scenario.training)
    for name in (*column_names(*measured), *COUNTS):
        series[name] = np.asarray(trace.curve(name)).T
    metric = score_metric(measured.score)
    found = to_target(trace.iteration, trace.test_score, energy, clock, target, metric)
    means = float(energy[-1].mean()), float(clock[-1].mean())
    summary = replace(
        Summary.of(*means, trace.last, view.summary.wall_s, view.summary.trained_s),
        target=target_tile(found, len(view.seeds)),
        further=metric_tiles(trace.last, measured),
    )
    return replace(view, summary=summary, series=series)
