"""The parts of a report that are text: figures, tables. Everything is escaped here."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from joulemesh.metrics.losses import Reported
from joulemesh.metrics.metric import further_of
from joulemesh.planning.account import Account
from joulemesh.planning.columns import spent_on
from joulemesh.planning.plan import Plan
from joulemesh.units import column, duration, energy
from joulemesh.views.plan.digest import BINDING_WORDS
from joulemesh.views.values import by_section, figure_words
from joulemesh.views.words import percent

if TYPE_CHECKING:
    from joulemesh.views.run.report import Summary

__all__ = [
    "assumed",
    "devices",
    "events",
    "figures",
    "metric_switches",
    "provenance",
    "spans",
    "text",
    "tiles",
]

_MOST_ROWS = 200
_MOST_NAMES = 12
_MOST_SPANS = 40
_ROUNDING = 1 + 1e-12  # of a sum of seconds that is itself rounded


def text(plain: str) -> str:
    """Plain text as HTML, a percentage kept on one line.

    >>> text("<5 %>")
    '&lt;5&nbsp;%&gt;'
    """
    return html.escape(plain).replace(" %", "&nbsp;%")


def _deadline(plan: Account) -> str:
    """The time allowed to an iteration, and whether it is kept: methods without a plan may not."""
    longest, limits = float(np.max(plan.latency_s)), []
    if plan.deadline_s is not None:
        allowed = duration(plan.deadline_s)
        kept = longest <= plan.deadline_s
        missed = f"up to {duration(longest)} per iteration: misses the deadline of {allowed}"
        limits.append(f"deadline {allowed} per iteration" if kept else missed)
    if plan.total_s is not None:
        whole = duration(plan.total_s)
        kept = float(np.sum(plan.latency_s, axis=0).max()) <= plan.total_s * _ROUNDING
        limits.append(f"of {whole} in all" if kept else f"misses the total time of {whole}")
    return ", ".join(limits)


def tiles(plan: Account, summary: Summary) -> str:
    """The main figures, each in a tile."""
    spent = summary.energy_j / float(plan.supplied_j.sum())
    training = float(plan.compute_total_j.sum() / plan.spent_j.sum())
    figures = [
        ("energy", energy(summary.energy_j), f"{percent(spent)} of the batteries"),
        ("spent on training", percent(training), _other_uses(plan)),
        ("modelled time", duration(summary.time_s), _deadline(plan)),
        (
            "local rounds",
            f"{int(plan.rounds.sum()):,}",
            f"{plan.rounds.sum() / plan.active.sum():.2f} per iteration and device",
        ),
    ]
    if summary.accuracy is not None:
        weakest, metric = summary.weakest, summary.metric
        note = "mean model" if weakest is None else f"weakest device {metric.text(weakest)}"
        note = "on every device" if summary.alike else note
        if summary.samples is not None:
            note += f"; {metric.samples_text(summary.accuracy, summary.samples)}"
        figures.insert(0, (f"test {metric.label}", metric.text(summary.accuracy), note))
    if summary.target is not None:
        figures.insert(2, summary.target)
    figures += _messages(plan)
    figures += summary.further
    if summary.wall_s is not None:
        note = "the whole run, on the machine's own clock"
        if summary.trained_s is not None:
            note = f"the whole run on its machine; training {duration(summary.trained_s)}"
        figures.append(("computed in", duration(summary.wall_s), note))
    return "".join(
        f"<li><span>{text(name)}</span><strong>{text(value)}</strong><small>{text(note)}</small></li>"
        for name, value, note in figures
    )


def _messages(plan: Account) -> list[tuple[str, str, str]]:
    """Messages that were lost, and what the plan expected, where packets are lost."""
    if not isinstance(plan, Plan) or plan.drawn is None:
        return []
    found = plan.drawn.figures(plan)
    expected = f"{energy(found['expected_energy_j'])}, {duration(found['expected_time_s'])}"
    lost = f"{found['messages_lost']:,} of {found['messages']:,}"
    unpaid = f"{found['messages_unpaid']:,} for want of joules"
    return [("messages lost", lost, unpaid), ("planned", expected, "expected energy and time")]


def _other_uses(plan: Account) -> str:
    """What is not spent on training, in shares."""
    whole = float(plan.spent_j.sum())
    uses = [(name, float(joules.sum()) / whole) for name, joules in spent_on(plan).items()]
    return ", ".join(f"{name} {percent(share)}" for name, share in uses[1:])


def metric_switches(measured: Reported) -> str:
    """A button for the chart of each further metric.

    >>> metric_switches(Reported(("brier",)))
    '<button type="button" data-y="brier" aria-pressed="false">Brier score</button>'
    """
    return "\n".join(
        f'<button type="button" data-y="{html.escape(metric.name)}" aria-pressed="false">'
        f"{text(metric.label)}</button>"
        for metric in further_of(*measured)
    )


def events(plan: Account) -> str:
    """Outages and departures, as a table or as the sentence that there are none."""
    if not isinstance(plan, Plan):
        return ""
    if not plan.events:
        return "<p>None: every exchange took place and every device stayed to the end.</p>"
    outages = [event for event in plan.events if event.kind == "outage"]
    others = [event for event in plan.events if event.kind != "outage"]
    gone = int((~plan.active[-1]).sum())
    lead = f"{len(outages):,} of {plan.iterations:,} exchanges skipped, {gone:,} devices left."
    rows = []
    if outages:  # often many and all alike: one row for them all
        when = spans([event.iteration for event in outages])
        rows.append((when, "outage", "–", outages[0].detail))
    for event in others[:_MOST_ROWS]:
        first = event.devices[:_MOST_NAMES]
        names = ", ".join(plan.names[i] if plan.names else str(i) for i in first)
        more = len(event.devices) - _MOST_NAMES
        names += f" and {more:,} more" if more > 0 else ""
        rows.append((f"{event.iteration:,}", event.kind, names or "–", event.detail))
    table = _table(("iteration", "what", "devices", "why"), rows, numbers=0)
    rest = len(others) - _MOST_ROWS
    return f"<p>{lead}</p>{table}" + (f"<p>… and {rest:,} more events.</p>" if rest > 0 else "")


def spans(numbers: Sequence[int]) -> str:
    """Ascending numbers as a list of stretches; a long list is cut.

    >>> spans([1, 3, 4, 5, 9])
    '1, 3–5, 9'
    """
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    shown = [str(low) if low == high else f"{low}–{high}" for low, high in ends[:_MOST_SPANS]]
    return ", ".join(shown) + (" …" if len(ends) > _MOST_SPANS else "")


def devices(plan: Account) -> str:
    """One row per device: battery, what it went on, rounds; of a plan, what binds."""
    spare = plan.margin_j / plan.supplied_j
    count = len(spare)
    shown = np.arange(count) if count <= _MOST_ROWS else np.sort(np.argsort(spare)[:_MOST_ROWS])
    total = plan.rounds.sum(axis=0, dtype=np.int64)
    binding = plan.binding if isinstance(plan, Plan) else None
    uses = {"battery": plan.energy_budget_j, **spent_on(plan)}
    safety = plan.safety_margin_j if isinstance(plan, Plan) else None
    uses |= {} if safety is None else {"for safety": safety}
    joules = [column(figures[shown].tolist(), "J") for figures in uses.values()]
    rows = [
        (
            f"{i} {plan.names[i]}" if plan.names else str(i),
            *(cells[k] for _, cells in joules),
            percent(spare[i]),
            f"{total[i]:,}",
            *([] if binding is None else [BINDING_WORDS[str(binding[i])]]),
        )
        for k, i in enumerate(shown.tolist())
    ]
    names = [f"{name} [{unit}]" for name, (unit, _) in zip(uses, joules, strict=True)]
    head = ("device", *names, "unspent", "rounds", *([] if binding is None else ["what binds"]))
    note = ""
    if count > _MOST_ROWS:
        note = f"<p>The {_MOST_ROWS} of {count:,} devices with the least left.</p>"
    return note + _table(head, rows, numbers=3 + len(uses))


def assumed(plan: Account) -> str:
    """The figures that decide the plan and that nobody gave, as a paragraph; empty without any.

    >>> import joulemesh
    >>> assumed(joulemesh.plan(joulemesh.Scenario.preset("adaptive")))
    ''
    """
    mine = [figure for figure in plan.figures if figure.origin.kind == "assumed"]
    return f'<p class="why">Assumed (not given): {text(by_section(mine))}.</p>' if mine else ""


def figures(plan: Account) -> str:
    """The figures that decide the plan: one row each, with its value and its origin."""
    rows = [
        (figure.name, figure_words(figure.name, figure), str(figure.origin))
        for figure in plan.figures
    ]
    return _table(("field", "value", "origin"), rows, numbers=0)


def provenance(versions: Mapping[str, str], seeds: Sequence[int]) -> str:
    """Software, hardware and seeds, as a list."""
    pairs = [(str(name), str(value)) for name, value in versions.items()]
    if len(seeds):
        pairs.append(("seeds", ", ".join(map(str, seeds))))
    if not pairs:
        return "<p>Not recorded.</p>"
    items = "".join(
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}</dd></div>"
        for name, value in pairs
    )
    return f"<dl>{items}</dl>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int) -> str:
    """A table whose first ``numbers`` columns are figures, to be set flush right."""
    classes = ['class="n"' if k < numbers else "" for k in range(len(head))]
    top = "".join(
        f'<th scope="col" {kind}>{html.escape(name)}</th>'
        for name, kind in zip(head, classes, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td {kind}>{html.escape(cell)}</td>" for cell, kind in zip(row, classes, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
