"""The slow, obvious engine: one device, one step, one batch after another, in Python.

It shares with the fast engine the draws (which batch), the initial parameters and the model; not
the stacking, the masks, the loops, the loss or the exchange. The two must give equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.aggregation.bits import bits_of, quantised
from joulemesh.models.core import Params, loss
from joulemesh.training import draws
from joulemesh.training.batches import scale_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.local_sgd import make_optimizer
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.schedule import RoundedExchanges, Schedule

Exchanged = Callable[[int, NDArray[Any]], NDArray[Any]]
"""(iteration from 0, parameters [N, P] before) -> those after the exchange."""


def run_reference(
    engine: Engine,
    iterations: int | None = None,
    *,
    exchange: Exchanged | None = None,
) -> list[list[Params]]:
    """Do what the engine does, slowly.

    Args:
        engine: supplies model, data, partitions, schedule, options and seeds.
        iterations: how many; all of the schedule unless given.
        exchange: what an exchange does, in place of the schedule's mixing: messages carried hop by
            hop, say.

    Returns:
        For each seed, each device's parameters after the last of these iterations.

    >>> from joulemesh.data import load, partition
    >>> from joulemesh.models import build
    >>> from joulemesh.training import Engine, Schedule
    >>> digits = load("digits")
    >>> held = partition(digits.y_train, 2, kind="iid")
    >>> engine = Engine(build("logistic", digits.shape, 10), digits, [held],
    ...                 Schedule(np.array([[1, 2]])))
    >>> slow = run_reference(engine)[0]
    >>> state, _ = next(engine.train())
    >>> bool(np.allclose(slow[0]["w"], engine.params(state)["w"][0, 0], atol=1e-6))
    True
    """
    count = engine.schedule.iterations if iterations is None else iterations
    with precision_scope(engine.options.precision):
        return [_one_seed(engine, number, count, exchange) for number in range(len(engine.seeds))]


def _one_seed(engine: Engine, number: int, count: int, exchange: Exchanged | None) -> list[Params]:
    seed, schedule = engine.seeds[number], engine.schedule
    optimizer = make_optimizer(engine.options.optimizer, engine.options.learning_rate)
    step = jax.jit(lambda params, state, x, y: _step(engine, optimizer, params, state, x, y))
    start = jax.tree.map(jnp.asarray, engine.initial(seed))
    params = [start] * schedule.devices
    states = [optimizer.init(start)] * schedule.devices
    agreed = np.asarray(ravel_pytree(start)[0])
    owing = _Owing(agreed, np.zeros((schedule.devices, agreed.size), agreed.dtype))
    for t in range(count):
        if bits_of(schedule.wire):
            unravel = ravel_pytree(start)[1]
            begins = [unravel(jnp.asarray(owing.agreed))] * schedule.devices
        else:
            begins = params
        params = [
            params[giver] if giver == i else jax.tree.map(partial(_sent, schedule), begins[giver])
            for i, giver in enumerate(schedule.begins_with(t, t + 1)[0])
        ]
        for i in range(schedule.devices):
            for x, y in _batches(engine, number, t, i):
                params[i], states[i] = step(params[i], states[i], x, y)
        if schedule.exchanged[t]:
            if exchange is None:
                params = _mix(engine, number, t, params, owing)
            else:
                params = _exchange(exchange, t, params)
    return params


def _step(
    engine: Engine,
    optimizer: optax.GradientTransformation,
    params: Params,
    state: optax.OptState,
    x: jax.Array,
    y: jax.Array,
) -> tuple[Params, optax.OptState]:
    compute = jnp.dtype(engine.options.precision)

    def value(params: Params) -> jax.Array:
        low = jax.tree.map(lambda leaf: leaf.astype(compute), params)
        return loss(engine.model, low, x if engine.model.seen == "int32" else x.astype(compute), y)

    updates, state = optimizer.update(jax.grad(value)(params), state, params)
    return optax.apply_updates(params, updates), state


def _batches(
    engine: Engine, number: int, t: int, i: int
) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    """The batches of device i in iteration t, in order."""
    dataset, options = engine.dataset, engine.options
    held = engine.partitions[number].indices(i)
    scale, shift = scale_of(dataset, "float64" if options.precision == "float64" else "float32")
    key = draws.seed_key(engine.seeds[number], draws.BATCH, t, i)
    size, lanes = np.array([len(held)], np.uint32), np.arange(options.batch_size, dtype=np.uint32)
    rounds = int(engine.schedule.rounds[t, i])
    steps = rounds * int(
        draws.steps_per_round(np.int64(len(held)), options.batch_size, options.local_round)
    )
    batches = []
    for step in range(steps):
        at = np.array([step], np.uint32)
        if options.local_round == "epoch":
            position, valid = draws.epoch_positions(key, at, lanes, size)
            position = position[valid]
        else:
            position = draws.step_positions(key, at, lanes, size)
        index = held[position]
        x = dataset.x_train[index]
        if dataset.seen != "int32":
            x = x.astype(scale.dtype) * scale + shift
        batches.append((x, dataset.y_train[index]))
    return batches


def _exchange(exchange: Exchanged, t: int, params: list[Params]) -> list[Params]:
    flat = [ravel_pytree(own) for own in params]
    values = exchange(t, np.stack([np.asarray(vector) for vector, _ in flat]))
    return [unravel(jnp.asarray(row)) for row, (_, unravel) in zip(values, flat, strict=True)]


@dataclass(eq=False)
class _Owing:
    """What quantised averages remember."""

    agreed: NDArray[Any]  # [P]: the last average
    owed: NDArray[Any]  # [N, P]: what each device owes


def _mix(engine: Engine, number: int, t: int, params: list[Params], owing: _Owing) -> list[Params]:
    """Let the devices meet; one that has departed neither speaks nor listens."""
    active = engine.schedule.active[t]
    if bits_of(engine.schedule.wire):
        return _exchange(partial(_quantised, engine, number, owing), t, params)
    if engine.schedule.kind == "messages":
        return _exchange(partial(_in_steps, engine), t, params)
    if engine.schedule.parts > 1:
        return _exchange(partial(_mix_parts, engine), t, params)
    leaves = [np.stack(leaf) for leaf in zip(*map(jax.tree.leaves, params), strict=True)]
    matrix = _matrix(engine, number, t)
    for i, j in np.argwhere(~np.outer(active, active)):
        if i != j and active[i]:
            matrix[i, i] += matrix[i, j]
        matrix[i, j] = float(i == j and not active[i])
    for i in np.flatnonzero(~active):
        matrix[i, i] = 1.0
    if engine.schedule.kind == "sparse" and not engine.schedule.exact[t]:
        matrix = np.linalg.matrix_power(matrix, engine.schedule.mixing_rounds)
    mixed = [np.tensordot(matrix, leaf.astype(np.float64), 1).astype(leaf.dtype) for leaf in leaves]
    tree = jax.tree.structure(params[0])
    return [jax.tree.unflatten(tree, [leaf[i] for leaf in mixed]) for i in range(len(params))]


def _sent(schedule: Schedule, values: Any) -> Any:
    if not schedule.wire or bits_of(schedule.wire):
        return values
    whole = np.asarray(values)
    return jnp.asarray(whole.astype(schedule.wire).astype(whole.dtype))


def _quantised(
    engine: Engine, number: int, owing: _Owing, t: int, values: NDArray[Any]
) -> NDArray[Any]:
    """An average of what parameters [N, P] have changed since the last one."""
    active = np.flatnonzero(engine.schedule.active[t])
    change = values - owing.agreed
    if engine.options.weights == "samples":
        sizes = engine.partitions[number].sizes[active]
        share = np.ones(len(values))
        share[active] = sizes / sizes.sum() * len(active)
        change = change * share[:, None].astype(change.dtype)
    means = _in_steps(engine, t, change + owing.owed)
    still = _in_steps(engine, t, change + owing.owed, owed=True)
    owing.owed[active] = still[active]
    owing.agreed = owing.agreed + means[active[0]]
    after = values.copy()
    after[active] = owing.agreed
    return after


def _in_steps(engine: Engine, t: int, values: NDArray[Any], *, owed: bool = False) -> NDArray[Any]:
    """An exchange of parameters [N, P] whose messages are rounded; or what is owed after it."""
    mixing, active = engine.schedule.mixing, engine.schedule.active[t]
    assert isinstance(mixing, RoundedExchanges)
    steps, after, bits = mixing.at(t), values.copy(), bits_of(engine.schedule.wire)
    ends = steps.owed if owed else steps.output
    for c, at in enumerate(np.array_split(np.arange(values.shape[1]), steps.parts)):
        held = {i: values[i, at] for i in range(len(values))}
        one = values.dtype.type
        for k in range(steps.length):
            made = held[int(steps.first[c, k])]
            if steps.sign[c, k]:
                made = made + one(steps.sign[c, k]) * held[int(steps.second[c, k])]
            made = made * one(steps.factor[c, k]) / one(steps.divisor[c, k])
            if steps.rounds[c, k]:
                wire = engine.schedule.wire
                made = quantised(made, bits) if bits else made.astype(wire).astype(values.dtype)
            held[int(steps.target[c, k])] = made
        for i in np.flatnonzero(active):
            after[i, at] = held[int(ends[c, i])]
    return after


def _mix_parts(engine: Engine, t: int, values: NDArray[Any]) -> NDArray[Any]:
    """Mix parts of the parameters [N, P] that have a matrix each; who is not there keeps all."""
    matrices, active = engine.schedule.matrices(t, t + 1)[0], engine.schedule.active[t]
    parts = np.array_split(values, len(matrices), axis=1)
    mixed = [matrix @ part for matrix, part in zip(matrices, parts, strict=True)]
    return np.where(active[:, None], np.concatenate(mixed, axis=1), values).astype(values.dtype)


def _matrix(engine: Engine, number: int, t: int) -> NDArray[np.float64]:
    schedule = engine.schedule
    by_samples = engine.options.weights == "samples"
    # A dense matrix is the plain mean itself; a sparse one leaves its place to the mean.
    instead = schedule.kind == "sparse" or by_samples
    if schedule.kind == "mean" or (schedule.exact[t] and instead):
        sizes = engine.partitions[number].sizes[None]
        weights = schedule.mean_weights(sizes, by_samples=by_samples)[0]
        share = np.where(schedule.active[t], weights, 0.0)
        return np.tile(share / share.sum(), (len(weights), 1))
    if isinstance(schedule.mixing, sparse.csr_array):
        matrix: NDArray[np.float64] = schedule.mixing.toarray()
        return matrix
    return np.array(schedule.matrices(t, t + 1)[0])
