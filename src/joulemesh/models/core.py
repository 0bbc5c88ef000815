"""What is trained: a pair of pure functions, where they come from, and their loss."""

from __future__ import annotations

__all__ = [
    "REMEMBERED",
    "Model",
    "Params",
    "build",
    "coerce",
    "from_file",
    "from_flax",
    "from_functions",
    "loss",
    "of_jax",
]

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp

from joulemesh.errors import ScenarioError
from joulemesh.models.kind import ModelKind
from joulemesh.models.named import is_own, own_model
from joulemesh.models.sizes import check_model
from joulemesh.models.torch_model import TorchModel, from_torch, is_torch

Params: TypeAlias = Any  # a pytree of arrays; a flat dict for the built-in models
Init: TypeAlias = Callable[[jax.Array], Params]
Apply: TypeAlias = Callable[[Params, jax.Array], jax.Array]

# Models, and specs with their compiled programs, that a process remembers. Each holds some 30 MB,
# and a comparison of all methods has 4 specs for its model.
REMEMBERED = 16


@dataclass(frozen=True)
class Model:
    """A model as pure functions; equal to another only if the functions are the same objects.

    Attributes:
        name: for reports.
        init: key -> params. Built-in models draw float32 whatever the precision of training.
        apply: (params, x [B, ...]) -> logits [B, classes]; computes in the dtype of params.
        l2: weight of the regulariser (l2/2)·||params||².
        batch_axis: what is quicker over devices on a CPU, ``jax.vmap`` or ``jax.lax.map``; on an
            accelerator ``vmap`` always is.
        split: the name of the input layer's weights among the parameters (a flat dict), and
            (the other parameters, x @ weights) -> logits; None if there is no such layer.

    >>> toy = Model("toy", lambda key: {"w": jnp.zeros((3, 2))}, lambda p, x: x @ p["w"])
    >>> toy.parameters
    6
    """

    name: str
    init: Init
    apply: Apply
    l2: float = 0.0
    batch_axis: Literal["vmap", "map"] = "vmap"
    split: tuple[str, Apply] | None = None

    @cached_property
    def parameters(self) -> int:
        """Number of parameters, found without computing any."""
        leaves = jax.tree.leaves(jax.eval_shape(self.init, jax.random.key(0)))
        return sum(math.prod(leaf.shape) for leaf in leaves)


