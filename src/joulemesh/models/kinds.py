"""The built-in models: their arithmetic, without JAX, and how each is built."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import is_in_file
from joulemesh.base.registry import ONOSZKO, Citation
from joulemesh.metrics import CROSS_ENTROPY
from joulemesh.registries import LOSSES, MODELS
from joulemesh.scenario import Training
from joulemesh.scenario.fields import parameters_of

if TYPE_CHECKING:
    from joulemesh.models.core import Model


@dataclass(frozen=True)
class ModelKind:
    """A kind of model, for samples of any shape that it accepts.

    Every function is called with the shape of a sample, the number of classes, and the parameters
    by name.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        build: gives a `Model`, a pair (init, apply), or a Flax linen module.
        phrase: the model in a sentence: "20 devices learned digits with ..."; by default from the
            name.
        parameters: fields of the scenario's section ``training`` that it takes. The weight ``l2``
            of the regulariser is not among them: it is the same for all models.
        check: raises a `ScenarioError` if the model does not fit the samples.
        parameter_count: number of parameters, by arithmetic; without it the model is built, and
            JAX loaded, to plan.
        multiply_adds: multiply-adds of one sample's forward pass in its matrix products; without
            it the plausibility of a device's figures is judged by the number of parameters.
        citation: where it was published, or None.
        sequential: whether it is layers one after another, with ReLU between them, so that other
            tools can be given its graph: 3 x 3 convolutions with max pooling (parameters
            ``conv0_w``, ``conv0_b``, ...), then dense layers (``dense0_w``, ..., or ``w``, ``b``).

    >>> ModelKind("lenet", "five layers", lambda shape, classes: None).phrase
    'a model lenet'
    """

    name: str
    description: str
    build: Callable[..., Any]
    phrase: str = ""
    parameters: tuple[str, ...] = ()
    check: Callable[..., None] | None = None
    parameter_count: Callable[..., int] | None = None
    multiply_adds: Callable[..., int] | None = None
    citation: Citation | None = None
    sequential: bool = False

    def __post_init__(self) -> None:
        if not self.phrase:
            object.__setattr__(self, "phrase", f"a model {self.name}")


def options_of(kind: ModelKind, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a kind takes: what is given, otherwise the scenario's defaults."""
    return parameters_of(f"model {kind.name!r}", kind.parameters, Training, given)


def dense_parameters(widths: Sequence[int]) -> int:
    return sum(i * o + o for i, o in pairwise(widths))


def dense_multiply_adds(widths: Sequence[int]) -> int:
    return sum(i * o for i, o in pairwise(widths))


Shape = tuple[int, ...]


def _build_logistic(shape: Shape, classes: int) -> Model:
    from joulemesh.models import networks
    from joulemesh.models.core import Model

    return Model(
        "logistic", networks.logistic_init(math.prod(shape), classes), networks.logistic_apply
    )


MODELS.register(
    ModelKind(
        "logistic",
        "multinomial logistic regression: convex, and strongly so with training.l2",
        _build_logistic,
        phrase="a logistic model",
        parameter_count=lambda shape, classes: dense_parameters((math.prod(shape), classes)),
        multiply_adds=lambda shape, classes: dense_multiply_adds((math.prod(shape), classes)),
        sequential=True,
    )
)


def _mlp_widths(shape: Shape, classes: int, hidden: tuple[int, ...]) -> tuple[int, ...]:
    return (math.prod(shape), *hidden, classes)


def _check_mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> None:
    if not hidden or min(hidden) < 1:
        raise ScenarioError(
            f"hidden = {list(hidden)} is not a list of layer widths: use for example [64], or "
            f"model = 'logistic' for none"
        )


def _build_mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> Model:
    from joulemesh.models import networks
    from joulemesh.models.core import Model

    split = ("dense0_w", networks.after_input)
    return Model(
        "mlp",
        networks.mlp_init(_mlp_widths(shape, classes, hidden)),
        networks.mlp_apply,
        split=split,
    )


