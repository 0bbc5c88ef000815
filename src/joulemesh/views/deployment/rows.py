"""The tables of a deployment's page. Everything is escaped here."""

from __future__ import annotations

__all__ = ["devices", "events", "links", "sources", "table", "views"]

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.history import Event
from joulemesh.units import column, duration, si
from joulemesh.views.deployment.charts import event_words
from joulemesh.views.deployment.fragments import has_journal, name_list, share_words
from joulemesh.views.run.fragments import text

if TYPE_CHECKING:
    from joulemesh.views.deployment.page import DeploymentView

_FIRST_ROWS, _MOST_ROWS = 12, 200


def devices(view: DeploymentView) -> str:
    """One row per device: battery and joules, seconds, and where the joules come from."""
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
    joules, joule = _columns(list(figures.values()), "J")
    seconds, second = _columns(list(clocks.values()), "s")
    order = np.arange(len(receipt.names))
    if len(order) > _MOST_ROWS:
        left = (receipt.battery_j - receipt.spent_j) / receipt.battery_j
        order = np.sort(np.argsort(np.where(np.isfinite(left), left, -1))[:_MOST_ROWS])
    done = np.isfinite(receipt.metered.rounds).sum(axis=0)
    rows = [
        (
            f"{receipt.devices[i]} {receipt.names[i]}",
            *(cells[i] for cells in joules),
            *(cells[i] for cells in seconds),
            f"{done[i]:,}",
            f"{receipt.missing[i]:,}",
            _ending(view, i),
            receipt.meters[i] or "no journal",
        )
        for i in order.tolist()
    ]
    head = (
        "device",
        *(f"{name} [{joule}]" for name in figures),
        *(f"{name} [{second}]" for name in clocks),
        "iterations",
        "not committed",
        "at the end",
        "source of its joules",
    )
    note = ""
    if len(order) < len(receipt.names):
        note = f"<p>The {_MOST_ROWS} of {len(receipt.names):,} devices with the least left.</p>"
    return note + table(head, rows, figures=range(1, len(head) - 2))


def _columns(arrays: Sequence[NDArray[np.float64]], unit: str) -> tuple[list[list[str]], str]:
    """Columns that share one prefix, so that their figures can be compared."""
    flat = [value for one in arrays for value in one.tolist()]
    name, cells = column([value if math.isfinite(value) else 0.0 for value in flat], unit)
    shown = [cell if math.isfinite(value) else "–" for cell, value in zip(cells, flat, strict=True)]
    count = len(arrays[0])
    return [shown[k * count : (k + 1) * count] for k in range(len(arrays))], name


def _ending(view: DeploymentView, device: int) -> str:
    history = view.histories[device]
    if not history.events and not len(history.iterations):
        return "–"
    if history.end is None:
        return "still running, or cut off"
    return str(history.end.figures.get("reason", "ended"))


def views(view: DeploymentView) -> str:
    """One row for each view: when, from which iteration on, who came and who went."""
    if not view.views:
        return "<p>None: the plan's own view held to the end.</p>"
    names, before = view.names, set(range(len(view.names)))
    begin = min(one.first_at for one in view.histories if math.isfinite(one.first_at))
    rows = []
    for seen in view.views:
        now = {one for one in seen.view.members if one < len(names)}
        gone, come = sorted(before - now), sorted(now - before)
        took = seen.last_at - seen.first_at
        rows.append(
            (
                str(seen.view.number),
                duration(max(seen.first_at - begin, 0.0)),
                f"{seen.view.start:,}",
                f"{len(now):,}",
                name_list([names[k] for k in gone]) if gone else "–",
                name_list([names[k] for k in come]) if come else "–",
                f"{len(seen.view.cut):,}",
                f"{len(seen.devices):,} devices within {duration(max(took, 0.0))}",
            )
        )
        before = now
    head = ("view", "after", "from iteration", "members", "without", "joined", "links cut",
            "installed by")  # fmt: skip
    shown = table(head, rows[:_FIRST_ROWS], figures=range(4))
    if len(rows) <= _FIRST_ROWS:
        return shown
    rest = table(head, rows[_FIRST_ROWS:_MOST_ROWS], figures=range(4))
    return f"{shown}<details><summary>{len(rows) - _FIRST_ROWS:,} more</summary>{rest}</details>"


