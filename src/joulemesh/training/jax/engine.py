"""The engine: all devices of all seeds trained by one compiled program, chunk by chunk.

Parameters of all devices are stacked on a leading axis and stay on the accelerator, as does the
data, gathered by index. Nothing returns to the host within a chunk.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.bits import bits_of
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, Partition
from joulemesh.metrics import CROSS_ENTROPY, Metric, Reported, metrics_of, reported
from joulemesh.models.core import Model, Params
from joulemesh.training import draws, hosts
from joulemesh.training.arrays import Array
from joulemesh.training.exchange import Exchange, entering
from joulemesh.training.jax import mixing
from joulemesh.training.jax.evaluation import Evaluator, checked_metrics
from joulemesh.training.jax.inputs import (
    ProgramKey,
    State,
    longest_steps,
    make_inputs,
    place_inputs,
)
from joulemesh.training.jax.layout import Job, Layout, check_memory, choose_strategy
from joulemesh.training.jax.local_sgd import initial_params, make_optimizer
from joulemesh.training.jax.mixing import Mixing
from joulemesh.training.jax.platform import (
    ROWS,
    WHOLE,
    Placement,
    precision_scope,
    row_mesh,
    sharding,
)
from joulemesh.training.jax.platform import this_machine as at_hand
from joulemesh.training.jax.programs import Reports, columns_of, first_bad, programs, queue_chunk
from joulemesh.training.learner import (
    DivergedError,
    Learner,
    check_inputs,
    chunks,
    mean_of,
    sizes_of,
)
from joulemesh.training.schedule import (
    Members,
    Options,
    RoundedExchanges,
    Schedule,
    array_parts,
    data_digest,
    digest,
    partition_parts,
    scaling_digest,
)
from joulemesh.training.tensors import Arrays, Shapes
from joulemesh.training.trace import Trace, evaluated

# Measuring the drift of this many parameters needlessly is quicker than compiling a program.
_QUICKLY_MEASURED = 1e8
_BUILT_IN = {"mean": mixing.mean, "dense": mixing.dense, "sparse": mixing.sparse}


class Engine:
    """Trains a model on a schedule.

    Args:
        model: what is trained; every device starts from the same parameters.
        dataset: training and test samples.
        partitions: who holds which samples, one per seed.
        schedule: rounds, presence, mixing; or `Members`, in place of seeds that all do the same.
        options: settings.
        seeds: repetition seeds; each redraws initial parameters and batches.
        own_exchange: a method's own exchange, in place of the schedule's mixing.
        machine: what to train on; the machine at hand unless given.

    >>> from joulemesh.data import load, partition
    >>> from joulemesh.models import build
    >>> digits = load("digits")
    >>> held = partition(digits.y_train, 4, kind="iid")
    >>> engine = Engine(build("logistic", digits.shape, 10), digits, [held],
    ...                 Schedule(np.full((20, 4), 5)), Options(eval_every=10))
    >>> trace = engine.run()
    >>> trace.iteration.tolist(), bool(trace.test_accuracy[-1, 0] > 0.8)
    ([10, 20], True)
    """

    def __init__(
        self,
        model: Model,
        dataset: Dataset,
        partitions: Sequence[Partition],
        schedule: Schedule,
        options: Options | None = None,
        seeds: Sequence[int] = (0,),
        *,
        own_exchange: Exchange | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.model, self.dataset, self.partitions = model, dataset, tuple(partitions)
        self.schedule, self.options = schedule, options or Options()
        # Told whether it trains or evaluates; on an accelerator, what is being queued.
        self.on_stage: Callable[[str], None] = lambda stage: None
        self.seeds = tuple(int(seed) for seed in seeds)
        check_inputs(self.partitions, schedule, self.seeds, len(dataset.y_train))
        make_optimizer(self.options.optimizer, self.options.learning_rate)  # refuses what cannot be
        self.machine = machine or at_hand()
        self.dtype = np.dtype("float64" if self.options.precision == "float64" else "float32")
        self.reported = reported(self.options)
        self.longest = longest_steps(schedule, self.options, sizes_of(self.partitions))
        self._set_up(own_exchange)

    def _built_in(self) -> Mixing:
        """The schedule's mixing; exact means among other matrices are weighed as any mean is."""
        schedule, by_samples = self.schedule, self.options.weights == "samples"
        exact = schedule.exact[schedule.exchanged]
        if exact.any() and schedule.kind == "sparse":
            return mixing.mean if exact.all() else mixing.sparse_or_mean
        if schedule.parts > 1:
            return mixing.in_parts
        if exact.any() and by_samples:
            return mixing.weighed
        if isinstance(schedule.mixing, RoundedExchanges):
            registers, wire = schedule.mixing.registers, schedule.wire
            if bits_of(wire):
                return mixing.quantised(registers, wire, schedule.devices, weighed=by_samples)
            return mixing.in_steps(registers, wire)
        return _BUILT_IN[schedule.kind]

    def _rounded(self, own: Exchange | None) -> Exchange | None:
        """A method's own exchange, with messages rounded as the schedule says."""
        wire = self.schedule.wire
        if own is not None and wire and not own.rounds:
            return entering(own, wire)
        if own is None and wire and self.schedule.kind != "messages":
            raise ScenarioError(
                f"messages are rounded to {wire}, and a schedule of mixing that is "
                f"{self.schedule.kind} has no messages: give it RoundedExchanges"
            )
        return own

    def _set_up(self, own_exchange: Exchange | None) -> None:
        """Choose layout and strategy, make the programs and place the inputs."""
        options, schedule, seeds = self.options, self.schedule, len(self.seeds)
        own = own_exchange is not None
        mesh = row_mesh(self.machine, schedule.devices)
        # What an exchange remembers of devices is in their own order.
        self.layout = self._deal(mesh.size, shuffle=not (own or bits_of(schedule.wire)))
        job = Job(self.model, options, schedule, self.longest, self.dataset.shape, seeds, own)
        strategy = choose_strategy(job, self.machine)
        self.alike = job.alike
        # What the state holds: every device's parameters, or a single set that all share.
        self.held = Layout.deal(np.ones(1), seeds, 1) if strategy.shared else self.layout
        self.key = ProgramKey(
            model=self.model,
            optimizer=options.optimizer,
            batch=options.batch_size,
            local_round=options.local_round,
            precision=options.precision,
            exchange=self._rounded(own_exchange) or self._built_in(),
            kind=schedule.kind,
            devices=schedule.devices,
            slots=self.layout.slots,
            seeds=seeds,
            chunk=self._chunk(),
            loop=self.machine.loop,
            strategy=strategy,
            deterministic=options.deterministic,
            mesh=mesh,
            metrics=checked_metrics(metrics_of(*self.reported, self.model.loss), self.dataset),
            wire=schedule.wire,
        )
        self.programs = programs(self.key)
        self._check_memory()
        with self.scope():
            inputs = make_inputs(
                self.dataset,
                self.partitions,
                schedule,
                options,
                self.seeds,
                self.layout,
                self.dtype,
            )
            self.inputs = place_inputs(inputs, mesh)
            held = (self.key, self.inputs, self.layout, self.partitions, schedule, options)
            self.evaluator = Evaluator(*held)
        few = schedule.iterations - evaluated(options, schedule, 0, schedule.iterations).sum()
        drifting = few * schedule.devices * seeds * self.model.parameters
        self.brief = bool(few < self.machine.segments_per_call and drifting <= _QUICKLY_MEASURED)

    def scope(self) -> AbstractContextManager[object]:
        """In which JAX computes in the precision that the options ask for."""
        return precision_scope(self.options.precision)

    def _chunk(self) -> int:
        """Iterations in a chunk: fewer than asked for where devices are many."""
        least = 1 if self.machine.loop else self.machine.segments_per_call
        most = max(least, self.machine.chunk_rounds // self.schedule.devices)
        return min(self.options.chunk_iterations, most)

    def _deal(self, shards: int, *, shuffle: bool) -> Layout:
        sizes, options = sizes_of(self.partitions), self.options
        per_round = draws.steps_per_round(sizes, options.batch_size, options.local_round)
        work = self.schedule.rounds.sum(axis=0, dtype=np.int64) * per_round.mean(axis=0)
        return Layout.deal(work, len(self.seeds), shards, shuffle=shuffle)

    def _check_memory(self) -> None:
        """Refuse a state that does not fit, with a copy of the parameters to work on."""
        state = self.shapes()
        parts = (state.params, state.params, state.optimizer, state.exchange)
        needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parts))
        each, room = needed // self.machine.processes, self.machine.memory_bytes
        check_memory(each, room, self.held.devices, len(self.seeds))

    def begin(self) -> State:
        """Draw the initial parameters: of each seed one set, the same for all its devices."""
        hosts.meet(self.key.mesh)

        def stack(*leaves: NDArray[Any]) -> NDArray[Any]:
            return np.tile(np.stack(leaves), (self.held.slots,) + (1,) * leaves[0].ndim)

        with self.scope():
            rows, whole = self._shardings()
            params = jax.tree.map(stack, *(self.initial(seed) for seed in self.seeds))
            params = hosts.put(params, rows)
            moments, memory = self.programs.memories(params)
            memory, done = hosts.put(memory, whole), hosts.put(np.int32(0), whole)
            return State(params, hosts.put(moments, rows), memory, done)

    def _shardings(self) -> tuple[Placement, Placement]:
        mesh, rows = self.key.mesh, WHOLE if self.key.strategy.shared else ROWS
        return sharding(mesh, rows), sharding(mesh, WHOLE)

    def shapes(self) -> State:
        """Shapes and types of a state."""
        with self.scope():
            rows = self.held.slots * len(self.seeds)
            params = jax.tree.map(
                lambda leaf: jax.ShapeDtypeStruct((rows, *leaf.shape), self.dtype),
                jax.eval_shape(self.model.init, jax.random.key(0)),
            )
            moments, memory = jax.eval_shape(self.programs.memories, params)
            return State(params, moments, memory, jax.ShapeDtypeStruct((), np.dtype(np.int32)))

    def initial(self, seed: int) -> Params:
        """The initial parameters of a seed, as NumPy arrays."""
        return initial_params(self.model, seed, self.dtype)

    def advance(self, state: State) -> tuple[State, Trace]:
        """Run the next chunk of iterations, or those to the end of the schedule."""
        start = int(state.iteration)
        with self.scope():
            state, queued, measured = queue_chunk(self, state, start)
            # The same transfer fetches the iteration, which the caller reads next.
            reports, done = jax.device_get((queued, state.iteration))
        return state, self._trace(Reports(*reports), measured, start, int(done))

    def train(self, state: State | None = None) -> Iterator[tuple[State, Trace]]:
        """Run to the end of the schedule; see `training.learner.chunks`."""
        return chunks(self, state)

    def run(self) -> Trace:
        """Run the whole schedule and return all evaluations."""
        return Trace.join([trace for _, trace in self.train()])

    def evaluate(self, state: State) -> Trace:
        """Evaluate a state, without consuming it; drift before the exchange is not known (NaN)."""
        done = int(state.iteration)
        last = np.array([max(done - 1, 0)])
        with self.scope():
            found = jax.device_get(
                self.evaluator.evaluate(self.programs.evaluate, state.params, int(last[0]))
            )
        unknown = np.full(len(self.seeds), np.nan, self.dtype)
        columns = jax.tree.map(lambda v: v[None], found._replace(drift=unknown)._asdict())
        counts = self.evaluator.counts.columns(last)
        return Trace(np.array([done]), **columns, **counts, score=self.reported.score)

    def _trace(
        self, reports: Reports, iterations: NDArray[np.int64], start: int, stop: int
    ) -> Trace:
        """The trace of a chunk whose evaluations were made after some iterations (from 0)."""
        bad = first_bad(reports, stop)
        if bad is not None and not isinstance(self.schedule, Members):
            iteration, seed = bad
            rate, wire = self.options.learning_rate, self.schedule.wire
            raise DivergedError(iteration, self.seeds[seed], rate, wire)
        columns = columns_of(reports, stop - start, self.reported, self.dtype)
        counts = self.evaluator.counts.columns(iterations)
        return Trace(iterations + 1, **columns, **counts, score=self.reported.score)

    def params(self, state: State) -> Params:
        """Every device's parameters, as NumPy arrays stacked [seeds, devices, ...]."""
        devices = self.schedule.devices

        def each(leaf: NDArray[Any]) -> NDArray[Any]:
            return np.broadcast_to(leaf, (len(leaf), devices, *leaf.shape[2:]))

        return jax.tree.map(each, self.kept(state))

    def kept(self, state: State) -> Params:
        """Like `params`, but with one entry instead of N when all devices hold the same."""

        def whole(leaf: jax.Array) -> NDArray[Any]:
            found = hosts.fetch(leaf, everywhere=True)
            assert found is not None
            return self.held.devices_of(found)

        return jax.tree.map(whole, state.params)

    def mean_params(self, state: State) -> Params:
        """The mean model of the active devices, as NumPy arrays; of several seeds, stacked."""
        active = self.schedule.active[max(int(state.iteration) - 1, 0)]
        by_samples, sizes = self.options.weights == "samples", sizes_of(self.partitions)
        weights = self.schedule.mean_weights(sizes, by_samples=by_samples)
        return mean_of(self.kept(state), weights * active)

    # Saved arrays are [seeds, devices, ...] in the order of devices, one device standing for all
    # where all hold the same: they serve any number of processors and processes.

    def saved_shapes(self) -> Shapes:
        """Names, shapes and types of the arrays that `save` gives."""
        ahead = (len(self.seeds), self._kept)
        return {
            name: ((*ahead, *leaf.shape[1:]) if own else leaf.shape, np.dtype(leaf.dtype))
            for name, own, leaf in _named(self.shapes())
        }

    @property
    def _kept(self) -> int:
        return 1 if self.alike else self.schedule.devices

    def save(self, state: State) -> Arrays:
        """The state as named arrays in the order of devices, on the leader."""
        arrays: Arrays = {}
        for name, own, leaf in _named(state):
            found = hosts.fetch(leaf)
            if found is not None and hosts.leads():
                arrays[name] = self.held.devices_of(found)[:, : self._kept] if own else found
        return arrays

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        """The state that `save` gave, on however many processors there are now."""
        hosts.meet(self.key.mesh)
        known = self.saved_shapes()
        for name, (shape, _) in known.items() if hosts.leads() else ():
            if name not in arrays or np.shape(arrays[name]) != shape:
                raise ValueError("its arrays are not those of this run")
        by_rows, everywhere = self._shardings()

        # One array after another: no process need hold all of them at once but the leader.
        def put(name: str, own: bool) -> Array:
            shape, dtype = known[name]
            values = hosts.from_leader(arrays.get(name), shape, dtype)
            if not own:
                return hosts.put(values, everywhere)
            held = np.broadcast_to(values, (len(values), self.held.devices, *values.shape[2:]))
            return hosts.put(self.held.rows_of(held), by_rows)

        state = self.shapes()
        with self.scope():
            placed = [put(name, own) for name, own, _ in _named(state)]
            found: State = jax.tree.unflatten(jax.tree.structure(state), placed)
        return found

    def identity(self) -> dict[str, str]:
        """Digests of all that decides the numbers, by name, to refuse to resume something else.

        They are the same on any number of processors and processes.
        """
        data, held, plan, own = self.dataset, self.partitions, self.schedule, self.key.exchange
        return run_identity(self.model, data, held, plan, self.options, self.seeds, own)

    def digest(self) -> str:
        """One digest of `identity`."""
        return digest(f"{name} {mark}".encode() for name, mark in self.identity().items())


