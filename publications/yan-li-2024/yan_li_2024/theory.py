"""Sections III and IV: what the paper says of its formulas, decided by evaluating them."""

from __future__ import annotations

__all__ = ["findings"]

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from joulemesh.planning.rounds import theorem4, theorem4_weights
from joulemesh.theory.bounds import p42
from yan_li_2024.claims import Finding, exact
from yan_li_2024.sentences import claim

_LINES = 200  # random lines along which (P42) is tested for convexity
_PURPOSE = 0x7034_3263  # keeps these draws apart from every other use of a seed


def findings(
    *,
    values: Mapping[float, Sequence[float]],
    compared: Sequence[Mapping[str, Any]],
    settings: Sequence[tuple[int, int, int, float, float]],
) -> tuple[Finding, ...]:
    """Decide the claims on formulas.

    Args:
        values: for every a, (P42) of Table I's allocations, that of (1, 1, 3) first.
        compared: rows of Theorem 4 against the exact minimum.
        settings: (n, total, cap, a, ζ).

    Returns:
        The findings.
    """
    corrected = [row for row in compared if row["policy"] == "theorem 4 corrected"]
    named = {_name(*setting): setting for setting in settings}
    bases = {"least": min(values), "most": max(values)}
    return (
        exact(
            claim("table1-minimum", **bases),
            {f"a = {a:g}": 100 * (min(v[1:]) / v[0] - 1) for a, v in values.items()},
        ),
        exact(claim("p42-nonconvex", lines=_LINES), {f"{_LINES} lines": _bent_down()}),
        exact(
            claim("theorem4-optimal"),
            {
                _name(*(row[k] for k in ("n", "tau_total", "tau_0", "a", "zeta"))): row[
                    "excess_percent"
                ]
                for row in corrected
            },
        ),
        exact(
            claim("theorem4-cases"),
            {name: 100 * (1 - _open_cases(s[0], s[4]) / (s[0] - 1)) for name, s in named.items()},
        ),
        exact(
            claim("theorem4-increasing"),
            {
                name: float((np.diff(theorem4(n, total, cap, zeta)) < 0).sum())
                for name, (n, total, cap, _, zeta) in named.items()
            },
        ),
        exact(
            claim("infinite-budget"),
            {
                name: float(p42(np.ones(n), a)) / float(p42(np.full(n, cap), a))
                for name, (n, _, cap, a, _) in named.items()
            },
        ),
        exact(claim("bound-vanishes"), {"10⁶ iterations": 100 * _left_of_gap(0.1, 5, 10**6)}),
        exact(claim("linear-rate"), {"T = O(1/ε)": (1 / 0.01) / (1 / 0.1)}),
        exact(claim("devices-amplify"), {"N = 2 to 50": 100 * (_norm(50) / _norm(2) - 1)}),
    )


def _name(n: int, total: int, cap: int, a: float, zeta: float) -> str:
    return f"n = {n}, Στ = {total}, τ₀ = {cap}, a = {a:g}, ζ = {zeta:g}"


def _bent_down() -> int:
    """Random lines through feasible points along which (P42), real rounds, bends downwards."""
    rng = np.random.default_rng(_PURPOSE)
    bends = []
    for _ in range(_LINES):
        n, a = int(rng.integers(2, 12)), float(rng.uniform(0.8, 0.99))
        one, other = rng.uniform(1, 10, (2, n))
        ends = float(p42(one, a)) + float(p42(other, a))
        bends.append(ends - 2 * float(p42((one + other) / 2, a)))
    return sum(bend < 0 for bend in bends)


def _open_cases(n: int, zeta: float) -> int:
    """How many t_0 in 1..n−1 have a non-empty interval [S/w_{t0}, S/w_{t0+1}] in eq. `optt`."""
    weights = theorem4_weights(n, zeta)
    return int((weights[:-1] >= weights[1:]).sum())


def _left_of_gap(ratio: float, rounds: int, iterations: int) -> float:
    """A_1 over the initial gap with η = 1/(Mt⁴): Π_t (1 − (m/M)/t⁴)^τ."""
    t = np.arange(1.0, iterations + 1)
    return math.exp(rounds * float(np.log1p(-ratio / t**4).sum()))


def _norm(devices: int) -> float:
    """‖P − I‖² for P the averaging of N devices; rounded, since rounding errors are not growth."""
    away = np.full((devices, devices), 1 / devices) - np.eye(devices)
    return round(float(np.linalg.norm(away, 2)) ** 2, 9)
