"""Plans as tables and small pictures for a terminal."""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.text import Text

from joulemesh.base.units import column, duration, energy
from joulemesh.planning.plan import Account, Plan, spent_on
from joulemesh.views.terminal import Column, picture, show_row, show_table
from joulemesh.views.words import by_section

__all__ = ["show_figures", "show_plan"]

_MOST_ROWS = 40
_MOST_EVENTS = 8


def show_plan(plan: Plan, console: Console) -> None:
    """Print a plan: scheme and why, iterations, totals, devices, and rounds over time."""
    n, count = plan.rounds.shape
    scheme = plan.timeline.scheme
    root = plan.timeline.route.root
    extra = f", root at {plan.name(root)}" if root >= 0 else ""
    if not scheme.exact:
        counted = f", {scheme.rounds} {scheme.unit}" if scheme.rounds else ""
        extra = f"{counted}, consensus error {scheme.error:.3g}"
    console.print(Text.assemble(("scheme      ", "bold"), f"{plan.scheme}{extra}"))
    console.print(Text.assemble(("why         ", "bold"), plan.reason))
    _show_medium(plan, console)
    asked = plan.scenario.plan.iterations
    short = f" of {asked} asked for" if isinstance(asked, int) and asked != n else ""
    console.print(
        Text.assemble(("iterations  ", "bold"), f"{n}{short}, {count} devices, "),
        f"{int(plan.rounds.sum()):,} rounds ({plan.rounds[plan.active].mean():.2f} on average)",
        sep="",
    )
    held_j = float(plan.supplied_j.sum())
    console.print(
        Text.assemble(("energy      ", "bold")),
        f"{energy(plan.spent_j.sum())} of {energy(held_j)}: "
        + ", ".join(f"{name} {energy(joules.sum())}" for name, joules in spent_on(plan).items()),
        sep="",
    )
    if plan.harvests:
        gained_j, lost_j = float(plan.harvested_total_j.sum()), float(plan.spilled_total_j.sum())
        console.print(
            Text.assemble(("harvest     ", "bold")),
            f"{energy(gained_j)}, of which full batteries spill {energy(lost_j)}",
            sep="",
        )
    console.print(
        Text.assemble(("time        ", "bold")),
        f"{duration(plan.time_s)}{_of(plan.total_s)}; longest iteration "
        f"{duration(plan.latency_s.max())}{_of(plan.deadline_s)}, exchange "
        f"{duration(plan.exchange_s.max())}",
        sep="",
    )
    _show_devices(plan, console)
    mean = plan.rounds.sum(axis=1) / np.maximum(plan.active.sum(axis=1), 1)
    console.print(
        Text.assemble(("rounds      ", "bold"), picture(mean, console)),
        f" mean over devices, t = 1..{n}, from {mean.min():.2f} to {mean.max():.2f}",
        sep="",
    )
    if plan.safety is not None:
        show_row("safety", plan.safety.text, console)
    _show_events(plan, console)
    _show_balance(plan, console)
    _show_bounds(plan, console)
    show_figures(plan, console)
    for note in plan.notes:
        show_row("note", note, console)
    show_row("answer", plan.answer.text, console)


def _show_medium(plan: Plan, console: Console) -> None:
    """What of the radio medium decides what exchanges take, where it is not the default."""
    network, said = plan.scenario.network, []
    if network.medium == "shared":
        said.append("shared: conflicting transmissions take different slots")
        if network.interference_m is not None:
            said.append(f"interference within {network.interference_m:g} m")
    if network.broadcast:
        said.append("one transmission serves all neighbours that are to get the same bits")
    if said:
        console.print(Text.assemble(("medium      ", "bold"), "; ".join(said)))


def show_figures(plan: Account, console: Console) -> None:
    """Print the figures that decide the plan and that the user did not give, by their origin."""
    base = plan.scenario.base
    if base.kind == "preset" and not plan.scenario.given:
        as_it_stands = f"{base.source}, as it stands; joulemesh init FILE writes its figures out"
        show_row("preset", as_it_stands, console)
        return
    kinds = {"assumed": "(not given) ", "preset": "{}: ", "profile": "{}: ", "measured": "{}: "}
    for origin in dict.fromkeys(figure.origin for figure in plan.figures):
        if origin.kind in kinds:
            mine = [figure for figure in plan.figures if figure.origin == origin]
            lead = kinds[origin.kind].format(origin.source)
            show_row(origin.kind, lead + by_section(mine), console)


