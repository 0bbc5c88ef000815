"""What all convergence bounds share: the constants, the sums of rounds, two objectives.

a = 1−mη, c = σMη/(2m), S_t = Σ_{s>=t} τ_s. See notes: telescoping-noise, and what follows there.
"""

from __future__ import annotations

__all__ = [
    "Constants",
    "Moments",
    "columns",
    "contraction",
    "drift",
    "moments_of",
    "noise_ball",
    "outside_domain",
    "p42",
    "suffix_sums",
]

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError


@dataclass(frozen=True)
class Constants:
    """What Assumptions 1 to 4 bound, for every device and along the whole run."""

    strong_convexity: float  # m, smallest eigenvalue of any F_i's Hessian
    smoothness: float  # M, largest
    gradient_variance: float  # σ >= E‖g_i−∇F_i‖², of one round (a squared norm, as in eq. `g1`).
    gradient_bound: float  # G >= E‖g_i‖² (a squared norm, as in eq. `g2`).
    divergence: float  # δ, not squared: δ² >= (1/N) Σ_i E‖g_i − (1/N) Σ_j ∇F_j‖² (eq. `niid`).
    initial_gap: float  # D_1, mean over devices of F_i(w_1) − F_i*

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0):
                raise ScenarioError(
                    f"bounds.{field.name} = {value:g} is not a bound; give a finite number >= 0"
                )
        if not 0 < self.strong_convexity <= self.smoothness:
            raise ScenarioError(
                f"bounds.strong_convexity = {self.strong_convexity:g} is not in "
                f"(0, {self.smoothness:g}]; give 0 < strong_convexity <= smoothness"
            )


def _read_rounds(rounds: ArrayLike) -> NDArray[np.float64]:
    """Rounds [n] or [n, N] as floats, checked."""
    values = np.asarray(rounds, dtype=np.float64)
    if values.ndim not in (1, 2) or not values.size or not (values >= 0).all():
        raise ScenarioError(
            "rounds must be [n] or [n, N] numbers >= 0; give at least one iteration"
        )
    return values


def suffix_sums(rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """S_t = Σ_{s>=t} τ_s for t = 1..n+1, along the first axis (the last is 0)."""
    return np.concatenate([np.cumsum(rounds[::-1], axis=0)[::-1], np.zeros_like(rounds[:1])])


def _check_base(a: float) -> None:
    """Refuse an a with which powers would grow or alternate."""
    if not 0 <= a <= 1:
        raise ScenarioError(f"a = 1 - m*eta = {a:g} is not in [0, 1]; lower training.learning_rate")


def _per_device(values: NDArray[np.float64]) -> float | NDArray[np.float64]:
    """A plain float for rounds [n], the array for rounds [n, N]."""
    return float(values) if values.ndim == 0 else values


def p42(rounds: ArrayLike, a: float) -> float | NDArray[np.float64]:
    """Objective of (P42): Σ_{j=1}^{n} a^{S_j}."""
    _check_base(a)
    return _per_device(np.asarray((a ** suffix_sums(_read_rounds(rounds))[:-1]).sum(axis=0)))


def drift(
    rounds: ArrayLike, *, a: float, eta: float, smoothness: float, divergence: float
) -> float | NDArray[np.float64]:
    """The corrected cost of averaging: Σ_t a^{S_{t+1}} ητ_tδ²(1+Mητ_t/2), equal rounds assumed."""
    _check_base(a)
    values = _read_rounds(rounds)
    cost = eta * values * (divergence * divergence) * (1 + smoothness * eta * values / 2)
    return _per_device(np.asarray((a ** suffix_sums(values)[1:] * cost).sum(axis=0)))


def outside_domain(constants: Constants, learning_rate: float, *, printed: bool) -> str | None:
    """Why a bound says nothing at this learning rate, or None."""
    most = 1 / constants.smoothness
    if printed:
        most = min(most, 1.0)
    if not learning_rate > 0:
        return f"the learning rate {learning_rate:g} is not positive"
    if learning_rate > most:
        return f"needs a learning rate of at most {most:g}, has {learning_rate:g}"
    return None


def columns(rounds: ArrayLike) -> NDArray[np.float64]:
    """Rounds as [n, N]; rounds [n], the same on all devices, become one column."""
    values = _read_rounds(rounds)
    return values[:, None] if values.ndim == 1 else values


def noise_ball(constants: Constants, learning_rate: float) -> float:
    """c = σMη/(2m), where the noise of the gradients stops the descent."""
    ratio = constants.smoothness / constants.strong_convexity
    return constants.gradient_variance * ratio * learning_rate / 2


def contraction(constants: Constants, learning_rate: float) -> float:
    """a = 1−mη, what one round leaves of the gap; not below 0, where η = 1/m may round to."""
    return max(0.0, 1 - constants.strong_convexity * learning_rate)


FloatArray = NDArray[np.float64]


class Moments(NamedTuple):
    """Gradients of all devices at one point, each [N]."""

    variance: FloatArray  # E‖g_i − ∇F_i‖² of a batch
    second: FloatArray  # E‖g_i‖²
    apart: FloatArray  # E‖g_i − mean_j ∇F_j‖²


def moments_of(whole: FloatArray, squares: FloatArray, batch: int) -> Moments:
    """Exact expectations over the draw of a batch, with replacement."""
    own = (whole**2).sum(axis=1)
    variance = np.maximum(squares - own, 0.0) / batch
    apart = ((whole - whole.mean(axis=0)) ** 2).sum(axis=1)
    return Moments(variance, variance + own, variance + apart)
