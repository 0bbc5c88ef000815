"""The compiled programs of a key, made once and kept.

Loop bounds, the number of iterations and the learning rate are traced, so one compilation serves
every schedule of the same shape. Evaluation is a program by itself: compiled once for a model,
whatever the schedule and the exchange.
"""

from __future__ import annotations

__all__ = ["Programs", "programs"]

import itertools
import threading
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple, TypeVar

import jax
import optax
from jax.sharding import NamedSharding

from joulemesh.models.core import REMEMBERED, Params
from joulemesh.training.exchange import ExchangeState
from joulemesh.training.jax.evaluation import Evaluation, evaluate, finite
from joulemesh.training.jax.iteration import advance, memories, watched
from joulemesh.training.jax.platform import ROWS, WHOLE, compiler_options
from joulemesh.training.jax.types import ChunkReport, ProgramKey, State

_CPU_TURN = threading.Lock()
# JAX keeps every trace of its own functions (jnp.where of some shapes, and so on) for ever, some
# 2 MB for each model. They are dropped after so many keys; programs in use then compile again.
_TRACED_KEYS = 64
_keys_made = itertools.count(1)


R = TypeVar("R")


class Programs(NamedTuple):
    """The compiled functions of a key."""

    memories: Callable[[Params], tuple[optax.OptState, ExchangeState]]
    advance: Callable[..., tuple[State, ChunkReport]]
    watched: Callable[..., tuple[State, ChunkReport, jax.Array]]
    evaluate: Callable[..., Evaluation]
    finite: Callable[[Params], jax.Array]


@lru_cache(maxsize=REMEMBERED)
def programs(key: ProgramKey) -> Programs:
    """Make the functions of a key; they compile when first called."""
    if next(_keys_made) % _TRACED_KEYS == 0:
        jax.clear_caches()
    state: State | None = None
    whole: NamedSharding | None = None
    if key.mesh.size > 1:
        rows, whole = NamedSharding(key.mesh, ROWS), NamedSharding(key.mesh, WHOLE)
        held = whole if key.strategy.shared else rows
        state = State(held, held, whole, whole)
    compiled = partial(_compiled, key)
    scored, checked = _scoring(key.scoring)
    kept = None if state is None else (state.optimizer, state.exchange)
    return Programs(
        memories=_jitted(key, memories, out_shardings=kept),  # has no collective
        advance=compiled(advance, donate_argnums=0, out_shardings=(state, whole)),
        watched=compiled(watched, donate_argnums=0, out_shardings=(state, whole, whole)),
        evaluate=scored,
        finite=checked,
    )


@lru_cache(maxsize=REMEMBERED)
def _scoring(
    key: ProgramKey,
) -> tuple[Callable[..., Evaluation], Callable[[Params], jax.Array]]:
    """The programs that read parameters only, and serve every schedule and exchange."""
    whole = NamedSharding(key.mesh, WHOLE) if key.mesh.size > 1 else None
    return (
        _compiled(key, evaluate, out_shardings=whole),
        _compiled(key, finite, out_shardings=whole),
    )


def _jitted(key: ProgramKey, function: Callable[..., R], **arguments: Any) -> Callable[..., R]:
    options = compiler_options(key.deterministic, images=key.model.batch_axis == "map")
    return jax.jit(partial(function, key), compiler_options=options, **arguments)


def _compiled(key: ProgramKey, function: Callable[..., R], **arguments: Any) -> Callable[..., R]:
    jitted = _jitted(key, function, **arguments)
    on_cpu = key.mesh.devices.flat[0].platform == "cpu"
    return _one_at_a_time(jitted) if key.mesh.size > 1 and on_cpu else jitted


def _one_at_a_time(jitted: Callable[..., R]) -> Callable[..., R]:
    """Let no two programs over several CPU devices be in flight together, in any thread.

    XLA's CPU client has one pool of threads, as many as there are devices, for two purposes that
    can block. A device's part of a program holds a thread while it waits in a collective for the
    other parts. Launching a part also takes a thread, and blocks in it while 32 programs are in
    flight on that device. With enough programs queued, launches hold every thread that is left,
    the part that the collective waits for never runs, and XLA aborts the process.
    """

    @wraps(jitted)
    def call(*args: Any, **kwargs: Any) -> R:
        with _CPU_TURN:
            done = jitted(*args, **kwargs)
            for leaf in jax.tree.leaves(done):
                leaf.block_until_ready()
            return done

    call.jitted = jitted  # type: ignore[attr-defined]
    return call
