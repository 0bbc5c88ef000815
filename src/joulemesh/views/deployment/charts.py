"""The data behind the charts of a deployment, thinned to what a screen shows."""

from __future__ import annotations

__all__ = ["Curve", "chart_data", "event_words", "flow"]

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.history import Event, History, accuracies, presence
from joulemesh.deploy.record.receipt import KINDS, Costs
from joulemesh.views.charts import every, flow_data, gantt_data, metered_flow

if TYPE_CHECKING:
    from joulemesh.views.deployment.page import DeploymentView


def flow(view: DeploymentView) -> dict[str, Any]:
    """Where the joules went, by the meters of the devices whose journals there are."""
    receipt = view.receipt
    there = np.isfinite(receipt.spent_j)
    if not there.any():
        return {"title": "Where the planned joules go", **flow_data(view.plan, receipt.names)}
    uses = {
        "train": np.nansum(receipt.metered.train_j, axis=0),
        "exchange": np.nansum(receipt.metered.exchange_j, axis=0),
        "outside": np.maximum(receipt.outside_j, 0.0),
        "left": np.maximum(receipt.battery_j - receipt.spent_j, 0.0),
    }
    title = f"Where the joules went ({receipt.word})"
    return {"title": title, **metered_flow(uses, receipt.names, np.flatnonzero(there))}


FloatArray = NDArray[np.float64]

_MOST_POINTS = 500
_MOST_MARKS = 3000
_MOST_ROWS, _MOST_COLUMNS = 400, 500
_ABSENT = 65535
_WIDEST = 4.0  # times the planned figure; beyond, all have one colour
_UNMARKED = ("absent", "prepared", "view", "refused", "undelivered")
_WORDS = {
    "absent": "goes without {missed}",
    "cannot-give": "cannot pay to give {device} its parameters",
    "digest": "finds another plan for view {view}",
    "end": "ended",
    "fetched": "fetched the average of iteration {iteration} from {giver}",
    "gift": "took up the parameters of iteration {iteration} from {giver}",
    "infeasible": "finds no plan for view {view}",
    "left": "left",
    "lost": "has lost its folder, says {sender}: it had iteration {had}, and has {has}",
    "not-evaluated": "could not evaluate iteration {iteration}",
    "not-saved": "could not save",
    "not-trained": "could not train iteration {iteration}",
    "prepared": "ready to train with {trained_by}",
    "refused": "refused {sender}",
    "short": "cannot pay for the plan",
    "start": "started",
    "stopped": "stopped",
    "suspected": "suspects {device}",
    "undelivered": "could not deliver to {to}",
    "unheld": "finds nobody who stays with the fleet's parameters",
    "unsaved": "could not save",
}
_SAID = (
    "missed",
    "device",
    "giver",
    "had",
    "has",
    "iteration",
    "sender",
    "to",
    "trained_by",
    "view",
    "complete",
    "resumable",
    "count",
)


@dataclass(frozen=True, eq=False)
class Curve:
    """A simulated curve of accuracy."""

    source: str  # where it comes from, in words
    iteration: NDArray[np.int64]  # int64 [e]
    accuracy: FloatArray  # float64 [seeds, e]


def chart_data(view: DeploymentView, *, cells: bool = True) -> dict[str, Any]:
    """Everything that the page's script draws."""
    return {
        "names": list(view.receipt.names),
        "metered": {"joules": view.receipt.word, "seconds": "measured"},
        "learning": _learning(view),
        "timeline": _timeline(view),
        "costs": _costs(view),
        "bars": _bars(view),
        "cells": _cells(view) if cells else None,
        "links": _links(view),
        "gantt": gantt_data(view.plan),
        "flow": flow(view),
    }


def _short(values: NDArray[Any] | Sequence[float], digits: int = 5) -> list[float | None]:
    listed = np.asarray(values, dtype=np.float64).tolist()
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in listed]


# Learning ---------------------------------------------------------------------------------------


