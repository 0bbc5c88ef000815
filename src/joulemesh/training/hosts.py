"""Several processes, one program: who leads, and what they tell each other.

Every process runs the same code on the same scenario and holds the rows of its own processors;
process 0 leads: it alone writes. With one process nothing here does anything.
Everything is sent as bytes, in pieces of bounded size, through the same collectives as training, so
there is one code path for every dtype and size.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.training.arrays import Array

if TYPE_CHECKING:
    import jax
    from jax.sharding import Mesh, Sharding

    from joulemesh.training.jax.platform import Spec

Bytes = NDArray[np.uint8]
T = TypeVar("T")

_PIECE_BYTES = 2**24
# What the texts of errors have in common when the other end of a connection is gone.
_GONE = ("gloo", "nccl", "connection closed", "connection reset", "coordination")


class HostLostError(RuntimeError):
    """Another process of the run is gone; what was saved last is good."""


def count() -> int:
    """The number of processes; JAX connects them, without which there are no others."""
    jax = sys.modules.get("jax")
    return 1 if jax is None else int(jax.process_count())


def alone() -> bool:
    return count() == 1


def leads() -> bool:
    jax = sys.modules.get("jax")
    return jax is None or bool(jax.process_index() == 0)


@contextmanager
def losses_named() -> Iterator[None]:
    """Turn the many errors that a lost process causes in the others into one."""
    try:
        yield
    except JoulemeshError:
        raise
    except Exception as error:  # XLA's error types are private and change
        if alone() or not any(word in str(error).lower() for word in _GONE):
            raise
        import jax

        from joulemesh.training.jax.distributed import lost

        other = [1 - jax.process_index()] if jax.process_count() == 2 else []
        raise HostLostError(lost(other)) from error


@lru_cache(maxsize=1)
def _ends() -> Mesh:
    import jax
    from jax.sharding import Mesh

    first: dict[int, jax.Device] = {}
    for device in jax.devices():
        first.setdefault(device.process_index, device)
    return Mesh(np.array([first[k] for k in sorted(first)]), ("rows",))


@lru_cache(maxsize=2)
def _collective(add: bool) -> Callable[[jax.Array], jax.Array]:
    """[P, m] of which every process has a row -> [P, m], or [m] the sum, everywhere."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding

    from joulemesh.training.jax.platform import WHOLE

    whole = NamedSharding(_ends(), WHOLE)
    if add:
        return jax.jit(lambda x: jnp.sum(x, axis=0, dtype=x.dtype), out_shardings=whole)
    return jax.jit(lambda x: x, out_shardings=whole)


def _meet_piece(piece: Bytes, *, add: bool = False) -> Bytes:
    import jax
    from jax.sharding import NamedSharding

    from joulemesh.training.jax.platform import ROWS

    mesh = _ends()
    rows = jax.make_array_from_process_local_data(
        NamedSharding(mesh, ROWS), piece[None], (mesh.size, len(piece))
    )
    return np.asarray(_collective(add)(rows).addressable_data(0))


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Agree: each of the flags is True if it is in any process."""
    if alone():
        return flags
    met = _meet_piece(np.array(flags, np.uint8)).max(axis=0)
    return tuple(bool(flag) for flag in met)


def meet(mesh: Mesh) -> None:
    """Wait for all, then connect the processors of a mesh (which must happen within seconds)."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding

    from joulemesh.training.jax.platform import ROWS, WHOLE

    if alone():
        return
    any_of(False)
    ones = put(np.ones(mesh.size, np.float32), NamedSharding(mesh, ROWS))
    whole = NamedSharding(mesh, WHOLE)
    jax.jit(jnp.sum, out_shardings=whole)(ones).block_until_ready()


def same(text: str, what: str) -> None:
    if alone():
        return
    said = _meet_piece(np.frombuffer(text.encode(), np.uint8))
    other = np.flatnonzero((said != said[0]).any(axis=1))
    if len(other):
        raise ScenarioError(
            f"process {other[0]} was given another {what} than process 0: start all of them with "
            "the same file and options"
        )


def fetch(leaf: Array, *, everywhere: bool = False) -> NDArray[Any] | None:
    """An array of all processes as NumPy: on the leader, or everywhere; None where it is not."""
    import jax

    if leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    shards = sorted(leaf.addressable_shards, key=lambda shard: shard.index[0].start or 0)
    own = np.concatenate([np.asarray(shard.data) for shard in shards])
    sent = own.reshape(-1).view(np.uint8)
    keep = everywhere or leads()
    got = np.empty((jax.process_count(), len(sent)) if keep else 0, np.uint8)
    for first in range(0, len(sent), _PIECE_BYTES):
        piece = _meet_piece(sent[first : first + _PIECE_BYTES])
        if keep:
            got[:, first : first + _PIECE_BYTES] = piece
    return got.reshape(-1).view(own.dtype).reshape(leaf.shape) if keep else None


def from_leader(values: ArrayLike | None, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """The leader's NumPy array, everywhere."""
    if alone():
        return np.asarray(values, dtype)
    mine = np.ascontiguousarray(values, dtype) if leads() else np.zeros(shape, dtype)
    sent = mine.reshape(-1).view(np.uint8)
    got = np.empty_like(sent)
    for first in range(0, len(sent), _PIECE_BYTES):
        # The others add zeros.
        got[first : first + _PIECE_BYTES] = _meet_piece(
            sent[first : first + _PIECE_BYTES], add=True
        )
    return got.view(mine.dtype).reshape(shape)


def on_leader(action: Callable[[], str]) -> str:
    """Do something on the leader only, and tell all what came of it."""
    if alone():
        return action()
    refusal: JoulemeshError | None = None
    said = ""
    if leads():
        try:
            said = action()
        except JoulemeshError as error:
            refusal, said = error, str(error)
    data = np.frombuffer(said.encode(), np.uint8)
    size, refused = from_leader([len(data), refusal is not None], (2,), np.int64)
    text = from_leader(data, (int(size),), np.uint8).tobytes().decode()
    if refused:
        raise refusal if refusal is not None else ScenarioError(text)
    return text


def put(tree: T, sharding: Spec) -> T:
    """Place arrays that every process has whole; each puts its own part on its processors."""
    import jax
    from jax.sharding import Sharding

    if alone():
        placed: T = jax.device_put(tree, sharding)
        return placed
    if isinstance(sharding, Sharding):
        one = sharding
        sharding = jax.tree.map(lambda _: one, tree)
    spread: T = jax.tree.map(_put, tree, sharding)
    return spread


def _put(leaf: Array, sharding: Sharding) -> jax.Array:
    import jax

    # jax.device_put would first send all of it to all processes, to see whether it is the same.
    if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
        return leaf
    values = np.asarray(leaf)
    values = values.astype(jax.dtypes.canonicalize_dtype(values.dtype), copy=False)
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])
