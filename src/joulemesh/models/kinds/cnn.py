"""The convolutional network of PENS (Onoszko et al. 2021, arXiv:2107.08517)."""

from __future__ import annotations

__all__ = ["CONV_WIDTHS", "FC_WIDTH", "conv_output"]

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from joulemesh.bibliography import ONOSZKO
from joulemesh.errors import ScenarioError
from joulemesh.models.kind import ModelKind
from joulemesh.models.kinds.layers import dense_multiply_adds, dense_parameters
from joulemesh.registries import MODELS

if TYPE_CHECKING:
    from joulemesh.models.core import Model

Shape = tuple[int, ...]

CONV_WIDTHS = (32, 64, 64)  # 3x3 each, pooled by 2
FC_WIDTH = 64


def conv_output(side: int) -> int:
    """Side of the last feature map: three times a 3x3 convolution (no padding), pooled by 2.

    >>> conv_output(32), conv_output(28), conv_output(21)
    (2, 1, 0)
    """
    for _ in CONV_WIDTHS:
        side = (side - 2) // 2
    return max(side, 0)


def _check(shape: Shape, classes: int) -> None:
    if len(shape) != 3 or min(conv_output(side) for side in shape[:2]) < 1:
        raise ScenarioError(
            f"model = 'cnn' needs images [height, width, channels] of 22x22 or more, not "
            f"{tuple(shape)}: use model = 'mlp' or another dataset"
        )


def _build(shape: Shape, classes: int) -> Model:
    from joulemesh.models import cnn
    from joulemesh.models.core import Model

    return Model("cnn", cnn.init(shape, classes), cnn.apply, batch_axis="map")


def _parameter_count(shape: Shape, classes: int) -> int:
    height, width, channels = shape
    flat = conv_output(height) * conv_output(width) * CONV_WIDTHS[-1]
    convs = sum(9 * i * o + o for i, o in pairwise((channels, *CONV_WIDTHS)))
    return convs + dense_parameters((flat, FC_WIDTH, classes))


def _multiply_adds(shape: Shape, classes: int) -> int:
    *sides, channels = shape
    total = 0
    for inputs, outputs in pairwise((channels, *CONV_WIDTHS)):
        # An odd last row or column, which the pool would drop, is not computed.
        sides = [side - side % 2 - 2 for side in sides]
        total += math.prod(sides) * 9 * inputs * outputs
        sides = [side // 2 for side in sides]
    return total + dense_multiply_adds((math.prod(sides) * CONV_WIDTHS[-1], FC_WIDTH, classes))


MODELS.register(
    ModelKind(
        "cnn",
        "the convolutional network of PENS: three 3x3 convolutions and two dense layers",
        _build,
        phrase="a CNN",
        check=_check,
        parameter_count=_parameter_count,
        multiply_adds=_multiply_adds,
        citation=ONOSZKO,
        sequential=True,
    )
)
