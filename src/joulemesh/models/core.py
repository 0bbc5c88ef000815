"""What is trained, a pair of pure functions and their loss, and where it comes from."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import explained, in_file, is_in_file
from joulemesh.metrics import CROSS_ENTROPY, Loss, loss_named
from joulemesh.models.kinds import ModelKind, check_model
from joulemesh.models.torch_model import NotOfJaxError, TorchModel, from_torch, is_torch

if TYPE_CHECKING:
    import jax

Params: TypeAlias = Any  # a pytree of arrays; a flat dict for the built-in models
Init: TypeAlias = Callable[[Any], Params]
Apply: TypeAlias = Callable[[Params, Any], Any]

# Models, and specs with their compiled programs, that a process remembers. Each holds some 30 MB,
# and a comparison of all methods has 4 specs for its model.
REMEMBERED = 16


@dataclass(frozen=True)
class Model:
    """A model as pure functions; equal to another only if the functions are the same objects.

    Attributes:
        name: for reports.
        init: key -> params. Built-in models draw float32 whatever the precision of training.
        apply: (params, x [B, ...]) -> outputs [B, ...]: logits [B, classes], numbers [B, k], or
            logits of tokens [B, positions, tokens]; computes in the dtype of params.
        l2: weight of the regulariser (l2/2)·||params||².
        loss: what is minimised, of outputs and targets.
        seen: how the model sees samples: ``"float32"``, scaled, or ``"int32"``, tokens.
        batch_axis: what is quicker over devices on a CPU, ``jax.vmap`` or ``jax.lax.map``; on an
            accelerator ``vmap`` always is.
        split: the name of the input layer's weights among the parameters (a flat dict), and
            (the other parameters, x @ weights) -> logits; None if there is no such layer.

    >>> import jax.numpy as jnp
    >>> toy = Model("toy", lambda key: {"w": jnp.zeros((3, 2))}, lambda p, x: x @ p["w"])
    >>> toy.parameters
    6
    """

    library: ClassVar[str] = "jax"  # what trains it

    name: str
    init: Init
    apply: Apply
    l2: float = 0.0
    batch_axis: Literal["vmap", "map"] = "vmap"
    split: tuple[str, Apply] | None = None
    loss: Loss = CROSS_ENTROPY
    seen: Literal["float32", "int32"] = "float32"

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, found without computing any."""
        import jax

        leaves = jax.tree.leaves(jax.eval_shape(self.init, jax.random.key(0)))
        return sum(math.prod(leaf.shape) for leaf in leaves)


