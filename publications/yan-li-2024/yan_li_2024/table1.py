"""Table I and Theorem 4: six allocations, the exact optimum, and the theorem printed and corrected.

Nothing is trained. The theorem's statements of Sections III and IV are in ``theory``.
"""

from __future__ import annotations

__all__ = [
    "CONFIG",
    "QUICK",
    "Config",
    "Setting4",
    "allocations",
    "compared",
    "pictures",
    "run",
    "setup",
]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.planning.rounds import (
    backfill,
    inverse,
    theorem4,
    theorem4_literal,
    theorem4_weights,
    uniform,
)
from joulemesh.theory.bounds import p42, suffix_sums
from yan_li_2024 import theory
from yan_li_2024.outcome import Outcome, Panel, Picture, Row, Series

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Setting4:
    """One setting of (P42): n iterations, Στ ≤ total, τ ≤ cap, a = 1 − mη, ζ."""

    n: int
    total: int
    cap: int
    a: float
    zeta: float


@dataclass(frozen=True)
class Config:
    """What is computed.

    Attributes:
        bases: a of Table I, which the paper leaves a symbol.
        settings: of Theorem 4. Section V has (n, total, ζ) = (400, 1600, 400) and (100, 300, 400);
            it leaves a and the cap τ_0 open.
        drawn: the setting whose rounds are drawn.
    """

    bases: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    settings: tuple[Setting4, ...] = (
        Setting4(10, 30, 5, 0.9, 20),
        Setting4(10, 30, 10, 0.9, 20),
        Setting4(10, 30, 10, 0.9, 10),
        Setting4(10, 30, 10, 0.9, 1000),
        Setting4(10, 30, 5, 0.99, 20),
        Setting4(10, 30, 5, 0.5, 20),
        Setting4(20, 60, 8, 0.9, 40),
        Setting4(50, 150, 6, 0.95, 400),
        Setting4(100, 300, 6, 0.99, 400),
        Setting4(100, 300, 6, 0.9, 400),
        Setting4(100, 300, 10, 0.999, 400),
        Setting4(400, 1600, 10, 0.99, 400),
        Setting4(400, 1600, 50, 0.99, 400),
    )
    drawn: Setting4 = field(default_factory=lambda: Setting4(100, 300, 10, 0.99, 400))


CONFIG = Config()
QUICK = CONFIG  # it takes milliseconds


def allocations(n: int = 3, total: int = 5) -> list[tuple[int, ...]]:
    """All ways to run ``total`` rounds in n iterations, at least one in each (T = n + 1).

    >>> allocations()
    [(1, 1, 3), (1, 2, 2), (1, 3, 1), (2, 1, 2), (2, 2, 1), (3, 1, 1)]
    """
    every = product(range(1, total + 1), repeat=n)
    return [rounds for rounds in every if sum(rounds) == total]


def policies(one: Setting4) -> Iterator[tuple[str, IntArray | None]]:
    """Every policy's rounds in a setting; None where the printed theorem is not defined."""
    yield "exact optimum (backfill)", backfill(one.n, one.total, one.cap)
    yield "theorem 4 corrected", theorem4(one.n, one.total, one.cap, one.zeta)
    try:
        yield "theorem 4 printed", theorem4_literal(one.n, one.total, one.cap, one.zeta)
    except ScenarioError:
        yield "theorem 4 printed", None
    yield "theorem 4 capped and floored", _floored(one)
    yield "uniform", uniform(one.n, one.total, one.cap)
    yield "inverse", inverse(one.n, one.total, one.cap, one.zeta)
    yield "exact optimum reversed", backfill(one.n, one.total, one.cap)[::-1]


def _floored(one: Setting4) -> IntArray:
    """The weights of eq. `optt` filled up to the cap, then floored, zeros and all.

    The nearest that the printed cases come to a definition: case 1 within the cap, and "1" read
    as τ_0 (notes: theorem-4-as-printed).
    """
    weights = theorem4_weights(one.n, one.zeta)
    goal, full = min(one.total, one.n * one.cap), np.zeros(one.n, bool)
    while True:
        left = goal - one.cap * full.sum()
        share = np.where(full, one.cap, left * weights / max(weights[~full].sum(), 1e-300))
        over = (share > one.cap) & ~full
        if not over.any():
            return np.asarray(np.floor(share + 1e-9), np.int64)
        full |= over


