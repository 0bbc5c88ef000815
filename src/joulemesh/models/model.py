"""What is trained: a pair of pure functions, and their loss."""

from __future__ import annotations

__all__ = ["REMEMBERED", "Apply", "Init", "Model", "Params", "loss"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp

from joulemesh.metrics.losses import CROSS_ENTROPY, Loss

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
        apply: (params, x [B, ...]) -> outputs [B, ...]: logits [B, classes], numbers [B, k], or
            logits of tokens [B, positions, tokens]; computes in the dtype of params.
        l2: weight of the regulariser (l2/2)·||params||².
        loss: what is minimised, of outputs and targets.
        seen: how the model sees samples: ``"float32"``, scaled, or ``"int32"``, tokens.
        batch_axis: what is quicker over devices on a CPU, ``jax.vmap`` or ``jax.lax.map``; on an
            accelerator ``vmap`` always is.
        split: the name of the input layer's weights among the parameters (a flat dict), and
            (the other parameters, x @ weights) -> logits; None if there is no such layer.

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
        leaves = jax.tree.leaves(jax.eval_shape(self.init, jax.random.key(0)))
        return sum(math.prod(leaf.shape) for leaf in leaves)


def loss(model: Model, params: Params, x: jax.Array, y: jax.Array) -> jax.Array:
    """Mean loss plus (l2/2)·||params||², summed in float32 or wider.

    Args:
        model: supplies ``apply``, ``loss`` and ``l2``.
        params: of one device.
        x: [B, ...], normalised.
        y: targets [B, ...].

    Returns:
        A scalar.

    >>> toy = Model("toy", lambda key: {"w": jnp.ones((1, 2))}, lambda p, x: x @ p["w"], l2=0.5)
    >>> value = loss(toy, toy.init(jax.random.key(0)), jnp.ones((4, 1)), jnp.zeros(4, int))
    >>> round(float(value), 4)  # ln 2 + 0.25 * 2
    1.1931
    """
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
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