def loss(model: Model, params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean loss plus (l2/2)·||params||², summed in float32 or wider."""
    import jax
    import jax.numpy as jnp

    outputs = _wide(model.apply(params, x))
    if model.loss is CROSS_ENTROPY:  # written anew: nothing here is the engine's
        picked = jnp.take_along_axis(outputs, y[:, None], axis=1)[:, 0]
        value = jnp.mean(jax.nn.logsumexp(outputs, axis=1) - picked)
    else:
        value = jnp.mean(model.loss.values(outputs, y))
    if model.l2:
        squares = [jnp.sum(jnp.square(_wide(leaf))) for leaf in jax.tree.leaves(params)]
        value += 0.5 * model.l2 * sum(squares[1:], start=squares[0])
    return value


def _wide(array: jax.Array) -> jax.Array:
    import jax.numpy as jnp

    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


@lru_cache(maxsize=REMEMBERED)
def _build(
    kind: ModelKind,
    shape: tuple[int, ...],
    classes: int,
    options: tuple[tuple[str, Any], ...],
    l2: float,
    loss: Loss,
) -> Model:
    tokens = loss.targets == "tokens"
    try:
        functions = kind.build(shape, classes, **dict(options))
    except ModuleNotFoundError as error:  # the light installation does not train
        raise explained(error) from None
    made = coerce(
        functions,
        shape,
        classes,
        outputs=(*shape, classes) if tokens else None,
        seen="int32" if tokens else "float32",
    )
    model = replace(of_jax(made), name=kind.name, l2=l2, loss=loss)
    if kind.parameter_count is not None:
        counted = kind.parameter_count(shape, classes, **dict(options))
        if counted != model.parameters:
            raise ScenarioError(
                f"model {kind.name!r} counts {counted} parameters and has {model.parameters}: "
                "correct its parameter_count, or leave it out"
            )
    return model


def build(
    name: str,
    /,
    shape: Sequence[int],
    classes: int,
    hidden: Sequence[int] = (),
    l2: float = 0.0,
    loss: str = CROSS_ENTROPY.name,
    **options: Any,
) -> Model:
    """Build a model by name; the same arguments give the same object (so one compilation).

    Args:
        name: of the registry ``MODELS``: ``logistic``, ``mlp``, ``cnn``, or one of the user's own.
        shape: of one sample.
        classes: number of classes.
        hidden: widths of the hidden layers, for models that take them.
        l2: weight of the regulariser.
        loss: what is minimised, by name; where it takes tokens, ``shape`` is that of a sequence.
        options: other fields of the section ``training``; a model takes its own.

    Returns:
        The Model.

    >>> build("mlp", (28, 28, 1), 10, (200,)).parameters
    159010
    """
    if not 0.0 <= l2 < math.inf:
        raise ScenarioError(f"l2 = {l2} is not a weight: use 0 or more")
    if is_in_file(name):
        return of_jax(from_file(name, shape, classes, l2, loss=loss))
    options["hidden"] = tuple(hidden)
    kind, taken = check_model(name, shape, classes, loss=loss, **options)
    minimised = loss_named(loss)
    return _build(kind, tuple(shape), classes, tuple(taken.items()), float(l2), minimised)


def of_jax(made: Model | TorchModel) -> Model:
    """The model, unless it is a PyTorch module."""
    if isinstance(made, TorchModel):
        raise NotOfJaxError(f"{made.name} is a PyTorch module: use a model of JAX or Flax here")
    return made


def from_file(
    name: str,
    shape: Sequence[int],
    classes: int,
    l2: float = 0.0,
    *,
    loss: str = CROSS_ENTROPY.name,
    outputs: tuple[int, ...] | None = None,
    seen: Literal["float32", "int32"] = "float32",
) -> Model | TorchModel:
    """The model that a file of the user's own holds: ``"my_models.py:Net"``."""
    made = _from_file(in_file(name, "training.model"), tuple(shape), classes, outputs, seen)
    return replace(with_loss(made, loss_named(loss)), l2=l2)


def with_loss(model: Model | TorchModel, loss: Loss) -> Model | TorchModel:
    """The model with what a scenario says is minimised; a module may bring a loss of its own."""
    if isinstance(model, TorchModel):
        return model if model.loss is not None else replace(model, minimised=loss)
    return replace(model, loss=loss)


@lru_cache(maxsize=REMEMBERED)
def _from_file(
    given: Any,
    shape: tuple[int, ...],
    classes: int,
    outputs: tuple[int, ...] | None,
    seen: Literal["float32", "int32"],
) -> Model | TorchModel:
    return coerce(given, shape, classes, outputs=outputs, seen=seen)


def from_functions(init: Init, apply: Apply, *, name: str = "custom", l2: float = 0.0) -> Model:
    """Make a model of the user's own pair of pure functions.

    Args:
        init: key -> params, any pytree of floating-point arrays.
        apply: (params, x [B, ...]) -> logits [B, classes].
        name: for reports.
        l2: weight of the regulariser.

    Returns:
        The Model.

    >>> import jax.numpy as jnp
    >>> from_functions(lambda key: jnp.zeros((4, 3)), lambda w, x: x @ w, name="linear").parameters
    12
    """
    if not callable(init) or not callable(apply):
        raise ScenarioError(
            f"model {name!r} is a pair of {type(init).__name__} and {type(apply).__name__}: "
            f"give two functions, init(key) and apply(params, x)"
        )
    return Model(name, init, apply, l2)


def from_flax(
    module: Any,
    sample_shape: Sequence[int],
    *,
    l2: float = 0.0,
    seen: Literal["float32", "int32"] = "float32",
) -> Model:
    """Make a model of a Flax linen module whose only variables are parameters.

    Args:
        module: ``module.apply({"params": p}, x)`` gives logits, or what else is predicted.
        sample_shape: shape of one sample.
        l2: weight of the regulariser.
        seen: how the model sees samples: scaled, or as tokens.

    Returns:
        The Model.

    >>> import flax.linen as nn
    >>> from_flax(nn.Dense(10), (64,)).parameters
    650
    """
    name = type(module).__name__

    def init(key: jax.Array) -> Params:
        import jax.numpy as jnp

        variables = dict(module.init(key, jnp.zeros((1, *sample_shape), seen)))
        params = variables.pop("params", {})
        if variables:
            raise ScenarioError(
                f"Flax module {name} keeps {', '.join(sorted(variables))} beside its parameters, "
                f"which devices would not exchange: use a module with parameters only "
                f"(GroupNorm instead of BatchNorm)"
            )
        return params

    def apply(params: Params, x: jax.Array) -> jax.Array:
        return module.apply({"params": params}, x)  # type: ignore[no-any-return]

    return Model(name, init, apply, l2)


def coerce(
    obj: Any,
    shape: Sequence[int],
    classes: int,
    *,
    outputs: tuple[int, ...] | None = None,
    seen: Literal["float32", "int32"] = "float32",
) -> Model | TorchModel:
    """Take a Model, an (init, apply) pair, a Flax linen module or its class, or a PyTorch module.

    Models of JAX are checked on the data here, PyTorch's where they are made ready to be trained.
    """
    if is_torch(obj):
        return from_torch(obj)
    linen = sys.modules.get("flax.linen")  # loaded already if obj is one of its modules
    if linen is not None and isinstance(obj, type) and issubclass(obj, linen.Module):
        obj = _made(obj)
    if isinstance(obj, Model):
        model = obj
    elif linen is not None and isinstance(obj, linen.Module):
        model = from_flax(obj, shape, seen=seen)
    elif isinstance(obj, tuple) and len(obj) == 2:
        model = from_functions(*obj)
    else:
        raise ScenarioError(
            f"a {type(obj).__name__} is not a model: give a Model, a pair (init, apply), a Flax "
            f"linen module or a PyTorch nn.Module"
        )
    if model.seen != seen:
        model = replace(model, seen=seen)
    _check(model, tuple(shape), outputs or (classes,))
    return model


def _made(module: type) -> Any:
    try:
        return module()
    except TypeError as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{module.__name__} cannot be made without arguments ({reason}): give its fields "
            f"defaults, or name a module that is made (net = {module.__name__}(…))"
        ) from None


