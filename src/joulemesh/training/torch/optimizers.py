"""Optimisers of stacked rows, each the formula that optax has under the same name."""

from __future__ import annotations

__all__ = ["OPTIMIZERS", "Optimizer", "optimizer_of"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from joulemesh.errors import ScenarioError

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]  # [rows, ...] each

_B1, _B2, _EPS, _DECAY = 0.9, 0.999, 1e-8, 1e-4  # optax's defaults


@dataclass(frozen=True)
class Optimizer:
    """An optimiser whose memory is tensors with one row for each device.

    Attributes:
        memory: parameters -> memory by name; nothing for plain SGD.
        update: (parameters, gradients, memory, learning rates [rows]): changes the first and the
            third in place.
    """

    memory: Callable[[Leaves], Leaves]
    update: Callable[[Leaves, Leaves, Leaves, Tensor], None]


def _wide(rate: Tensor, leaf: Tensor) -> Tensor:
    """One factor for each row."""
    return rate.to(leaf.dtype).reshape(-1, *[1] * (leaf.dim() - 1))


def _sgd(params: Leaves, grads: Leaves, memory: Leaves, rate: Tensor) -> None:
    for name, leaf in params.items():
        leaf.addcmul_(_wide(rate, leaf), grads[name], value=-1)


def _moments(params: Leaves) -> Leaves:
    zeros = {f"{which}.{n}": p.new_zeros(p.shape) for which in "mv" for n, p in params.items()}
    first = next(iter(params.values()))
    return {**zeros, "count": first.new_zeros(len(first))}


def _adam(decay: float) -> Callable[[Leaves, Leaves, Leaves, Tensor], None]:
    def update(params: Leaves, grads: Leaves, memory: Leaves, rate: Tensor) -> None:
        count = memory["count"].add_(1)
        for name, leaf in params.items():
            grad, mean, square = grads[name], memory[f"m.{name}"], memory[f"v.{name}"]
            mean.mul_(_B1).add_(grad, alpha=1 - _B1)
            square.mul_(_B2).addcmul_(grad, grad, value=1 - _B2)
            corrected = mean / _wide(1 - _B1**count, leaf)
            spread = (square / _wide(1 - _B2**count, leaf)).sqrt_().add_(_EPS)
            step = corrected / spread
            if decay:
                step.add_(leaf, alpha=decay)
            leaf.sub_(_wide(rate, leaf) * step)

    return update


OPTIMIZERS = {
    "sgd": Optimizer(lambda params: {}, _sgd),
    "adam": Optimizer(_moments, _adam(0.0)),
    "adamw": Optimizer(_moments, _adam(_DECAY)),
}


def optimizer_of(name: str) -> Optimizer:
    """The optimiser of a name.

    >>> optimizer_of("lion")
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: training.optimizer = 'lion' is not one of those for PyTorch ...
    """
    if name not in OPTIMIZERS:
        raise ScenarioError(
            f"training.optimizer = {name!r} is not one of those for PyTorch modules: use "
            f"{', '.join(OPTIMIZERS)}"
        )
    return OPTIMIZERS[name]
