"""The engine: all devices of all seeds trained by one compiled program, chunk by chunk.

Parameters of all devices are stacked on a leading axis and stay on the accelerator, as does the
data, gathered by index. Nothing returns to the host within a chunk.
"""

from __future__ import annotations

__all__ = ["DivergedError", "Engine", "State"]

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cached_property, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from numpy.typing import NDArray

from joulemesh.data import Dataset, Partition
from joulemesh.errors import JoulemeshError
from joulemesh.models.core import Model, Params
from joulemesh.training import draws, exchange, hosts, place, platform
from joulemesh.training.digests import (
    array_parts,
    data_digest,
    digest,
    model_digest,
    scaling_digest,
)
from joulemesh.training.evaluate import Panel
from joulemesh.training.exchange import Exchange
from joulemesh.training.layout import Layout
from joulemesh.training.options import Options
from joulemesh.training.panel import Sheets, make_sheets, train_sizes
from joulemesh.training.parts import NEVER, Blocks, Fixed, Record, Slice, Spec, State
from joulemesh.training.platform import ROWS, WHOLE
from joulemesh.training.program import programs
from joulemesh.training.schedule import Schedule
from joulemesh.training.trace import COUNTS, Trace
from joulemesh.training.way import Start, always_alike, check_memory, choose

# Blocks in one call on an accelerator, where a call of any other number would compile again.
_TOGETHER = 8
# Rounds of iterations × devices that a chunk may hold.
_SCHEDULED = 2**18
# Samples evaluated at once, on a CPU (where their activations stay in the cache) and otherwise.
_EVALUATED_LOOP, _EVALUATED = 256, 1024


def _part(blocks: Blocks, first: Any, stop: Any = None) -> Blocks:
    """Some of the blocks, or one."""
    which = first if stop is None else slice(first, stop)
    return Blocks(*(values[which] for values in blocks))


class DivergedError(JoulemeshError):
    """Parameters are no longer finite.

    Attributes:
        iteration: the iteration (from 1) in which that was first seen.
        seed: the repetition seed.
    """

    def __init__(self, iteration: int, seed: int, learning_rate: float) -> None:
        super().__init__(
            f"training diverged in iteration {iteration} (seed {seed}): parameters are not finite; "
            f"lower training.learning_rate (now {learning_rate:g})"
        )
        self.iteration, self.seed = iteration, seed


