"""Plans and runs as tables and small pictures for a terminal."""

from __future__ import annotations

__all__ = [
    "metric_text",
    "metric_tiles",
    "metric_words",
    "show_figures",
    "show_plan",
    "show_result",
    "show_worlds",
    "target_tile",
    "target_words",
]

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.text import Text

from joulemesh.base.units import column, duration, energy
from joulemesh.metrics import Metric, Reported, further_of, reported, score_metric
from joulemesh.models.curves import Curve
from joulemesh.planning.plan import Account, Plan, device_joules, spent_on
from joulemesh.study.result import Result, WorldsResult
from joulemesh.views.tables import figure_text, open_text, own_heading, target_text
from joulemesh.views.terminal import Column, picture, show_row, show_table
from joulemesh.views.words import by_section, percent

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace


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
        name: column(figures[rows].tolist(), "J") for name, figures in device_joules(plan).items()
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


def target_words(found: Mapping[str, Any], seeds: int) -> str:
    """One sentence's worth."""
    joules, seconds = _texts(found, seeds)
    if found["energy_to_target_j"] is None:
        return f"{found['target_words']}: {joules}"
    unsure = open_text([found])
    given = f", {unsure}" if unsure else ""
    return f"{found['target_words']} after {joules} and {seconds}{given}"


def target_tile(found: Mapping[str, Any], seeds: int) -> tuple[str, str, str]:
    """A tile of a report: its name, the figure, and a note."""
    joules, seconds = _texts(found, seeds)
    note = "" if found["time_to_target_s"] is None else f"time {seconds}"
    unsure = open_text([found])
    note += f"; {unsure}" if unsure else ""
    metric = score_metric(found["target_metric"])
    return f"energy to {metric.text(found['target'])} {metric.label}", joules, note


def _texts(found: Mapping[str, Any], seeds: int) -> tuple[str, str]:
    row = {**found, "seeds": seeds}
    units = (("energy_to_target_j", "J"), ("time_to_target_s", "s"))
    joules, seconds = (target_text(row, name, unit) for name, unit in units)
    return joules, seconds


def metric_text(figure: float, of: Metric | Curve) -> str:
    """A figure of a metric: a share in per cent, anything else with four digits."""
    return percent(figure) if of.share else f"{figure:.4g}"


def _weakest(last: Trace, metric: Metric) -> float | None:
    """The worst figure among devices and seeds; None where devices are not measured."""
    if not metric.devices:
        return None
    ends = last.own[f"device_{metric.name}_{metric.weakest}"]
    return float(ends.min() if metric.weakest == "min" else ends.max())


def metric_tiles(last: Trace, measured: Reported) -> tuple[tuple[str, str, str], ...]:
    """Of each further metric: what it is called, its final figure, and a note on devices."""
    tiles = []
    for metric in further_of(*measured):
        weakest = _weakest(last, metric)
        note = "mean model" if weakest is None else f"weakest device {metric_text(weakest, metric)}"
        figure = float(last.own[f"test_{metric.name}"].mean())
        tiles.append((f"test {metric.label}", metric_text(figure, metric), note))
    return tuple(tiles)


def metric_words(last: Trace, measured: Reported) -> dict[str, str]:
    """Of each further metric, by name, its final figures in words."""
    return {
        name: f"{figure}; {note}"
        for (_, figure, note), name in zip(
            metric_tiles(last, measured), (m.name for m in further_of(*measured)), strict=True
        )
    }


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
    scores = (result.metric.heading, own_heading(result.metric))
    names = ("seed", *scores, "energy", "time", "iterations")
    columns = [Column("world", figures=False), *(Column(name) for name in names)]
    rows = [
        [str(row["world"]), str(row["seed"]), *_cells(row, result.metric)] for row in found["each"]
    ]
    if found["worlds_run"]:
        rows.append(["mean", "", *_cells(found, result.metric)])
    show_table(console, columns, rows, box=SIMPLE_HEAD)
    seeds = f"{found['seeds']} seed{'s' if found['seeds'] != 1 else ''}"
    ran = found["worlds_run"]
    if ran > 1:
        text = f"means of {ran} worlds of {seeds} each ± 95 % interval over worlds (Student's t)"
    else:
        text = "fewer than two worlds ran, so there are no intervals"
    console.print(Text(f"{text}; {found['redrawn']}"))
    if found["missing"]:
        show_row("missing", found["missing"], console)
    for note in found["notes"]:
        show_row("note", note, console)


def _cells(row: dict[str, Any], metric: Metric) -> list[str]:
    if row[metric.name] is None:
        return [row.get("status", "–"), *["–"] * 4]

    def cell(name: str, unit: str = "") -> str:
        return figure_text(row[name], row.get(f"{name}_ci95"), unit, share=metric.share)

    return [
        cell(metric.name),
        cell(f"device_{metric.name}"),
        cell("energy_j", "J"),
        cell("time_s", "s"),
        f"{row['iterations']:,.0f}",
    ]