_BY_DEVICE = ("params", "optimizer")  # parts of a state that each device has


def _named(tree: State) -> list[tuple[str, bool, Array]]:
    """Name of every leaf, by its path, and whether each device has its own; in order."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return [(jax.tree_util.keystr(path), path[0].name in _BY_DEVICE, leaf) for path, leaf in leaves]


def _learns(engine: Engine) -> Learner[State]:
    """Checked by mypy: an engine is a learner."""
    return engine


_ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]+")


def model_digest(
    model: Model, shape: tuple[int, ...], targets: jax.ShapeDtypeStruct | None = None
) -> str:
    """A digest of what a model computes: its functions as JAX traces them, constants included."""
    key = jax.random.key(0)
    batch = jax.ShapeDtypeStruct((2, *shape), np.dtype(model.seen))
    params = jax.eval_shape(model.init, key)
    traced = [jax.make_jaxpr(model.init)(key), jax.make_jaxpr(model.apply)(params, batch)]
    if model.loss is not CROSS_ENTROPY and targets is not None:
        outputs = jax.eval_shape(model.apply, params, batch)
        traced.append(jax.make_jaxpr(model.loss.values)(outputs, targets))
    text = [_ADDRESS.sub("", str(program)).encode() for program in traced]
    constants = [part for program in traced for part in array_parts(*program.consts)]
    return digest([*text, *constants, repr((model.name, model.l2, model.batch_axis)).encode()])


def run_identity(
    model: Model,
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    exchange: Exchange | Mixing,
) -> dict[str, str]:
    """Digests of all that decides a run's numbers, by name."""
    own = exchange.apply
    method = (own.__module__, getattr(own, "__qualname__", ""))
    digests = {
        "normalisation": scaling_digest(dataset),
        "data": data_digest(dataset),
        "model": model_digest(model, dataset.shape, two_targets(dataset)),
        "partition": digest(partition_parts(partitions)),
        "plan": schedule.digest(),
        "options": digest([repr((options, method, seeds)).encode()]),
    }
    if reported(options) != Reported():
        measured = metrics_of(*reported(options), model.loss)
        digests["evaluation"] = metrics_digest(measured, dataset.outputs, two_targets(dataset))
    return digests


def two_targets(dataset: Dataset) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((2, *dataset.y_train.shape[1:]), dataset.y_train.dtype)


def metrics_digest(
    metrics: Sequence[Metric], outputs: tuple[int, ...], targets: jax.ShapeDtypeStruct
) -> str:
    """A digest of what metrics compute, as JAX traces them."""
    logits, labels = jax.ShapeDtypeStruct((2, *outputs), np.float32), targets
    parts: list[bytes | memoryview] = []
    for metric in metrics:
        programs = [jax.make_jaxpr(metric.values)(logits, labels)]
        width = jax.eval_shape(metric.values, logits, labels).shape[1:] or (1,)
        if metric.finish is not None:
            programs.append(jax.make_jaxpr(metric.finish)(np.zeros(width, np.float32)))
        parts.append(repr((metric.name, metric.share, metric.devices)).encode())
        for program in programs:
            parts += [_ADDRESS.sub("", str(program)).encode(), *array_parts(*program.consts)]
    return digest(parts)