def events(view: DeploymentView) -> str:
    """What the nodes noted, in order; what repeats is one row with its count."""
    begins = [one.first_at for one in view.histories if math.isfinite(one.first_at)]
    noted = [event for one in view.histories for event in one.events if event.kind != "view"]
    counts: Counter[tuple[int, str, str]] = Counter()
    first: dict[tuple[int, str, str], Event] = {}
    for event in sorted(noted, key=lambda one: one.at):
        said = {k: v for k, v in event.figures.items() if k != "count"}
        key = (event.device, event.kind, event_words(Event(0, 0, event.kind, said), view.names))
        counts[key] += int(event.figures.get("count", 1)) if _is_count(event) else 1
        first.setdefault(key, event)
    if not first:
        return "<p>None.</p>"
    rows = [
        (
            duration(max(event.at - min(begins), 0.0)),
            view.names[device],
            what,
            f"{counts[(device, kind, what)]:,}",
        )
        for (device, kind, what), event in first.items()
    ]
    rest = len(rows) - _MOST_ROWS
    more = f"<p>… and {rest:,} more, in the journals.</p>" if rest > 0 else ""
    head = ("after", "device", "what", "times")
    return table(head, rows[:_MOST_ROWS], figures=(0, 3)) + more


def _is_count(event: Event) -> bool:
    return isinstance(event.figures.get("count"), int)


def links(view: DeploymentView) -> str:
    """Rates by the plan and as measured, the slowest against its plan first."""
    timed = [one for one in view.links if one.sent.rate_bps is not None]
    timed.sort(key=lambda one: math.inf if one.share is None else one.share)
    rows = [
        (
            f"{view.names[one.sender]} → {_name(view, one.receiver)}",
            "–" if one.planned_bps is None else si(one.planned_bps, "bit/s"),
            si(one.sent.rate_bps or 0.0, "bit/s"),
            "–" if one.share is None else share_words(one.share),
            si(one.sent.payload_bytes, "B"),
            f"{one.sent.messages:,}",
        )
        for one in timed[:_MOST_ROWS]
    ]
    if not rows:
        return "<p>None was timed.</p>"
    rest = len(timed) - _MOST_ROWS
    more = f"<p>… and {rest:,} more.</p>" if rest > 0 else ""
    head = ("link", "planned", "measured", "of the plan", "sent", "messages")
    return table(head, rows, figures=range(1, 6)) + more


def _name(view: DeploymentView, device: int) -> str:
    return view.names[device] if device < len(view.names) else f"device {device}"


def sources(view: DeploymentView) -> str:
    """Where each kind of figure comes from."""
    receipt = view.receipt
    meters = Counter(one or "no journal" for one in receipt.meters)
    pairs = [
        ("planned", receipt.planned.source),
        ("simulated", receipt.simulated.source),
        (receipt.word, "; ".join(f"{n:,} devices: {what}" for what, n in meters.most_common(8))),
        ("accuracy, simulated", "–" if view.curve is None else view.curve.source),
        ("accuracy, measured", "each device on its own evaluation data, from its journal"),
        ("rates, planned", "the plan's links (under fading, its forecast)"),
        ("rates, measured", "payload bytes over the seconds until their acknowledgement"),
        ("time", "each device's own clock; seconds of an iteration include waiting for others"),
    ]
    items = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(said)}</dd></div>"
        for name, said in pairs
    )
    return f'<dl class="sources">{items}</dl>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], figures: Iterable[int]) -> str:
    """A table; the columns at ``figures`` are set flush right."""
    right = set(figures)
    kinds = [' class="n"' if k in right else "" for k in range(len(head))]
    top = "".join(
        f'<th scope="col"{kind}>{html.escape(name)}</th>'
        for name, kind in zip(head, kinds, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{kind}>{text(cell)}</td>" for cell, kind in zip(row, kinds, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        '<div class="scroll" tabindex="0"><table class="fleet"><thead><tr>'
        f"{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )
