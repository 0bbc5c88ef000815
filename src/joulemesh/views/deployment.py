"""A deployment: what its journals tell, as charts, tables and a page."""

from __future__ import annotations

import base64
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.units import column, duration, energy, si
from joulemesh.deploy.record.history import (
    Event,
    History,
    LinkRate,
    Seen,
    accuracies,
    disagreements,
    link_rates,
    presence,
    views_of,
)
from joulemesh.deploy.record.receipt import KINDS, Costs, Receipt
from joulemesh.planning.plan import Plan
from joulemesh.views import words
from joulemesh.views.charts import (
    ACROSS,
    curves,
    every,
    few_digits,
    flow_data,
    gantt_data,
    line,
    metered_flow,
)
from joulemesh.views.page import render_page
from joulemesh.views.report import Tile, provenance
from joulemesh.views.table import NONE, Column, Table
from joulemesh.views.words import Subject, few_names, percent

FloatArray = NDArray[np.float64]

CHARTS = (
    *("lines.js", "rounds.js", "timeline.js", "gantt.js", "flow.js"),
    "deployment.js",
)
_MOST_POINTS = 500
_MOST_MARKS = 3000
_MOST_ROWS, _MOST_COLUMNS = 400, 500
_MOST_LISTED, _FIRST_ROWS = 200, 12
_ABSENT = 65535
_VISIBLE = 5e-4  # of accuracy; a band that is thinner cannot be seen
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