def _show_devices(plan: Plan, console: Console) -> None:
    count, caption = len(plan.energy_budget_j), None
    rows = list(range(count))
    if count > _MOST_ROWS:  # the tightest batteries are the ones that matter
        caption = f"the {_MOST_ROWS} of {count} devices with the least left (--json for all)"
        rows = sorted(np.argsort(plan.margin_j / plan.supplied_j)[:_MOST_ROWS].tolist())
    joules = {
        name: column(figures[rows].tolist(), "J")
        for name, figures in (
            ("battery", plan.energy_budget_j),
            *spent_on(plan).items(),
            *([] if plan.safety_margin_j is None else [("for safety", plan.safety_margin_j)]),
        )
    }
    columns = [
        Column("device", figures=not plan.names),
        *(
            Column(f"{name} [{unit}]", rank=2 * (name != "battery"))
            for name, (unit, _) in joules.items()
        ),
        Column("left"),
        Column("rounds", rank=1),
        Column("per iteration", rank=3),
        Column("what binds", figures=False),
    ]
    table = []
    binding = plan.binding
    for k, i in enumerate(rows):
        lived = plan.rounds[plan.active[:, i], i]
        span = f"{lived.min()}–{lived.max()}" if len(lived) else "none"
        row = [
            f"{i} {plan.names[i]}" if plan.names else str(i),
            *(cells[k] for _, cells in joules.values()),
            f"{plan.margin_j[i] / plan.supplied_j[i]:.1%}",
            f"{plan.rounds[:, i].sum():,}",
            span,
            str(binding[i]),
        ]
        table.append(row)
    show_table(console, columns, table, caption=caption)


def _of(allowed_s: float | None) -> str:
    return "" if allowed_s is None else f" of {duration(allowed_s)}"


def _show_events(plan: Plan, console: Console) -> None:
    outages = sum(event.kind == "outage" for event in plan.events)
    if outages:
        console.print(f"outages     {outages} of {plan.iterations} exchanges skipped")
    others = [event for event in plan.events if event.kind != "outage"]
    for event in others[:_MOST_EVENTS]:
        names = [plan.names[i] if plan.names else str(i) for i in event.devices[:10]]
        who = ", ".join(names) + (" …" if len(event.devices) > 10 else "")
        console.print(f"{event.kind:<11} iteration {event.iteration}: {who} ({event.detail})")
    if len(others) > _MOST_EVENTS:
        console.print(f"            … and {len(others) - _MOST_EVENTS} more (--json for all)")


def _show_balance(plan: Plan, console: Console) -> None:
    scheme = plan.timeline.scheme
    if scheme.exact:
        return
    balance = scheme.balance(plan.ground.forecast, plan.energy_budget_j, plan.iterations)
    if balance is None:
        return
    table = []
    pick = np.unique(np.rint(np.linspace(0, len(balance.rounds) - 1, 8)).astype(int))
    best = int(np.searchsorted(balance.rounds, balance.best))
    shown = sorted({*pick.tolist(), best})
    unit, dearest = column(balance.dearest_j[shown].tolist(), "J")
    names = ("rounds", "consensus error", f"dearest device [{unit}]", "share of its battery")
    for joules, row in zip(dearest, shown, strict=True):
        mark = " ← balanced" if row == best else ""
        figures = [
            f"{balance.rounds[row]:,}",
            f"{balance.error[row]:.3g}",
            joules,
            f"{balance.share[row]:.1%}{mark}",
        ]
        table.append(figures)
    title = "Remark 4: gossip rounds, consensus error and joules"
    show_table(console, [Column(name) for name in names], table, title=title)


def _show_bounds(plan: Plan, console: Console) -> None:
    if plan.bounds is None:
        return
    columns = [Column(name) for name in ("bound", "as printed", "corrected")]
    rows = []
    for name in ("theorem1", "theorem2", "corollary1"):
        cells = [plan.bounds.get(f"{name}_{form}") for form in ("printed", "corrected")]
        rows.append([name, *("undefined" if c is None else f"{c:.4g}" for c in cells)])
    show_table(console, columns, rows, title="Bounds of Theorems 1 and 2 and Corollary 1")
    console.print(f"objectives  p42 {plan.bounds['p42']}, drift {plan.bounds['drift']}")
