"""The compiled programs: iterations of local training and exchange, and measured ones.

Loop bounds, the number of iterations and the learning rate are traced, so one compilation serves
every schedule of the same shape. There is no branch: the last block before an evaluation has a
program of its own, which also looks at how far devices have drifted apart, and the host, which
knows the schedule, calls one or the other without waiting. Evaluation is a program by itself:
compiled once for a model, whatever the schedule and the exchange.
A chunk is a sequence of blocks. On a CPU a block is an iteration. On an accelerator a loop whose
end is computed there costs a question and an answer each time round (about 40 µs, as long as a
step), so a block is a fixed number of steps, with an exchange that counts only at the end of an
iteration, and loops have known lengths.
Local training and evaluation are written for the rows of one processor and mapped over the mesh;
exchanges are written for all devices and partitioned by XLA. From a shared start (`shared`)
training and exchange are one.
"""

from __future__ import annotations

__all__ = ["Programs", "programs"]

import itertools
import threading
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from joulemesh.models.core import REMEMBERED, Params
from joulemesh.training import draws
from joulemesh.training.evaluate import Panel, consensus_error, mean_model
from joulemesh.training.exchange import Context
from joulemesh.training.local import Carry, Recipe, train_rows
from joulemesh.training.objective import Data
from joulemesh.training.options import make_optimizer
from joulemesh.training.panel import Sheets, device_accuracy, mean_scores
from joulemesh.training.parts import NEVER, Blocks, Fixed, Record, Slice, Spec, State
from joulemesh.training.platform import ROWS, WHOLE, compiler_options
from joulemesh.training.shared import Moved, spread, train_shared

_CPU_TURN = threading.Lock()
# JAX keeps every trace of its own functions (jnp.where of some shapes, and so on) for ever, some
# 2 MB for each model. They are dropped after so many specs; programs in use then compile again.
_TRACED_SPECS = 64
_specs_made = itertools.count(1)


class Programs(NamedTuple):
    """The compiled functions of a spec."""

    memories: Callable[[Params], tuple[Any, Any]]
    advance: Callable[..., tuple[State, Record]]
    watched: Callable[..., tuple[State, Record, jax.Array]]
    evaluate: Callable[..., Panel]
    finite: Callable[[Params], jax.Array]


@lru_cache(maxsize=REMEMBERED)
def programs(spec: Spec) -> Programs:
    """Make the functions of a spec; they compile when first called."""
    if next(_specs_made) % _TRACED_SPECS == 0:
        jax.clear_caches()  # type: ignore[no-untyped-call]
    state: Any = None
    whole: Any = None
    if spec.mesh.size > 1:
        rows, whole = NamedSharding(spec.mesh, ROWS), NamedSharding(spec.mesh, WHOLE)
        held = whole if spec.way.shared else rows
        state = State(held, held, whole, whole)
    compiled = partial(_compiled, spec)
    evaluate, finite = _scoring(spec.scoring)
    memories = None if state is None else (state.optimizer, state.exchange)
    return Programs(
        memories=_jitted(spec, _memories, out_shardings=memories),  # has no collective
        advance=compiled(_advance, donate_argnums=0, out_shardings=(state, whole)),
        watched=compiled(_watched, donate_argnums=0, out_shardings=(state, whole, whole)),
        evaluate=evaluate,
        finite=finite,
    )


@lru_cache(maxsize=REMEMBERED)
def _scoring(spec: Spec) -> tuple[Any, Any]:
    """What looks at parameters only, and serves every schedule and exchange."""
    whole = NamedSharding(spec.mesh, WHOLE) if spec.mesh.size > 1 else None
    return (
        _compiled(spec, _panel, out_shardings=whole),
        _compiled(spec, _finite, out_shardings=whole),
    )


def _jitted(spec: Spec, function: Any, **arguments: Any) -> Any:
    options = compiler_options(spec.deterministic, images=spec.model.batch_axis == "map")
    return jax.jit(partial(function, spec), compiler_options=options, **arguments)


def _compiled(spec: Spec, function: Any, **arguments: Any) -> Any:
    jitted = _jitted(spec, function, **arguments)
    on_cpu = spec.mesh.devices.flat[0].platform == "cpu"
    return _one_at_a_time(jitted) if spec.mesh.size > 1 and on_cpu else jitted


