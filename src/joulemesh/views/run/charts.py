"""The data behind a report's charts, thinned to what a screen shows, as plain JSON values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.partition import labelled_devices
from joulemesh.metrics import Metric, further_of, reported, score_metric
from joulemesh.planning.plan import Account, Plan
from joulemesh.views.plan.digest import (
    BINDING_KINDS,
    BINDING_WORDS,
    MOST_DOTS,
    battery_left,
    every,
    few_digits,
    flow_data,
    gantt_data,
    harvest_data,
    map_data,
    rounds_grid,
)

__all__ = [
    "Histogram",
    "battery_data",
    "chart_data",
    "label_data",
    "map_data",
    "metric_data",
    "rounds_data",
    "series_data",
]

Histogram: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.integer[Any]]]

_MOST_ROWS, _MOST_COLUMNS = 400, 500
_MOST_LINES, _MOST_POINTS = 200, 200
_ABSENT = 65535


def chart_data(
    plan: Account,
    series: Mapping[str, NDArray[Any]],
    histogram: Histogram | None,
    class_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that the page's script draws; without a plan there is no route and no binding.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> ", ".join(sorted(chart_data(made, {}, None)))
    'battery, flow, gantt, harvest, kinds, labels, map, metrics, rounds, score, series'
    """
    names = {"names": plan.names} if 0 < len(plan.names) <= MOST_DOTS else {}
    measured = reported(plan.scenario.training)
    return {
        **names,
        "kinds": BINDING_WORDS,
        "series": series_data(series),
        "score": metric_data(score_metric(measured.score)),
        "metrics": [metric_data(metric) for metric in further_of(*measured)],
        "rounds": rounds_data(plan),
        "battery": battery_data(plan) if isinstance(plan, Plan) else None,
        "labels": None if histogram is None else label_data(plan, histogram, class_names),
        "harvest": harvest_data(plan) if isinstance(plan, Plan) else None,
        "gantt": gantt_data(plan) if isinstance(plan, Plan) else [],
        "flow": flow_data(plan),
        "map": map_data(plan) if isinstance(plan, Plan) else None,
    }


def series_data(series: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Each series as its mean over seeds, and its range where seeds differ.

    >>> series_data({"iteration": np.array([1, 2]), "accuracy": np.array([[0.5, 0.7], [0.7, 0.7]])})
    {'iteration': {'mean': [1.0, 2.0]},
     'accuracy': {'mean': [0.6, 0.7], 'low': [0.5, 0.7], 'high': [0.7, 0.7]}}
    """
    data: dict[str, Any] = {}
    for name, values in series.items():
        rows = np.atleast_2d(np.asarray(values, np.float64))
        data[name] = {"mean": few_digits(rows.mean(axis=0))}
        if len(rows) > 1:
            data[name]["low"] = few_digits(rows.min(axis=0))
            data[name]["high"] = few_digits(rows.max(axis=0))
    return data


def metric_data(metric: Metric) -> dict[str, Any]:
    """A metric that the page can draw.

    >>> metric_data(score_metric("rmse"))
    {'name': 'rmse', 'label': 'RMSE', 'share': False, 'devices': True}
    """
    return {name: getattr(metric, name) for name in ("name", "label", "share", "devices")}


def rounds_data(plan: Account) -> dict[str, Any]:
    """The rounds as 16-bit cells in base64: value = cell × scale, 65535 where nobody takes part.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> data = rounds_data(made)
    >>> cells = np.frombuffer(base64.b64decode(data["cells"]), "<u2").reshape(data["shape"])
    >>> data["scale"], bool((cells.T == made.rounds).all())
    (1.0, True)
    """
    grid = rounds_grid(plan, _MOST_ROWS, _MOST_COLUMNS)
    present = np.isfinite(grid.values)
    values = np.where(present, grid.values, 0.0)
    top = float(values.max())
    exact = top < _ABSENT and bool((values == np.rint(values)).all())
    scale = 1.0 if exact else top / (_ABSENT - 1)
    cells = np.where(present, np.rint(values / scale), _ABSENT).astype("<u2")
    return {
        "shape": list(cells.shape),
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
        "scale": scale,
        "least": float(values[present].min()),
        "most": top,
        "devices": grid.devices,
        "iterations": grid.iterations,
        "sorted": grid.sorted,
        "skipped": (np.flatnonzero(~plan.exchanged) + 1).tolist(),
    }


def battery_data(plan: Plan) -> dict[str, Any]:
    """What is left of each battery; with many devices, quantiles among those that share a bind."""
    few = len(plan.energy_budget_j) <= _MOST_LINES
    when = every(plan.iterations + 1, _MOST_POINTS if few else _MOST_POINTS // 2)
    data: dict[str, Any] = {"when": when.tolist(), "lines": [], "bands": []}
    if few:
        left = np.stack(list(battery_left(plan, when)), axis=1)
        data["lines"] = [
            {"device": i, "kind": str(kind), "left": few_digits(own, 3)}
            for i, (kind, own) in enumerate(zip(plan.binding, left, strict=True))
        ]
        return data
    groups = [(kind, plan.binding == kind) for kind in BINDING_KINDS]
    groups = [(kind, mine) for kind, mine in groups if mine.any()]
    # One point in time after another: all devices' batteries at all of them would not be few.
    levels = np.array(
        [
            [np.quantile(left[mine], (0.05, 0.5, 0.95)) for _, mine in groups]
            for left in battery_left(plan, when)
        ]
    )
    for k, (kind, mine) in enumerate(groups):
        low, middle, high = (few_digits(level, 3) for level in levels[:, k].T)
        band = {"kind": kind, "count": int(mine.sum()), "low": low, "middle": middle, "high": high}
        data["bands"].append(band)
    return data


def label_data(plan: Account, histogram: Histogram, class_names: Sequence[str]) -> dict[str, Any]:
    """Labels of some devices, and the names of the classes.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> data = label_data(made, lambda devices: np.tile([3, 1], (len(devices), 1)), ["cat", "dog"])
    >>> data["devices"][-1], data["counts"][-1], data["classes"], data["of"]
    (19, [3, 1], ['cat', 'dog'], 20)
    """
    count = len(plan.energy_budget_j)
    shown = labelled_devices(count)
    counts = histogram(shown)
    names = list(class_names) or [str(k) for k in range(counts.shape[1])]
    return {
        "devices": shown.tolist(),
        "counts": counts.tolist(),
        "classes": [str(name) for name in names],
        "of": count,
    }
