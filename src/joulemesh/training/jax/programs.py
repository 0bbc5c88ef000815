"""The compiled programs of a key, made once and kept.

Loop bounds, the number of iterations and the learning rate are traced, so one compilation serves
every schedule of the same shape. Evaluation is a program by itself: compiled once for a model,
whatever the schedule and the exchange.

An iteration is local training, then the exchange, without a branch. The last segment before an
evaluation has a program of its own (`watched`), which also measures how far devices have drifted
apart, and the host, which knows the schedule, calls one or the other without waiting.
A chunk is a sequence of segments. On a CPU a segment is an iteration. On an accelerator a loop
whose end is computed there asks the host each time round whether to go on (about 40 µs, as long as
a step), so a segment is a fixed number of steps, with an exchange that counts only at the end of an
iteration, and loops have known lengths.
Local training is written for the rows of one processor and mapped over the mesh; exchanges are
written for all devices and partitioned by XLA. From a shared start (`train_shared`) training and
exchange are one.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from functools import lru_cache, partial, reduce, wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import NamedSharding
from numpy.typing import DTypeLike, NDArray

from joulemesh.aggregation.bits import bits_of
from joulemesh.metrics import Reported
from joulemesh.models.core import REMEMBERED, Params
from joulemesh.models.curves import own_curves
from joulemesh.training import draws, hosts
from joulemesh.training.arrays import ROUND, Array
from joulemesh.training.batches import Data
from joulemesh.training.exchange import Context, Exchange, ExchangeState, Sent
from joulemesh.training.jax.evaluation import (
    Evaluation,
    consensus_error,
    evaluate,
    finite,
    losses_of,
)
from joulemesh.training.jax.inputs import (
    NEVER,
    ChunkReport,
    ChunkSchedule,
    Inputs,
    ProgramKey,
    Segments,
    State,
    chunk_schedule,
    part,
)
from joulemesh.training.jax.local_sgd import (
    Carry,
    LocalWork,
    UpdateSum,
    consensus_from,
    make_optimizer,
    steps_of,
    train_rows,
    train_shared,
)
from joulemesh.training.jax.mixing import (
    Mixing,
    MixingInputs,
    Owing,
    WeighedMixing,
    averages_given,
    mixed,
    sparse_or_mean,
    weighed,
)
from joulemesh.training.jax.platform import ROWS, WHOLE, Spec, compiler_options, sharding
from joulemesh.training.trace import evaluated

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine

# How each part of a LocalWork is spread over processors.
_WORK: Spec = LocalWork(WHOLE, WHOLE, ROWS, WHOLE, ROWS)


def memories(key: ProgramKey, params: Params) -> tuple[optax.OptState, ExchangeState]:
    """The first state of every row's optimiser, and of the exchange."""
    optimizer = make_optimizer(key.optimizer, 0.0)  # rates come with the steps
    by_device = jax.tree.map(lambda leaf: leaf[: key.devices], key.by_device(params))
    own = key.exchange
    memory = own.init(by_device) if isinstance(own, Mixing) else jax.vmap(own.init, 1)(by_device)
    return jax.vmap(optimizer.init)(params), memory


def advance(
    key: ProgramKey,
    state: State,
    inputs: Inputs,
    chunk: ChunkSchedule,
    segments: Segments,
    count: jax.Array | int | None = None,
) -> tuple[State, ChunkReport]:
    """Run the first ``count`` of the segments; all (a loop of known length) unless given."""

    def one(number: jax.Array | int, state: State) -> tuple[State, ChunkReport]:
        segment = jax.tree.map(lambda values: values[number], segments)
        return _segment(key, inputs, chunk, segment, state)[:2]

    def body(number: jax.Array, carry: tuple[State, ChunkReport]) -> tuple[State, ChunkReport]:
        state, report = carry
        state, new = one(number, state)
        sent = jax.tree.map(jnp.add, report.sent, new.sent)
        return state, ChunkReport(jnp.minimum(report.bad, new.bad), sent)

    shapes = jax.eval_shape(one, 0, state)[1]
    sent = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes.sent)
    carry = (state, ChunkReport(jnp.full(key.seeds, NEVER, jnp.int32), sent))
    count = len(segments.step) if count is None else count
    final: tuple[State, ChunkReport] = lax.fori_loop(0, count, body, carry)
    return final


