"""The devices' losses of a PyTorch module: what the constants of the bounds are measured on."""

from __future__ import annotations

__all__ = ["TorchLosses"]

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from joulemesh.data import Dataset, Partition
from joulemesh.models.torch_model import TorchModel
from joulemesh.theory.terms import Moments, moments_of
from joulemesh.training.options import Options
from joulemesh.training.torch.parts import Parts

Tensor: TypeAlias = Any
FloatArray = NDArray[np.float64]

_TOGETHER = 1024  # samples whose loss is computed at a time
_EACH = 64  # samples whose gradients are held at a time


class TorchLosses:
    """F_i of every device, as functions of one flat parameter vector, in float64."""

    # The same figures as `joulemesh.theory.measured.estimate.DeviceLosses` gives for models of JAX.

    def __init__(self, model: TorchModel, dataset: Dataset, held: Partition) -> None:
        self.model, self.held = model.copy(), held
        self._parts = Parts(self.model, dataset, [held], Options(precision="float64"), (0,))
        self._torch, self._at_once = self._parts.torch, self._parts.gradients.traceable
        self.model.module.eval()  # dropout would give another loss each time
        self._shapes = {name: leaf.shape for name, leaf in model.initial(0).items()}

    def start(self, seed: int) -> FloatArray:
        """Initial parameters drawn from a seed, as one vector."""
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
            _lanczos(self._product(w, device), len(w), min(steps, len(w)))
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


def _lanczos(
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