def compared(one: Setting4) -> list[dict[str, Any]]:
    """(P42) of every policy in a setting, and by how much it exceeds the exact minimum.

    >>> rows = compared(Setting4(10, 30, 5, 0.9, 20))
    >>> [(row["policy"], round(row["objective"], 3)) for row in rows[:2]]
    [('exact optimum (backfill)', 1.603), ('theorem 4 corrected', 1.794)]
    """
    rows: list[dict[str, Any]] = []
    for policy, rounds in policies(one):
        value = float("nan") if rounds is None else float(p42(rounds, one.a))
        best = rows[0]["objective"] if rows else value
        rows.append(
            {
                "part": "theorem 4",
                "n": one.n,
                "tau_total": one.total,
                "tau_0": one.cap,
                "a": one.a,
                "zeta": one.zeta,
                "policy": policy,
                "rounds": "not defined" if rounds is None else _short(rounds),
                "rounds_used": "" if rounds is None else int(rounds.sum()),
                "zeros": "" if rounds is None else int((rounds == 0).sum()),
                "objective": value,
                "excess_percent": 100 * (value / best - 1),
            }
        )
    return rows


def _short(rounds: IntArray) -> str:
    """Rounds in a cell: runs of equal numbers as number×length."""
    cuts = np.flatnonzero(np.diff(rounds)) + 1
    runs = [(int(run[0]), len(run)) for run in np.split(rounds, cuts)]
    return " ".join(f"{value}x{length}" if length > 1 else f"{value}" for value, length in runs)


def _table_one(bases: tuple[float, ...]) -> list[dict[str, Any]]:
    rows = []
    for a, rounds in product(bases, allocations()):
        exponents = suffix_sums(np.array(rounds, np.float64))[:-1].astype(int)
        best = float(p42(np.array([1, 1, 3]), a))
        value = float(p42(np.array(rounds), a))
        rows.append(
            {
                "part": "table 1",
                "n": 3,
                "tau_total": 5,
                "tau_0": "",
                "a": a,
                "zeta": "",
                "policy": " + ".join(f"a^{k}" for k in exponents),
                "rounds": " ".join(map(str, rounds)),
                "rounds_used": 5,
                "zeros": 0,
                "objective": value,
                "excess_percent": 100 * (value / best - 1),
            }
        )
    return rows


def pictures(config: Config, rows: Sequence[Row] = ()) -> tuple[Picture, ...]:
    """The figure; it is computed anew, the rows are for uniformity with the other figures."""
    del rows
    grid, none = np.linspace(0.02, 0.98, 49), np.full(49, np.nan)
    values = tuple(
        Series(
            f"{rounds}".replace(" ", ""),
            grid,
            np.array([float(p42(np.array(rounds), float(a))) for a in grid]),
            none,
            none,
        )
        for rounds in allocations()
    )
    one = config.drawn
    t, gap = np.arange(1.0, one.n + 1), np.full(one.n, np.nan)
    schedules = tuple(
        Series(policy, t, rounds.astype(np.float64), gap, gap)
        for policy, rounds in policies(one)
        if rounds is not None and policy not in ("theorem 4 printed", "exact optimum reversed")
    )
    where = f"n = {one.n}, Στ = {one.total}, τ₀ = {one.cap}, ζ = {one.zeta:g}"
    panels = (
        Panel("(a)  Table I", "a = 1 − mη", "value of (P42)", values),
        Panel(f"(b)  Allocations, {where}", "iteration t", "rounds τ[t]", schedules, steps=True),
    )
    return (Picture("table1", "Table I and Theorem 4", panels, 2, bands=""),)


def setup(config: Config) -> str:
    """What was computed, and what the paper leaves open."""
    return (
        "Formulas only, nothing is trained. The paper leaves a = 1 − mη a symbol in Table I, and "
        f"the cap τ₀ open in Section V: {len(config.bases)} values of a and "
        f"{len(config.settings)} settings of (n, Στ, τ₀, a, ζ) are computed, its own among them."
    )


def run(config: Config) -> Outcome:
    """Compute the table.

    >>> len(run(CONFIG).rows)  # 8 bases × 6 allocations, 13 settings × 7 policies
    139
    """
    settings = [row for one in config.settings for row in compared(one)]
    rows: list[Row] = [*_table_one(config.bases), *settings]
    findings = theory.findings(
        values={a: [float(p42(np.array(r), a)) for r in allocations()] for a in config.bases},
        compared=settings,
        settings=[(one.n, one.total, one.cap, one.a, one.zeta) for one in config.settings],
    )
    undefined = sum(row["rounds"] == "not defined" for row in settings)
    note = (
        f"Theorem 4 as printed is not defined in {undefined} of {len(config.settings)} settings "
        "(its first case exceeds the cap, and the other cases are empty)"
    )
    return Outcome("table1", rows, pictures(config), findings, (note,), setup(config))
