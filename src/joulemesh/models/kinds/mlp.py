"""The multilayer perceptron."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from joulemesh.errors import ScenarioError
from joulemesh.models.kind import ModelKind
from joulemesh.models.kinds.layers import dense_multiply_adds, dense_parameters
from joulemesh.registries import MODELS

if TYPE_CHECKING:
    from joulemesh.models.core import Model

Shape = tuple[int, ...]


def _widths(shape: Shape, classes: int, hidden: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape), *hidden, classes)


def _check(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> None:
    if not hidden or min(hidden) < 1:
        raise ScenarioError(
            f"hidden = {list(hidden)} is not a list of layer widths: use for example [64], or "
            f"model = 'logistic' for none"
        )


def _build(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> Model:
    from joulemesh.models import mlp
    from joulemesh.models.core import Model

    split = ("dense0_w", mlp.after_input)
    return Model("mlp", mlp.init(_widths(shape, classes, hidden)), mlp.apply, split=split)


def _parameter_count(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return dense_parameters(_widths(shape, classes, hidden))


def _multiply_adds(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return dense_multiply_adds(_widths(shape, classes, hidden))


MODELS.register(
    ModelKind(
        "mlp",
        "multilayer perceptron: dense layers with ReLU between them, of training.hidden widths",
        _build,
        phrase="an MLP",
        parameters=("hidden",),
        check=_check,
        parameter_count=_parameter_count,
        multiply_adds=_multiply_adds,
        sequential=True,
    )
)
