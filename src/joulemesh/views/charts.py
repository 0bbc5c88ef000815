"""Data of charts, thinned to what a screen or a page shows; no drawing."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data.partition import labelled_devices
from joulemesh.ledger import paced_j, total_of
from joulemesh.metrics import Metric, Reported, further_of, reported, score_metric
from joulemesh.planning.gantt import Draft, Gantt
from joulemesh.planning.plan import Account, Plan

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

BINDING_KINDS = ("energy", "deadline", "time", "idle", "policy", "left")
BINDING_WORDS = {
    "energy": "battery binds",
    "deadline": "deadline binds",
    "time": "total time binds",
    "idle": "waiting binds",
    "policy": "policy binds",
    "left": "left early",
}

_LONGEST_NAME = 14
_MOST_DRAWN = 10_000  # more cannot be told apart


def device_labels(plan: Account) -> list[str] | None:
    """The devices' names for matplotlib, long ones cut; None without any."""
    if not plan.names:
        return None
    short = (shorten(name, _LONGEST_NAME, placeholder="…") or "…" for name in plan.names)
    return [name.replace("$", r"\$") for name in short]  # it would begin a formula


@dataclass(frozen=True, eq=False)
class Grid:
    """Rounds as a picture of few rows and columns."""

    # float64 [rows, columns]: mean rounds of the devices that take part; NaN where nobody does
    values: FloatArray
    devices: int  # number of devices N behind the rows
    iterations: int  # number n of iterations behind the columns
    sorted: bool  # True when devices are sorted by their mean rounds (several share a row)


