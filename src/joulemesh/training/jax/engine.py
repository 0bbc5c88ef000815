"""The engine: all devices of all seeds trained by one compiled program, chunk by chunk.

Parameters of all devices are stacked on a leading axis and stay on the accelerator, as does the
data, gathered by index. Nothing returns to the host within a chunk.
"""

from __future__ import annotations

__all__ = ["Engine", "State"]

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
from joulemesh.metrics import metrics_of, reported
from joulemesh.models.core import Model, Params
from joulemesh.training import draws, hosts
from joulemesh.training.digests import digest
from joulemesh.training.driver import chunks
from joulemesh.training.evaluation import evaluated
from joulemesh.training.exchange import Exchange, entering
from joulemesh.training.jax import mixing
from joulemesh.training.jax import state as states
from joulemesh.training.jax.calls import queue_chunk
from joulemesh.training.jax.chunks import longest_steps
from joulemesh.training.jax.evaluation import Evaluator, checked_metrics
from joulemesh.training.jax.identity import run_identity
from joulemesh.training.jax.inputs import make_inputs, place_inputs
from joulemesh.training.jax.layout import Layout
from joulemesh.training.jax.local_sgd import make_optimizer
from joulemesh.training.jax.mixing import Mixing
from joulemesh.training.jax.platform import precision_scope, row_mesh
from joulemesh.training.jax.platform import this_machine as at_hand
from joulemesh.training.jax.programs import programs
from joulemesh.training.jax.reports import Reports, columns_of, first_bad
from joulemesh.training.jax.strategy import Job, check_memory, choose_strategy
from joulemesh.training.jax.types import ProgramKey, State
from joulemesh.training.learner import DivergedError, check_inputs, mean_of, sizes_of
from joulemesh.training.messages import RoundedExchanges
from joulemesh.training.options import Options
from joulemesh.training.schedule import Members, Schedule
from joulemesh.training.tensors import Arrays, Shapes
from joulemesh.training.trace import Trace

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
        with self.scope():
            return states.first_state(self, [self.initial(seed) for seed in self.seeds])

    def shapes(self) -> State:
        """Shapes and types of a state."""
        with self.scope():
            return states.state_shapes(self, self.dtype)

    def initial(self, seed: int) -> Params:
        """The initial parameters of a seed, as NumPy arrays."""
        return states.initial_params(self.model, seed, self.dtype)

    def advance(self, state: State) -> tuple[State, Trace]:
        """Run the next chunk of iterations, or those to the end of the schedule."""
        start = int(state.iteration)
        with self.scope():
            state, queued, measured = queue_chunk(self, state, start)
            # The same transfer fetches the iteration, which the caller reads next.
            reports, done = jax.device_get((queued, state.iteration))
        return state, self._trace(Reports(*reports), measured, start, int(done))

    def train(self, state: State | None = None) -> Iterator[tuple[State, Trace]]:
        """Run to the end of the schedule; see `training.driver.chunks`."""
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
        return states.kept_params(self, state)

    def mean_params(self, state: State) -> Params:
        """The mean model of the active devices, as NumPy arrays; of several seeds, stacked."""
        active = self.schedule.active[max(int(state.iteration) - 1, 0)]
        by_samples, sizes = self.options.weights == "samples", sizes_of(self.partitions)
        weights = self.schedule.mean_weights(sizes, by_samples=by_samples)
        return mean_of(self.kept(state), weights * active)

    def saved_shapes(self) -> Shapes:
        """Names, shapes and types of the arrays that `save` gives."""
        return states.saved_shapes(self)

    def save(self, state: State) -> Arrays:
        """The state as named arrays in the order of devices, on the leader."""
        return states.save(self, state)

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        """The state that `save` gave, on however many processors there are now."""
        hosts.meet(self.key.mesh)
        return states.load(self, arrays)

    def identity(self) -> dict[str, str]:
        """Digests of all that decides the numbers, by name, to refuse to resume something else.

        They are the same on any number of processors and processes.
        """
        data, held, plan, own = self.dataset, self.partitions, self.schedule, self.key.exchange
        return run_identity(self.model, data, held, plan, self.options, self.seeds, own)

    def digest(self) -> str:
        """One digest of `identity`."""
        return digest(f"{name} {mark}".encode() for name, mark in self.identity().items())
