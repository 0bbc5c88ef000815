"""What an exchange does to arrays, written once for JAX and PyTorch.

Parameters are arrays of the library that trains. All else (chance, who is active, who sends what
to whom) is traced with JAX, so that it compiles into the training loop, and is NumPy's with
PyTorch, which computes as it goes: choices are then made on the host and never wait for a GPU.
Functions come from the array API standard (`namespace`); here is what the standard leaves out:
trees, loops, writing at an index, short numbers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from joulemesh.aggregation.bits import BUCKET, LEAST, MOST, WIDTHS, quantised
from joulemesh.base.optional import require

Array: TypeAlias = Any  # of JAX, PyTorch or NumPy
Tree: TypeAlias = Any  # nested dicts, lists and tuples of arrays; with JAX, any of its pytrees


def is_jax(array: Array) -> bool:
    """Whether an array, traced or not, is of JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(array, jax.Array)


def namespace(array: Array) -> Any:
    """The functions of the array API standard for the library of an array.

    >>> namespace(np.ones(2)).__name__
    'numpy'
    """
    own = getattr(array, "__array_namespace__", None)
    return require("array_api_compat.torch", "a PyTorch module") if own is None else own()


def choices(params: Tree) -> Any:
    """The namespace of all that is not a parameter: that of JAX, or NumPy."""
    first = tree_leaves(params)[0]
    return namespace(first) if is_jax(first) else np


def place(values: Array, at: Array) -> Array:
    """Values as an array of the library and on the processor of another, of their own type."""
    if is_jax(at):
        return namespace(at).asarray(values)
    if isinstance(at, np.ndarray | np.generic):
        return np.asarray(values)
    torch = sys.modules["torch"]
    plain = np.asarray(values)
    if plain.dtype == np.uint32:  # few operations of PyTorch take it
        plain = plain.astype(np.int64)
    return torch.as_tensor(np.array(plain, order="C")).to(at.device)


def like(values: Array, at: Array) -> Array:
    """Values as an array of the library, the processor and the type of another.

    >>> like(np.array([1, 2]), np.ones(3, np.float32)).dtype.name
    'float32'
    """
    return namespace(at).astype(place(values, at), at.dtype)


# Trees ------------------------------------------------------------------------------------------


def tree_flatten(tree: Tree) -> tuple[list[Array], Callable[[Any], Tree]]:
    """The leaves of a tree, and what makes such a tree of other leaves; dicts by sorted keys.

    >>> leaves, made = tree_flatten({"b": 1, "a": (2, None)})
    >>> leaves, made([3, 4])
    ([2, 1], {'a': (3, None), 'b': 4})
    """
    if "jax" in sys.modules:
        jax = sys.modules["jax"]
        leaves, form = jax.tree.flatten(tree)
        return leaves, lambda new: jax.tree.unflatten(form, list(new))
    leaves = []
    form = _form(tree, leaves)
    return leaves, lambda new: form(iter(new))


def _form(tree: Tree, leaves: list[Array]) -> Callable[[Any], Tree]:
    """Append the leaves of a tree; what takes as many from an iterator for a tree of that form."""
    if tree is None:
        return lambda new: None
    if isinstance(tree, dict):
        parts = [(key, _form(tree[key], leaves)) for key in sorted(tree)]
        return lambda new: {key: part(new) for key, part in parts}
    if isinstance(tree, tuple | list):
        forms, kind = [_form(one, leaves) for one in tree], type(tree)
        if hasattr(tree, "_fields"):
            return lambda new: kind(*[one(new) for one in forms])
        return lambda new: kind([one(new) for one in forms])
    leaves.append(tree)
    return next


def tree_leaves(tree: Tree) -> list[Array]:
    return tree_flatten(tree)[0]