def _check(model: Model, shape: tuple[int, ...], outputs: tuple[int, ...]) -> None:
    """Trace the model on a batch of two samples; nothing is computed."""
    import jax
    import jax.numpy as jnp

    batch = jax.ShapeDtypeStruct((2, *shape), jnp.dtype(model.seen))
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        made = jax.eval_shape(model.apply, params, batch)
    except ScenarioError:
        raise
    except Exception as error:  # the user's code may raise anything
        reason = " ".join(str(error).split())[:200]
        raise ScenarioError(
            f"model {model.name!r} does not accept samples of shape {shape} "
            f"({type(error).__name__}: {reason}): match the model to the data"
        ) from error
    leaves = jax.tree.leaves(params)
    if not leaves or not all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves):
        raise ScenarioError(
            f"model {model.name!r} has parameters of type "
            f"{sorted({str(leaf.dtype) for leaf in leaves})}: init must give floating-point arrays"
        )
    found = getattr(made, "shape", type(made).__name__)
    if found != (2, *outputs):
        wanted = f"the {outputs[0]} classes" if len(outputs) == 1 else "the positions and tokens"
        wanted = "the numbers" if outputs == (1,) else wanted
        raise ScenarioError(
            f"model {model.name!r} gives {found} for 2 samples of shape {shape}, not "
            f"{(2, *outputs)}: match its output to {wanted} of the data"
        )