def every(count: int, most: int) -> IntArray:
    """Positions of at most ``most`` of ``count`` things, evenly spread, first and last included."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.rint(np.linspace(0, count - 1, most)).astype(np.int64))


def few_digits(values: NDArray[Any], digits: int = 5) -> Any:
    """Nested lists of figures with few digits; what is not finite becomes None."""
    if values.ndim > 1:
        return [few_digits(row, digits) for row in values]
    return [float(f"{v:.{digits}g}") if np.isfinite(v) else None for v in values.tolist()]


def frame_m(plan: Plan) -> tuple[float, float, float, float]:
    """Left, right, bottom and top of the map: a square round all devices, in metres."""
    positions = plan.world.graph.positions_m
    low, high = positions.min(axis=0), positions.max(axis=0)
    half = 0.54 * max(float((high - low).max()), 1.0)
    x, y = ((low + high) / 2).tolist()
    return x - half, x + half, y - half, y + half


def drawn(count: int) -> IntArray:
    """Positions of the links or devices that a map draws: all, or some of very many."""
    return every(count, _MOST_DRAWN)


def link_energy_j(plan: Plan, links: IntArray) -> FloatArray:
    """Joules charged when one model crosses a link in both directions."""
    payers = 2.0 if plan.scenario.plan.pays == "both-ends" else 1.0
    bits = plan.work.model_bits
    return plan.ground.forecast_at(0, links).for_messages(bits).weight() * bits * payers


def departed(plan: Plan) -> NDArray[np.bool_]:
    """bool [N]: who has left before the end."""
    return np.asarray(~plan.active[-1])


def route_words(plan: Plan) -> str:
    """What the drawn route is, in a few words."""
    if plan.world.channel.fading:
        return f"{plan.scheme} as forecast"
    changes = plan.timeline.routes is not None or not plan.active.all()
    if plan.timeline.scheme.random or changes:
        return f"{plan.scheme} of iteration 1"
    return plan.scheme


def rounds_grid(plan: Account, rows: int, columns: int) -> Grid:
    """The rounds τ[t, i] on at most ``rows`` × ``columns`` cells, a device (or several) a row."""
    iterations, devices = plan.rounds.shape
    crowded = devices > rows
    order = np.arange(devices)
    if crowded:
        lived = np.maximum(plan.active.sum(axis=0), 1)
        order = np.argsort(plan.rounds.sum(axis=0) / lived, kind="stable")
    row_of = np.empty(devices, np.int64)
    row_of[order] = np.arange(devices) * min(rows, devices) // devices
    starts = np.linspace(0, iterations, min(columns, iterations) + 1).astype(np.int64)
    height, width = min(rows, devices), len(starts) - 1
    values = np.full((height, width), np.nan)
    # Column by column, so that a plan of 100,000 devices needs no second copy of its rounds.
    for column in range(width):
        part = slice(starts[column], starts[column + 1])
        total = np.bincount(row_of, plan.rounds[part].sum(axis=0), height)
        present = np.bincount(row_of, plan.active[part].sum(axis=0), height)
        np.divide(total, present, out=values[:, column], where=present > 0)
    return Grid(values, devices, iterations, crowded)


def battery_left(plan: Plan, when: IntArray) -> Iterator[FloatArray]:
    """What is left of each battery after some of the iterations."""
    spent = np.zeros(len(plan.energy_budget_j))
    devices, window_s = plan.world.devices, plan.timeline.window_s
    alike = len(plan.exchange_j) == 1
    since = 0
    for until in when.tolist():
        rounds = plan.rounds[since:until]
        if window_s is None:
            spent = spent + rounds.sum(axis=0) * devices.round_energy_j
        else:
            spent = spent + paced_j(devices, rounds, window_s[since:until]).sum(axis=0)
        if alike:
            spent = spent + (until - since) * plan.exchange_j[0]
        else:
            spent = spent + plan.exchange_j[since:until].sum(axis=0)
        if plan.world.devices.idle_w is not None:
            spent = spent + sum(plan.idle_j(row) for row in range(since, until))
        spent = spent - total_of(plan.timeline.exchange.harvested_j[since:until])
        since = until
        yield 1.0 - spent / plan.energy_budget_j


_MOST_BARS = 3_000
_MOST_LANES = 60


def gantt_data(plan: Plan) -> list[dict[str, Any]]:
    """What ``gantt.js`` draws: the first iteration that exchanges, and the longest."""
    exchanging = np.flatnonzero(plan.exchanged)
    first = int(exchanging[0]) if len(exchanging) else 0
    seconds = plan.planned.latency_s
    longest = int(np.argmax(seconds))
    rows = [first] if seconds[longest] <= seconds[first] * (1 + 1e-9) else [first, longest]
    titles = [f"iteration {first + 1}", f"iteration {longest + 1} (the longest)"]
    return [
        {"title": title, **chart}
        for title, row in zip(titles, rows, strict=False)
        if (chart := iteration_data(plan, row + 1)) is not None
    ]


def iteration_data(plan: Plan, iteration: int, most: int = _MOST_BARS) -> dict[str, Any] | None:
    """One iteration (1..n) with few bars; None where it sends too many messages."""
    if not 1 <= iteration <= plan.iterations:
        raise ScenarioError(f"iteration {iteration} is not one of 1..{plan.iterations}")
    try:
        draft = _draft(plan, iteration, most)
    except ScenarioError:  # of very many messages no time line is drawn
        return None
    shown = _last(draft, most)
    chart = draft.gantt(shown)
    bars = tuple(bar for bar in chart.bars if bar.kind != "rest")
    return {**_short(replace(chart, bars=bars[:most], names=())), "shown": shown}


def _draft(plan: Plan, iteration: int, most: int) -> Draft:
    route = plan.route(iteration)
    crowded = route is not None and 2 * route.count > most
    return Draft(plan, iteration, merged=crowded)


def _last(draft: Draft, most: int) -> list[int]:
    devices, bars = len(draft.counts), int(draft.counts.sum()) + len(draft.resting)
    if devices <= _MOST_LANES and bars <= most:
        return list(range(devices))
    order = np.argsort(-draft.until_s, kind="stable")
    order = order[draft.counts[order] > 0]
    fitting = max(1, int(np.searchsorted(np.cumsum(draft.counts[order]), most, side="right")))
    return sorted(order[: min(_MOST_LANES, fitting)].tolist())


def _short(chart: Gantt) -> dict[str, Any]:
    data = chart.to_dict()
    for bar in data["bars"]:
        for name in ("ready_s", "start_s", "end_s", "joules"):
            bar[name] = float(f"{bar[name]:.9g}")
    return data


MOST_DOTS = 2_000
"""Devices that are drawn one by one; more are summarised in cells."""

_MOST_LINKS = 4_000  # beside the route's; more cannot be told apart
_ACROSS = 14  # cells along each side of the map
_MOST_JOINTS = 1_200  # pairs of cells that are joined


def map_data(plan: Plan) -> dict[str, Any]:
    """What ``map.js`` draws: places, links and what they cost, the route, and what binds whom."""
    graph, used = plan.world.graph, np.unique(plan.timeline.route.link_index)
    energy = link_energy_j(plan, drawn(len(graph.edges)))
    data: dict[str, Any] = {
        "frame": few_digits(np.array(frame_m(plan)), 6),
        "energy": few_digits(np.array([energy.min(), energy.max()])),
        "words": route_words(plan),
        "devices": graph.devices,
        "count": len(graph.edges),
        "used": len(used),
        "root": plan.timeline.route.root,
        "bound": [kind for kind in BINDING_KINDS if (plan.binding == kind).any()],
    }
    return data | (_cells(plan, used) if graph.devices > MOST_DOTS else _dots(plan, used))


def _dots(plan: Plan, used: IntArray) -> dict[str, Any]:
    edges = plan.world.graph.edges
    other = np.setdiff1d(np.arange(len(edges)), used)
    other = other[every(len(other), _MOST_LINKS)]
    used = used[every(len(used), _MOST_LINKS)]
    return {
        **{
            name: {
                "ends": edges[links].tolist(),
                "energy": few_digits(link_energy_j(plan, links), 4),
            }
            for name, links in (("route", used), ("links", other))
        },
        "drawn": [["links", len(used) + len(other), len(edges)]],
        "at": few_digits(plan.world.graph.positions_m, 5),
        "binding": plan.binding.tolist(),
        "departed": departed(plan).tolist(),
        "battery": few_digits(plan.supplied_j, 4),
        "spent": few_digits(plan.spent_j, 4),
        "rounds": plan.rounds.sum(axis=0).tolist(),
    }


def _cells(plan: Plan, used: IntArray) -> dict[str, Any]:
    graph, at = plan.world.graph, plan.world.graph.positions_m
    corner, size = at.min(axis=0), max(float(np.ptp(at, axis=0).max()), 1e-9)
    square = np.clip(((at - corner) / size * _ACROSS).astype(int), 0, _ACROSS - 1)
    there, cell = np.unique(square @ [_ACROSS, 1], return_inverse=True)
    count = np.bincount(cell)
    middle = np.stack([np.bincount(cell, along) / count for along in at.T], axis=1)
    spent = np.bincount(cell, plan.spent_j) / np.bincount(cell, plan.supplied_j)
    kinds = {
        kind: np.bincount(cell[plan.binding == kind], minlength=len(there))
        for kind in BINDING_KINDS
    }
    joints = _joints(cell.astype(np.int32)[graph.edges], used, len(there))
    return {
        "across": _ACROSS,
        "cells": [
            {
                "x": x,
                "y": y,
                "count": int(count[k]),
                "spent": share,
                "binding": {kind: int(of[k]) for kind, of in kinds.items() if of[k]},
            }
            for k, ((x, y), share) in enumerate(
                zip(few_digits(middle), few_digits(spent, 3), strict=True)
            )
        ],
        "joints": joints,
        "drawn": [],
    }


def _joints(ends: NDArray[np.int32], used: IntArray, cells: int) -> list[dict[str, Any]]:
    """Pairs of cells that links join; of very many, those that carry most of the route."""
    joined = ends.min(axis=1) * cells + ends.max(axis=1)
    pair, links = np.unique(joined, return_counts=True)
    route = np.bincount(np.searchsorted(pair, joined[used]), minlength=len(pair))
    apart = np.flatnonzero(pair // cells != pair % cells)
    most = apart[np.lexsort((-links[apart], -route[apart]))][:_MOST_JOINTS]
    return [
        {
            "ends": [int(pair[k] // cells), int(pair[k] % cells)],
            "links": int(links[k]),
            "route": int(route[k]),
        }
        for k in most.tolist()
    ]


_NAMED = 24  # devices that have a battery of their own in the flow
_MOST_POINTS = 200

_USES = {
    "train": "training",
    "send": "sending",
    "receive": "receiving",
    "rest": "waiting, at rest",
    "exchange": "exchange, rest",
    "outside": "repeated work",
    "left": "left over",
    "spilled": "spilled: no room",
}


def flow_data(account: Account, names: Sequence[str] = ()) -> dict[str, Any]:
    """What ``flow.js`` draws: joules from every battery to all that they went on."""
    spilled = account.spilled_total_j if isinstance(account, Plan) else np.zeros(1)
    stored = account.supplied_j - account.energy_budget_j
    columns = {
        "train": account.compute_total_j,
        "send": account.transmit_total_j,
        "receive": account.receive_total_j,
        "rest": account.idle_total_j,
        "left": np.maximum(account.margin_j, 0.0),
        "spilled": np.broadcast_to(spilled, stored.shape),
    }
    kept = {key: joules for key, joules in columns.items() if (joules > 0).any()}
    groups = _groups(account, names or account.names)
    table = np.stack(list(kept.values()))
    return {
        "uses": [{"key": key, "text": _USES[key]} for key in kept],
        "sources": [
            {"name": name, "joules": few_digits(table[:, who].sum(axis=1), 6)}
            for name, who in groups
        ],
        "gained": few_digits(
            np.array([(stored + columns["spilled"])[who].sum() for _, who in groups]), 6
        ),
    }


def _groups(account: Account, names: Sequence[str]) -> Sequence[tuple[str, NDArray[Any]]]:
    count = len(account.energy_budget_j)
    if count <= _NAMED:
        names = names or [f"device {device}" for device in range(count)]
        return [(str(name), np.array([device])) for device, name in enumerate(names)]
    if not isinstance(account, Plan):
        return [(f"{count:,} devices", np.arange(count))]
    binding = account.binding
    return [
        (f"{int((binding == kind).sum()):,} devices: {BINDING_WORDS[kind]}", binding == kind)
        for kind in BINDING_KINDS
        if (binding == kind).any()
    ]


def method_flow(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The same for methods that are compared, from the rows of their table; None without any."""
    names = {"train": "compute", "send": "transmit", "receive": "receive"}
    names |= {"rest": "idle", "left": "leftover"}
    ran = [row for row in rows if row["iterations"] is not None]
    table = {
        key: [max(0.0, float(row[f"{name}_j"] or 0.0)) for row in ran]
        for key, name in names.items()
    }
    kept = [key for key, joules in table.items() if any(joules)]
    if not kept:
        return None
    return {
        "uses": [{"key": key, "text": _USES[key]} for key in kept],
        "sources": [
            {"name": str(row["method"]), "joules": [table[key][k] for key in kept]}
            for k, row in enumerate(ran)
        ],
    }


