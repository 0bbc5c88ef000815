"""The compiled program: a chunk of iterations, each local training, exchange, evaluation.

Loop bounds, the number of iterations and the learning rate are traced, so one compilation serves
every schedule of the same shape. Local training and evaluation are written for the rows of one
processor and mapped over the mesh; exchanges are written for all devices and partitioned by XLA.
"""

from __future__ import annotations

__all__ = ["Fixed", "Output", "Programs", "Slice", "Spec", "State", "programs"]

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from joulemesh.models.core import Model, Params
from joulemesh.training import draws
from joulemesh.training.evaluate import Panel, consensus_error, mean_model
from joulemesh.training.exchange import Context, Exchange
from joulemesh.training.local import Recipe, Rows, train_rows
from joulemesh.training.objective import Data
from joulemesh.training.options import make_optimizer
from joulemesh.training.panel import Sheets, device_accuracy, mean_scores
from joulemesh.training.platform import compiler_options


class State(NamedTuple):
    """Everything that a run carries from one iteration to the next."""

    params: Params  # stacked [rows, ...]
    optimizer: Any  # stacked [rows, ...]
    exchange: Any  # of the exchange, stacked [seeds, ...]
    iteration: jax.Array  # int32 scalar: iterations completed


class Fixed(NamedTuple):
    """What does not change during a run."""

    train: Data
    test: Data
    order: jax.Array  # int32, the rows' sample indices, concatenated
    rows: Rows
    weights: jax.Array  # [places, S], of the mean
    learning_rate: jax.Array
    mixing: Any  # SparseMixing, or ()
    exchange_key: draws.Key  # of (seed, EXCHANGE): two uint32 [S]
    sheets: Sheets


class Slice(NamedTuple):
    """The schedule of one chunk; entries at and beyond ``count`` are ignored."""

    count: jax.Array  # int32 scalar
    rounds: jax.Array  # int32 [C, places]
    active: jax.Array  # bool [C, places]
    exchanged: jax.Array  # bool [C]
    measured: jax.Array  # bool [C]
    mixing: Any  # [C, places, places], [1, places, places], or ()


class Output(NamedTuple):
    """What a chunk reports, per iteration and seed."""

    panel: Panel  # [C, S]; only where measured
    finite: jax.Array  # bool [C, S]
    sent: Any  # [C, S, ...]


@dataclass(frozen=True)
class Spec:
    """What the compiler must know; equal specs share one compilation."""

    model: Model
    optimizer: str
    batch: int
    local_round: str
    precision: str
    exchange: Exchange
    kind: Literal["mean", "dense", "sparse", "own"]
    devices: int
    places: int
    seeds: int
    chunk: int
    loop: bool
    deterministic: bool
    mesh: Mesh

    @property
    def compute(self) -> Any:
        """Dtype in which losses are computed."""
        return jnp.dtype(self.precision)


class Programs(NamedTuple):
    """The compiled functions of a spec."""

    chunk: Callable[[State, Fixed, Slice], tuple[State, Output]]
    evaluate: Callable[[Params, Fixed, Sheets, jax.Array], Panel]


@lru_cache(maxsize=32)
def programs(spec: Spec) -> Programs:
    """Make the functions of a spec; they compile when first called."""
    options = compiler_options(spec.deterministic)
    shardings: dict[str, Any] = {}
    if spec.mesh.size > 1:
        rows, whole = NamedSharding(spec.mesh, P("rows")), NamedSharding(spec.mesh, P())
        shardings = {"out_shardings": (State(rows, rows, whole, whole), whole)}
    chunk = jax.jit(
        partial(_chunk, spec), donate_argnums=0, compiler_options=options, **shardings
    )
    evaluate = jax.jit(partial(_evaluate, spec), compiler_options=options)
    return Programs(chunk, evaluate)


def _sharded(spec: Spec, function: Any, in_specs: Any, out_specs: Any) -> Any:
    if spec.mesh.size == 1:
        return function
    return jax.shard_map(
        function, mesh=spec.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )


