"""Plans and runs as tables and small pictures for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.units import column, duration, energy
from joulemesh.metrics import reported
from joulemesh.planning.plan import Account, Plan, spent_on
from joulemesh.study.result import Result, WorldsResult
from joulemesh.views.comparison import measures
from joulemesh.views.report import devices
from joulemesh.views.table import Column, Measure, Table
from joulemesh.views.terminal import picture, show_row, show_table
from joulemesh.views.words import by_section, clocks_text, few_names, metric_words, target_words

_MOST_ROWS = 40
_MOST_EVENTS = 8


def show_plan(plan: Plan, console: Console) -> None:
    """Print a plan: scheme and why, iterations, totals, devices, and rounds over time."""
    n, count = plan.rounds.shape
    asked = plan.scenario.plan.iterations
    short = f" of {asked} asked for" if isinstance(asked, int) and asked != n else ""
    said = {
        "scheme": f"{plan.scheme}{_detail(plan)}",
        "why": plan.reason,
        "medium": _medium(plan),
        "iterations": f"{n}{short} (communication rounds), {count} devices, "
        f"{int(plan.rounds.sum()):,} local rounds ({plan.rounds[plan.active].mean():.2f} on "
        "average)",
        "energy": f"{energy(plan.spent_j.sum())} of {energy(float(plan.supplied_j.sum()))}: "
        + ", ".join(f"{name} {energy(joules.sum())}" for name, joules in spent_on(plan).items()),
        "harvest": _harvest(plan),
        "time": f"{duration(plan.time_s)}{_of(plan.total_s)}; longest iteration "
        f"{duration(plan.latency_s.max())}{_of(plan.deadline_s)}, exchange "
        f"{duration(plan.exchange_s.max())}",
        "clocks": "" if plan.timeline.window_s is None else clocks_text(plan),
    }
    for name, text in said.items():
        if text:
            console.print(Text.assemble((f"{name:<12}", "bold"), text))
    show_table(console, devices(plan, _MOST_ROWS))
    mean = plan.rounds.sum(axis=1) / np.maximum(plan.active.sum(axis=1), 1)
    console.print(
        Text.assemble(("local rounds ", "bold"), picture(mean, console)),
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
    bound = plan.certificate.text(plan.names, plan.scenario.plan.goal)
    show_row("bound", f"{bound[0].upper()}{bound[1:]}.", console)


def _detail(plan: Plan) -> str:
    scheme, root = plan.timeline.scheme, plan.timeline.route.root
    if scheme.exact:
        return f", root at {plan.name(root)}" if root >= 0 else ""
    counted = f", {scheme.rounds} {scheme.unit}" if scheme.rounds else ""
    return f"{counted}, consensus error {scheme.error:.3g}"


def _harvest(plan: Plan) -> str:
    if not plan.harvests:
        return ""
    gained_j, lost_j = float(plan.harvested_total_j.sum()), float(plan.spilled_total_j.sum())
    return f"{energy(gained_j)}, of which full batteries spill {energy(lost_j)}"


def _medium(plan: Plan) -> str:
    """What of the radio medium decides what exchanges take, where it is not the default."""
    network, said = plan.scenario.network, []
    if network.medium == "shared":
        said.append("shared: conflicting transmissions take different slots")
        if network.interference_m is not None:
            said.append(f"interference within {network.interference_m:g} m")
    if network.broadcast:
        said.append("one transmission serves all neighbours that are to get the same bits")
    return "; ".join(said)


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


def _of(allowed_s: float | None) -> str:
    return "" if allowed_s is None else f" of {duration(allowed_s)}"


def _show_events(plan: Plan, console: Console) -> None:
    outages = sum(event.kind == "outage" for event in plan.events)
    if outages:
        console.print(f"outages     {outages} of {plan.iterations} exchanges skipped")
    others = [event for event in plan.events if event.kind != "outage"]
    for event in others[:_MOST_EVENTS]:
        who = few_names([plan.names[i] if plan.names else str(i) for i in event.devices], 10)
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
    show_table(console, Table([*map(Column, names)], table), title=title)


def _show_bounds(plan: Plan, console: Console) -> None:
    if plan.bounds is None:
        return
    columns = [*map(Column, ("bound", "as printed", "corrected"))]
    rows = []
    for name in ("theorem1", "theorem2", "corollary1"):
        cells = [plan.bounds.get(f"{name}_{form}") for form in ("printed", "corrected")]
        rows.append([name, *("undefined" if c is None else f"{c:.4g}" for c in cells)])
    show_table(console, Table(columns, rows), title="Bounds of Theorems 1 and 2 and Corollary 1")
    console.print(f"objectives  p42 {plan.bounds['p42']}, drift {plan.bounds['drift']}")


def show_result(result: Result, console: Console) -> None:
    """Print a run's outcome: final figures, and the score over time as a small picture."""
    figures, metric = result.summary(), result.metric
    curve = result.trace.test_score.mean(axis=1)
    spread, name = result.final.test_score[-1], metric.name
    weakest = figures[f"device_{name}_{metric.weakest}"]
    seeds = f"seeds {spread.min():.3f} to {spread.max():.3f}; " if len(spread) > 1 else ""
    on = f"({seeds}{metric.samples_text(figures[name], figures['test_samples'])})"
    held_j = float(result.account.supplied_j.sum())
    rows = {
        metric.label: f"{figures[name]:.4f} {on}; of the devices' own models "
        f"{figures[f'device_{name}']:.4f}, the weakest {weakest:.4f}",
        **({} if name == "loss" else {"loss": f"{figures['loss']:.4f}"}),
        **metric_words(result.final, reported(result.account.scenario.training)),
        "energy": f"{energy(figures['energy_j'])} of {energy(held_j)}",
        "time": f"{duration(figures['time_s'])} on the modelled clock of the devices",
        "target": target_words(figures, len(result.seeds)),
        "work": f"{figures['device_steps']:,} device-steps, trained in "
        f"{duration(figures['wall_s'])} ({figures['device_steps_per_s']:,.0f} per second once "
        f"compiled) on this machine; the whole run in {duration(figures['whole_s'])}",
        "progress": f"{picture(curve, console)} {metric.label}, iterations {result.iteration[0]}.."
        f"{result.iteration[-1]}",
    }
    if not isinstance(result.account, Plan):
        rows = {"method": f"{result.method}, equal {figures['equal']}", **rows}
    for name, text in rows.items():
        show_row(name, text, console)
    show_figures(result.account, console)
    for note in result.notes:
        show_row("note", note, console)
    if isinstance(result.account, Plan) and not result.chance:  # which is the first note
        show_row("answer", result.answer, console)