def metered_flow(
    uses: Mapping[str, FloatArray], names: Sequence[str], who: NDArray[np.int64]
) -> dict[str, Any]:
    """The same for devices that have told what they spent."""
    kept = {key: joules for key, joules in uses.items() if (joules[who] > 0).any()}
    groups = [(names[device], np.array([device])) for device in who.tolist()]
    if len(who) > _NAMED:
        groups = [(f"{len(who):,} devices", who)]
    table = np.stack(list(kept.values()))
    return {
        "uses": [{"key": key, "text": _USES[key]} for key in kept],
        "sources": [
            {"name": name, "joules": few_digits(table[:, some].sum(axis=1), 6)}
            for name, some in groups
        ],
    }


def harvest_data(plan: Plan) -> dict[str, Any] | None:
    """What all batteries gained and spent up to each iteration; None where nothing is harvested."""
    if not plan.harvests:
        return None
    when = every(plan.iterations + 1, _MOST_POINTS)
    gained = plan.harvested_j.sum(axis=1) - plan.spilled_j.sum(axis=1)
    so_far = {"stored": gained, "spilled": plan.spilled_j.sum(axis=1), "spent": plan.iteration_j}
    return {
        "when": when.tolist(),
        **{
            name: few_digits(np.concatenate([[0.0], np.cumsum(joules)])[when])
            for name, joules in so_far.items()
        },
    }


