"""Numbers of parameters and operations, for the planner; of built-in models without JAX."""

from __future__ import annotations

__all__ = ["check_model", "multiply_adds", "parameter_count"]

from collections.abc import Sequence
from typing import Any, Literal

from joulemesh.errors import ScenarioError
from joulemesh.metrics.losses import CROSS_ENTROPY
from joulemesh.models.kind import ModelKind, options_of
from joulemesh.own_code import is_in_file
from joulemesh.registries import LOSSES, MODELS


def check_model(
    model: str, /, shape: Sequence[int], classes: int, **options: Any
) -> tuple[ModelKind, dict[str, Any]]:
    """Refuse an unknown model, or one that does not fit the shape of the samples.

    Args:
        model: a name of the registry ``MODELS``.
        shape: of one sample.
        classes: number of classes; of numbers to predict where the loss takes these.
        options: fields of the section ``training``.

    Returns:
        The model's kind, and the options that it takes.

    >>> check_model("cnn", (8, 8, 1), 10)
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: ...
    """
    kind = MODELS[model]
    loss = options.get("loss", CROSS_ENTROPY.name)
    if classes < 2 and loss in LOSSES and LOSSES[loss].targets in ("classes", "tokens"):
        raise ScenarioError(f"{classes} classes cannot be told apart: use 2 or more")
    if classes < 1:
        raise ScenarioError(f"{classes} outputs predict nothing: use 1 or more")
    if not shape or min(shape) < 1:
        raise ScenarioError(f"samples of shape {tuple(shape)} hold nothing: use sizes of 1 or more")
    taken = options_of(kind, options)
    if kind.check is not None:
        kind.check(tuple(shape), classes, **taken)
    return kind, taken


def parameter_count(
    model: str,
    /,
    shape: Sequence[int],
    classes: int,
    hidden: Sequence[int] = (),
    outputs: tuple[int, ...] | None = None,
    **options: Any,
) -> int:
    """Count a model's parameters.

    Args:
        model: a name of the registry ``MODELS``: ``logistic``, ``mlp``, ``cnn``, or one of the
            user's own.
        shape: of one sample; images are (height, width, channels).
        classes: number of classes.
        hidden: widths of the hidden layers, for models that take them.
        outputs: shape of what the model gives for a sample; (classes,) unless given.
        options: other fields of the section ``training``; a model takes its own.

    Returns:
        The number of weights and biases.

    >>> parameter_count("mlp", (28, 28, 1), 10, (200,))
    159010
    >>> parameter_count("cnn", (32, 32, 3), 10), parameter_count("cnn", (28, 28, 1), 10)
    (73418, 60554)
    """
    if is_in_file(model):
        from joulemesh.models.core import from_file

        tokens = outputs is not None and len(outputs) > 1
        seen: Literal["float32", "int32"] = "int32" if tokens else "float32"
        return from_file(model, shape, classes, outputs=outputs, seen=seen).parameters
    options["hidden"] = tuple(hidden)
    kind, taken = check_model(model, shape, classes, **options)
    if kind.parameter_count is not None:
        return int(kind.parameter_count(tuple(shape), classes, **taken))
    from joulemesh.models.core import build  # loads JAX, which alone knows such a model's size

    return build(model, shape, classes, **options).parameters


def multiply_adds(
    model: str,
    /,
    shape: Sequence[int],
    classes: int,
    hidden: Sequence[int] = (),
    **options: Any,
) -> int | None:
    """Count the multiply-adds of one sample's forward pass, in its matrix products.

    Training takes about three times as many: the backward pass computes gradients by the weights
    and by the inputs of each layer. A multiply-add is two floating-point operations.

    Args:
        model: a name of the registry ``MODELS``.
        shape: of one sample; images are (height, width, channels).
        classes: number of classes.
        hidden: widths of the hidden layers, for models that take them.
        options: other fields of the section ``training``; a model takes its own.

    Returns:
        Their number, or None if the model does not say.

    >>> multiply_adds("mlp", (8, 8, 1), 10, (64,))  # 64·64 + 64·10
    4736
    >>> multiply_adds("cnn", (28, 28, 1), 10)
    2190080
    """
    if is_in_file(model):
        return None
    kind, taken = check_model(model, shape, classes, **{**options, "hidden": tuple(hidden)})
    if kind.multiply_adds is None:
        return None
    return int(kind.multiply_adds(tuple(shape), classes, **taken))