def _learning(view: DeploymentView) -> dict[str, Any]:
    iterations, values = accuracies(view.histories)
    inside = (iterations >= 1) & (iterations <= view.receipt.iterations)
    iterations, values = iterations[inside], values[inside]
    kept = every(len(iterations), _MOST_POINTS)
    iterations, values = iterations[kept], values[kept]
    measured = {
        "iteration": iterations.tolist(),
        "mean": _short(np.nanmean(values, axis=1) if len(values) else []),
        "low": _short(np.nanmin(values, axis=1) if len(values) else []),
        "high": _short(np.nanmax(values, axis=1) if len(values) else []),
        "count": np.isfinite(values).sum(axis=1).tolist(),
        **_axes(view.receipt.metered, iterations),
    }
    data: dict[str, Any] = {"measured": measured, "simulated": None}
    if view.curve is not None:
        inside = (view.curve.iteration >= 1) & (view.curve.iteration <= view.receipt.iterations)
        chosen = np.flatnonzero(inside)[every(int(inside.sum()), _MOST_POINTS)]
        when, rows = view.curve.iteration[chosen], view.curve.accuracy[:, chosen]
        data["simulated"] = {
            "source": view.curve.source,
            "iteration": when.tolist(),
            "mean": _short(rows.mean(axis=0)),
            "low": _short(rows.min(axis=0)),
            "high": _short(rows.max(axis=0)),
            **_axes(view.receipt.simulated, when),
        }
    return data


def _axes(costs: Costs, iterations: NDArray[np.int64]) -> dict[str, Any]:
    """Joules and seconds of the fleet after some iterations."""
    joules, seconds = _fleet(costs, np.arange(costs.rounds.shape[1]))
    return {
        "joules": _short(np.nancumsum(joules)[iterations - 1]),
        "seconds": _short(np.nancumsum(seconds)[iterations - 1]),
    }


def _fleet(costs: Costs, devices: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """float64 [n] each: joules of some devices together, and seconds of the slowest of them."""
    joules, seconds = costs.joules[:, devices], costs.seconds[:, devices]
    known = np.isfinite(seconds).any(axis=1)
    slowest = np.full(len(seconds), np.nan)
    if known.any():
        slowest[known] = np.nanmax(seconds[known], axis=1)
    return np.where(known, np.nansum(joules, axis=1), np.nan), slowest


# Joules and seconds -----------------------------------------------------------------------------


def _costs(view: DeploymentView) -> dict[str, Any]:
    """Cumulated joules and seconds of the devices whose journals there are, all three kinds."""
    receipt = view.receipt
    there = np.flatnonzero(np.isfinite(receipt.spent_j))
    when = np.unique(np.concatenate([[0], every(receipt.iterations, _MOST_POINTS) + 1]))
    data: dict[str, Any] = {"iteration": when.tolist(), "devices": len(there)}
    for kind in KINDS:
        for name, each in zip(
            ("joules", "seconds"), _fleet(getattr(receipt, kind), there), strict=True
        ):
            known = np.flatnonzero(np.isfinite(each))
            last = known[-1] + 1 if len(known) else 0
            total = np.concatenate([[0.0], np.nancumsum(each)])
            total[last + 1 :] = np.nan
            data.setdefault(name, {})[kind] = _short(total[when], 7)
    return data


def _bars(view: DeploymentView) -> dict[str, Any]:
    receipt = view.receipt
    data: dict[str, Any] = {"battery": _short(receipt.battery_j)}
    for name in ("joules", "seconds"):
        data[name] = {kind: _short(_sum(getattr(getattr(receipt, kind), name))) for kind in KINDS}
    data["joules"]["metered"] = _short(receipt.spent_j)
    return data


def _sum(values: FloatArray) -> FloatArray:
    """float64 [N]: sums over the iterations; NaN where nothing is known."""
    return np.where(np.isfinite(values).any(axis=0), np.nansum(values, axis=0), np.nan)


def _cells(view: DeploymentView) -> dict[str, Any]:
    """Heat maps of devices × iterations: metered figures, and their ratio to the planned ones."""
    receipt = view.receipt
    maps = {}
    for name in ("joules", "seconds"):
        of_meter, of_plan = getattr(receipt.metered, name), getattr(receipt.planned, name)
        figures = _thin(of_meter)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log2(figures / _thin(np.where(np.isnan(of_meter), np.nan, of_plan)))
        top = float(np.nanmax(figures)) if np.isfinite(figures).any() else 0.0
        maps[name] = {"cells": _packed(figures / top if top else figures), "top": top}
        width = math.log2(_WIDEST)
        ratio = np.where(np.isfinite(ratio), np.clip(ratio, -width, width), np.nan)
        maps[f"{name}-ratio"] = {"cells": _packed((ratio + width) / (2 * width)), "top": _WIDEST}
    shape = [min(len(receipt.names), _MOST_ROWS), min(receipt.iterations, _MOST_COLUMNS)]
    return {"shape": shape, "iterations": receipt.iterations, "maps": maps}


def _thin(values: FloatArray) -> FloatArray:
    """float64 [rows, columns]: means of what is known, devices in rows."""
    rows = np.array_split(np.arange(values.shape[1]), min(values.shape[1], _MOST_ROWS))
    columns = np.array_split(np.arange(len(values)), min(len(values), _MOST_COLUMNS))
    known = np.isfinite(values)
    sums, counts = (
        np.add.reduceat(
            np.add.reduceat(part, [one[0] for one in columns], axis=0),
            [one[0] for one in rows],
            axis=1,
        ).T
        for part in (np.where(known, values, 0.0), known.astype(np.float64))
    )
    means = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=means, where=counts > 0)
    return means