Histogram: TypeAlias = Callable[[NDArray[np.int64]], NDArray[np.integer[Any]]]

_GRID_ROWS, _GRID_COLUMNS = 400, 500
_MOST_LINES = 200
_ABSENT = 65535


def chart_data(
    plan: Account,
    series: Mapping[str, NDArray[Any]],
    histogram: Histogram | None,
    class_names: Sequence[str] = (),
) -> dict[str, Any]:
    """Everything that the page's script draws; without a plan there is no route and no binding."""
    names = {"names": plan.names} if 0 < len(plan.names) <= MOST_DOTS else {}
    return {
        **names,
        "kinds": BINDING_WORDS,
        "learning": learning(series, reported(plan.scenario.training)) if series else None,
        "rounds": rounds_data(plan),
        "battery": battery_data(plan) if isinstance(plan, Plan) else None,
        "labels": None if histogram is None else label_data(plan, histogram, class_names),
        "harvest": harvest_data(plan) if isinstance(plan, Plan) else None,
        "gantt": gantt_data(plan) if isinstance(plan, Plan) else [],
        "flow": flow_data(plan),
        "map": map_data(plan) if isinstance(plan, Plan) else None,
    }


# Curves -----------------------------------------------------------------------------------------

ACROSS = (
    {"key": "iterations", "short": "iterations", "name": "iteration", "unit": ""},
    {
        "key": "joules",
        "short": "joules",
        "name": "energy spent by all devices",
        "unit": "J",
    },
    {"key": "seconds", "short": "seconds", "name": "simulated time", "unit": "s"},
)
"""What curves of a run can be drawn against."""
_AXES = {"iterations": "iteration", "joules": "energy_j", "seconds": "time_s"}
_AGREE = 2e-5


def curves(
    points: Sequence[Mapping[str, Any]],
    along: Sequence[Mapping[str, Any]],
    across: Sequence[Mapping[str, Any]] = ACROSS,
    **more: Any,
) -> dict[str, Any]:
    """A chart of curves, as a page's script and a notebook draw it.

    Args:
        points: places on every axis, one list for each of ``across``.
        along: what can be drawn: ``key``, ``short`` (of a button), ``name`` (of the axis),
            ``lines`` (see `line`), and perhaps ``share``, ``unit``, ``zero``, ``log``, ``notes``
            and ``target``.
        across: what it can be drawn against; the first is drawn first.
        more: ``x`` (the key of another one that is drawn first), ``hides`` (can lines be hidden?)
            and ``intervals`` (are bands intervals of a mean?).
    """
    return {"across": list(across), "points": list(points), "along": list(along), **more}


def line(
    key: str,
    text: str,
    ink: str,
    mean: Any = None,
    *,
    low: Any = None,
    high: Any = None,
    points: int = 0,
    **more: Any,
) -> dict[str, Any]:
    """A curve, or without a mean a band; ``ink`` is a colour of the page's style."""
    made = {"key": key, "text": text, "ink": ink, "points": points, **more}
    given = {"mean": mean, "low": low, "high": high}
    return made | {name: values for name, values in given.items() if values is not None}


def learning(series: Mapping[str, NDArray[Any]], measured: Reported) -> dict[str, Any]:
    """The score, the loss, the consensus error and further metrics of a run."""
    found = {name: _over_seeds(values) for name, values in series.items()}
    metric = score_metric(measured.score)
    along = [_of_metric(found, metric, "score")]
    if metric.name != "loss":
        along.append(
            {
                "key": "loss",
                "short": "loss",
                "name": "loss of the mean model",
                "log": True,
                "lines": _present(
                    found, ("test_loss", "test", "a", ""), ("train_loss", "training", "b", "7 5")
                ),
            }
        )
    along.append(
        {
            "key": "consensus",
            "short": "consensus error",
            "name": "relative consensus error",
            "log": True,
            "lines": _present(
                found,
                ("consensus", "after the exchange", "a", ""),
                ("drift", "before the exchange", "b", "7 5"),
            ),
        }
    )
    along += [_of_metric(found, one, one.name) for one in further_of(*measured)]
    for one in along:
        one["notes"] = list(_notes(found, one["lines"]))
    points = {key: found[name]["mean"] for key, name in _AXES.items()}
    return curves([points], along)