def _one_at_a_time(jitted: Any) -> Any:
    """Let no two programs over several CPU devices be in flight together, in any thread.

    XLA's CPU client has one pool of threads, as many as there are devices, for two purposes that
    can block. A device's part of a program holds a thread while it waits in a collective for the
    other parts. Launching a part also takes a thread, and blocks in it while 32 programs are in
    flight on that device. With enough programs queued, launches hold every thread that is left,
    the part that the collective waits for never runs, and XLA aborts the process.
    """

    @wraps(jitted)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _CPU_TURN:
            done = jitted(*args, **kwargs)
            for leaf in jax.tree.leaves(done):
                leaf.block_until_ready()
            return done

    call.jitted = jitted  # type: ignore[attr-defined]
    return call


def _memories(spec: Spec, params: Params) -> tuple[Any, Any]:
    """The first state of every row's optimiser, and of the exchange."""
    optimizer = make_optimizer(spec.optimizer, 0.0)  # rates come with the steps
    by_device = jax.tree.map(lambda leaf: leaf[: spec.devices], _by_device(spec, params))
    own = spec.exchange
    memory = own.init(by_device) if own.all_seeds else jax.vmap(own.init, 1)(by_device)
    return jax.vmap(optimizer.init)(params), memory


def _sharded(spec: Spec, function: Any, in_specs: Any, out_specs: Any) -> Any:
    if spec.mesh.size == 1:
        return function
    return jax.shard_map(
        function, mesh=spec.mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )


def _by_device(spec: Spec, params: Params) -> Params:
    """View rows as [places, S, ...]; what is shared has one place."""
    return jax.tree.map(lambda p: p.reshape(-1, spec.seeds, *p.shape[1:]), params)


def _advance(
    spec: Spec, state: State, fixed: Fixed, slice_: Slice, blocks: Blocks, count: Any = None
) -> tuple[State, Record]:
    """Run the first ``count`` of the blocks; all (a loop of known length) unless given."""

    def one(number: Any, state: State) -> tuple[State, Record]:
        block = jax.tree.map(lambda values: values[number], blocks)
        return _block(spec, fixed, slice_, block, state)[:2]

    def body(number: jax.Array, carry: tuple[State, Record]) -> tuple[State, Record]:
        state, record = carry
        state, new = one(number, state)
        sent = jax.tree.map(jnp.add, record.sent, new.sent)
        return state, Record(jnp.minimum(record.bad, new.bad), sent)

    shapes = jax.eval_shape(one, 0, state)[1]
    sent = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.sent)
    carry = (state, Record(jnp.full(spec.seeds, NEVER, jnp.int32), sent))
    count = len(blocks.step) if count is None else count
    final: tuple[State, Record] = lax.fori_loop(0, count, body, carry)
    return final


def _at(spec: Spec, number: jax.Array, sent: Any) -> Any:
    """What one iteration sent, as [C, S, ...] with zeros elsewhere."""
    return jax.tree.map(
        lambda now: jnp.zeros((spec.chunk, *now.shape), now.dtype).at[number].set(now), sent
    )


def _watched(
    spec: Spec, state: State, fixed: Fixed, slice_: Slice, block: Blocks
) -> tuple[State, Record, jax.Array]:
    """Run one block; also the consensus error before its exchange."""
    return _block(spec, fixed, slice_, block, state, watch=True)


def _block(
    spec: Spec, fixed: Fixed, slice_: Slice, block: Blocks, state: State, *, watch: bool = False
) -> tuple[State, Record, Any]:
    """Local training and exchange; also, if watched, the consensus error between them."""
    if spec.way.shared:
        return _from_shared_start(spec, fixed, slice_, block, state, watch=watch)
    state, bad = _train(spec, fixed, slice_, block, state)
    drift: Any = ()
    if watch:
        drift = consensus_error(_by_device(spec, state.params), slice_.active[block.iteration])
    state, sent = _exchange(spec, fixed, slice_, block, state)
    return state, Record(bad, _at(spec, block.iteration, sent)), drift


