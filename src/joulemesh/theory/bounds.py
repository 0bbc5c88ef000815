"""The convergence bounds of a plan: printed and corrected, side by side.

The formulas are in ``terms``, ``printed`` and ``corrected``; this module
re-exports them and evaluates them all for the plan's report.
"""

from __future__ import annotations

__all__ = [
    "Bounds",
    "Constants",
    "corollary1_corrected",
    "corollary1_printed",
    "drift",
    "evaluate",
    "p42",
    "phi_printed",
    "theorem1_corrected",
    "theorem1_inexact",
    "theorem1_printed",
    "theorem2_corrected",
    "theorem2_discounted",
    "theorem2_limit_printed",
    "theorem2_printed",
]

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.theory.corrected import (
    corollary1_corrected,
    theorem1_corrected,
    theorem1_inexact,
    theorem2_corrected,
    theorem2_discounted,
)
from joulemesh.theory.printed import (
    corollary1_printed,
    phi_printed,
    theorem1_printed,
    theorem2_limit_printed,
    theorem2_printed,
)
from joulemesh.theory.terms import (
    Constants,
    columns,
    contraction,
    drift,
    noise_ball,
    outside_domain,
    p42,
)


@dataclass(frozen=True)
class Bounds:
    """All bounds side by side; None where one says nothing, with the reason in ``notes``."""

    theorem1_printed: float | None  # eq. `gap1` plus eq. `gap2`, to the letter.
    theorem1_printed_p15: float | None  # the same with the exponents of eq. `p15`.
    # the gap after the last exchange, at most; with inexact exchanges, that of the devices' own
    # models
    theorem1_corrected: float | None
    theorem2_printed: float | None  # h(δ, N, T) of eq. `gap2` with its own η = 1/(MT⁴).
    theorem2_limit_printed: float | None  # eq. `gap3`.
    theorem2_corrected: float | None  # Σ_t Δ_t, the counterpart of ``theorem2_printed``
    theorem2_discounted: float | None  # what of it enters ``theorem1_corrected``
    corollary1_printed: float | None  # iterations T for the target gap
    corollary1_corrected: float | None  # rounds in all for the target gap
    target_gap: float | None  # ε of the two above
    noise_ball: float | None  # c
    p42: float | None  # objective of (P42), mean over devices
    drift: float | None  # the same rounds' cost of averaging were all devices like the mean one
    notes: dict[str, str]  # reasons and cautions, by field

    def to_dict(self) -> dict[str, object]:
        """Plain figures for JSON."""
        return dataclasses.asdict(self)


def _printed_figures(
    rounds: NDArray[np.float64],
    constants: Constants,
    learning_rate: float,
    parameters: int,
) -> dict[str, float]:
    """Theorems 1 and 2 as printed."""
    n, devices = rounds.shape
    height = theorem2_printed(n, devices, parameters, constants)
    figures = {
        "theorem2_printed": height,
        "theorem2_limit_printed": theorem2_limit_printed(devices, parameters, constants),
    }
    for name, literal in (("theorem1_printed", True), ("theorem1_printed_p15", False)):
        figures[name] = theorem1_printed(
            rounds, constants, learning_rate, aggregation=height, literal_index=literal
        )
    return figures


def _corrected_figures(
    rounds: NDArray[np.float64], constants: Constants, learning_rate: float, left: ArrayLike
) -> dict[str, float]:
    """Theorems 1 and 2 corrected, and the two objectives, for a learning rate in their domain."""
    gap = theorem1_corrected(rounds, constants, learning_rate)
    if np.any(left):  # of the distances from the mean, after an exchange
        gap = theorem1_inexact(rounds, left, constants, learning_rate)
    a = contraction(constants, learning_rate)
    averaging = drift(
        rounds,
        a=a,
        eta=learning_rate,
        smoothness=constants.smoothness,
        divergence=constants.divergence,
    )
    return {
        "theorem1_corrected": gap,
        "theorem2_corrected": float(theorem2_corrected(rounds, constants, learning_rate).sum()),
        "theorem2_discounted": theorem2_discounted(rounds, constants, learning_rate),
        "noise_ball": noise_ball(constants, learning_rate),
        "p42": float(np.mean(p42(rounds, a))),
        "drift": float(np.mean(averaging)),
    }


def evaluate(
    rounds: ArrayLike,
    constants: Constants,
    learning_rate: float,
    parameters: int,
    *,
    target_gap: float | None = None,
    contraction: ArrayLike = 0.0,
) -> Bounds:
    """Every bound for these rounds."""
    values = columns(rounds)
    if values.shape != np.shape(rounds):
        raise ScenarioError("rounds of a plan are [n, N]; give one column per device")
    target = constants.initial_gap / 10 if target_gap is None else target_gap
    figures = dict.fromkeys((f.name for f in dataclasses.fields(Bounds)), math.nan)
    del figures["notes"]
    with np.errstate(over="ignore", invalid="ignore"):  # an infinite bound is reported as None
        figures |= _printed_figures(values, constants, learning_rate, parameters)
        if not outside_domain(constants, learning_rate, printed=False):
            figures |= _corrected_figures(values, constants, learning_rate, contraction)
    figures["corollary1_printed"] = corollary1_printed(
        constants, learning_rate, devices=values.shape[1], parameters=parameters, target_gap=target
    )
    figures["corollary1_corrected"] = corollary1_corrected(
        constants, learning_rate, target_gap=target
    )
    figures["target_gap"] = target
    return _record(figures, constants, learning_rate)


def _reason(name: str, constants: Constants, learning_rate: float, target_gap: float) -> str:
    """Why the figure of that name is not a finite number."""
    domain = outside_domain(constants, learning_rate, printed="printed" in name)
    if domain and not name.startswith("theorem2_printed"):
        return domain
    if name == "target_gap" or (name.startswith("corollary1") and not target_gap > 0):
        return f"a target gap of {target_gap:g} cannot be reached; give a positive, finite one"
    ball = noise_ball(constants, learning_rate)
    if name == "corollary1_corrected" and target_gap <= ball:
        return (
            f"the target gap {target_gap:g} is inside the noise ball of {ball:g}; "
            "raise it or lower training.learning_rate"
        )
    return "too large for a float; check the section [bounds]"


def _record(figures: dict[str, float], constants: Constants, learning_rate: float) -> Bounds:
    """None for what is undefined or infinite, and a note for each."""
    notes: dict[str, str] = {}
    target = figures["target_gap"]
    for name, figure in figures.items():
        if not math.isfinite(figure):
            notes[name] = _reason(name, constants, learning_rate, target)
        elif name.startswith("corollary1") and constants.divergence > 0:
            notes[name] = (
                f"stated for equal data; ignores bounds.divergence = {constants.divergence:g}"
            )
    finite = {name: figure if math.isfinite(figure) else None for name, figure in figures.items()}
    return Bounds(**finite, notes=notes)