def _packed(levels: FloatArray) -> str:
    known = np.isfinite(levels)
    cells = np.where(known, np.rint(np.where(known, levels, 0) * (_ABSENT - 1)), _ABSENT)
    return base64.b64encode(cells.astype("<u2").tobytes()).decode("ascii")


# Time line and links ----------------------------------------------------------------------------


def _timeline(view: DeploymentView) -> dict[str, Any]:
    """When each node was up, and what it noted, in seconds since the first start."""
    begins = [one.first_at for one in view.histories if math.isfinite(one.first_at)]
    begin = min(begins, default=0.0)
    ends = [one.last_at for one in view.histories if math.isfinite(one.last_at)]
    noted = [event for one in view.histories for event in one.events if _marked(event)]
    shown = [noted[k] for k in every(len(noted), _MOST_MARKS)] if noted else []
    return {
        "begin": begin,
        "span": max(max(ends, default=0.0) - begin, 1e-3),
        "up": [
            [[round(a - begin, 3), round(b - begin, 3)] for a, b in presence(one)]
            for one in view.histories
        ],
        "marks": [
            [event.device, round(event.at - begin, 3), event.kind, event_words(event, view.names)]
            for event in shown
        ],
        "noted": len(noted),
        "views": [
            {
                "number": seen.view.number,
                "at": round(seen.first_at - begin, 3),
                "start": seen.view.start,
                "members": len(seen.view.members),
            }
            for seen in view.views
        ],
    }


def _marked(event: Event) -> bool:
    first = event.kind == "start" and event.figures.get("incarnation", 2) == 1
    return event.kind not in _UNMARKED and not first


def event_words(event: Event, names: Sequence[str]) -> str:
    """An event in words, with devices by their names."""
    said = dict(event.figures)
    for key in ("device", "giver", "sender", "to"):
        number = said.get(key)
        if isinstance(number, int) and 0 <= number < len(names):
            said[key] = names[number]
    if event.kind == "absent":
        said["missed"] = _missed(said.get("missed"), names)
    try:
        head = _WORDS.get(event.kind, event.kind).format(**said)
    except (KeyError, IndexError):
        head = event.kind
    if event.kind == "start":
        again = said.get("incarnation", 1)
        return f"started (number {again}) after iteration {said.get('iteration', 0)}"
    detail = said.pop("reason", "")
    known = _SAID if event.kind in _WORDS else ()
    if not detail:
        detail = ", ".join(f"{key} {value}" for key, value in said.items() if key not in known)
    return f"{head}: {detail}" if detail else head


def _missed(pairs: Any, names: Sequence[str]) -> str:
    """The devices among (step, sender)s, by their names."""
    try:
        senders = dict.fromkeys(names[int(sender)] for _, sender in pairs)
    except (IndexError, TypeError, ValueError):
        return "others"
    return ", ".join(senders)


def _links(view: DeploymentView) -> list[dict[str, Any]]:
    return [
        {
            "from": one.sender,
            "to": one.receiver,
            "planned": None if one.planned_bps is None else float(f"{one.planned_bps:.5g}"),
            "measured": float(f"{one.sent.rate_bps:.5g}"),
            "bytes": one.sent.payload_bytes,
            "messages": one.sent.messages,
        }
        for one in view.links
        if one.sent.rate_bps is not None
    ]


def elapsed(histories: Sequence[History]) -> float:
    """Seconds from the first line of any journal to the last."""
    begins = [one.first_at for one in histories if math.isfinite(one.first_at)]
    ends = [one.last_at for one in histories if math.isfinite(one.last_at)]
    return max(ends) - min(begins) if begins else 0.0