def watched(
    key: ProgramKey, state: State, inputs: Inputs, chunk: ChunkSchedule, segment: Segments
) -> tuple[State, ChunkReport, jax.Array]:
    """Run one segment; also the consensus error before its exchange."""
    return _segment(key, inputs, chunk, segment, state, watch=True)


def _segment(
    key: ProgramKey,
    inputs: Inputs,
    chunk: ChunkSchedule,
    segment: Segments,
    state: State,
    *,
    watch: bool = False,
) -> tuple[State, ChunkReport, Array]:
    """Local training and exchange; also, if watched, the consensus error between them."""
    if key.strategy.shared:
        return _from_shared_start(key, inputs, chunk, segment, state, watch=watch)
    if not isinstance(chunk.source, tuple):
        state = _with_gifts(key, chunk, segment, state)
    state, bad = _train(key, inputs, chunk, segment, state)
    drift: Array = ()
    if watch:
        drift = consensus_error(key.by_device(state.params), chunk.active[segment.iteration])
    state, sent = _exchange(key, inputs, chunk, segment, state)
    return state, ChunkReport(bad, _at(key, segment.iteration, sent)), drift


def _at(key: ProgramKey, number: jax.Array, sent: Sent) -> Sent:
    """What one iteration sent, as [C, S, ...] with zeros elsewhere."""
    return jax.tree.map(
        lambda now: jnp.zeros((key.chunk, *now.shape), now.dtype).at[number].set(now), sent
    )


def _work(
    key: ProgramKey, inputs: Inputs, chunk: ChunkSchedule, segment: Segments, state: State
) -> LocalWork:
    rounds = chunk.rounds[segment.iteration]
    return LocalWork(
        data=inputs.train,
        order=inputs.order,
        rows=inputs.rows,
        iteration=state.iteration.astype(jnp.uint32),
        rounds=rounds.reshape(-1) if rounds.ndim > 1 else jnp.repeat(rounds, key.seeds),
    )


def _from_shared_start(
    key: ProgramKey,
    inputs: Inputs,
    chunk: ChunkSchedule,
    segment: Segments,
    state: State,
    *,
    watch: bool,
) -> tuple[State, ChunkReport, Array]:
    """An iteration of local training and exact mean, in which no device's parameters are stored."""
    active = chunk.active[segment.iteration][:, None]
    share = jnp.where(active, inputs.weights, 0)
    shares = [share / jnp.sum(share, axis=0)]
    if watch:  # consensus is about the plain mean
        plain = jnp.broadcast_to(active / jnp.sum(active), share.shape)
        shares.append(plain.astype(share.dtype))
    train = partial(train_shared, key.local, key.strategy, key.mesh.size > 1)
    sums: UpdateSum = key.sharded(train, (_WORK, ROWS, WHOLE), WHOLE)(
        _work(key, inputs, chunk, segment, state),
        jnp.stack(shares, axis=-1).reshape(-1, len(shares)),
        state.params,
    )
    centres = jax.tree.map(jnp.add, state.params, sums.weighted)
    drift = consensus_from(sums, centres) if watch else ()
    bad = jnp.where(sums.diverged == 0, NEVER, state.iteration + 1)
    params = jax.tree.map(lambda leaf: leaf[0], centres)
    new = State(params, state.optimizer, state.exchange, state.iteration + 1)
    return new, ChunkReport(bad, ()), drift


def _with_gifts(key: ProgramKey, chunk: ChunkSchedule, segment: Segments, state: State) -> State:
    """Let devices that have been away begin the iteration with another's parameters."""
    own = jnp.arange(key.slots, dtype=jnp.int32)
    source = jnp.where(segment.step == 0, chunk.source[segment.iteration], own)
    short = key.wire and not bits_of(key.wire)
    moved = (source != own).reshape(-1, 1)

    def begin(leaf: jax.Array) -> jax.Array:
        where = moved.reshape(-1, *(1,) * (leaf.ndim - 1))
        given = leaf[source]
        return jnp.where(where, ROUND[key.wire](given) if short else given, leaf)

    held = key.by_device(state.params)
    given = jax.tree.map(begin, held)
    if isinstance(state.exchange, Owing):  # the average since which changes are sent
        given = averages_given(held, moved[:, 0], state.exchange)
    params = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), given)
    return state._replace(params=_by_rows(key, params))


def _by_rows(key: ProgramKey, params: Params) -> Params:
    """Parameters of rows, spread over the processors as rows are."""
    if key.mesh.size == 1:
        return params
    return lax.with_sharding_constraint(params, NamedSharding(key.mesh, ROWS))


def _train(
    key: ProgramKey, inputs: Inputs, chunk: ChunkSchedule, segment: Segments, state: State
) -> tuple[State, jax.Array]:
    """Local training; also the iteration, for every seed in which a loss was not finite."""
    work = _work(key, inputs, chunk, segment, state)
    zeros = jnp.zeros(len(work.rounds), inputs.weights.dtype)
    stride, block = key.strategy.stride, key.strategy.block * key.seeds
    trained: Carry = key.sharded(
        partial(train_rows, key.local, stride=stride, block=block), (_WORK, WHOLE, ROWS), ROWS
    )(work, segment.step, Carry(state.params, state.optimizer, zeros, _pull(key, work, state)))
    finite = jnp.all(jnp.isfinite(trained.loss).reshape(key.slots, key.seeds), axis=0)
    bad = jnp.where(finite, NEVER, state.iteration + 1)
    return state._replace(params=trained.params, optimizer=trained.optimizer), bad


def _pull(key: ProgramKey, work: LocalWork, state: State) -> Params:
    """What every row's steps subtract, [rows, ...]: the method's correction in equal parts."""
    own = key.exchange
    if isinstance(own, Mixing) or own.correction is None:
        return ()
    steps = jnp.maximum(steps_of(key.local, work)[1], 1)
    pad = key.slots - key.devices

    def each(leaf: jax.Array) -> jax.Array:
        padded = jnp.pad(leaf, [(0, pad)] + [(0, 0)] * (leaf.ndim - 1))
        rows = padded.reshape(-1, *leaf.shape[2:])
        return rows / steps.reshape(-1, *(1,) * (rows.ndim - 1)).astype(rows.dtype)

    return jax.tree.map(each, jax.vmap(own.correction, out_axes=1)(state.exchange))


def _exchange(
    key: ProgramKey, inputs: Inputs, chunk: ChunkSchedule, segment: Segments, state: State
) -> tuple[State, Sent]:
    """Apply the exchange; devices that do not take part keep what they have."""
    number, last = segment.iteration, segment.last
    old = key.by_device(state.params)
    sent: Sent = ()
    if isinstance(key.exchange, Mixing):
        mixing = _mixing(key, inputs, chunk, number, key.slots)
        new, memory = key.exchange.apply(old, mixing, state.exchange)
    else:
        new, memory, sent = _own_exchange(key, key.exchange, inputs, chunk, number, state, old)
    went = chunk.exchanged[number] & last
    memory = jax.tree.map(partial(jnp.where, went), memory, state.exchange)
    sent = jax.tree.map(lambda a: jnp.where(went, a, jnp.zeros_like(a)), sent)
    takes = chunk.active[number] & went

    def keep(new: jax.Array, old: jax.Array) -> jax.Array:
        kept = jnp.where(takes.reshape((-1,) + (1,) * (old.ndim - 1)), new, old)
        return kept.reshape(-1, *kept.shape[2:])

    params = _by_rows(key, jax.tree.map(keep, new, old))
    iteration = state.iteration + last.astype(jnp.int32)
    return State(params, state.optimizer, memory, iteration), sent


