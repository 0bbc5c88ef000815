"""Joules of an exchange at full power and at powers that are chosen, and what plans gain by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import machine, progress, publish, table
from joulemesh import Scenario
from joulemesh.aggregation.power import Units
from joulemesh.planning.ground import Ground
from joulemesh.planning.pricing import Pricer
from joulemesh.planning.static import plan_of

TITLE = "Transmit powers"
COMPARED = Path(__file__).parent.parent / "docs" / "comparison"
PRESETS = ("default", "paper")
CIRCUITS_W = (0.0, 0.1)
LOWEST_W = 0.01
STRETCHES = (1.0, 1.02, 1.05, 1.1, 1.25, 1.5, 2.0)
MODES = ("full", "just-in-time", "auto")


def scenarios() -> dict[str, Scenario]:
    """The seven of the comparison, planned as its tuned plan is, and two presets as they stand."""
    found = {}
    for path in sorted(COMPARED.glob("*.toml")):
        one = Scenario.load(path)
        assert one.budget.deadline_s is not None
        total_s = one.budget.deadline_s * int(one.plan.iterations)
        found[path.stem] = one.override(
            {
                "budget.deadline_s": None,
                "budget.total_s": total_s,
                "plan.rounds": "spread",
                "plan.iterations": "auto",
                "plan.aggregation": "tree-chunked",
            }
        )
    return found | {f"preset {name}": Scenario.preset(name) for name in PRESETS}


def exchange(ground: Ground) -> dict[str, Any]:
    """One exchange at several lengths, over the joules of full power."""
    route, costs = ground.ready(1).route(ground.forecast), ground.forecast
    prices = {
        stretch: Pricer(ground.scenario, ground.world, ground.work.model_bits, stretch)
        for stretch in STRETCHES
    }
    one = prices[1.0].exchange(route, costs)
    full_j, full_s = one.device_j(costs).sum(), one.seconds(costs)
    units = Units.of(one)
    slowest = np.full(len(units.unit), units.times(np.ones(len(units.worst))).max())
    alike = units.costs(np.minimum(units.within(slowest), units.grid[:, -1]))
    return {
        "scheme": route.scheme,
        "chunks": route.chunks,
        "joules": full_j,
        "seconds": full_s,
        "times": {
            str(stretch): pricer.beside(route, costs).total_j / full_j
            for stretch, pricer in prices.items()
        },
        "alike": one.device_j(alike).sum() / full_j,
        "alike_s": one.seconds(alike) / full_s,
    }


def plans(ground: Ground) -> dict[str, Any]:
    """Rounds, joules and seconds of whole plans."""
    found = {}
    for mode in MODES:
        scenario = ground.scenario.override({"plan.power": mode})
        made = plan_of(replace(ground, scenario=scenario))
        found[mode] = {
            "iterations": made.iterations,
            "rounds": int(made.rounds.sum()),
            "exchange_j": float(made.exchange_j.sum()),
            "joules": float(made.spent_j.sum()),
            "seconds": made.time_s,
            "stretch": made.ground.stretch if mode == "auto" else 1.0,
            "chunks": made.timeline.route.chunks,
        }
    return found


def page(record: dict[str, Any]) -> str:
    rows, whole = [], []
    for one in record["cases"]:
        name, circuit, sent = one["scenario"], f"{one['circuit_w']:g}", one["exchange"]
        times = [f"{sent['times'][str(stretch)]:.3f}" for stretch in STRETCHES]
        levelled = f"{sent['alike']:.3f} in {sent['alike_s']:.3f}"
        full, just = one["plans"]["full"], one["plans"]["just-in-time"]
        share = just["exchange_j"] / full["exchange_j"]
        planned = f"{share:.3f}, {just['chunks']}"
        scheme = f"{sent['scheme']}, {sent['chunks']}"
        rows.append([name, circuit, scheme, planned, *times, levelled])
        for mode in MODES:
            made = one["plans"][mode]
            whole.append(
                [
                    name if mode == "full" else "",
                    circuit if mode == "full" else "",
                    mode,
                    f"{made['iterations']:,}",
                    f"{made['stretch']:g}",
                    f"{made['exchange_j']:,.4g}",
                    f"{made['joules'] / full['joules']:.3f}",
                    f"{made['seconds'] / full['seconds']:.3f}",
                    f"{made['rounds'] / full['rounds']:.3f}",
                ]
            )
    header = ["scenario", "circuits [W]", "scheme, chunks", "just-in-time, chunks"]
    header += [f"× {x:g} s" for x in STRETCHES]
    return (
        f"Powers from {1e3 * LOWEST_W:g} mW to the radio's limit, links by Shannon's formula, "
        "planning alone. The seven scenarios of the comparison are planned as its tuned plan is: "
        "rounds spread over the total time, an exact average along a pipelined tree.\n\n"
        "## One exchange\n\n"
        "Joules over those at full power, sender and receiver: with `just-in-time` in the same "
        "seconds, with the chunks that it takes; then with the chunks of full power, if the "
        "exchange may take so many times its seconds. The last column lets every link send just "
        "as fast as the slowest: joules, and the seconds that the exchange then takes.\n\n"
        + table([*header, "all as the slowest"], rows)
        + "\n\nTo let every link of a pipeline send just as fast as the slowest was expected to "
        "take × 0.33 on a ring, 0.11 on a grid and 0.16 on a geometric graph in the same seconds "
        "(0.41, 0.24 and 0.27 with 0.1 W of circuits). The joules are confirmed, the seconds are "
        "not: such a pipeline fills and empties more slowly, which takes 1 to 2 % more. In exactly "
        "the same seconds the way that holds the slowest link has no slack, and with the chunks of "
        "full power little is saved. The fewest chunks are planned that come within 1 % of the "
        "least seconds; with more, as `just-in-time` takes, the whole is as fast as before. On "
        "cifar-ring-0.1 chunks are as small as frames before that is reached. A tree in one "
        "chunk has slack on all ways but the longest.\n\n"
        "## Whole plans\n\n"
        "`just-in-time` keeps rounds and seconds; `auto` chooses the length of exchanges as well "
        "(`× s`), and with it rounds and iterations. Joules, seconds and rounds are over those of "
        "the plan at full power.\n\n"
        + table(
            [
                "scenario",
                "circuits [W]",
                "plan.power",
                "iterations",
                "× s",
                "exchanges [J]",
                "joules",
                "seconds",
                "rounds",
            ],
            whole,
        )
    )


def main() -> None:
    cases = []
    for name, scenario in scenarios().items():
        for circuit_w in CIRCUITS_W:
            progress(f"{name}, {circuit_w:g} W")
            fields = {
                "devices.power_range_w": [LOWEST_W, scenario.devices.transmit_power_w],
                "devices.circuit_w": circuit_w,
                "plan.power": "just-in-time",
            }
            ground = Ground.of(scenario.override(fields))
            said = {"scenario": name, "circuit_w": circuit_w}
            cases.append(said | {"exchange": exchange(ground), "plans": plans(ground)})
    record = {"machine": machine(), "cases": cases}
    publish("power", TITLE, page(record), record)


if __name__ == "__main__":
    main()
