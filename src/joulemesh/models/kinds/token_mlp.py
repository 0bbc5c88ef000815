"""A neural language model of sequences of tokens."""

from __future__ import annotations

__all__ = ["WIDTH", "WINDOW"]

from typing import TYPE_CHECKING

from joulemesh.errors import ScenarioError
from joulemesh.models.kind import ModelKind
from joulemesh.models.kinds.layers import dense_multiply_adds, dense_parameters
from joulemesh.registries import MODELS

if TYPE_CHECKING:
    from joulemesh.models.core import Model

Shape = tuple[int, ...]

WINDOW, WIDTH = 8, 16  # tokens that a position sees, numbers that stand for each


def _check(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> None:
    if len(shape) != 1 or not hidden:
        raise ScenarioError(
            f"model = 'token-mlp' needs sequences of tokens [positions] and hidden layers, not "
            f"samples of shape {tuple(shape)} and hidden = {list(hidden)}: use model = 'mlp'"
        )


def _widths(classes: int, hidden: tuple[int, ...]) -> tuple[int, ...]:
    return (WINDOW * WIDTH, *hidden, classes)


def _build(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> Model:
    from joulemesh.models import token_mlp
    from joulemesh.models.core import Model

    return Model("token-mlp", token_mlp.init(classes, hidden), token_mlp.apply)


def _parameter_count(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return classes * WIDTH + dense_parameters(_widths(classes, hidden))


def _multiply_adds(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return shape[0] * dense_multiply_adds(_widths(classes, hidden))


MODELS.register(
    ModelKind(
        "token-mlp",
        "neural language model: each token from embeddings of the 8 before it, for sequences",
        _build,
        phrase="a token MLP",
        parameters=("hidden",),
        check=_check,
        parameter_count=_parameter_count,
        multiply_adds=_multiply_adds,
    )
)
