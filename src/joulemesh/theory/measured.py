"""In: a scenario, and the data and model that it trains. Out: the constants that the bounds need,
estimated on them, and the gap to the optimum that training really leaves, beside its bound.
May not know: contenders, or how results are kept and shown (``methods``, ``study``, ``views``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray
from scipy.optimize import minimize

from joulemesh import models
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.models.core import Model, Params
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.ground import workload
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Scenario
from joulemesh.theory.bounds import Constants, Moments, moments_of, theorem1_corrected
from joulemesh.training.batches import Data, scale_of
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.inputs import State
from joulemesh.training.jax.local_sgd import gather, weighted_loss
from joulemesh.training.jax.platform import configure, precision_scope
from joulemesh.training.learner import TrainedChunk, train
from joulemesh.training.prepare import partitions, the_dataset, the_jax_model, the_model
from joulemesh.training.schedule import Options
from joulemesh.training.torch.steps import Parts

_BLOCK = 64  # samples whose gradients are held at a time

FloatArray = NDArray[np.float64]


class Losses(Protocol):
    """F_i of every device, as functions of one flat parameter vector."""

    def value(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64 [N]: F_i(w)."""

    def minima(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64 [N]: min F_i, looked for from w."""

    def moments(self, w: NDArray[np.float64], batch: int) -> Moments:
        """Moments of every device's stochastic gradient at w, for batches of a size."""

    def curvature(self, w: NDArray[np.float64], steps: int = 40) -> tuple[float, float]:
        """Smallest and largest eigenvalue of any device's Hessian at w."""


class DeviceLosses:
    """F_i of every device, as functions of one flat parameter vector, in float64."""

    def __init__(self, model: Model, dataset: Dataset, held: Partition) -> None:
        self.model, self.held = model, held
        self._compiled: dict[str, Callable[..., Any]] = {}
        with self._scope():
            scale, shift = scale_of(dataset, np.float64)
            x = np.asarray(dataset.x_train)  # whole, also from disk
            self._data = jax.device_put(Data(x, dataset.y_train, scale, shift))
            width = -(-int(held.sizes.max()) // _BLOCK) * _BLOCK
            place = np.arange(width)
            inside = place < held.sizes[:, None]
            index = held.order[held.offsets[:-1, None] + np.where(inside, place, 0)]
            self._index = jnp.asarray(index)  # [N, width]
            self._weight = jnp.asarray(inside / held.sizes[:, None])
            shapes = jax.eval_shape(model.init, jax.random.key(0))
            zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, jnp.float64), shapes)
            self._unravel = ravel_pytree(zeros)[1]

    def _scope(self) -> Any:
        return precision_scope("float64")

    def start(self, seed: int) -> NDArray[np.float64]:
        with self._scope():
            return self.flat(self.model.init(jax.random.key(seed)))

    def flat(self, params: Params) -> NDArray[np.float64]:
        with self._scope():
            wide = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), params)
            return np.asarray(ravel_pytree(wide)[0])

    def _loss(self, w: jax.Array, index: jax.Array, weight: jax.Array) -> jax.Array:
        x, y = gather(self._data, index)
        value, _ = weighted_loss(self.model, self._unravel(w), x, y, weight, jnp.float64)
        return value

    def _each(self, name: str, function: Callable[..., Any], w: NDArray[np.float64]) -> Any:
        """A function of (w, index, weight), device after device; compiled once for its name."""
        if name not in self._compiled:
            self._compiled[name] = jax.jit(
                lambda w, i, u: jax.lax.map(lambda pair: function(w, *pair), (i, u))
            )
        with self._scope():
            found = self._compiled[name](jnp.asarray(w), self._index, self._weight)
            return jax.tree.map(np.asarray, found)

    def value(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64 [N]: F_i(w)."""
        values: NDArray[np.float64] = self._each("value", self._loss, w)
        return values

    def minima(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """float64 [N]: min F_i by L-BFGS from w; for a convex model the minimum itself."""
        with self._scope():
            slope = jax.jit(jax.value_and_grad(self._loss))
            found = []
            for index, weight in zip(self._index, self._weight, strict=True):
                options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-14, "gtol": 1e-9}
                done: Any = minimize(  # type: ignore[call-overload]
                    partial(_numpy, slope), w, (index, weight), "L-BFGS-B", True, options=options
                )
                found.append(float(done.fun))
        return np.array(found)

    def moments(self, w: NDArray[np.float64], batch: int) -> Moments:
        """Moments of every device's stochastic gradient at w, for batches of a size."""
        whole = self._each("gradient", jax.grad(self._loss), w)  # [N, k]
        squares = self._each("mean square", self._mean_square, w)
        return moments_of(whole, squares, batch)

    def _mean_square(self, w: jax.Array, index: jax.Array, weight: jax.Array) -> jax.Array:
        """Mean over a device's samples of ‖gradient of one sample‖²."""
        one = jax.grad(lambda w, i: self._loss(w, i[None], jnp.ones(1)))

        def block(pair: tuple[jax.Array, jax.Array]) -> jax.Array:
            gradients = jax.vmap(one, in_axes=(None, 0))(w, pair[0])
            return jnp.sum(pair[1] * jnp.sum(gradients**2, axis=1))

        parts = (index.reshape(-1, _BLOCK), weight.reshape(-1, _BLOCK))
        return jnp.sum(jax.lax.map(block, parts))

    def curvature(self, w: NDArray[np.float64], steps: int = 40) -> tuple[float, float]:
        """Smallest and largest eigenvalue of any device's Hessian at w, by Lanczos."""
        # Lanczos approaches both ends from inside; with as many steps as parameters it is exact.
        steps = min(steps, len(w))

        def extremes(w: jax.Array, index: jax.Array, weight: jax.Array) -> jax.Array:
            gradient = jax.grad(partial(self._loss, index=index, weight=weight))

            def product(v: jax.Array) -> jax.Array:
                moved: jax.Array = jax.jvp(gradient, (w,), (v,))[1]
                return moved

            return _lanczos(product, len(w), steps)

        ends = self._each(f"curvature in {steps} steps", extremes, w)
        return float(ends[:, 0].min()), float(ends[:, 1].max())


def _numpy(slope: Any, w: Any, index: Any, weight: Any) -> tuple[float, NDArray[np.float64]]:
    value, gradient = slope(jnp.asarray(w), index, weight)
    return float(value), np.asarray(gradient)


def _lanczos(product: Callable[[jax.Array], jax.Array], size: int, steps: int) -> jax.Array:
    """The extreme Ritz values of a symmetric operator, with full re-orthogonalisation."""
    start = jax.random.normal(jax.random.key(0), (size,), jnp.float64)
    basis = jnp.zeros((steps + 1, size), jnp.float64).at[0].set(start / jnp.linalg.norm(start))

    def grow(k: jax.Array, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        basis, matrix = carry
        moved = product(basis[k])
        weights = basis @ moved
        rest = moved - basis.T @ weights
        rest = rest - basis.T @ (basis @ rest)  # twice is enough
        norm = jnp.linalg.norm(rest)
        alive = norm > 1e-10 * jnp.maximum(1.0, jnp.abs(weights[k]))
        basis = basis.at[k + 1].set(jnp.where(alive, rest / norm, 0.0))
        matrix = matrix.at[k, k].set(weights[k])
        matrix = matrix.at[k, k + 1].set(jnp.where(alive, norm, 0.0))
        return basis, matrix.at[k + 1, k].set(jnp.where(alive, norm, 0.0))

    matrix = jnp.zeros((steps + 1, steps + 1), jnp.float64)
    basis, matrix = jax.lax.fori_loop(0, steps, grow, (basis, matrix))
    matrix = matrix[:steps, :steps]
    # Once the Krylov space is exhausted the rest of the matrix is zero; it must not count.
    live = jnp.linalg.norm(basis[:steps], axis=1) > 0.5
    values, vectors = jnp.linalg.eigh(matrix)
    real = jnp.sum(vectors**2 * live[:, None], axis=0) > 0.5
    lowest = jnp.min(jnp.where(real, values, jnp.inf))
    return jnp.stack([lowest, jnp.max(jnp.where(real, values, -jnp.inf))])


def estimate_constants(
    losses: Losses, w: NDArray[np.float64], batch: int, *, steps: int = 40
) -> dict[str, float]:
    """Measure the constants of `[bounds]` at given parameters."""
    low, high = losses.curvature(w, steps)
    moments = losses.moments(w, batch)
    convex = low > 0
    lowest = losses.minima(w) if convex else np.zeros(len(moments.second))
    return {
        "strong_convexity": low if convex else max(-low, 1e-12),
        "smoothness": high if convex else high - 2 * low,
        "gradient_variance": float(moments.variance.max()),
        "gradient_bound": float(moments.second.max()),
        "divergence": float(np.sqrt(moments.apart.mean())),
        "initial_gap": float(np.mean(losses.value(w) - lowest)),
    }


def estimate(scenario: Scenario, *, model: Any = None, data: Any = None) -> dict[str, float]:
    """Measure m, M, σ, G, δ and the initial gap; keys are the fields of `[bounds]`.

    Args:
        scenario: what is asked.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.

    Returns:
        The constants by name.

    >>> from joulemesh.scenario import Scenario
    >>> small = {"training.model": "logistic", "training.l2": 0.1, "devices.count": 2}
    >>> round(estimate(Scenario().override(small))["strong_convexity"], 3)
    0.1
    """
    configure()
    dataset = the_dataset(scenario, data)
    learned = the_model(scenario, model, dataset)
    work = workload(scenario, learned.parameters, dataset)
    held = partitions(scenario, dataset, (scenario.seed,), work.round_samples)[0]
    losses: DeviceLosses | TorchLosses
    if isinstance(learned, TorchModel):
        losses = TorchLosses(learned, dataset, held)
    else:
        losses = DeviceLosses(learned, dataset, held)
    return estimate_constants(losses, losses.start(scenario.seed), scenario.training.batch_size)


@dataclass(frozen=True, eq=False)
class GapStudy:
    """What was measured."""

    iteration: NDArray[np.int64]  # int64 [E]
    gap: FloatArray  # float64 [E]: D_t
    bound: FloatArray  # float64 [E]: the corrected Theorem 1 after as many iterations
    constants: Constants  # of the bound
    learning_rate: float  # η; at most 1/M

    @property
    def holds(self) -> bool:
        return bool((self.gap <= self.bound).all())


def gap_under_bound(scenario: Scenario, *, every: int = 5) -> GapStudy:
    """Train the scenario's logistic model and hold its gap against the bound."""
    training = scenario.training
    if training.model != "logistic" or training.l2 <= 0:
        raise ScenarioError(
            'the bound needs a strongly convex model: set training.model = "logistic" and '
            f"training.l2 above 0 (now {training.model}, {training.l2:g})"
        )
    configure()
    dataset = the_dataset(scenario)
    model = the_jax_model(scenario, None, dataset)
    plan = make_plan(scenario, parameters=model.parameters, data=dataset)
    held = partitions(scenario, dataset, (scenario.seed,), plan.work.round_samples)[0]
    samples = [dataset.normalise(dataset.x_train[held.indices(i)]) for i in range(held.devices)]
    steepest = max(models.curvature(x.reshape(len(x), -1), training.l2)[1] for x in samples)
    rate = min(training.learning_rate, 1.0 / steepest)
    options = Options.from_scenario(
        training, learning_rate=rate, precision="float64", chunk_iterations=every
    )
    engine = Engine(model, dataset, [held], schedule_of(plan), options, (scenario.seed,))
    losses = DeviceLosses(model, dataset, held)
    points = [losses.flat(engine.initial(scenario.seed))]
    done = [0]

    def measure(chunk: TrainedChunk[State]) -> None:
        points.append(losses.flat(engine.mean_params(chunk.state)))
        done.append(chunk.completed)

    train(engine, [measure])
    lowest = losses.minima(points[-1])
    gap = np.array([np.mean(losses.value(w) - lowest) for w in points])
    met = [losses.moments(w, training.batch_size) for w in points]
    constants = Constants(
        strong_convexity=training.l2,
        smoothness=steepest,
        gradient_variance=float(max(m.variance.max() for m in met)),
        gradient_bound=float(max(m.second.max() for m in met)),
        divergence=float(np.sqrt(max(m.apart.mean() for m in met))),
        initial_gap=float(gap[0]),
    )
    bound = [theorem1_corrected(plan.rounds[:t], constants, rate) for t in done[1:]]
    return GapStudy(np.array(done), gap, np.array([gap[0], *bound]), constants, rate)


Tensor: TypeAlias = Any

_TOGETHER = 1024  # samples whose loss is computed at a time
_EACH = 64  # samples whose gradients are held at a time


class TorchLosses:
    """F_i of every device, as functions of one flat parameter vector, in float64."""

    # The same figures as `joulemesh.theory.measured.DeviceLosses` gives for models of JAX.

    def __init__(self, model: TorchModel, dataset: Dataset, held: Partition) -> None:
        self.model, self.held = model.copy(), held
        self._parts = Parts(self.model, dataset, [held], Options(precision="float64"), (0,))
        self._torch, self._at_once = self._parts.torch, self._parts.gradients.traceable
        self.model.module.eval()  # dropout would give another loss each time
        self._shapes = {name: leaf.shape for name, leaf in model.initial(0).items()}

    def start(self, seed: int) -> FloatArray:
        leaves = [leaf.double().flatten().numpy() for leaf in self.model.initial(seed).values()]
        return np.concatenate(leaves)

    def _leaves(self, w: Tensor) -> dict[str, Tensor]:
        sizes = [shape.numel() for shape in self._shapes.values()]
        parts = w.split(sizes)
        return {
            n: part.reshape(s) for (n, s), part in zip(self._shapes.items(), parts, strict=True)
        }

    def _portions(self, device: int, most: int) -> Iterator[tuple[float, Tensor, Tensor]]:
        """Samples of a device and the share of them, some at a time."""
        index = self.held.indices(device)
        for first in range(0, len(index), most):
            part = np.asarray(index[first : first + most], np.int64)
            x, y = self._parts.samples.train(self._torch.as_tensor(part))
            yield len(part) / len(index), x, y

    def _loss(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._parts.gradients.loss(self._leaves(w), x, y)

    def _placed(self, w: FloatArray) -> Tensor:
        return self._torch.as_tensor(np.array(w, np.float64)).to(self._parts.device)

    def _slope(self, w: FloatArray, device: int) -> tuple[float, FloatArray]:
        """F_i and its gradient."""
        at = self._placed(w).requires_grad_()
        value, slope = 0.0, np.zeros(len(w))
        for share, x, y in self._portions(device, _TOGETHER):
            loss = self._loss(at, x, y)
            (found,) = self._torch.autograd.grad(loss, at)
            value += share * float(loss.detach())
            slope += share * found.cpu().numpy()
        return value, slope

    def value(self, w: FloatArray) -> FloatArray:
        """float64 [N]: F_i(w)."""
        at, found = self._placed(w), np.zeros(self.held.devices)
        with self._torch.no_grad():
            for device in range(self.held.devices):
                for share, x, y in self._portions(device, _TOGETHER):
                    found[device] += share * float(self._loss(at, x, y))
        return found

    def minima(self, w: FloatArray) -> FloatArray:
        """float64 [N]: min F_i by L-BFGS from w; for a convex model the minimum itself."""
        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-14, "gtol": 1e-9}
        found = []
        for device in range(self.held.devices):
            done: Any = minimize(  # type: ignore[call-overload]
                self._slope, w, (device,), "L-BFGS-B", True, options=options
            )
            found.append(float(done.fun))
        return np.array(found)

    def moments(self, w: FloatArray, batch: int) -> Moments:
        """Moments of every device's stochastic gradient at w, for batches of a size."""
        devices = range(self.held.devices)
        whole = np.stack([self._slope(w, device)[1] for device in devices])
        squares = np.array([self._mean_square(w, device) for device in devices])
        return moments_of(whole, squares, batch)

    def _mean_square(self, w: FloatArray, device: int) -> float:
        """Mean over a device's samples of ‖gradient of one sample‖²."""
        func, at, found = self._torch.func, self._placed(w), 0.0
        one = func.grad(lambda v, x, y: self._loss(v, x[None], y[None]))
        each = func.vmap(one, in_dims=(None, 0, 0))
        for share, x, y in self._portions(device, _EACH):
            if self._at_once:
                gradients = each(at, x, y)
            else:
                gradients = self._torch.stack([one(at, a, b) for a, b in zip(x, y, strict=True)])
            found += share * float(gradients.square().sum(dim=1).mean())
        return found

    def curvature(self, w: FloatArray, steps: int = 40) -> tuple[float, float]:
        """Smallest and largest eigenvalue of any device's Hessian at w, by Lanczos."""
        ends = [
            _torch_lanczos(self._product(w, device), len(w), min(steps, len(w)))
            for device in range(self.held.devices)
        ]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def _product(self, w: FloatArray, device: int) -> Callable[[FloatArray], FloatArray]:
        """v -> ∇²F_i(w) v, by differentiating the gradient again."""
        torch = self._torch

        def product(v: FloatArray) -> FloatArray:
            at, along, found = self._placed(w).requires_grad_(), self._placed(v), np.zeros(len(v))
            for share, x, y in self._portions(device, _TOGETHER):
                (slope,) = torch.autograd.grad(self._loss(at, x, y), at, create_graph=True)
                (moved,) = torch.autograd.grad(slope @ along, at, materialize_grads=True)
                found += share * moved.cpu().numpy()
            return found

        return product


def _torch_lanczos(
    product: Callable[[FloatArray], FloatArray], size: int, steps: int
) -> tuple[float, float]:
    """The extreme Ritz values of a symmetric operator, with full re-orthogonalisation."""
    start = np.random.default_rng(0).normal(size=size)
    basis, diagonal, beside = [start / np.linalg.norm(start)], [], []
    for _ in range(steps):
        moved = product(basis[-1])
        held = np.array(basis)
        weights = held @ moved
        rest = moved - held.T @ weights
        rest -= held.T @ (held @ rest)  # twice is enough
        norm = float(np.linalg.norm(rest))
        diagonal.append(float(weights[-1]))
        if norm <= 1e-10 * max(1.0, abs(float(weights[-1]))):
            break  # the Krylov space is exhausted
        beside.append(norm)
        basis.append(rest / norm)
    off = np.diag(beside[: len(diagonal) - 1], 1)
    values = np.linalg.eigvalsh(np.diag(diagonal) + off + off.T)
    return float(values[0]), float(values[-1])