def _by_device(spec: Spec, params: Params) -> Params:
    """View rows as [places, S, ...]."""
    return jax.tree.map(lambda p: p.reshape(spec.places, spec.seeds, *p.shape[1:]), params)


def _chunk(spec: Spec, state: State, fixed: Fixed, slice_: Slice) -> tuple[State, Output]:
    shapes = jax.eval_shape(
        lambda s: _iterate(spec, fixed, slice_, jnp.int32(0), s)[1], state
    )
    output = jax.tree.map(lambda s: jnp.zeros((spec.chunk, *s.shape), s.dtype), shapes)

    def body(number: jax.Array, carry: tuple[State, Output]) -> tuple[State, Output]:
        state, output = carry
        state, record = _iterate(spec, fixed, slice_, number, state)
        return state, jax.tree.map(lambda all_, one: all_.at[number].set(one), output, record)

    return lax.fori_loop(0, slice_.count, body, (state, output))


def _iterate(
    spec: Spec, fixed: Fixed, slice_: Slice, number: jax.Array, state: State
) -> tuple[State, Output]:
    """One iteration; ``number`` counts from the start of the chunk."""
    active, exchanged = slice_.active[number], slice_.exchanged[number]
    measured = slice_.measured[number]
    rounds = jnp.repeat(slice_.rounds[number], spec.seeds)
    params, optimizer = _train(spec, fixed, state, rounds)
    nothing = jnp.zeros(spec.seeds, fixed.weights.dtype)
    drift = lax.cond(
        measured,
        lambda p: consensus_error(_by_device(spec, p), active),
        lambda p: nothing,
        params,
    )
    params, memory, sent = _exchange(
        spec, fixed, slice_, number, state._replace(params=params), active & exchanged
    )
    agree = exchanged & (spec.kind == "mean")
    panel = lax.cond(
        measured,
        lambda p: _panel(spec, fixed, fixed.sheets, p, active, agree)._replace(drift=drift),
        lambda p: Panel(*[nothing] * len(Panel._fields)),
        params,
    )
    state = State(params, optimizer, memory, state.iteration + 1)
    return state, Output(panel, _finite(spec, params), sent)


def _train(
    spec: Spec, fixed: Fixed, state: State, rounds: jax.Array
) -> tuple[Params, Any]:
    recipe = Recipe(spec.model, spec.batch, spec.local_round, spec.compute)

    def train(
        data: Data, order: Any, rate: Any, iteration: Any, rows: Rows, rounds: Any, carry: Any
    ) -> Any:
        optimizer = make_optimizer(spec.optimizer, rate)
        return train_rows(
            recipe, optimizer, data, order, rows, iteration, rounds, carry, loop=spec.loop
        )

    mapped = _sharded(spec, train, (P(), P(), P(), P(), P("rows"), P("rows"), P("rows")), P("rows"))
    iteration = state.iteration.astype(jnp.uint32)
    carry = (state.params, state.optimizer)
    trained: tuple[Params, Any] = mapped(
        fixed.train, fixed.order, fixed.learning_rate, iteration, fixed.rows, rounds, carry
    )
    return trained


def _exchange(
    spec: Spec, fixed: Fixed, slice_: Slice, number: jax.Array, state: State, takes: jax.Array
) -> tuple[Params, Any, Any]:
    """Apply the exchange; devices that do not take part keep what they have."""
    old = _by_device(spec, state.params)
    context = _context(spec, fixed, slice_, number, state.iteration)
    if spec.exchange.all_seeds:
        new, memory, sent = spec.exchange.apply(old, state.exchange, jnp.zeros(0), context)
    else:
        key = draws.fold(fixed.exchange_key, context.iteration)
        keys = jax.random.wrap_key_data(jnp.stack(key, axis=-1))
        inside = jax.tree.map(lambda leaf: leaf[: spec.devices], old)
        axes = Context(None, None, 1, None, None, None, 1, 1)
        new, memory, sent = jax.vmap(
            spec.exchange.apply, in_axes=(1, 0, 0, axes), out_axes=(1, 0, 0)
        )(inside, state.exchange, keys, context)
        pad = spec.places - spec.devices
        new = jax.tree.map(
            lambda leaf: jnp.pad(leaf, [(0, pad)] + [(0, 0)] * (leaf.ndim - 1)), new
        )
        went = slice_.exchanged[number]
        memory = jax.tree.map(lambda a, b: jnp.where(went, a, b), memory, state.exchange)
        sent = jax.tree.map(lambda a: jnp.where(went, a, jnp.zeros_like(a)), sent)

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        kept = jnp.where(takes.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)
        return kept.reshape(-1, *kept.shape[2:])

    params = jax.tree.map(keep, new, old)
    if spec.mesh.size > 1:
        params = lax.with_sharding_constraint(params, NamedSharding(spec.mesh, P("rows")))
    return params, memory, sent