def _mlp_parameters(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return dense_parameters(_mlp_widths(shape, classes, hidden))


def _mlp_multiply_adds(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return dense_multiply_adds(_mlp_widths(shape, classes, hidden))


MODELS.register(
    ModelKind(
        "mlp",
        "multilayer perceptron: dense layers with ReLU between them, of training.hidden widths",
        _build_mlp,
        phrase="an MLP",
        parameters=("hidden",),
        check=_check_mlp,
        parameter_count=_mlp_parameters,
        multiply_adds=_mlp_multiply_adds,
        sequential=True,
    )
)


CONV_WIDTHS = (32, 64, 64)  # 3x3 each, pooled by 2
FC_WIDTH = 64


def conv_output(side: int) -> int:
    """Side of the last feature map: three times a 3x3 convolution (no padding), pooled by 2."""
    for _ in CONV_WIDTHS:
        side = (side - 2) // 2
    return max(side, 0)


def _check_cnn(shape: Shape, classes: int) -> None:
    if len(shape) != 3 or min(conv_output(side) for side in shape[:2]) < 1:
        raise ScenarioError(
            f"model = 'cnn' needs images [height, width, channels] of 22x22 or more, not "
            f"{tuple(shape)}: use model = 'mlp' or another dataset"
        )


def _build_cnn(shape: Shape, classes: int) -> Model:
    from joulemesh.models import networks
    from joulemesh.models.core import Model

    return Model("cnn", networks.cnn_init(shape, classes), networks.cnn_apply, batch_axis="map")


def _cnn_parameters(shape: Shape, classes: int) -> int:
    height, width, channels = shape
    flat = conv_output(height) * conv_output(width) * CONV_WIDTHS[-1]
    convs = sum(9 * i * o + o for i, o in pairwise((channels, *CONV_WIDTHS)))
    return convs + dense_parameters((flat, FC_WIDTH, classes))


def _cnn_multiply_adds(shape: Shape, classes: int) -> int:
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
        _build_cnn,
        phrase="a CNN",
        check=_check_cnn,
        parameter_count=_cnn_parameters,
        multiply_adds=_cnn_multiply_adds,
        citation=ONOSZKO,
        sequential=True,
    )
)


WINDOW, WIDTH = 8, 16  # tokens that a position sees, numbers that stand for each


def _check_token_mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> None:
    if len(shape) != 1 or not hidden:
        raise ScenarioError(
            f"model = 'token-mlp' needs sequences of tokens [positions] and hidden layers, not "
            f"samples of shape {tuple(shape)} and hidden = {list(hidden)}: use model = 'mlp'"
        )


def _token_mlp_widths(classes: int, hidden: tuple[int, ...]) -> tuple[int, ...]:
    return (WINDOW * WIDTH, *hidden, classes)


def _build_token_mlp(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> Model:
    from joulemesh.models import networks
    from joulemesh.models.core import Model

    return Model("token-mlp", networks.token_mlp_init(classes, hidden), networks.token_mlp_apply)


def _token_mlp_parameters(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return classes * WIDTH + dense_parameters(_token_mlp_widths(classes, hidden))


def _token_mlp_multiply_adds(shape: Shape, classes: int, *, hidden: tuple[int, ...]) -> int:
    return shape[0] * dense_multiply_adds(_token_mlp_widths(classes, hidden))


MODELS.register(
    ModelKind(
        "token-mlp",
        "neural language model: each token from embeddings of the 8 before it, for sequences",
        _build_token_mlp,
        phrase="a token MLP",
        parameters=("hidden",),
        check=_check_token_mlp,
        parameter_count=_token_mlp_parameters,
        multiply_adds=_token_mlp_multiply_adds,
    )
)


def check_model(
    model: str, /, shape: Sequence[int], classes: int, **options: Any
) -> tuple[ModelKind, dict[str, Any]]:
    """Refuse an unknown model, or one that does not fit the shape of the samples."""
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
    """Count a model's parameters."""
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
    """
    if is_in_file(model):
        return None
    kind, taken = check_model(model, shape, classes, **{**options, "hidden": tuple(hidden)})
    if kind.multiply_adds is None:
        return None
    return int(kind.multiply_adds(tuple(shape), classes, **taken))
