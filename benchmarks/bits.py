"""Accuracy and joules of exact averages in 32, 16, 8 and 4 bits (``plan.bits``).

``python -m benchmarks bits`` writes ``docs/benchmarks/bits.md``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

import joulemesh
from benchmarks.common import machine, progress, publish, table
from joulemesh.study.statistics import Estimate, estimate, paired

TITLE = "Bits of a message"
WIDTHS = (32, 16, 8, 4)
SEEDS = range(5)
SAME = "As many rounds and exchanges"
"""What messages lose by themselves, with nothing won back by their price."""
SCENARIOS: dict[str, dict[str, Any]] = {
    "default": {},
    "1 MHz": {"network.bandwidth_hz": 1e6},
    "0.2 MHz": {"network.bandwidth_hz": 2e5},
    SAME: {
        "plan.rounds": "fixed",
        "plan.fixed_rounds": 8,
        "plan.iterations": 40,
        "budget.energy_j": 1e4,
        "budget.total_s": 1e3,
    },
}
SHARES = (0.25, 0.5, 1.0)  # of the joules that 32 bits spend


def spent_j(result: Any) -> NDArray[np.float64]:
    """Joules of all devices up to each evaluation."""
    each = np.cumsum(result.plan.ledger.energy_j.sum(axis=1))
    return np.asarray(each[result.trace.iteration - 1])


def measured(changes: dict[str, Any], bits: int) -> dict[str, Any]:
    """One width in one scenario."""
    usual = {"plan.bits": bits, "training.eval_every": 2}
    scenario = joulemesh.Scenario().override({**usual, **changes})
    result = joulemesh.run(scenario, seeds=SEEDS)
    plan, joules = result.plan, spent_j(result)
    return {
        "iterations": plan.iterations,
        "rounds": int(plan.rounds.sum()),
        "joules": float(joules[-1]),
        "seconds": float(plan.ledger.seconds.sum()),
        "mbit": float(plan.ledger.bits.sum()) / 1e6,
        "exchange_share": float(plan.ledger.exchange_j.sum() / plan.ledger.total_j),
        "spent_j": joules.tolist(),
        "score": (100 * np.asarray(result.trace.test_score)).tolist(),
    }


def score_at(found: dict[str, Any], joules: float) -> NDArray[np.float64]:
    """Accuracy of each seed once so many joules are spent; the last one if fewer are."""
    row = int(np.searchsorted(found["spent_j"], joules * (1 + 1e-9), side="right")) - 1
    return np.asarray(found["score"][max(row, 0)], np.float64)


def said(one: Estimate, sign: str = "") -> str:
    half = "" if math.isnan(one.half) else f" ± {one.half:.2f}"
    return f"{round(one.mean, 2) + 0.0:{sign}.2f}{half}"


def page(record: dict[str, Any]) -> str:
    parts = [
        "The default scenario (20 devices, digits) as it is, and with narrow bands. Every width is "
        "planned for the same batteries and the same time, with as many iterations as the plan "
        "chooses; in the last table all widths have 40 iterations of 8 rounds, so that it shows "
        "what messages lose by themselves. Accuracy of the mean model in per cent, "
        f"{len(SEEDS)} seeds; differences to 32 bits are paired by seed; ± is half of a 95 % "
        "interval. *At a share of the joules* is the accuracy once that share of what the plan of "
        "32 bits spends has been spent."
    ]
    for name, widths in record["scenarios"].items():
        whole = widths["32"]
        rows = []
        for bits, one in widths.items():
            row = [bits, f"{one['iterations']:,}", f"{one['rounds']:,}", f"{one['joules']:.0f}"]
            row += [f"{100 * one['exchange_share']:.1f} %", f"{one['mbit']:,.0f}"]
            for share in SHARES:
                mine, theirs = (score_at(x, share * whole["joules"]) for x in (one, whole))
                row.append(
                    said(estimate(mine)) if one is whole else said(paired(mine, theirs), "+")
                )
            rows.append(row)
        header = ["bits", "iterations", "rounds", "joules", "of exchanges", "Mbit on the air"]
        header += [f"at {share:.0%} of the joules" for share in SHARES]
        parts.append(f"## {name}\n\n" + table(header, rows))
    return "\n\n".join(parts)


def main() -> None:
    record: dict[str, Any] = {"machine": machine("jax"), "scenarios": {}}
    for name, changes in SCENARIOS.items():
        record["scenarios"][name] = {}
        for bits in WIDTHS:
            progress(f"{name}, {bits} bits")
            record["scenarios"][name][str(bits)] = measured(changes, bits)
    publish("bits", TITLE, page(record), record)
