"""Exchanges of a method's own: how parameters change when devices meet, in the style of Optax.

An exchange is a pair of functions on the devices of one seed, written once for arrays of JAX and
of PyTorch (`joulemesh.training.arrays`). The learner calls it for each seed, and keeps the
parameters of departed devices, and of iterations without exchange, as they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, TypeAlias

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import place_of, require_call
from joulemesh.training import draws
from joulemesh.training.arrays import ROUND, Array, Tree, tree_flatten, tree_map
from joulemesh.training.batches import Data

ExchangeState: TypeAlias = Any  # a tree; () for exchanges without memory
Sent: TypeAlias = Any  # a tree of what the exchange reports; () where the plan knows it all


def _no_mixing(values: Array) -> Array:
    raise ScenarioError("this method's schedule has no mixing: give contender(mixing=...)")


def _no_model(params: Tree, viewer: Array, owner: Array, samples: int) -> Array:
    raise ScenarioError("there is no model whose losses could be computed")


@dataclass(frozen=True, eq=False)
class Context:
    """What an exchange may see beside the parameters, for one seed.

    All but ``data`` is traced with JAX, and NumPy's with PyTorch.

    Attributes:
        iteration: uint32 scalar, from 0.
        active: bool [N].
        weights: [N], of the mean.
        data: training samples, as the learner keeps them.
        order: device i's samples are ``order[start[i] : start[i] + size[i]]``.
        start: [N].
        size: uint32 [N].
        arrived: bool: which messages of a method's own exchange arrive; () for all.
        mix: values [N, P] -> W times these, once, with the W of the schedule's ``mixing``.
        losses: (params, viewer [K], owner [K], samples) -> [K]: the loss of device owner[k]'s model
            on the first samples of device viewer[k], at most so many, without regulariser.
    """

    iteration: Array
    active: Array
    weights: Array
    data: Data | None
    order: Array
    start: Array
    size: Array
    arrived: Array = ()
    mix: Callable[[Array], Array] = _no_mixing
    losses: Callable[[Tree, Array, Array, int], Array] = _no_model


@dataclass(frozen=True)
class Exchange:
    """A pair of pure functions.

    Attributes:
        init: params stacked [N, ...] -> state.
        apply: (params [N, ...], state, key, context) -> (params, state, sent).
        correction: state -> what local training subtracts from the parameters [N, ...] in the
            course of an iteration, in equal parts, one after each step; None for nothing.
        rounds: does ``apply`` itself round what it sends, where messages are rounded? Otherwise
            parameters are rounded when they enter it (`entering`), as if all were sent.

    >>> import numpy as np
    >>> swap = Exchange(lambda params: (), lambda params, state, key, context: (
    ...     tree_map(lambda leaf: leaf[::-1], params), state, ()))
    >>> swap.apply(np.array([1.0, 2.0]), (), None, None)[0].tolist()
    [2.0, 1.0]
    """

    init: Callable[[Tree], ExchangeState]
    apply: Callable[[Tree, ExchangeState, Any, Context], tuple[Tree, ExchangeState, Sent]]
    correction: Callable[[ExchangeState], Tree] | None = None
    rounds: bool = False

    def __post_init__(self) -> None:
        require_call(self.init, "params", "the exchange's init")
        if self.correction is not None:
            require_call(self.correction, "state", "the exchange's correction")
        require_call(self.apply, "params, state, key, context", "the exchange's apply")

    def applied(
        self, params: Tree, state: ExchangeState, key: Any, context: Context
    ) -> tuple[Tree, ExchangeState, Sent]:
        """What ``apply`` gives, refused unless parameters and state keep their form."""
        made: Any = self.apply(params, state, key, context)
        if not isinstance(made, tuple) or len(made) != 3:
            gives = f"{len(made)} values" if isinstance(made, tuple) else type(made).__name__
            raise ScenarioError(
                f"the exchange's apply ({place_of(self.apply)}) gives {gives}: "
                "return (params, state, sent)"
            )
        for what, old, new in (("params", params, made[0]), ("state", state, made[1])):
            _require_form(old, new, f"the exchange's apply ({place_of(self.apply)}) gives {what}")
        return made


def _require_form(old: Tree, new: Tree, gives: str) -> None:
    """Refuse a tree of another structure, or with leaves of other shapes or types."""
    (leaves, before), (others, after) = tree_flatten(old), tree_flatten(new)
    forms = [_form(made, len(held)) for made, held in ((before, leaves), (after, others))]
    if forms[0] != forms[1]:
        raise ScenarioError(f"{gives} as {forms[1]:.120}, not {forms[0]:.120}: keep the structure")
    for number, pair in enumerate(zip(leaves, others, strict=True)):
        was, now = map(_described, pair)
        if was != now:
            place = _place(before(range(len(leaves))), number) or ""
            raise ScenarioError(f"{gives}{place} as {now}, not {was}: keep shapes and types")


def _form(made: Callable[[Any], Tree], count: int) -> str:
    """The structure of a tree, with stars for its leaves."""
    return str(made(["*"] * count)).replace("'*'", "*")


def _described(leaf: Any) -> str:
    """Type and shape of an array, as in ``float32[4,10]``."""
    kind = str(getattr(leaf, "dtype", type(leaf).__name__)).removeprefix("torch.")
    return f"{kind}[{','.join(map(str, getattr(leaf, 'shape', ())))}]"


def _place(tree: Tree, number: int) -> str | None:
    """Where a number stands in a tree of numbers, as one writes it in Python; None if nowhere."""
    if isinstance(tree, int):
        return "" if tree == number else None
    parts: Any = tree.items() if isinstance(tree, Mapping) else ()
    if isinstance(tree, tuple | list):
        parts = enumerate(tree)
    for key, part in parts:
        found = _place(part, number)
        if found is not None:
            return f"[{key!r}]{found}"
    return None


@lru_cache(maxsize=32)  # equal exchanges share their compiled programs
def entering(own: Exchange, wire: str) -> Exchange:
    """A method's own exchange whose parameters are rounded when they enter it."""

    def apply(
        params: Tree, state: ExchangeState, key: Any, context: Context
    ) -> tuple[Tree, ExchangeState, Sent]:
        return own.apply(tree_map(ROUND[wire], params), state, key, context)

    return replace(own, apply=apply, rounds=True)


def key_words(key: Any) -> draws.Key:
    """An exchange's key as the two words that ``draws`` folds into, of shape [1]: those of a key of
    JAX, or the words themselves, which are the key with PyTorch.
    """
    if isinstance(key, tuple):
        return key
    import jax

    words = jax.random.key_data(key)
    return words[..., 0][None], words[..., 1][None]