def _recipe(spec: Spec) -> Recipe:
    return Recipe(spec.model, spec.optimizer, spec.batch, spec.local_round, spec.compute, spec.loop)


def _from_shared_start(
    spec: Spec, fixed: Fixed, slice_: Slice, block: Blocks, state: State, *, watch: bool
) -> tuple[State, Record, Any]:
    """An iteration of local training and exact mean, in which no device is kept."""
    active = slice_.active[block.iteration][:, None]
    share = jnp.where(active, fixed.weights, 0)
    shares = [share / jnp.sum(share, axis=0)]
    if watch:  # consensus is about the plain mean
        plain = jnp.broadcast_to(active / jnp.sum(active), share.shape)
        shares.append(plain.astype(share.dtype))
    way = spec.way
    train = partial(train_shared, _recipe(spec), way.block, way.span, spec.mesh.size > 1)
    moved: Moved = _sharded(
        spec, train, (WHOLE, WHOLE, WHOLE, ROWS, WHOLE, ROWS, ROWS, WHOLE), WHOLE
    )(
        fixed.learning_rate,
        fixed.train,
        fixed.order,
        fixed.rows,
        state.iteration.astype(jnp.uint32),
        jnp.repeat(slice_.rounds[block.iteration], spec.seeds),
        jnp.stack(shares, axis=-1).reshape(-1, len(shares)),
        state.params,
    )
    centres = jax.tree.map(jnp.add, state.params, moved.by)
    drift = spread(moved, centres) if watch else ()
    bad = jnp.where(moved.lost == 0, NEVER, state.iteration + 1)
    params = jax.tree.map(lambda leaf: leaf[0], centres)
    new = State(params, state.optimizer, state.exchange, state.iteration + 1)
    return new, Record(bad, ()), drift


def _train(
    spec: Spec, fixed: Fixed, slice_: Slice, block: Blocks, state: State
) -> tuple[State, jax.Array]:
    """Local training; also the iteration, for every seed in which a loss was not finite."""
    rounds = jnp.repeat(slice_.rounds[block.iteration], spec.seeds)
    carry = Carry(state.params, state.optimizer, jnp.zeros(len(rounds), fixed.weights.dtype))
    trained: Carry = _sharded(
        spec,
        partial(
            train_rows,
            _recipe(spec),
            stride=spec.way.stride,
            block=spec.way.block * spec.seeds,
        ),
        (WHOLE, WHOLE, WHOLE, ROWS, WHOLE, ROWS, WHOLE, ROWS),
        ROWS,
    )(
        fixed.learning_rate,
        fixed.train,
        fixed.order,
        fixed.rows,
        state.iteration.astype(jnp.uint32),
        rounds,
        block.step,
        carry,
    )
    finite = jnp.all(jnp.isfinite(trained.loss).reshape(spec.places, spec.seeds), axis=0)
    bad = jnp.where(finite, NEVER, state.iteration + 1)
    return state._replace(params=trained.params, optimizer=trained.optimizer), bad


def _exchange(
    spec: Spec, fixed: Fixed, slice_: Slice, block: Blocks, state: State
) -> tuple[State, Any]:
    """Apply the exchange; devices that do not take part keep what they have."""
    number, last = block.iteration, block.last
    old = _by_device(spec, state.params)
    context = _context(spec, fixed, slice_, number, state.iteration)
    if spec.exchange.all_seeds:
        new, memory, sent = spec.exchange.apply(old, state.exchange, jnp.zeros(0), context)
    else:
        new, memory, sent = _own_exchange(spec, fixed, state.exchange, old, context)
    went = slice_.exchanged[number] & last
    memory = jax.tree.map(partial(jnp.where, went), memory, state.exchange)
    sent = jax.tree.map(lambda a: jnp.where(went, a, jnp.zeros_like(a)), sent)
    takes = slice_.active[number] & went

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        kept = jnp.where(takes.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)
        return kept.reshape(-1, *kept.shape[2:])

    params = jax.tree.map(keep, new, old)
    if spec.mesh.size > 1:
        by_rows = NamedSharding(spec.mesh, ROWS)
        params = lax.with_sharding_constraint(params, by_rows)  # type: ignore[no-untyped-call]
    iteration = state.iteration + last.astype(jnp.int32)
    return State(params, state.optimizer, memory, iteration), sent


