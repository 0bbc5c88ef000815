"""The page of a deployment."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template

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
    views_of,
)
from joulemesh.deploy.record.receipt import Receipt
from joulemesh.planning.plan import Plan
from joulemesh.views import words
from joulemesh.views.deployment.charts import Curve, chart_data, elapsed, event_words
from joulemesh.views.page import asset, render_page
from joulemesh.views.report import provenance, text
from joulemesh.views.words import Subject, percent

_MOST_NAMES = 12


def name_list(names: Sequence[str], most: int = _MOST_NAMES) -> str:
    more = len(names) - most
    if more > 0:
        return f"{', '.join(names[:most])} and {more:,} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def has_journal(view: DeploymentView) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(view.receipt.spent_j))


def _joules(view: DeploymentView) -> tuple[float, float]:
    there = has_journal(view)
    done = np.isfinite(view.receipt.metered.rounds)
    planned = np.nansum(np.where(done, view.receipt.simulated.joules, 0.0))
    return float(view.receipt.spent_j[there].sum()), float(planned)


def _reached(view: DeploymentView) -> tuple[float, float, int] | None:
    """The last accuracy measured: mean and worst device, and after which iteration."""
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
        f"{every}{len(there):,} devices carried out {times} iterations, averaging "
        f"{view.plan.timeline.scheme.kind.words}, for {energy(spent)} of "
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


def notes(view: DeploymentView) -> str:
    return "\n".join(f'<p class="why note">{text(line)}</p>' for line in view.notes)


def tiles(view: DeploymentView) -> str:
    receipt, (spent, priced) = view.receipt, _joules(view)
    done = np.isfinite(receipt.metered.rounds)
    slowest = _slowest(receipt.metered.seconds)
    expected = _slowest(np.where(done, receipt.simulated.seconds, np.nan))
    figures = [
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
    return "".join(
        f"<li><span>{text(name)}</span><strong>{text(value)}</strong>"
        f"<small>{text(note)}</small></li>"
        for name, value, note in figures
    )


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


_FIRST_ROWS, _MOST_ROWS = 12, 200


def devices(view: DeploymentView) -> str:
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
            f"{receipt.histories[i].device} {receipt.names[i]}",
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
    if not view.views:
        return "<p>None: the plan's own view held to the end.</p>"
    names, before = view.names, set(view.plan.active[0].nonzero()[0].tolist())
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


CHARTS = (
    *("lines.js", "rounds.js", "timeline.js", "gantt.js", "flow.js"),
    "deployment.js",
)


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
            found.append(f"No journal of {name_list(silent)}: not in any sum below.")
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


def course_charts(*, learned: bool) -> str:
    return Template(asset("fleet-course.html")).substitute(learning="" if learned else "hidden")


def link_charts(*, planned: bool, linked: bool) -> str:
    return Template(asset("fleet-links.html")).substitute(
        linked="" if linked else "hidden", iterations="" if planned else "hidden"
    )


def render_deployment(view: DeploymentView) -> str:
    data = chart_data(view)
    learned = bool(data["learning"]["measured"]["iteration"] or data["learning"]["simulated"])
    return render_page(
        "deployment.html",
        title=words.page_title("Deployment", view.subject),
        styles=("report.css", "deployment.css"),
        scripts=CHARTS,
        data=data,
        live=False,
        summary=text(sentence(view)),
        notes=notes(view),
        tiles=tiles(view),
        course=course_charts(learned=learned),
        links_charts=link_charts(planned=bool(data["gantt"]), linked=bool(data["links"])),
        devices=devices(view),
        views=views(view),
        events=events(view),
        links=links(view),
        sources=sources(view),
        scenario=html.escape(view.plan.scenario.to_toml()),
        provenance=provenance(view.versions, ()),
    )