@dataclass(frozen=True, eq=False)
class DeploymentView:
    """Everything that the page shows."""

    plan: Plan  # the plan that was deployed
    receipt: Receipt  # its costs, three times
    # of every device, in the order of the receipt; empty ones without a journal
    histories: Sequence[History]
    views: Sequence[Seen] = ()  # those that were installed after the plan's own
    links: Sequence[LinkRate] = ()  # every direction of a link that carried something
    curve: Curve | None = None  # the simulated curve of accuracy, or None
    subject: Subject = field(default_factory=Subject)  # the fleet's name and the date
    versions: Mapping[str, str] = field(default_factory=dict)  # software and hardware, name by name
    notes: Sequence[str] = ()  # what a reader should know, one line each
    together: bool = False  # were all devices processes of one machine, without links between them?

    @classmethod
    def of(
        cls,
        plan: Plan,
        receipt: Receipt,
        histories: Sequence[History],
        *,
        curve: Curve | None = None,
        subject: Subject | None = None,
        versions: Mapping[str, str] | None = None,
        notes: Sequence[str] = (),
        together: bool = False,
    ) -> DeploymentView:
        """The view of what journals tell; views and links are taken from them."""
        silent = [one.name for one in histories if not one.events and not len(one.iterations)]
        damaged = sum(one.damaged for one in histories)
        found = [f"DISAGREEMENT: {line}" for line in disagreements(histories)]
        if silent:
            found.append(f"No journal of {few_names(silent)}: not in any sum below.")
        if damaged:
            found.append(f"Lines of journals that could not be read and are left out: {damaged:,}.")
        return cls(
            plan,
            receipt,
            histories,
            views_of(histories),
            link_rates(plan, histories),
            curve,
            subject or Subject(),
            versions or {},
            (*found, *notes),
            together,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return self.receipt.names


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


# Curves -----------------------------------------------------------------------------------------

_TIME = {"name": "seconds of the iterations"}
_LOOKS = {"planned": "2 5", "simulated": "8 5", "metered": ""}


def _learning(view: DeploymentView) -> dict[str, Any] | None:
    """Accuracy as the devices measured it, and as it was simulated; None without either."""
    lines, points = [], []
    if view.curve is not None:
        inside = (view.curve.iteration >= 1) & (view.curve.iteration <= view.receipt.iterations)
        shown = np.flatnonzero(inside)[every(int(inside.sum()), _MOST_POINTS)]
        points.append(_axes(view.receipt.simulated, view.curve.iteration[shown]))
        rows = view.curve.accuracy[:, shown]
        many = {"among": "seeds", "band": "range of the seeds"} if len(rows) > 1 else {}
        said = f"simulated ({view.curve.source})"
        lines.append(_spread("simulated", said, rows, many, dash="8 5"))
    iterations, values = accuracies(view.histories)
    inside = (iterations >= 1) & (iterations <= view.receipt.iterations)
    shown = np.flatnonzero(inside)[every(int(inside.sum()), _MOST_POINTS)]
    if len(shown):
        points.append(_axes(view.receipt.metered, iterations[shown]))
        rows = values[shown].T
        many = {"among": "devices", "counts": np.isfinite(rows).sum(axis=0).tolist()}
        if (np.nanmax(rows, axis=0) - np.nanmin(rows, axis=0) > _VISIBLE).any():
            many["band"] = "devices, worst to best"
        said = "measured on the devices, mean"
        lines.append(_spread("metered", said, rows, many, points=len(points) - 1))
    if not lines:
        return None
    along = {"key": "accuracy", "short": "accuracy", "name": "accuracy", "share": True}
    return curves(points, [{**along, "lines": lines}], [*ACROSS[:2], ACROSS[2] | _TIME])


def _spread(
    kind: str, text: str, rows: FloatArray, more: Mapping[str, Any], **look: Any
) -> dict[str, Any]:
    """Mean and range of the rows, NaN where one has no figure."""
    low, mean, high = (few_digits(of(rows, axis=0)) for of in (np.nanmin, np.nanmean, np.nanmax))
    ends = {"low": low, "high": high} if "band" in more else {}
    return line(kind, text, kind, mean, **ends, **more, **look)


def _axes(costs: Costs, iterations: NDArray[np.int64]) -> dict[str, Any]:
    joules, seconds = _fleet(costs, np.arange(costs.rounds.shape[1]))
    return {
        "iterations": iterations.tolist(),
        "joules": few_digits(np.nancumsum(joules)[iterations - 1]),
        "seconds": few_digits(np.nancumsum(seconds)[iterations - 1]),
    }


def _fleet(costs: Costs, devices: NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """float64 [n] each: joules of some devices together, and seconds of the slowest of them."""
    joules, seconds = costs.joules[:, devices], costs.seconds[:, devices]
    known = np.isfinite(seconds).any(axis=1)
    slowest = np.full(len(seconds), np.nan)
    if known.any():
        slowest[known] = np.nanmax(seconds[known], axis=1)
    return np.where(known, np.nansum(joules, axis=1), np.nan), slowest


def _costs(view: DeploymentView) -> dict[str, Any]:
    receipt = view.receipt
    there = np.flatnonzero(np.isfinite(receipt.spent_j))
    when = np.unique(np.concatenate([[0], every(receipt.iterations, _MOST_POINTS) + 1]))
    few = f"of the {len(there)} devices whose journals there are"
    notes = [few] if len(there) < len(receipt.names) else []
    along = []
    words = {"joules": "energy of the devices", "seconds": "time of the slowest device"}
    for k, (name, said) in enumerate(words.items()):
        totals = {kind: _total(_fleet(getattr(receipt, kind), there)[k])[when] for kind in KINDS}
        called = {**dict(zip(KINDS, KINDS, strict=True)), "metered": (receipt.word, "measured")[k]}
        for form, heading in (("", said), (" per iteration", f"{said}, per iteration")):
            lines = []
            for kind, total in totals.items():
                # What one iteration takes is a mean where points are thinned.
                each = np.concatenate([[np.nan], np.diff(total) / np.diff(when)])
                shown = few_digits(each if form else total, 7)
                lines.append(line(kind, called[kind], kind, shown, dash=_LOOKS[kind]))
            along.append(
                {
                    "key": f"{name}{form}",
                    "short": f"{name}{form or ' so far'}",
                    "name": heading,
                    "unit": "Js"[k],
                    "zero": True,
                    "lines": lines,
                    "notes": notes,
                }
            )
    return curves([{"iterations": when.tolist()}], along, ACROSS[:1])


def _total(each: FloatArray) -> FloatArray:
    """float64 [n + 1]: sums up to each iteration; NaN behind the last that is known."""
    known = np.flatnonzero(np.isfinite(each))
    total = np.concatenate([[0.0], np.nancumsum(each)])
    total[(known[-1] + 1 if len(known) else 0) + 1 :] = np.nan
    return total


# Devices, time line and links --------------------------------------------------------------------


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


def _bars(view: DeploymentView) -> dict[str, Any]:
    receipt = view.receipt
    data: dict[str, Any] = {"battery": few_digits(receipt.battery_j)}
    for name in ("joules", "seconds"):
        data[name] = {
            kind: few_digits(_sum(getattr(getattr(receipt, kind), name))) for kind in KINDS
        }
    data["joules"]["metered"] = few_digits(receipt.spent_j)
    return data


def _sum(values: FloatArray) -> FloatArray:
    """float64 [N]: sums over the iterations; NaN where nothing is known."""
    return np.where(np.isfinite(values).any(axis=0), np.nansum(values, axis=0), np.nan)


def _cells(view: DeploymentView) -> dict[str, Any]:
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
    begin = _begin(view.histories)
    noted = [event for one in view.histories for event in one.events if _marked(event)]
    shown = [noted[k] for k in every(len(noted), _MOST_MARKS)] if noted else []
    return {
        "begin": begin,
        "span": max(elapsed(view.histories), 1e-3),
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
    ends = [one.last_at for one in histories if math.isfinite(one.last_at)]
    return max(ends) - _begin(histories) if ends else 0.0


def _begin(histories: Sequence[History]) -> float:
    return min((one.first_at for one in histories if math.isfinite(one.first_at)), default=0.0)


# The page ---------------------------------------------------------------------------------------


def has_journal(view: DeploymentView) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(view.receipt.spent_j))


def _joules(view: DeploymentView) -> tuple[float, float]:
    there = has_journal(view)
    done = np.isfinite(view.receipt.metered.rounds)
    planned = np.nansum(np.where(done, view.receipt.simulated.joules, 0.0))
    return float(view.receipt.spent_j[there].sum()), float(planned)


def _reached(view: DeploymentView) -> tuple[float, float, int] | None:
    iterations, values = accuracies(view.histories)
    if not len(iterations):
        return None
    last = values[-1][np.isfinite(values[-1])]
    return float(last.mean()), float(last.min()), int(iterations[-1])


def _committed(view: DeploymentView) -> int:
    return int(np.isfinite(view.receipt.metered.rounds).any(axis=1).sum())


def sentence(view: DeploymentView) -> str:
    """The deployment in one sentence, or two where something happened."""
    receipt, done, there = view.receipt, _committed(view), has_journal(view)
    every = "" if there.all() else f"{int(there.sum()):,} of "
    held, (spent, _) = float(receipt.battery_j[there].sum()), _joules(view)
    times = f"{done:,}" if done == receipt.iterations else f"{done:,} of {receipt.iterations:,}"
    said = (
        f"{every}{len(there):,} devices carried out {times} iterations (communication rounds), "
        f"averaging {view.plan.timeline.scheme.kind.words}, for {energy(spent)} of "
        f"{energy(held)} in {duration(elapsed(view.histories))}"
    )
    reached = _reached(view)
    if reached is not None:
        said += f", and reached {percent(reached[0])} accuracy"
        if view.curve is not None and len(view.curve.iteration):
            said += f" (simulated {percent(float(view.curve.accuracy[:, -1].mean()))})"
    if not view.views:
        return f"{said}. Nobody left and nobody joined."
    last = view.views[-1].view
    changes = "once" if len(view.views) == 1 else f"{len(view.views):,} times"
    return (
        f"{said}. Membership changed {changes}; {len(last.members):,} devices were members at "
        "the end."
    )


def tiles(view: DeploymentView) -> list[Tile]:
    receipt, (spent, priced) = view.receipt, _joules(view)
    done = np.isfinite(receipt.metered.rounds)
    slowest = _slowest(receipt.metered.seconds)
    expected = _slowest(np.where(done, receipt.simulated.seconds, np.nan))
    figures: list[Tile] = [
        (receipt.word, energy(spent), _against(spent, priced, energy(priced))),
        ("seconds of iterations", duration(slowest), _against(slowest, expected,
                                                              duration(expected))),
    ]  # fmt: skip
    reached = _reached(view)
    if reached is not None:
        figures.insert(
            0, ("accuracy", percent(reached[0]), f"weakest device {percent(reached[1])}")
        )
    least = np.where(has_journal(view), receipt.battery_j - receipt.spent_j, np.inf)
    if np.isfinite(least).any():
        tightest = int(np.argmin(least / receipt.battery_j))
        share = float(least[tightest] / receipt.battery_j[tightest])
        figures.append(("least battery left", _left(share), receipt.names[tightest]))
    shares = [one.share for one in view.links if one.share is not None]
    if shares:
        note = f"of the planned rate, median of {len(shares):,} links"
        if view.together:
            note = "of the planned rate: how fast one machine handles messages, which has no links"
        figures.append(("links", share_words(float(np.median(shares))), note))
    missing = int(receipt.missing[has_journal(view)].sum())
    plural = "" if missing == 1 else "s"
    whole = f"{missing:,} iteration{plural} not in them" if missing else "every iteration in them"
    there = int(has_journal(view).sum())
    figures.append(("journals", f"{there:,} of {len(receipt.names):,}", whole))
    return figures


def _slowest(seconds: NDArray[np.float64]) -> float:
    known = np.isfinite(seconds).any(axis=1)
    return float(np.nanmax(seconds[known], axis=1).sum()) if known.any() else 0.0


def _against(value: float, other: float, words: str) -> str:
    if not other:
        return "nothing to compare with"
    return f"{_signed(value / other - 1)} against {words} simulated"


def _left(share: float) -> str:
    """What is left of a battery; rounding is no debt."""
    return percent(max(share, 0.0)) if share > -1e-6 else f"overdrawn by {percent(-share)}"


def share_words(share: float) -> str:
    """A share in per cent; what is far more, as a multiple."""
    return percent(share) if share < 2 else f"{share:.1f} times"


def _signed(share: float) -> str:
    figure = percent(abs(share))
    if figure == "0.0 %":
        return "±0.0 %"
    return f"{'+' if share > 0 else '−'}{figure}"


def devices(view: DeploymentView) -> Table:
    receipt = view.receipt
    spent = {
        "charged": np.where(receipt.charged, receipt.spent_j, np.nan),
        "measured": np.where(receipt.charged, np.nan, receipt.spent_j),
    }
    figures = {
        "battery": receipt.battery_j,
        "planned": np.nansum(receipt.planned.joules, axis=0),
        "simulated": np.nansum(receipt.simulated.joules, axis=0),
        **{kind: joules for kind, joules in spent.items() if kind in receipt.word},
        "outside iterations": receipt.outside_j,
    }
    clocks = {
        "planned": np.nansum(receipt.planned.seconds, axis=0),
        "simulated": np.nansum(receipt.simulated.seconds, axis=0),
        "measured": np.where(has_journal(view), np.nansum(receipt.metered.seconds, axis=0), np.nan),
    }
    joules, joule = _cells_in(list(figures.values()), "J")
    seconds, second = _cells_in(list(clocks.values()), "s")
    order = np.arange(len(receipt.names))
    if len(order) > _MOST_LISTED:
        left = (receipt.battery_j - receipt.spent_j) / receipt.battery_j
        order = np.sort(np.argsort(np.where(np.isfinite(left), left, -1))[:_MOST_LISTED])
    done = np.isfinite(receipt.metered.rounds).sum(axis=0)
    rows = [
        [
            f"{receipt.histories[i].device} {receipt.names[i]}",
            *(cells[i] for cells in joules),
            *(cells[i] for cells in seconds),
            f"{done[i]:,}",
            f"{receipt.missing[i]:,}",
            _ending(view, i),
            receipt.meters[i] or "no journal",
        ]
        for i in order.tolist()
    ]
    figured = [
        *(f"{name} [{joule}]" for name in figures),
        *(f"{name} [{second}]" for name in clocks),
        "iterations",
        "not committed",
    ]
    columns = _columns("device", figured, "at the end", "source of its joules")
    count = len(receipt.names)
    rest = f"The {_MOST_LISTED} of {count:,} devices with the least left." * (len(order) < count)
    return Table(columns, rows, "fleet", rest=rest)


def _columns(first: str, figures: Sequence[str], *last: str) -> list[Column]:
    words = [Column(first, figures=False)] if first else []
    return [*words, *map(Column, figures), *(Column(name, figures=False) for name in last)]


def _cells_in(arrays: Sequence[NDArray[np.float64]], unit: str) -> tuple[list[list[str]], str]:
    """Columns that share one prefix, so that their figures can be compared."""
    flat = [value for one in arrays for value in one.tolist()]
    name, cells = column([value if math.isfinite(value) else 0.0 for value in flat], unit)
    shown = [
        cell if math.isfinite(value) else NONE for cell, value in zip(cells, flat, strict=True)
    ]
    count = len(arrays[0])
    return [shown[k * count : (k + 1) * count] for k in range(len(arrays))], name


def _ending(view: DeploymentView, device: int) -> str:
    history = view.histories[device]
    if not history.events and not len(history.iterations):
        return NONE
    if history.end is None:
        return "still running, or cut off"
    return str(history.end.figures.get("reason", "ended"))


def views(view: DeploymentView) -> Table:
    names, before = view.names, set(view.plan.active[0].nonzero()[0].tolist())
    begin = _begin(view.histories)
    rows = []
    for seen in view.views:
        now = {one for one in seen.view.members if one < len(names)}
        gone, come = sorted(before - now), sorted(now - before)
        took = seen.last_at - seen.first_at
        rows.append(
            [
                str(seen.view.number),
                duration(max(seen.first_at - begin, 0.0)),
                f"{seen.view.start:,}",
                f"{len(now):,}",
                few_names([names[k] for k in gone]) or NONE,
                few_names([names[k] for k in come]) or NONE,
                f"{len(seen.view.cut):,}",
                f"{len(seen.devices):,} devices within {duration(max(took, 0.0))}",
            ]
        )
        before = now
    figures = ("view", "after", "from iteration", "members")
    columns = _columns("", figures, "without", "joined", "links cut", "installed by")
    return Table(columns, rows[:_MOST_LISTED], "fleet", first=_FIRST_ROWS)


def events(view: DeploymentView) -> Table:
    begin = _begin(view.histories)
    noted = [event for one in view.histories for event in one.events if event.kind != "view"]
    counts: Counter[tuple[int, str, str]] = Counter()
    first: dict[tuple[int, str, str], Event] = {}
    for event in sorted(noted, key=lambda one: one.at):
        said = {k: v for k, v in event.figures.items() if k != "count"}
        key = (event.device, event.kind, event_words(Event(0, 0, event.kind, said), view.names))
        counts[key] += int(event.figures.get("count", 1)) if _is_count(event) else 1
        first.setdefault(key, event)
    rows = [
        [
            duration(max(event.at - begin, 0.0)),
            view.names[device],
            what,
            f"{counts[(device, kind, what)]:,}",
        ]
        for (device, kind, what), event in first.items()
    ]
    rest = len(rows) - _MOST_LISTED
    more = f"… and {rest:,} more, in the journals." if rest > 0 else ""
    words = [Column("device", figures=False), Column("what", figures=False)]
    return Table(
        [Column("after"), *words, Column("times")], rows[:_MOST_LISTED], "fleet", rest=more
    )


def _is_count(event: Event) -> bool:
    return isinstance(event.figures.get("count"), int)


def links(view: DeploymentView) -> Table:
    timed = [one for one in view.links if one.sent.rate_bps is not None]
    timed.sort(key=lambda one: math.inf if one.share is None else one.share)
    rows = [
        [
            f"{view.names[one.sender]} → {_name(view, one.receiver)}",
            NONE if one.planned_bps is None else si(one.planned_bps, "bit/s"),
            si(one.sent.rate_bps or 0.0, "bit/s"),
            NONE if one.share is None else share_words(one.share),
            si(one.sent.payload_bytes, "B"),
            f"{one.sent.messages:,}",
        ]
        for one in timed[:_MOST_LISTED]
    ]
    rest = len(timed) - _MOST_LISTED
    columns = _columns("link", ("planned", "measured", "of the plan", "sent", "messages"))
    return Table(columns, rows, "fleet", rest=f"… and {rest:,} more." if rest > 0 else "")


def _name(view: DeploymentView, device: int) -> str:
    return view.names[device] if device < len(view.names) else f"device {device}"


def sources(view: DeploymentView) -> list[tuple[str, str]]:
    receipt = view.receipt
    meters = Counter(one or "no journal" for one in receipt.meters)
    return [
        ("planned", receipt.planned.source),
        ("simulated", receipt.simulated.source),
        (receipt.word, "; ".join(f"{n:,} devices: {what}" for what, n in meters.most_common(8))),
        ("accuracy, simulated", "–" if view.curve is None else view.curve.source),
        ("accuracy, measured", "each device on its own evaluation data, from its journal"),
        ("rates, planned", "the plan's links (under fading, its forecast)"),
        ("rates, measured", "payload bytes over the seconds until their acknowledgement"),
        ("time", "each device's own clock; seconds of an iteration include waiting for others"),
    ]


def render_deployment(view: DeploymentView) -> str:
    return render_page(
        "deployment.html",
        title=words.page_title("Deployment", view.subject),
        styles=("report.css", "deployment.css"),
        scripts=CHARTS,
        data=chart_data(view),
        summary=sentence(view),
        notes=view.notes,
        tiles=tiles(view),
        devices=devices(view),
        views=views(view),
        events=events(view),
        links=links(view),
        sources=sources(view),
        scenario=view.plan.scenario.to_toml(),
        provenance=provenance(view.versions, ()),
    )