def _own_exchange(
    spec: Spec, fixed: Fixed, memory: Any, old: Params, context: Context
) -> tuple[Params, Any, Any]:
    """A method's own exchange: seed by seed, on the N devices without what pads."""
    key = draws.fold(fixed.exchange_key, context.iteration)
    keys = jax.random.wrap_key_data(jnp.stack(key, axis=-1))
    inside = jax.tree.map(lambda leaf: leaf[: spec.devices], old)
    nothing: Any = None
    axes = Context(nothing, nothing, 1, nothing, nothing, nothing, 1, 1)
    new, memory, sent = jax.vmap(
        spec.exchange.applied, in_axes=(1, 0, 0, axes), out_axes=(1, 0, 0)
    )(inside, memory, keys, context)
    pad = spec.places - spec.devices
    new = jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, pad)] + [(0, 0)] * (leaf.ndim - 1)), new)
    return new, memory, sent


def _context(
    spec: Spec, fixed: Fixed, slice_: Slice, number: jax.Array, iteration: jax.Array
) -> Context:
    """What the exchange sees; a method's own sees the N devices only, not what pads."""
    inside = spec.places if spec.exchange.all_seeds else spec.devices
    start, size = (
        a.reshape(spec.places, spec.seeds)[:inside] for a in (fixed.rows.start, fixed.rows.size)
    )
    mixing = fixed.mixing
    if spec.kind == "sparse":
        mixing = mixing._replace(index=mixing.index[:inside], weight=mixing.weight[:inside])
    if spec.kind == "dense":
        last = slice_.mixing.shape[0] - 1  # one matrix may serve every iteration
        mixing = slice_.mixing[jnp.minimum(number, last), :inside, :inside]
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


def _panel(
    spec: Spec,
    params: Params,
    train: Data,
    test: Data,
    weights: jax.Array,
    sheets: Sheets,
    active: jax.Array,
) -> Panel:
    """Evaluate the mean model and the devices' own.

    Devices that agree have no samples of their own: the mean model is theirs. Those that do not
    are evaluated on some of the mean model's samples, as it is; by how much they differ from it
    there is added to its accuracy on all of its samples. So no gap between the two is one between
    samples.
    """
    view = _by_device(spec, params)
    share = jnp.where(active[:, None], weights, 0)
    share = share / jnp.sum(share, axis=0)
    centre = params if spec.way.shared else mean_model(view, share)
    scores = _sharded(
        spec,
        partial(mean_scores, spec.model, spec.compute, spec.mesh.size > 1),
        (WHOLE, WHOLE, sheets.specs(), WHOLE, WHOLE),
        WHOLE,
    )(train, test, sheets, centre, share)
    agree = sheets.device is None
    accuracy = jnp.broadcast_to(scores.test_accuracy, (spec.places, spec.seeds))
    if not agree:
        own = _sharded(
            spec,
            partial(device_accuracy, spec.model, spec.compute, spec.loop),
            (WHOLE, WHOLE, ROWS),
            ROWS,
        )(test, sheets.device, params)
        own = own.reshape(spec.places, spec.seeds)
        accuracy = jnp.clip(accuracy + (own - scores.shared_accuracy), 0, 1)
    nothing = jnp.zeros_like(scores.test_loss)
    here = active[:, None]
    apart = jnp.where(here, accuracy - scores.test_accuracy, 0)  # nothing stays exactly nothing
    count = jnp.sum(active)
    return Panel(
        train_loss=scores.train_loss,
        test_loss=scores.test_loss,
        test_accuracy=scores.test_accuracy,
        device_accuracy_mean=scores.test_accuracy + jnp.sum(apart, axis=0) / count,
        device_accuracy_min=jnp.min(jnp.where(here, accuracy, jnp.inf), axis=0),
        device_accuracy_max=jnp.max(jnp.where(here, accuracy, -jnp.inf), axis=0),
        drift=nothing,
        consensus=nothing if agree else consensus_error(view, active),
    )
