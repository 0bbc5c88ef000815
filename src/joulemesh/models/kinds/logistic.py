"""Multinomial logistic regression."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from joulemesh.models.kind import ModelKind
from joulemesh.models.kinds.layers import dense_multiply_adds, dense_parameters
from joulemesh.registries import MODELS

if TYPE_CHECKING:
    from joulemesh.models.core import Model

Shape = tuple[int, ...]


def _build(shape: Shape, classes: int) -> Model:
    from joulemesh.models import logistic
    from joulemesh.models.core import Model

    return Model("logistic", logistic.init(math.prod(shape), classes), logistic.apply)


MODELS.register(
    ModelKind(
        "logistic",
        "multinomial logistic regression: convex, and strongly so with training.l2",
        _build,
        phrase="a logistic model",
        parameter_count=lambda shape, classes: dense_parameters((math.prod(shape), classes)),
        multiply_adds=lambda shape, classes: dense_multiply_adds((math.prod(shape), classes)),
        sequential=True,
    )
)
