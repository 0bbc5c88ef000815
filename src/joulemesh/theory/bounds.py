"""The convergence bounds of a plan: printed and corrected, side by side.

Terms that both have in common, then the corrected and the printed formulas, and what a plan's
report shows of them.

Corrected (notes: corrected-theorem-1): constant η <= 1/M, every F_i m-strongly convex and M-smooth,
unbiased gradients, exact averaging after each of n iterations. The gap is
(1/N) Σ_i E[F_i(w)] − F_i*, with F_i* the *local* minima: that is the paper's w*, so on unlike data
no common model closes it. Printed, for comparison only: their errors are listed (notes:
printed-bounds), and the printed T is n+1.
"""

from __future__ import annotations

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


def step_contraction(constants: Constants, learning_rate: float) -> float:
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


def training_spread(
    values: NDArray[np.float64], constants: Constants, learning_rate: float
) -> NDArray[np.float64]:
    """Bound [n] on (1/N) Σ_i E‖w̃_i − w̄‖²: by δ² where all devices run alike, else by G."""
    alike = (values == values[:, :1]).all(axis=1)
    square = np.where(alike, constants.divergence * constants.divergence, constants.gradient_bound)
    return np.asarray(learning_rate * learning_rate * square * (values**2).mean(axis=1))


def theorem2_corrected(
    rounds: ArrayLike, constants: Constants, learning_rate: float
) -> NDArray[np.float64]:
    """Corrected Theorem 2: what each averaging costs at most, Δ_t, undiscounted."""
    # (γ/2)δ² + (1/(2γ)+M/2)V_t with Young's γ = η × mean rounds and V_t = η²τ_t²δ² where all
    # devices run τ_t rounds (this gives ητ_tδ²(1+Mητ_t/2)), else η²G (1/N)Σ_i τ_{i,t}².
    values = columns(rounds)
    spread = training_spread(values, constants, learning_rate)
    gamma = learning_rate * values.mean(axis=1)
    # Nobody trains, nothing moves: the limit of both terms is 0.
    share = np.divide(spread, 2 * gamma, out=np.zeros_like(spread), where=gamma > 0)
    return np.asarray(
        gamma * constants.divergence * constants.divergence / 2
        + share
        + constants.smoothness * spread / 2
    )


def theorem2_discounted(rounds: ArrayLike, constants: Constants, learning_rate: float) -> float:
    """The aggregation term of Theorem 1, (1/N) Σ_i Σ_t a^{S_{i,t+1}} Δ_{i,t}, at most."""
    # With weights b_i = a^{S_{i,t+1}} that differ, the common vector that Theorem 2 subtracts from
    # the gradients no longer cancels; what it leaves is at most sd(b) √(G V_t) by Cauchy–Schwarz.
    # The bound is Σ_t max_i(b_i) Δ_t + sd(b) √(G V_t).
    if outside_domain(constants, learning_rate, printed=False):
        return math.nan
    values = columns(rounds)
    weights = step_contraction(constants, learning_rate) ** suffix_sums(values)[1:]
    spread = training_spread(values, constants, learning_rate)
    cost = theorem2_corrected(values, constants, learning_rate)
    uneven = weights.std(axis=1) * np.sqrt(constants.gradient_bound * spread)
    return float((weights.max(axis=1) * cost + uneven).sum())


def theorem1_corrected(
    rounds: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    aggregation: ArrayLike | None = None,
) -> float:
    """Corrected Theorem 1: a^Q D_1 + c(1−a^Q) + Σ_t a^{S_{t+1}} Δ_t, device by device."""
    if outside_domain(constants, learning_rate, printed=False):
        return math.nan
    values = columns(rounds)
    a = step_contraction(constants, learning_rate)
    ball = noise_ball(constants, learning_rate)
    left = a ** values.sum(axis=0)
    if aggregation is None:
        averaging = theorem2_discounted(values, constants, learning_rate)
    else:
        costs = _costs(aggregation, values)
        averaging = float((a ** suffix_sums(values)[1:] * costs).sum(axis=0).mean())
    # Only the mean of the initial gaps is known, so the slowest device's factor must do for all.
    return float(left.max() * constants.initial_gap + ball * (1 - left).mean() + averaging)


