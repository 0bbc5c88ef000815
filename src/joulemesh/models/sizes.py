"""Numbers of parameters and operations as arithmetic, for the planner, which never loads JAX."""

from __future__ import annotations

__all__ = [
    "CONV_WIDTHS",
    "FC_WIDTH",
    "MODELS",
    "check_model",
    "conv_output",
    "multiply_adds",
    "parameter_count",
]

import math
from collections.abc import Sequence
from itertools import pairwise

from joulemesh.errors import ScenarioError

MODELS = ("logistic", "mlp", "cnn")

CONV_WIDTHS = (32, 64, 64)  # the CNN of PENS (Onoszko et al. 2021): 3x3, each pooled by 2
FC_WIDTH = 64


def conv_output(side: int) -> int:
    """Side of the last feature map: three times a 3x3 convolution (no padding), pooled by 2.

    >>> conv_output(32), conv_output(28), conv_output(21)
    (2, 1, 0)
    """
    for _ in CONV_WIDTHS:
        side = (side - 2) // 2
    return max(side, 0)


def check_model(model: str, shape: Sequence[int], classes: int, hidden: Sequence[int]) -> None:
    """Refuse an unknown model, or one that does not fit the shape of the samples.

    >>> check_model("cnn", (8, 8, 1), 10, ())
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: ...
    """
    if model not in MODELS:
        raise ScenarioError(f"model = {model!r} is unknown: use one of {', '.join(MODELS)}")
    if classes < 2:
        raise ScenarioError(f"{classes} classes cannot be told apart: use 2 or more")
    if not shape or min(shape) < 1:
        raise ScenarioError(f"samples of shape {tuple(shape)} hold nothing: use sizes of 1 or more")
    if model == "mlp" and (not hidden or min(hidden) < 1):
        raise ScenarioError(
            f"hidden = {list(hidden)} is not a list of layer widths: use for example [64], or "
            f"model = 'logistic' for none"
        )
    if model == "cnn" and (len(shape) != 3 or min(conv_output(s) for s in shape[:2]) < 1):
        raise ScenarioError(
            f"model = 'cnn' needs images [height, width, channels] of 22x22 or more, not "
            f"{tuple(shape)}: use model = 'mlp' or another dataset"
        )


def parameter_count(
    model: str, shape: Sequence[int], classes: int, hidden: Sequence[int] = ()
) -> int:
    """Count a model's parameters.

    Args:
        model: ``logistic``, ``mlp`` or ``cnn``.
        shape: of one sample; images are (height, width, channels).
        classes: number of classes.
        hidden: widths of the hidden layers, for ``mlp`` only.

    Returns:
        The number of weights and biases.

    >>> parameter_count("mlp", (28, 28, 1), 10, (200,))
    159010
    >>> parameter_count("cnn", (32, 32, 3), 10), parameter_count("cnn", (28, 28, 1), 10)
    (73418, 60554)
    """
    check_model(model, shape, classes, hidden)
    if model == "logistic":
        return _dense((math.prod(shape), classes))
    if model == "mlp":
        return _dense((math.prod(shape), *hidden, classes))
    height, width, channels = shape
    flat = conv_output(height) * conv_output(width) * CONV_WIDTHS[-1]
    convs = sum(9 * i * o + o for i, o in pairwise((channels, *CONV_WIDTHS)))
    return convs + _dense((flat, FC_WIDTH, classes))


def multiply_adds(
    model: str, shape: Sequence[int], classes: int, hidden: Sequence[int] = ()
) -> int:
    """Count the multiply-adds of one sample's forward pass, in its matrix products.

    Training takes about three times as many: the backward pass computes gradients by the weights
    and by the inputs of each layer. A multiply-add is two floating-point operations.

    Args:
        model: ``logistic``, ``mlp`` or ``cnn``.
        shape: of one sample; images are (height, width, channels).
        classes: number of classes.
        hidden: widths of the hidden layers, for ``mlp`` only.

    >>> multiply_adds("mlp", (8, 8, 1), 10, (64,))  # 64·64 + 64·10
    4736
    >>> multiply_adds("cnn", (28, 28, 1), 10)
    2190080
    """
    check_model(model, shape, classes, hidden)
    if model != "cnn":
        widths = (math.prod(shape), *(hidden if model == "mlp" else ()), classes)
        return sum(i * o for i, o in pairwise(widths))
    *sides, channels = shape
    total = 0
    for inputs, outputs in pairwise((channels, *CONV_WIDTHS)):
        # An odd last row or column, which the pool would drop, is not computed.
        sides = [side - side % 2 - 2 for side in sides]
        total += math.prod(sides) * 9 * inputs * outputs
        sides = [side // 2 for side in sides]
    return total + math.prod(sides) * CONV_WIDTHS[-1] * FC_WIDTH + FC_WIDTH * classes


def _dense(widths: Sequence[int]) -> int:
    return sum(i * o + o for i, o in pairwise(widths))