def loss(model: Model, params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean softmax cross-entropy plus (l2/2)·||params||², summed in float32 or wider.

    Args:
        model: supplies ``apply`` and ``l2``.
        params: of one device.
        x: [B, ...], normalised.
        y: int [B].

    Returns:
        A scalar.

    >>> toy = Model("toy", lambda key: {"w": jnp.ones((1, 2))}, lambda p, x: x @ p["w"], l2=0.5)
    >>> value = loss(toy, toy.init(jax.random.key(0)), jnp.ones((4, 1)), jnp.zeros(4, int))
    >>> round(float(value), 4)  # ln 2 + 0.25 * 2
    1.1931
    """
    logits = _wide(model.apply(params, x))
    picked = jnp.take_along_axis(logits, y[:, None], axis=1)[:, 0]
    value = jnp.mean(jax.nn.logsumexp(logits, axis=1) - picked)
    if model.l2:
        squares = [jnp.sum(jnp.square(_wide(leaf))) for leaf in jax.tree.leaves(params)]
        value += 0.5 * model.l2 * sum(squares[1:], start=squares[0])
    return value


def _wide(array: jax.Array) -> jax.Array:
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


@lru_cache(maxsize=REMEMBERED)
def _build(
    kind: ModelKind,
    shape: tuple[int, ...],
    classes: int,
    options: tuple[tuple[str, Any], ...],
    l2: float,
) -> Model:
    made = of_jax(coerce(kind.build(shape, classes, **dict(options)), shape, classes))
    model = replace(made, name=kind.name, l2=l2)
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
    **options: Any,
) -> Model:
    """Build a model by name; the same arguments give the same object (so one compilation).

    Args:
        name: of the registry ``MODELS``: ``logistic``, ``mlp``, ``cnn``, or one of the user's own.
        shape: of one sample.
        classes: number of classes.
        hidden: widths of the hidden layers, for models that take them.
        l2: weight of the regulariser.
        options: other fields of the section ``training``; a model takes its own.

    Returns:
        The Model.

    >>> build("mlp", (28, 28, 1), 10, (200,)).parameters
    159010
    """
    if not 0.0 <= l2 < math.inf:
        raise ScenarioError(f"l2 = {l2} is not a weight: use 0 or more")
    if is_own(name):
        return of_jax(from_file(name, shape, classes, l2))
    options["hidden"] = tuple(hidden)
    kind, taken = check_model(name, shape, classes, **options)
    return _build(kind, tuple(shape), classes, tuple(taken.items()), float(l2))


def of_jax(made: Model | TorchModel) -> Model:
    """The model, unless it is a PyTorch module."""
    if isinstance(made, TorchModel):
        raise ScenarioError(
            f"{made.name} is a PyTorch module, which only run, compare and tune train: use a model "
            "of JAX here"
        )
    return made


def from_file(name: str, shape: Sequence[int], classes: int, l2: float = 0.0) -> Model | TorchModel:
    """The model that a file of the user's own holds: ``"my_models.py:Net"``.

    Args:
        name: file and name.
        shape: of one sample.
        classes: number of classes.
        l2: weight of the regulariser.
    """
    return replace(_from_file(own_model(name), tuple(shape), classes), l2=l2)


@lru_cache(maxsize=REMEMBERED)
def _from_file(given: Any, shape: tuple[int, ...], classes: int) -> Model | TorchModel:
    linen = sys.modules.get("flax.linen")
    if isinstance(given, type) and linen is not None and issubclass(given, linen.Module):
        given = given()
    return coerce(given, shape, classes)


def from_functions(init: Init, apply: Apply, *, name: str = "custom", l2: float = 0.0) -> Model:
    """Make a model of the user's own pair of pure functions.

    Args:
        init: key -> params, any pytree of floating-point arrays.
        apply: (params, x [B, ...]) -> logits [B, classes].
        name: for reports.
        l2: weight of the regulariser.

    Returns:
        The Model.

    >>> from_functions(lambda key: jnp.zeros((4, 3)), lambda w, x: x @ w, name="linear").parameters
    12
    """
    if not callable(init) or not callable(apply):
        raise ScenarioError(
            f"model {name!r} is a pair of {type(init).__name__} and {type(apply).__name__}: "
            f"give two functions, init(key) and apply(params, x)"
        )
    return Model(name, init, apply, l2)


def from_flax(module: Any, sample_shape: Sequence[int], *, l2: float = 0.0) -> Model:
    """Make a model of a Flax linen module whose only variables are parameters.

    Args:
        module: ``module.apply({"params": p}, x)`` gives logits.
        sample_shape: shape of one sample.
        l2: weight of the regulariser.

    Returns:
        The Model.

    >>> import flax.linen as nn
    >>> from_flax(nn.Dense(10), (64,)).parameters
    650
    """
    name = type(module).__name__

    def init(key: jax.Array) -> Params:
        variables = dict(module.init(key, jnp.zeros((1, *sample_shape), jnp.float32)))
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


def coerce(obj: Any, shape: Sequence[int], classes: int) -> Model | TorchModel:
    """Take a Model, an (init, apply) pair, a Flax linen module or a PyTorch module.

    Models of JAX are checked on the data here, PyTorch's where they are made ready to be trained.

    Args:
        obj: what the user gave.
        shape: of one sample of the data.
        classes: number of classes of the data.

    Returns:
        The Model.

    Raises:
        ScenarioError: it is none of these, or a batch of the data does not give [B, classes].

    >>> coerce((lambda key: jnp.zeros((8, 3)), lambda w, x: x @ w), (8,), 3).parameters
    24
    """
    if is_torch(obj):
        return from_torch(obj)
    linen = sys.modules.get("flax.linen")  # loaded already if obj is one of its modules
    if isinstance(obj, Model):
        model = obj
    elif linen is not None and isinstance(obj, linen.Module):
        model = from_flax(obj, shape)
    elif isinstance(obj, tuple) and len(obj) == 2:
        model = from_functions(*obj)
    else:
        raise ScenarioError(
            f"a {type(obj).__name__} is not a model: give a Model, a pair (init, apply), a Flax "
            f"linen module or a PyTorch nn.Module"
        )
    _check(model, tuple(shape), classes)
    return model


def _check(model: Model, shape: tuple[int, ...], classes: int) -> None:
    """Trace the model on a batch of two samples; nothing is computed."""
    batch = jax.ShapeDtypeStruct((2, *shape), jnp.float32)
    try:
        params = jax.eval_shape(model.init, jax.random.key(0))
        logits = jax.eval_shape(model.apply, params, batch)
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
    found = getattr(logits, "shape", type(logits).__name__)
    if found != (2, classes):
        raise ScenarioError(
            f"model {model.name!r} gives {found} for 2 samples of shape {shape}, not "
            f"(2, {classes}): match its output to the {classes} classes of the data"
        )