def _over_seeds(values: NDArray[Any]) -> dict[str, Any]:
    """A series as its mean over seeds, and its range where there are several."""
    rows = np.atleast_2d(np.asarray(values, np.float64))
    data = {"mean": few_digits(rows.mean(axis=0))}
    if len(rows) > 1:
        data |= {"low": few_digits(rows.min(axis=0)), "high": few_digits(rows.max(axis=0))}
    return data


def _present(found: Mapping[str, Any], *lines: tuple[str, str, str, str]) -> list[dict[str, Any]]:
    return [
        line(
            name,
            text,
            ink,
            **found[name],
            legend=text + _samples(found, name),
            dash=dash,
            among="seeds",
        )
        for name, text, ink, dash in lines
        if name in found
    ]


def _of_metric(found: Mapping[str, Any], metric: Metric, key: str) -> dict[str, Any]:
    mean, own = f"test_{metric.name}", f"device_{metric.name}_mean"
    least, most = (f"device_{metric.name}_{end}" for end in ("min", "max"))
    together = metric.devices and _agree(found, mean, own, least, most)
    text = "mean model and every device’s own, which are the same" if together else "mean model"
    lines = _present(found, (mean, text, "a", ""))
    if not together:
        lines += _present(found, (own, "devices’ own models, mean", "b", "7 5"))
        if metric.devices and least in found and most in found:
            words = "worst to best" if key == "score" else "smallest to largest"
            low, high = found[least], found[most]
            ends = {"low": low.get("low", low["mean"]), "high": high.get("high", high["mean"])}
            lines.append(line("range", f"devices, {words}", "b", **ends))
    name = f"test {metric.label}"
    return {"key": key, "short": metric.label, "name": name, "share": metric.share, "lines": lines}


def _agree(found: Mapping[str, Any], mean: str, own: str, *ends: str) -> bool:
    if not {mean, own, *ends} <= set(found):
        return False

    def alike(one: Any, other: Any) -> bool:
        if one is None or other is None:
            return one is other
        pairs = zip(one, other, strict=True)
        return all(a == b or (None not in (a, b) and abs(a - b) < _AGREE) for a, b in pairs)

    each = all(alike(found[own].get(k), found[mean].get(k)) for k in ("mean", "low", "high"))
    return each and all(alike(found[end]["mean"], found[mean]["mean"]) for end in ends)


def _counts(found: Mapping[str, Any], name: str) -> list[int]:
    """On how many samples evaluations were made; empty where that is not known."""
    kind = name.partition("_")[0]
    counts = found.get(f"{kind}_samples", {}).get("mean", ())
    return [round(count) for count in counts if count]


def _samples(found: Mapping[str, Any], name: str) -> str:
    own = _counts(found, name)
    if not own or name in ("consensus", "drift"):
        return ""
    if not name.startswith("device"):
        return f" ({own[0]:,} {'training' if name.startswith('train') else 'test'} samples)"
    if own == _counts(found, "test"):
        return " (the same samples)"
    return f" (compared with the mean model on {min(own):,} of these samples)"


def _notes(found: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    counts = [_counts(found, one["key"]) for one in lines if one["key"] != "range"]
    if any(own and own[-1] != own[0] for own in counts):
        yield f"the last point: all {_counts(found, 'test')[-1]:,} test samples"
    if any("low" in one and "mean" in one for one in lines):
        yield "lines: mean of the seeds; bands around them: their range"


def rounds_data(plan: Account) -> dict[str, Any]:
    """The rounds as 16-bit cells in base64: value = cell × scale, 65535 where nobody takes part."""
    grid = rounds_grid(plan, _GRID_ROWS, _GRID_COLUMNS)
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
    """Labels of some devices, and the names of the classes."""
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