class Engine:
    """Trains a model on a schedule.

    Args:
        model: what is trained; every device starts from the same parameters.
        dataset: training and test samples.
        partitions: who holds which samples, one per seed.
        schedule: rounds, presence, mixing.
        options: settings.
        seeds: repetition seeds; each redraws initial parameters and batches.
        own_exchange: a method's own exchange, in place of the schedule's mixing.
        start: whether each device's parameters are kept (`way.choose`).

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
        start: Start = "auto",
    ) -> None:
        self.model, self.dataset, self.partitions = model, dataset, tuple(partitions)
        self.schedule, self.options = schedule, options or Options()
        # Told whether it trains or evaluates; on an accelerator, what is being queued.
        self.on_stage: Callable[[str], None] = lambda stage: None
        self.seeds = tuple(int(seed) for seed in seeds)
        place.check(self.partitions, schedule, self.seeds, len(dataset.y_train))
        self._longest = place.longest_of(schedule, self.options, place.sizes_of(self.partitions))
        self._dtype = np.dtype("float64" if self.options.precision == "float64" else "float32")
        mesh = platform.row_mesh(schedule.devices)
        self.layout = self._deal(mesh.size, shuffle=own_exchange is None)
        way = choose(
            start,
            model,
            self.options,
            schedule,
            self._longest,
            dataset.shape,
            len(self.seeds),
            own_exchange is not None,
        )
        self.alike = always_alike(self.options, schedule, own_exchange is not None)
        # What the state holds: every device's parameters, or a single one's that all share.
        self.held = self.layout
        if way.shared:
            self.held = Layout.deal(np.ones(1), len(self.seeds), 1)
        built_in = {"mean": exchange.mean, "dense": exchange.dense, "sparse": exchange.sparse}
        self.spec = Spec(
            model=model,
            optimizer=self.options.optimizer,
            batch=self.options.batch_size,
            local_round=self.options.local_round,
            precision=self.options.precision,
            exchange=own_exchange or built_in[schedule.kind],
            kind=schedule.kind,
            devices=schedule.devices,
            places=self.layout.places,
            seeds=len(self.seeds),
            chunk=self._chunk(),
            loop=platform.loops_over_rows(),
            way=way,
            deterministic=self.options.deterministic,
            mesh=mesh,
        )
        self.programs = programs(self.spec)
        self._check_memory()
        with self._scope():
            self._fixed = self._place()
            self._curve = self._sheets(self.sample_counts)

    def _scope(self) -> AbstractContextManager[Any]:
        return platform.precision_scope(self.options.precision)

    def _chunk(self) -> int:
        """Iterations in a chunk: fewer than asked for where devices are many."""
        least = 1 if platform.loops_over_rows() else _TOGETHER
        most = max(least, _SCHEDULED // self.schedule.devices)
        return min(self.options.chunk_iterations, most)

    def _deal(self, shards: int, *, shuffle: bool) -> Layout:
        sizes, options = place.sizes_of(self.partitions), self.options
        per_round = draws.steps_per_round(sizes, options.batch_size, options.local_round)
        work = self.schedule.rounds.sum(axis=0, dtype=np.int64) * per_round.mean(axis=0)
        return Layout.deal(work, len(self.seeds), shards, shuffle=shuffle)

    def _check_memory(self) -> None:
        """Refuse a state that does not fit, with a copy of the parameters to work on."""
        state = self.shapes()
        parts = (state.params, state.params, state.optimizer, state.exchange)
        needed = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(parts))
        check_memory(needed // jax.process_count(), self.held.devices, len(self.seeds))

    def _sharding(self, spec: Any) -> Any:
        if self.spec.mesh.size == 1:
            return self.spec.mesh.devices.item()
        return NamedSharding(self.spec.mesh, spec)

    def _sheets(self, counts: tuple[int, int, int]) -> Sheets:
        test, shards = len(self.dataset.y_test), self.spec.mesh.size
        batch = _EVALUATED_LOOP if self.spec.loop else _EVALUATED
        made = make_sheets(self.layout, self.partitions, test, counts, shards, batch, self._dtype)
        placed: Sheets = hosts.put(made, jax.tree.map(self._sharding, made.specs()))
        return placed

    def _place(self) -> Fixed:
        fixed = place.fixed_of(
            self.dataset,
            self.partitions,
            self.schedule,
            self.options,
            self.seeds,
            self.layout,
            self._dtype,
        )
        # Rows are shared between processors; everything else each of them holds.
        specs: Any = jax.tree.map(lambda _: self._sharding(WHOLE), fixed)
        specs = specs._replace(rows=jax.tree.map(lambda _: self._sharding(ROWS), fixed.rows))
        placed: Fixed = hosts.put(fixed, specs)
        return placed

    @cached_property
    def sample_counts(self) -> tuple[int, int, int]:
        """Samples that curves are evaluated on: test, training, test for each device's own model.

        The last iteration is evaluated on all test samples.
        """
        sizes, test = place.sizes_of(self.partitions), len(self.dataset.y_test)
        return place.counts(self.options, self.schedule, sizes, test)

    def init(self) -> State:
        """Draw the initial parameters: of each seed one set, the same for all its devices.

        Returns:
            The state before the first iteration.
        """
        with self._scope():
            drawn = [self.initial(seed) for seed in self.seeds]

            def stack(*leaves: NDArray[Any]) -> NDArray[Any]:
                return np.tile(np.stack(leaves), (self.held.places,) + (1,) * leaves[0].ndim)

            rows, whole = self.shardings
            params = hosts.put(jax.tree.map(stack, *drawn), rows)
            moments, memory = self.programs.memories(params)
            return State(
                params,
                hosts.put(moments, rows),
                hosts.put(memory, whole),
                hosts.put(np.int32(0), whole),
            )

    @property
    def shardings(self) -> tuple[Any, Any]:
        """Where what is held for each row lies, and what every processor holds."""
        rows = WHOLE if self.spec.way.shared else ROWS
        return self._sharding(rows), self._sharding(WHOLE)

    def shapes(self) -> State:
        """Shapes and types of a state."""
        rows = self.held.places * len(self.seeds)
        with self._scope():
            shape: Any = jax.ShapeDtypeStruct
            params = jax.tree.map(
                lambda leaf: shape((rows, *leaf.shape), self._dtype),
                jax.eval_shape(self.model.init, jax.random.key(0)),
            )
            moments, memory = jax.eval_shape(self.programs.memories, params)
            return State(params, moments, memory, shape((), np.dtype(np.int32)))

    def initial(self, seed: int) -> Params:
        """The initial parameters of a seed, as NumPy arrays."""
        words = np.stack(draws.seed_key(seed, draws.INIT), axis=-1)[0]
        params = jax.jit(self.model.init)(jax.random.wrap_key_data(jnp.asarray(words)))
        return jax.tree.map(lambda leaf: np.asarray(leaf, self._dtype), params)

    def run_chunk(self, state: State, start: int) -> tuple[State, Trace]:
        """Run the iterations start..start+chunk-1, or to the end of the schedule.

        Args:
            state: after ``start`` iterations; it is consumed (its memory is used again).
            start: iterations completed.

        Returns:
            The new state, and the evaluations made.

        Raises:
            DivergedError: parameters are no longer finite.
        """
        stop = min(start + self.spec.chunk, self.schedule.iterations)
        with self._scope():
            slice_, blocks, ends = place.slice_of(
                self.schedule,
                self.spec.chunk,
                self.layout,
                start,
                stop,
                self._dtype,
                self._longest,
                self.spec.way.stride,
            )
            slice_ = hosts.put(slice_, self._sharding(WHOLE))
            measured = np.flatnonzero(place.measured(self.options, self.schedule, start, stop))
            records: list[Record] = []
            panels: list[Panel] = []
            at = 0
            # On an accelerator nothing here waits until the whole chunk is in its queue.
            for number, end in zip(measured, ends[measured], strict=True):
                state = self._advance(state, slice_, _part(blocks, at, end), records)
                state, record, drift = self.programs.watched(
                    state, self._fixed, slice_, _part(blocks, end)
                )
                records.append(record)
                self.on_stage("evaluating")
                panels.append(self._panel(state, start + int(number))._replace(drift=drift))
                at = int(end) + 1
                self.on_stage("training")
            state = self._advance(state, slice_, _part(blocks, at, len(blocks.step)), records)
            finite = self.programs.finite(state.params)
            reports = jax.device_get((records, panels, finite))
        return state, self._trace(reports, measured, start, stop)

    def _advance(self, state: State, slice_: Slice, blocks: Blocks, records: list[Record]) -> State:
        """Run blocks; in calls of known length where there is a stride."""
        first, stop = 0, len(blocks.step)
        while first < stop:
            if not self.spec.way.stride:
                part = jax.tree.map(partial(np.pad, pad_width=(0, self.spec.chunk - stop)), blocks)
                state, record = self.programs.advance(state, self._fixed, slice_, part, stop)
                first = stop
            elif stop - first >= _TOGETHER:
                part = _part(blocks, first, first + _TOGETHER)
                state, record = self.programs.advance(state, self._fixed, slice_, part)
                first += _TOGETHER
            else:  # one more program for a few blocks would take longer to compile
                part = _part(blocks, first)
                state, record, _ = self.programs.watched(state, self._fixed, slice_, part)
                first += 1
            records.append(record)
        return state

    def _panel(self, state: State, iteration: int) -> Panel:
        """Evaluate after an iteration (from 0): the last one on all test samples."""
        fixed, active = self._fixed, self.layout.spread(self.schedule.active[iteration], False)
        sheets = self._curve
        if self._counts_at(iteration) != self.sample_counts:
            sheets = self._sheets(self._counts_at(iteration))
        if self._agree_after(iteration):
            sheets = sheets._replace(device=None)
        return self.programs.evaluate(
            state.params, fixed.train, fixed.test, fixed.weights, sheets, active
        )

    def _counts_at(self, iteration: int) -> tuple[int, int, int]:
        """As ``sample_counts``, after an iteration (from 0): the last is evaluated whole."""
        on_test, on_train, each = self.sample_counts
        if iteration + 1 == self.schedule.iterations:
            on_test = each = len(self.dataset.y_test)
        return on_test, on_train, each

    def _agree_after(self, iteration: int) -> bool:
        """Have all devices one and the same model?"""
        return bool(self.schedule.exchanged[iteration]) and self.spec.exchange is exchange.mean

    def _samples(self, iterations: NDArray[np.int64]) -> dict[str, Any]:
        """How many samples evaluations after some iterations (from 0) take, [evaluations, S]."""
        on_train = self.sample_counts[1]
        trained = [int(train_sizes(part, on_train).sum()) for part in self.partitions]
        rows = np.zeros((len(iterations), 3, len(self.seeds)), np.int64)
        for row, t in zip(rows, iterations.tolist(), strict=True):
            on_test, _, each = self._counts_at(t)
            row[0], row[1], row[2] = on_test, trained, on_test if self._agree_after(t) else each
        return {name: rows[:, k] for k, name in enumerate(COUNTS)}

    def train(self, state: State | None = None) -> Iterator[tuple[State, Trace]]:
        """Run to the end of the schedule.

        Args:
            state: where to go on from (for instance a checkpoint); the beginning unless given.

        Yields:
            After every chunk, the state and the evaluations made. The state is consumed by the
            next chunk: save what is to be kept before going on. A chunk that diverges raises
            instead, so that what was saved last is good.
        """
        state = self.init() if state is None else state
        for start in range(int(state.iteration), self.schedule.iterations, self.spec.chunk):
            state, trace = self.run_chunk(state, start)
            yield state, trace

    def run(self) -> Trace:
        """Run the whole schedule and return all evaluations."""
        return Trace.join([trace for _, trace in self.train()])

    def _trace(
        self,
        reports: tuple[list[Record], list[Panel], NDArray[np.bool_]],
        measured: NDArray[np.int64],
        start: int,
        stop: int,
    ) -> Trace:
        """Put together what a chunk reported."""
        records, panels, finite = reports
        bad = np.min([record.bad for record in records], axis=0)
        bad = np.minimum(bad, np.where(finite, NEVER, stop))
        if bad.min() < NEVER:
            seed = int(bad.argmin())
            raise DivergedError(int(bad[seed]), self.seeds[seed], self.options.learning_rate)
        empty = np.zeros((0, len(self.seeds)), self._dtype)
        columns = {
            name: np.concatenate([empty, *(getattr(panel, name)[None] for panel in panels)])
            for name in Panel._fields
        }
        sent = jax.tree.map(lambda *parts: reduce(np.add, parts), *(r.sent for r in records))
        sent = jax.tree.map(lambda values: values[: stop - start], sent)
        counts = self._samples(start + measured)
        return Trace(start + measured + 1, **columns, **counts, sent=sent)

    def params(self, state: State) -> Params:
        """Every device's parameters, as NumPy arrays stacked [seeds, devices, ...]."""
        devices = self.schedule.devices

        def each(leaf: NDArray[Any]) -> NDArray[Any]:
            return np.broadcast_to(leaf, (len(leaf), devices, *leaf.shape[2:]))

        return jax.tree.map(each, self.kept(state))

    def kept(self, state: State) -> Params:
        """As ``params``, with a single device in place of all where these share theirs."""
        return jax.tree.map(
            lambda leaf: self.held.devices_of(hosts.fetch(leaf, everywhere=True)), state.params
        )

    def identity(self) -> dict[str, str]:
        """Digests of all that decides the numbers, by name, to refuse to resume something else.

        They are the same on any number of processors and processes.
        """
        own = self.spec.exchange.apply
        method = (own.__module__, getattr(own, "__qualname__", ""))
        held = [
            part
            for partition in self.partitions
            for part in array_parts(partition.order.astype(np.int32), partition.offsets)
        ]
        return {
            "normalisation": scaling_digest(self.dataset),
            "data": data_digest(self.dataset),
            "model": model_digest(self.model, self.dataset.shape),
            "partition": digest(held),
            "plan": digest(place.marks_of(self.schedule)),
            "options": digest([repr((self.options, method, self.seeds)).encode()]),
        }

    def fingerprint(self) -> str:
        """One digest of `identity`."""
        return digest(f"{name} {mark}".encode() for name, mark in self.identity().items())
