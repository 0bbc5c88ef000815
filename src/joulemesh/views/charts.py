"""The data behind a report's charts, thinned to what a screen shows, as plain JSON values."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.plan import Plan
from joulemesh.views.digest import (
    BINDING_KINDS,
    BINDING_WORDS,
    battery_left,
    departed,
    every,
    frame_m,
    link_energy_j,
    rounds_grid,
    route_words,
)

__all__ = ["battery_data", "chart_data", "label_data", "map_data", "rounds_data", "series_data"]

_MOST_ROWS, _MOST_COLUMNS = 400, 500
_MOST_LINES, _MOST_POINTS = 200, 200
_MOST_BARS = 200
_MOST_DOTS, _MOST_LINKS = 600, 2500
_ABSENT = 65535
_PIXELS = 960


def chart_data(
    plan: Plan,
    series: Mapping[str, NDArray[Any]],
    histograms: NDArray[np.integer[Any]] | None,
    class_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that the page's script draws.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
    >>> sorted(chart_data(made, {}, None))
    ['battery', 'kinds', 'labels', 'map', 'rounds', 'series']
    """
    return {
        "kinds": BINDING_WORDS,
        "series": series_data(series),
        "map": map_data(plan),
        "rounds": rounds_data(plan),
        "battery": battery_data(plan),
        "labels": None if histograms is None else label_data(histograms, class_names),
    }


def _short(values: NDArray[Any], digits: int = 5) -> Any:
    """Nested lists of figures with few digits; what is not finite becomes null."""
    if values.ndim > 1:
        return [_short(row, digits) for row in values]
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]


def series_data(series: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Each series as its mean over seeds, and its range where seeds differ.

    >>> series_data({"iteration": np.array([1, 2]), "accuracy": np.array([[0.5, 0.7], [0.7, 0.7]])})
    {'iteration': {'mean': [1.0, 2.0]},
     'accuracy': {'mean': [0.6, 0.7], 'low': [0.5, 0.7], 'high': [0.7, 0.7]}}
    """
    data: dict[str, Any] = {}
    for name, values in series.items():
        rows = np.atleast_2d(np.asarray(values, np.float64))
        data[name] = {"mean": _short(rows.mean(axis=0))}
        if len(rows) > 1:
            data[name]["low"] = _short(rows.min(axis=0))
            data[name]["high"] = _short(rows.max(axis=0))
    return data


def map_data(plan: Plan) -> dict[str, Any]:
    """Devices, links and route; a picture of them when there are too many to point at."""
    graph, energy = plan.world.graph, link_energy_j(plan)
    data: dict[str, Any] = {
        "frame": _short(np.array(frame_m(plan)), 6),
        "energy": _short(np.array([energy.min(), energy.max()])),
        "words": route_words(plan),
        "devices": graph.devices,
        "count": len(graph.edges),
        "root": plan.history.route.root,
        "bound": [kind for kind in BINDING_KINDS if (plan.binding == kind).any()],
        "picture": None,
    }
    if graph.devices > _MOST_DOTS:
        from joulemesh.views.figures import map_image  # needs matplotlib, which takes a second

        picture = base64.b64encode(map_image(plan, _PIXELS)).decode("ascii")
        return {**data, "picture": f"data:image/png;base64,{picture}"}
    route = np.unique(plan.history.route.link_index)
    other = np.setdiff1d(np.arange(len(graph.edges)), route)
    other = other[every(len(other), _MOST_LINKS)]
    route = route[every(len(route), _MOST_LINKS)]
    for name, links in (("route", route), ("links", other)):
        data[name] = {"ends": graph.edges[links].tolist(), "energy": _short(energy[links], 4)}
    data["at"] = _short(graph.positions_m, 5)
    data["binding"] = plan.binding.tolist()
    data["departed"] = departed(plan).tolist()
    data["battery"] = _short(plan.energy_budget_j, 4)
    data["spent"] = _short(plan.spent_j, 4)
    data["rounds"] = plan.rounds.sum(axis=0).tolist()
    return data


def rounds_data(plan: Plan) -> dict[str, Any]:
    """The rounds as 16-bit cells in base64: value = cell × scale, 65535 where nobody takes part.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
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
    when, left = battery_left(plan, _MOST_POINTS if few else _MOST_POINTS // 2)
    data: dict[str, Any] = {"when": when.tolist(), "lines": [], "bands": []}
    if few:
        data["lines"] = [
            {"device": i, "kind": str(plan.binding[i]), "left": _short(left[:, i], 3)}
            for i in range(left.shape[1])
        ]
        return data
    for kind in BINDING_KINDS:
        mine = plan.binding == kind
        if mine.any():
            low, middle, high = np.quantile(left[:, mine], (0.05, 0.5, 0.95), axis=1)
            data["bands"].append(
                {
                    "kind": kind,
                    "count": int(mine.sum()),
                    "low": _short(low, 3),
                    "middle": _short(middle, 3),
                    "high": _short(high, 3),
                }
            )
    return data


def label_data(histograms: NDArray[np.integer[Any]], class_names: Sequence[str]) -> dict[str, Any]:
    """Labels of some devices, and the names of the classes.

    >>> label_data(np.array([[1, 2], [3, 0]]), ["cat", "dog"])
    {'devices': [0, 1], 'counts': [[1, 2], [3, 0]], 'classes': ['cat', 'dog'], 'of': 2}
    """
    shown = every(len(histograms), _MOST_BARS)
    names = list(class_names) or [str(k) for k in range(histograms.shape[1])]
    return {
        "devices": shown.tolist(),
        "counts": histograms[shown].tolist(),
        "classes": [str(name) for name in names],
        "of": len(histograms),
    }