class _Seen(NamedTuple):
    """What an exchange of a method's own sees of one seed, before it is a `Context`."""

    inputs: MixingInputs
    iteration: Array
    order: Array
    start: Array
    size: Array
    arrived: Array


def _own_exchange(
    key: ProgramKey,
    own: Exchange,
    inputs: Inputs,
    chunk: ChunkSchedule,
    number: jax.Array,
    state: State,
    old: Params,
) -> tuple[Params, ExchangeState, Sent]:
    """A method's own exchange: seed by seed, on the N devices without padding."""
    iteration = state.iteration.astype(jnp.uint32)
    words = draws.fold(inputs.exchange_key, iteration)
    keys = jax.random.wrap_key_data(jnp.stack(words, axis=-1))
    inside = jax.tree.map(lambda leaf: leaf[: key.devices], old)
    start, size = (
        a.reshape(key.slots, key.seeds)[: key.devices]
        for a in (inputs.rows.start, inputs.rows.size)
    )
    arrived = () if isinstance(chunk.arrived, tuple) else chunk.arrived[number]
    mixing = _mixing(key, inputs, chunk, number, key.devices)
    seen = _Seen(mixing, iteration, inputs.order, start, size, arrived)

    def one(
        params: Params, memory: ExchangeState, random: jax.Array, seen: _Seen
    ) -> tuple[Params, ExchangeState, Sent]:
        return own.applied(params, memory, random, _context(key, inputs.train, seen))

    nothing: Spec = None
    axes = _Seen(MixingInputs(nothing, 1, nothing), nothing, nothing, 1, 1, nothing)
    new, memory, sent = jax.vmap(one, in_axes=(1, 0, 0, axes), out_axes=(1, 0, 0))(
        inside, state.exchange, keys, seen
    )
    pad = key.slots - key.devices
    new = jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, pad)] + [(0, 0)] * (leaf.ndim - 1)), new)
    return new, memory, sent


def _context(key: ProgramKey, data: Data, seen: _Seen) -> Context:
    """What an exchange of a method's own sees of one seed."""
    held = (data, seen.order, seen.start, seen.size)
    return Context(
        iteration=seen.iteration,
        active=seen.inputs.active,
        weights=seen.inputs.weights,
        data=data,
        order=seen.order,
        start=seen.start,
        size=seen.size,
        arrived=seen.arrived,
        mix=partial(mixed, inputs=seen.inputs),
        losses=partial(losses_of, key.model, held),
    )


def _mixing(
    key: ProgramKey, inputs: Inputs, chunk: ChunkSchedule, number: jax.Array, inside: int
) -> MixingInputs:
    """The mixing of an iteration, of the first so many slots."""
    mixing = inputs.mixing
    if key.kind == "sparse":
        mixing = mixing._replace(index=mixing.index[:inside], weight=mixing.weight[:inside])
        if key.exchange is sparse_or_mean:
            mixing = WeighedMixing(mixing, chunk.exact[number])
    if key.kind == "dense":
        last = chunk.mixing.shape[0] - 1  # one matrix may serve every iteration
        mixing = chunk.mixing[jnp.minimum(number, last)][..., :inside, :inside]
        if key.exchange is weighed:
            mixing = WeighedMixing(mixing, chunk.exact[number])
    if key.kind == "messages":
        last = chunk.mixing.target.shape[0] - 1
        mixing = jax.tree.map(lambda a: a[jnp.minimum(number, last)], chunk.mixing)
    return MixingInputs(chunk.active[number][:inside], inputs.weights[:inside], mixing)


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


class Reports(NamedTuple):
    """What the programs of one chunk report."""

    chunks: list[ChunkReport]
    evaluations: list[Evaluation]
    finite: Array  # bool [S]: whether all parameters are finite at the end