def _context(
    spec: Spec, fixed: Fixed, slice_: Slice, number: jax.Array, iteration: jax.Array
) -> Context:
    """What the exchange sees; a method's own sees the N devices only, not what pads."""
    inside = spec.places if spec.exchange.all_seeds else spec.devices
    start, size = (
        a.reshape(spec.places, spec.seeds)[:inside] for a in (fixed.rows.start, fixed.rows.size)
    )
    mixing = fixed.mixing
    if spec.kind == "dense":
        last = slice_.mixing.shape[0] - 1  # one matrix serves every iteration
        mixing = slice_.mixing[jnp.minimum(number, last)]
    return Context(
        iteration=iteration.astype(jnp.uint32),
        active=slice_.active[number][:inside],
        weights=fixed.weights[:inside],
        mixing=mixing,
        data=fixed.train,
        order=fixed.order,
        start=start,
        size=size,
    )


def _finite(spec: Spec, params: Params) -> jax.Array:
    """Whether all parameters of each seed are finite."""
    checks = [
        jnp.all(jnp.isfinite(leaf), axis=(0, *range(2, leaf.ndim)))
        for leaf in jax.tree.leaves(_by_device(spec, params))
    ]
    return jnp.all(jnp.stack(checks), axis=0)


def _evaluate(
    spec: Spec, params: Params, fixed: Fixed, sheets: Sheets, active: jax.Array
) -> Panel:
    return _panel(spec, fixed, sheets, params, active, jnp.array(False))


def _panel(
    spec: Spec, fixed: Fixed, sheets: Sheets, params: Params, active: jax.Array, agree: jax.Array
) -> Panel:
    """Evaluate the mean model and the devices' own; if these agree, the mean model is theirs."""
    view = _by_device(spec, params)
    share = jnp.where(active[:, None], fixed.weights, 0)
    share = share / jnp.sum(share, axis=0)
    centre = mean_model(view, share)
    scores = _sharded(
        spec,
        partial(mean_scores, spec.model, spec.compute, spec.mesh.size > 1),
        (P(), P(), sheets.specs(), P(), P()),
        P(),
    )(fixed.train, fixed.test, sheets, centre, share)
    each = _sharded(
        spec,
        partial(device_accuracy, spec.model, spec.compute, spec.loop),
        (P(), P(), P("rows")),
        P("rows"),
    )
    accuracy = lax.cond(
        agree,
        lambda p: jnp.tile(scores.shared_accuracy, spec.places),
        lambda p: each(fixed.test, sheets.device, p),
        params,
    ).reshape(spec.places, spec.seeds)
    here = active[:, None]
    count = jnp.sum(active)
    return Panel(
        train_loss=scores.train_loss,
        test_loss=scores.test_loss,
        test_accuracy=scores.test_accuracy,
        device_accuracy_mean=jnp.sum(jnp.where(here, accuracy, 0), axis=0) / count,
        device_accuracy_min=jnp.min(jnp.where(here, accuracy, jnp.inf), axis=0),
        device_accuracy_max=jnp.max(jnp.where(here, accuracy, -jnp.inf), axis=0),
        drift=jnp.zeros_like(scores.test_loss),
        consensus=jnp.where(agree, 0, consensus_error(view, active)),
    )
