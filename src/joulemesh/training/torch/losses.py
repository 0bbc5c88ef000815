"""What is minimised, of PyTorch tensors: the built-in losses, and the user's own."""

from __future__ import annotations

__all__ = ["criterion_of", "is_own"]

from collections.abc import Callable
from typing import Any, TypeAlias

from joulemesh.errors import ScenarioError
from joulemesh.models.torch_model import TorchModel
from joulemesh.registries import LOSSES

Tensor: TypeAlias = Any
Criterion: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def is_own(model: TorchModel) -> bool:
    """Is what is minimised the user's own, and so a function of tensors?"""
    return model.loss is not None or model.minimised.name not in LOSSES.built_in


def criterion_of(model: TorchModel) -> Criterion:
    """The mean loss of a batch, of outputs and targets.

    Raises:
        ScenarioError: the loss is written for JAX.
    """
    minimised = model.loss or model.minimised.torch
    if minimised is None:
        raise ScenarioError(
            f"loss {model.minimised.name!r} is written for JAX, and {model.name} is a PyTorch "
            "module: give the loss a function torch of tensors, too"
        )
    each = minimised

    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        value = each(outputs, targets)
        return value.mean() if value.dim() else value

    return mean