def first_bad(reports: Reports, stop: int) -> tuple[int, int] | None:
    """The first iteration (from 1) that diverged, and which seed; None if there is none."""
    bad = np.min([report.bad for report in reports.chunks], axis=0)
    bad = np.minimum(bad, np.where(reports.finite, NEVER, stop))
    if bad.min() == NEVER:
        return None
    seed = int(bad.argmin())
    return int(bad[seed]), seed


def columns_of(
    reports: Reports, iterations: int, measured: Reported, dtype: DTypeLike
) -> dict[str, Any]:
    """The columns of a `Trace`, [evaluations, S] each, and what was sent, [iterations, S, ...]."""
    empty = np.zeros((0, len(reports.finite)), dtype)

    def column(*values: Any) -> NDArray[Any]:
        return np.concatenate([empty, *(one[None] for one in values)])

    columns: dict[str, Any] = {
        name: column(*(getattr(one, name) for one in reports.evaluations))
        for name in Evaluation._fields
        if name != "own"
    }
    columns["own"] = {
        curve.name: column(*(one.own[curve.name] for one in reports.evaluations))
        for curve in own_curves(*measured)
    }
    each = (report.sent for report in reports.chunks)
    sent = jax.tree.map(lambda *parts: reduce(np.add, parts), *each)
    return columns | {"sent": jax.tree.map(lambda values: values[:iterations], sent)}


def queue_chunk(
    engine: Engine,
    state: State,
    start: int,
) -> tuple[State, Reports, NDArray[np.int64]]:
    """Call the programs of a chunk; on an accelerator nothing here waits for their results."""
    key, schedule, programs = engine.key, engine.schedule, engine.programs
    stop = min(start + key.chunk, schedule.iterations)
    chunk, segments, ends = chunk_schedule(
        schedule,
        engine.layout,
        engine.longest,
        start,
        stop,
        chunk=key.chunk,
        stride=key.strategy.stride,
        dtype=engine.dtype,
    )
    chunk = hosts.put(chunk, sharding(key.mesh, WHOLE))
    measured = np.flatnonzero(evaluated(engine.options, schedule, start, stop))
    reports: list[ChunkReport] = []
    evaluations: list[Evaluation] = []
    at = 0
    for number, end in zip(measured, ends[measured], strict=True):
        state = _run(engine, state, chunk, part(segments, at, end), reports)
        state, report, drift = programs.watched(state, engine.inputs, chunk, part(segments, end))
        reports.append(report)
        engine.on_stage("evaluating")
        found = engine.evaluator.evaluate(programs.evaluate, state.params, start + int(number))
        evaluations.append(found._replace(drift=drift))
        at = int(end) + 1
        engine.on_stage("training")
    rest = part(segments, at, len(segments.step))
    state = _run(engine, state, chunk, rest, reports)
    finite = programs.finite(state.params)
    return state, Reports(reports, evaluations, finite), start + measured


def _run(
    engine: Engine,
    state: State,
    chunk: ChunkSchedule,
    segments: Segments,
    reports: list[ChunkReport],
) -> State:
    """Run segments; in calls of known length where there is a stride."""
    first, stop, together = 0, len(segments.step), engine.machine.segments_per_call
    inputs, programs = engine.inputs, engine.programs
    while first < stop:
        if not engine.key.strategy.stride and not engine.brief:
            padding = (0, engine.key.chunk - stop)
            some = jax.tree.map(partial(np.pad, pad_width=padding), segments)
            state, report = programs.advance(state, inputs, chunk, some, stop)
            first = stop
        elif engine.key.strategy.stride and stop - first >= together:
            some = part(segments, first, first + together)
            state, report = programs.advance(state, inputs, chunk, some)
            first += together
        else:  # one more program for a few segments would take longer to compile
            state, report, _ = programs.watched(state, inputs, chunk, part(segments, first))
            first += 1
        reports.append(report)
    return state