def tree_map(function: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """A function of each leaf, with those in its place in other trees of the same form.

    >>> tree_map(lambda one, other: one + other, {"a": 1, "b": 2}, {"a": 10, "b": 20})
    {'a': 11, 'b': 22}
    """
    leaves, made = tree_flatten(tree)
    rest = [tree_leaves(one) for one in others]
    return made([function(*each) for each in zip(leaves, *rest, strict=True)])


def flatten(params: Tree) -> tuple[Array, Callable[[Array], Tree]]:
    """Lay each device's parameters out in one row.

    Args:
        params: stacked [N, ...].

    Returns:
        [N, P], and the way back.

    >>> flat, back = flatten({"a": np.ones((2, 3, 2)), "b": np.zeros((2, 1))})
    >>> flat.shape, back(flat)["a"].shape
    ((2, 7), (2, 3, 2))
    """
    leaves, tree = tree_flatten(params)
    shapes = [tuple(leaf.shape) for leaf in leaves]
    sizes = [math.prod(shape[1:]) for shape in shapes]
    xp = namespace(leaves[0])
    flat = xp.concat([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)

    def back(flat: Array) -> Tree:
        parts, low = [], 0
        for shape, size in zip(shapes, sizes, strict=True):
            parts.append(flat[:, low : low + size].reshape(shape))
            low += size
        return tree(parts)

    return flat, back


# Loops and branches -----------------------------------------------------------------------------


def repeat(count: int, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """``carry = body(number, carry)`` for each number below ``count``; compiled once with JAX.

    >>> repeat(3, lambda number, total: total + number, np.array([1]))
    array([4])
    """
    if any(map(is_jax, tree_leaves(carry))):
        return sys.modules["jax"].lax.fori_loop(0, count, body, carry)
    for number in range(count):
        carry = body(np.int64(number), carry)
    return carry


def branch(which: Array, one: Callable[..., Any], other: Callable[..., Any], *given: Any) -> Any:
    """What one function gives, or the other where ``which`` is false."""
    if is_jax(which):
        return sys.modules["jax"].lax.cond(which, one, other, *given)
    return one(*given) if which else other(*given)


def until(done: Callable[[Any], Any], body: Callable[[Any], Any], carry: Any) -> Any:
    """``carry = body(carry)`` until it is done; compiled once with JAX.

    >>> until(lambda number: number > 9, lambda number: number * 2, np.int64(1)).item()
    16
    """
    if any(map(is_jax, tree_leaves(carry))):
        return sys.modules["jax"].lax.while_loop(lambda held: ~done(held), body, carry)
    while not done(carry):
        carry = body(carry)
    return carry


# Writing ----------------------------------------------------------------------------------------


def put(array: Array, index: Any, values: Array, *, unique: bool = False) -> Array:
    """The array with values at an index; the array given is used up, and may itself be changed.

    Args:
        array: what is changed.
        index: within its bounds.
        values: written there.
        unique: whether no place comes twice.

    >>> put(np.zeros(3), np.array([1]), 2.0).tolist()
    [0.0, 2.0, 0.0]
    """
    if is_jax(array):
        return array.at[index].set(values, unique_indices=unique)
    array[_indices(array, index)] = values
    return array


def add(array: Array, index: Any, values: Array) -> Array:
    """The array with values added at an index, where places may come twice.

    The array given is used up, and may itself be changed.
    """
    if is_jax(array):
        return array.at[index].add(values)
    if isinstance(array, np.ndarray):
        np.add.at(array, index, values)
        return array
    return array.index_put_(_indices(array, index), values, accumulate=True)


def _indices(array: Array, index: Any) -> Any:
    """An index that an array of PyTorch takes, whatever NumPy arrays it consists of."""
    if isinstance(array, np.ndarray):
        return index
    parts = index if isinstance(index, tuple) else (index,)
    return tuple(place(one, array) if isinstance(one, np.ndarray) else one for one in parts)


def pad(array: Array, after: tuple[int, ...]) -> Array:
    """An array with so many zeros after its end along each axis.

    >>> pad(np.ones((1, 2)), (0, 1)).tolist()
    [[1.0, 1.0, 0.0]]
    """
    if is_jax(array) or isinstance(array, np.ndarray):
        return namespace(array).pad(array, [(0, more) for more in after])
    flat = [figure for more in reversed(after) for figure in (0, more)]
    return sys.modules["torch"].nn.functional.pad(array, flat)


# Short numbers ----------------------------------------------------------------------------------


def half(values: Array) -> Array:
    """Round to IEEE half precision, to nearest and ties to even, in the type of the values.

    >>> half(np.array([0.1, 1e-6, 1e5])).tolist()
    [0.0999755859375, 1.0132789611816406e-06, inf]
    """
    if is_jax(values):
        return _half_of_jax(values)
    if isinstance(values, np.ndarray):
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(values.dtype)
    torch = sys.modules["torch"]
    if values.dtype != torch.float64:
        return values.to(torch.float16).to(values.dtype)
    # PyTorch converts 64 bits to 16 by way of 32, and rounds twice.
    exponent = torch.frexp(values).exponent.clamp(min=-13)  # below, numbers are subnormal
    last = torch.ldexp(torch.ones_like(values), exponent - 11)  # the place of the last digit
    made = torch.round(values / last) * last
    most = torch.finfo(torch.float16).max
    return torch.where(made.abs() > most, torch.copysign(made * torch.inf, made), made)


def _half_of_jax(values: Array) -> Array:
    """A conversion there and back is not enough: XLA may leave both out."""
    jax = sys.modules["jax"]
    normal = jax.lax.reduce_precision(values, exponent_bits=5, mantissa_bits=10)
    # `reduce_precision` makes zeros of subnormal numbers, which are multiples of 2⁻²⁴.
    small = jax.numpy.round(values * 2.0**24) * 2.0**-24
    return jax.numpy.where(jax.numpy.abs(values) < 2.0**-14, small, normal)


def quantise(values: Array, bits: int) -> Array:
    """`joulemesh.aggregation.bits.quantised` of vectors [..., P], for arrays of any library.

    >>> quantise(np.array([1.0, 0.3, -0.02]), 4).tolist()
    [1.0, 0.25, 0.0]
    """
    if isinstance(values, np.ndarray):
        return quantised(values, bits)
    xp, size = namespace(values), values.shape[-1]
    padded = pad(values, (*(0,) * (values.ndim - 1), -size % BUCKET))
    buckets = padded.reshape(*values.shape[:-1], -1, BUCKET)
    most, largest = xp.max(xp.abs(buckets), axis=-1, keepdims=True), 2 ** (bits - 1) - 1
    if is_jax(values):
        exponent = xp.frexp(most)[1] - (bits - 1)
        unit = xp.ldexp(xp.ones_like(most), xp.clip(exponent, LEAST, MOST))
    else:
        torch = sys.modules["torch"]
        exponent = torch.frexp(most).exponent - (bits - 1)
        unit = torch.ldexp(torch.ones_like(most), exponent.clamp(LEAST, MOST))
    # Divided by a power of two and multiplied by it, nothing is rounded but what is meant to be.
    whole = xp.clip(xp.round(buckets / unit), -largest, largest)
    made = xp.where((most == 0) | (exponent < LEAST), xp.zeros_like(whole), whole * unit)
    finite = xp.all(xp.isfinite(buckets), axis=-1, keepdims=True)  # XLA's maximum may lose a NaN
    made = xp.where(finite, made, xp.full_like(made, np.nan))
    return made.reshape(*values.shape[:-1], -1)[..., :size]


ROUND: dict[str, Callable[[Array], Array]] = {
    "float16": half,
    **{f"int{bits}": partial(quantise, bits=bits) for bits in WIDTHS},
}
"""How values are rounded, by the name of the type in which they travel."""