def show_worlds(result: WorldsResult, console: Console) -> None:
    """Print what came of several worlds: one row each, and the mean with its interval."""
    found = result.summary()
    kept = ("device_", result.metric.name, "energy_j", "time_s", "iterations")
    shown = [
        one
        for one in measures(result.metric, "")
        if one.key.startswith(kept) and one.kind in ("figure", "count")
    ]
    columns = [Column("world", figures=False), Column("seed"), *shown]
    rows = [[str(row["world"]), str(row["seed"]), *_cells(row, shown)] for row in found["each"]]
    if found["worlds_run"]:
        rows.append(["mean", "", *_cells(found, shown)])
    show_table(console, Table(columns, rows), box=SIMPLE_HEAD)
    seeds = f"{found['seeds']} seed{'s' if found['seeds'] != 1 else ''}"
    ran = found["worlds_run"]
    if ran > 1:
        text = f"means of {ran} worlds of {seeds} each ± 95 % interval over worlds (Student's t)"
    else:
        text = "fewer than two worlds ran, so there are no intervals"
    console.print(Text(f"iterations (communication rounds); {text}; {found['redrawn']}"))
    if found["missing"]:
        show_row("missing", found["missing"], console)
    for note in found["notes"]:
        show_row("note", note, console)


def _cells(row: dict[str, Any], shown: Sequence[Measure]) -> list[str]:
    if row[shown[0].key] is None:
        return [row.get("status", "–")]
    intervals = {f"{one.key}_ci95": None for one in shown}
    rounded = {"iterations": round(row["iterations"])}
    return [one.text({**intervals, **row, **rounded}) for one in shown]