def _costs(aggregation: ArrayLike, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Known costs of averaging in a shape that fits the rounds."""
    costs = np.asarray(aggregation, dtype=np.float64)
    if costs.shape == values.shape:
        return costs
    if costs.shape == values.shape[:1] and (values == values[:, :1]).all():
        return costs[:, None]
    raise ScenarioError(
        f"costs of averaging of shape {costs.shape} do not fit rounds {values.shape}; give [n] for "
        "equal rounds, else [n, N]"
    )


def corollary1_corrected(constants: Constants, learning_rate: float, *, target_gap: float) -> float:
    """Corrected Corollary 1: rounds Σ_t τ_t after which the gap is at most ε, for δ = 0."""
    # Linear to a noise ball of size c = σMη/(2m); no rate below it with constant η.
    if outside_domain(constants, learning_rate, printed=False) or math.isnan(target_gap):
        return math.nan
    ball = noise_ball(constants, learning_rate)
    if target_gap >= constants.initial_gap:
        return 0.0
    if target_gap <= ball:
        return math.nan
    a = step_contraction(constants, learning_rate)
    if a <= 0:
        return 1.0
    return math.log((constants.initial_gap - ball) / (target_gap - ball)) / -math.log(a)


Floats = NDArray[np.float64]


def _per_iteration(values: ArrayLike, name: str, most: float, iterations: int) -> Floats:
    """One figure in [0, most] for each iteration, from one for all or from [n]."""
    given = np.asarray(values, dtype=np.float64)
    if given.shape not in ((), (iterations,)) or not ((given >= 0) & (given <= most)).all():
        raise ScenarioError(
            f"{name} must be numbers in [0, {most:g}], one for all or for each of the "
            f"{iterations} iterations"
        )
    return np.broadcast_to(given, iterations)


def _moved(contraction: Floats, moved: ArrayLike | None) -> Floats:
    """κ_t >= ‖I − W_t‖: how far an exchange moves a device, in distances from the mean."""
    if moved is not None:
        return _per_iteration(moved, "moved", 2.0, len(contraction))
    between = np.where(contraction == 1, 0.0, 1 + contraction)
    return np.where(contraction == 0, 1.0, between)


def spread_roots(
    rounds: ArrayLike, contraction: ArrayLike, constants: Constants, learning_rate: float
) -> Floats:
    """Root of V_t, the mean squared distance from the mean before each exchange, at most."""
    # √V_t <= λ_{t−1} √V_{t−1} + √P_t, with P_t what the rounds of the iteration add: η²τ_t²δ² where
    # all devices run τ_t rounds, else η²G (1/N)Σ_i τ_{i,t}².
    values = columns(rounds)
    factors = _per_iteration(contraction, "contraction", 1.0, len(values))
    added = np.sqrt(training_spread(values, constants, learning_rate))
    roots, carried = np.empty(len(values)), 0.0
    for t, (own, factor) in enumerate(zip(added, factors, strict=True)):
        roots[t] = carried + own
        carried = factor * roots[t]
    return roots


def exchange_costs(
    rounds: ArrayLike,
    contraction: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    moved: ArrayLike | None = None,
) -> Floats:
    """What each exchange costs at most, Δ_t, undiscounted: δκ_t√V_t + (M/2)κ_t²V_t."""
    # For an exact mean of devices that began the iteration alike, it is that of corrected Theorem
    # 2, whose γ is η times the mean rounds.
    values = columns(rounds)
    factors = _per_iteration(contraction, "contraction", 1.0, len(values))
    roots = spread_roots(values, factors, constants, learning_rate)
    moves = _moved(factors, moved) * roots
    divergence = constants.divergence
    costs = divergence * moves + constants.smoothness * moves**2 / 2
    # The same γ as in Theorem 2, though another may be better where rounds are unequal.
    gamma = learning_rate * values.mean(axis=1)
    alike = np.concatenate([[True], factors[:-1] * roots[:-1] == 0])
    as_before = alike & (factors == 0) & (gamma > 0) & (moves == roots)
    young = np.divide(moves**2, 2 * gamma, out=np.zeros_like(moves), where=gamma > 0)
    known = gamma * divergence * divergence / 2 + young + constants.smoothness * moves**2 / 2
    return np.where(as_before, known, costs)


def theorem1_inexact(
    rounds: ArrayLike,
    contraction: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    moved: ArrayLike | None = None,
) -> float:
    """The gap of the devices' own models after the last exchange, at most."""
    # a^Q D_1 + c(1−a^Q) + Σ_t max_i(b_{i,t}) Δ_t + sd(b_t) κ_t √(G V_t), with b_{i,t} =
    # a^{S_{i,t+1}} and Q and S device by device. Where every exchange is an exact mean it is
    # corrected Theorem 1. For the gap of the mean model, add an iteration without rounds and with
    # an exact exchange.
    if outside_domain(constants, learning_rate, printed=False):
        return math.nan
    values = columns(rounds)
    factors = _per_iteration(contraction, "contraction", 1.0, len(values))
    a = step_contraction(constants, learning_rate)
    weights = a ** suffix_sums(values)[1:]
    roots = spread_roots(values, factors, constants, learning_rate)
    costs = exchange_costs(values, factors, constants, learning_rate, moved=moved)
    uneven = weights.std(axis=1) * _moved(factors, moved) * roots
    exchanges = weights.max(axis=1) * costs + math.sqrt(constants.gradient_bound) * uneven
    left = a ** values.sum(axis=0)
    ball = noise_ball(constants, learning_rate)
    return float(left.max() * constants.initial_gap + ball * (1 - left).mean() + exchanges.sum())


_PI2_12 = math.pi**2 / 12


def theorem1_printed(
    rounds: ArrayLike,
    constants: Constants,
    learning_rate: float,
    *,
    aggregation: float = 0.0,
    literal_index: bool = True,
) -> float:
    """Eq. `gap1`: aggregation + A_1 + A_2, as printed."""
    if outside_domain(constants, learning_rate, printed=True):
        return math.nan
    values = columns(rounds)
    a = step_contraction(constants, learning_rate)
    left = np.arange(len(values), 0, -1.0)[:, None]  # terms from t = j to T−1
    exponents = left * values if literal_index else suffix_sums(values)[:-1]
    noise = noise_ball(constants, learning_rate) * (1 + (a**exponents).sum(axis=0))
    whole = a ** values.sum(axis=0) * constants.initial_gap
    return float(aggregation + (whole + noise).mean())


def phi_printed(devices: int, parameters: int) -> float:
    """The printed φ(N) = (k/N)(N−1)(2N−1) of eq. `p114`; the norm it stands for is 1."""
    return parameters * (devices - 1) * (2 * devices - 1) / devices


def theorem2_printed(
    iterations: int,
    devices: int,
    parameters: int,
    constants: Constants,
    learning_rate: float | None = None,
) -> float:
    """Eq. `gap2`: h(δ_m, N, T) with T = n+1, as printed."""
    M, delta = constants.smoothness, constants.divergence
    eta = 1 / (M * (iterations + 1) ** 4) if learning_rate is None else learning_rate
    if not eta > 0:
        return math.nan
    phi = phi_printed(devices, parameters)
    noise = constants.gradient_variance * (1 + (eta + delta * math.sqrt(eta)) * M) * phi
    norm = delta * delta + constants.gradient_bound
    bracket = norm * norm + noise  # products overflow to infinity where powers would raise
    return _PI2_12 / math.sqrt(M) * (math.sqrt(eta) * bracket + delta * phi)


def theorem2_limit_printed(devices: int, parameters: int, constants: Constants) -> float:
    """Eq. `gap3`: π²δ_mφ(N)/(12√M), the printed limit."""
    phi = phi_printed(devices, parameters)
    return _PI2_12 * constants.divergence * phi / math.sqrt(constants.smoothness)


def corollary1_printed(
    constants: Constants,
    learning_rate: float,
    *,
    devices: int,
    parameters: int,
    target_gap: float,
) -> float:
    """Eq. `rate`: the T that the paper says suffices for a gap of ε, stated for δ_m = 0."""
    if outside_domain(constants, learning_rate, printed=True) or not target_gap > 0:
        return math.nan
    m, M, sigma = constants.strong_convexity, constants.smoothness, constants.gradient_variance
    noise = sigma * phi_printed(devices, parameters)
    a = step_contraction(constants, learning_rate)
    descent = constants.initial_gap / -math.log(a) if a > 0 else 0.0
    first = _PI2_12 * (constants.gradient_bound * constants.gradient_bound + noise) / M
    return 1 + (first + _PI2_12 * noise / M + sigma / (2 * m) + descent) / target_gap


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
    a = step_contraction(constants, learning_rate)
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
