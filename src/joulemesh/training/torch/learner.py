"""A learner of PyTorch modules: all devices of all seeds stacked, trained on a schedule.

Parameters are stacked on a leading axis of rows, seed after seed, and stay on the processor, as do
the samples, gathered by index. What is drawn is what every other learner draws.
"""

from __future__ import annotations

__all__ = ["TorchLearner", "TorchState"]

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset, Partition
from joulemesh.models.torch_model import TorchModel
from joulemesh.training import draws
from joulemesh.training.digests import digest
from joulemesh.training.driver import chunks
from joulemesh.training.jax.chunks import evaluated
from joulemesh.training.jax.inputs import check_inputs
from joulemesh.training.jax.mean_model import mean_of
from joulemesh.training.learner import DivergedError, Learner
from joulemesh.training.members import Members
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule
from joulemesh.training.tensors import Arrays, Shapes
from joulemesh.training.torch.evaluation import COLUMNS, Evaluator, trace_columns
from joulemesh.training.torch.identity import torch_identity
from joulemesh.training.torch.mixing import Mixer
from joulemesh.training.torch.parts import Parts
from joulemesh.training.trace import Trace

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]

_LONG = 1_000_000  # device-steps


@dataclass
class TorchState:
    """All that training carries from one iteration to the next; rows are seed after seed.

    Attributes:
        iteration: iterations completed.
        params: [rows, ...] each.
        memory: what the optimisers remember, [rows, ...] each.
    """

    iteration: int
    params: Leaves
    memory: Leaves


class TorchLearner:
    """Trains a PyTorch module on a schedule.

    Args:
        model: what is trained; every device of a seed starts from the same parameters.
        dataset: training and test samples.
        partitions: who holds which samples, one per seed.
        schedule: rounds, presence, mixing; or `Members`.
        options: settings.
        seeds: repetition seeds; each redraws batches and, if the model can be made anew, initial
            parameters.

    Attributes:
        on_stage: told whether it trains or evaluates.
    """

    def __init__(
        self,
        model: TorchModel,
        dataset: Dataset,
        partitions: Sequence[Partition],
        schedule: Schedule,
        options: Options | None = None,
        seeds: Sequence[int] = (0,),
    ) -> None:
        self.model, self.dataset, self.partitions = model, dataset, tuple(partitions)
        self.schedule, self.options = schedule, options or Options()
        self.seeds = tuple(int(seed) for seed in seeds)
        self.on_stage: Callable[[str], None] = lambda stage: None
        check_inputs(self.partitions, schedule, self.seeds, len(dataset.y_train))
        self._parts = parts = Parts(
            model, dataset, self.partitions, self.options, self.seeds, compiled=self._is_long()
        )
        self._torch, self._dtype, self._batches = parts.torch, parts.dtype, parts.batches
        by_samples = self.options.weights == "samples"
        weights = schedule.mean_weights(self._batches.sizes, by_samples=by_samples)
        self._mixer = Mixer(self._torch, schedule, weights, by_samples=by_samples)
        self.evaluator = Evaluator(
            self._torch, parts.gradients, parts.samples, self.partitions, schedule, self._mixer,
            self.options,
        )  # fmt: skip
        self._steps = parts.steps(self._rate_of_rows())

    @property
    def together(self) -> bool:
        """Are all devices computed at once, by ``torch.func.vmap``?"""
        return self._parts.gradients.together

    @property
    def compiled(self) -> bool:
        """Is the program of all devices compiled?"""
        return self._parts.gradients.programs.compiles

    @property
    def captured(self) -> bool:
        """Are steps replayed from CUDA graphs?"""
        return self._steps.captured

    @property
    def multiply_adds(self) -> float:
        """Of a forward pass of what is computed at once."""
        return self._parts.multiply_adds

    @property
    def device_name(self) -> str:
        """The processor that trains, in words."""
        return self._parts.device_name

    def _is_long(self) -> bool:
        """Are there so many device-steps that half a minute of compilation is worth while?"""
        sizes = np.stack([one.sizes for one in self.partitions])
        batch, kind = self.options.batch_size, self.options.local_round
        per_round = float(draws.steps_per_round(sizes, batch, kind).sum())
        return float(np.mean(self.schedule.rounds)) * self.schedule.iterations * per_round >= _LONG

    def _rate_of_rows(self) -> NDArray[np.float64]:
        rates = np.full(len(self.seeds), self.options.learning_rate)
        if isinstance(self.schedule, Members):
            rates = self.schedule.rates
        return np.repeat(rates, self.schedule.devices)

    def compile(self) -> None:
        """Nothing is compiled ahead: programs are traced when they are first used."""

    # States -------------------------------------------------------------------------------------

    def begin(self) -> TorchState:
        """The initial parameters: of each seed one set, the same for all its devices."""
        first = [self.model.initial(seed) for seed in self.seeds]
        params = self._parts.stacked(first, self.schedule.devices)
        return TorchState(0, params, self._steps.optimizer.memory(params))

    def _by_device(self, leaves: Leaves) -> Leaves:
        """Views [S, N, ...] of rows."""
        ahead = (len(self.seeds), self.schedule.devices)
        return {name: leaf.view(*ahead, *leaf.shape[1:]) for name, leaf in leaves.items()}

    def params(self, state: TorchState) -> Arrays:
        """Every device's parameters, as NumPy arrays [seeds, devices, ...]."""
        return {name: leaf.cpu().numpy() for name, leaf in self._by_device(state.params).items()}

    def mean_params(self, state: TorchState) -> Arrays:
        """The mean model of the active devices; with several seeds stacked [seeds, ...]."""
        active = self.schedule.active[max(state.iteration - 1, 0)]
        by_samples = self.options.weights == "samples"
        weights = self.schedule.mean_weights(self._batches.sizes, by_samples=by_samples)
        mean: Arrays = mean_of(self.params(state), weights * active)
        return mean

    def _named(self, state: TorchState) -> Iterator[tuple[str, Tensor]]:
        for part, leaves in (("params", state.params), ("optimizer", state.memory)):
            for name, leaf in self._by_device(leaves).items():
                yield f"{part}.{name}", leaf

    def saved_shapes(self) -> Shapes:
        """Names, shapes and types of the arrays that `save` gives."""
        made = self.save(self.begin())
        return {name: (array.shape, array.dtype) for name, array in made.items()}

    def save(self, state: TorchState) -> Arrays:
        """The state as named arrays, [seeds, devices, ...]."""
        arrays = {name: np.array(leaf.cpu().numpy()) for name, leaf in self._named(state)}
        return {"iteration": np.array(state.iteration, np.int64), **arrays}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> TorchState:
        """The state that `save` gave."""
        state = self.begin()
        for name, leaf in self._named(state):
            leaf.copy_(self._torch.as_tensor(np.asarray(arrays[name])))
        state.iteration = int(arrays["iteration"])
        return state

    # Training -----------------------------------------------------------------------------------

    def advance(self, state: TorchState) -> tuple[TorchState, Trace]:
        """Run the next chunk of iterations; the state is consumed."""
        with self._parts.threads():
            return self._advance(state)

    def _advance(self, state: TorchState) -> tuple[TorchState, Trace]:
        start = state.iteration
        stop = min(start + self.options.chunk_iterations, self.schedule.iterations)
        measured = np.flatnonzero(evaluated(self.options, self.schedule, start, stop)) + start
        found, drift, good = [], [], []
        self._steps.expect(start, [self._rounds(t) for t in range(start, stop)])
        with self._torch.random.fork_rng(devices=self._parts.forked):
            for t in range(start, stop):
                params = self._by_device(state.params)
                with self._torch.no_grad():
                    self._mixer.give(t, params)
                self._steps.train(state.params, state.memory, t)
                if t in measured:
                    drift.append(self.evaluator.consensus(params, t))
                if self.schedule.exchanged[t]:
                    with self._torch.no_grad():
                        self._mixer.mix(t, params)
                good.append((t, self._finite(params)))
                if t in measured:
                    self._require_finite(good)
                    self.on_stage("evaluating")
                    found.append(self.evaluator.evaluate(params, t))
                    self.on_stage("training")
            self._require_finite(good)
        state.iteration = stop
        return state, self._trace(measured, found, drift)

    def _rounds(self, t: int) -> NDArray[np.integer[Any]]:
        """Rounds [S, N] of an iteration."""
        if isinstance(self.schedule, Members):
            return np.asarray(self.schedule.each[t].T)
        return np.broadcast_to(self.schedule.rounds[t], self._batches.sizes.shape)

    def _finite(self, params: Leaves) -> Tensor:
        """bool [S], on the processor: are all parameters of each seed finite?"""
        good = []
        for leaf in params.values():
            rows = leaf.reshape(*leaf.shape[:2], -1)
            ends = self._torch.stack([rows.amin(dim=2), rows.amax(dim=2)])  # NaN, if there is any
            good.append(ends.isfinite().all(dim=2).all(dim=0))
        return self._torch.stack(good).all(dim=0)

    def _require_finite(self, good: list[tuple[int, Tensor]]) -> None:
        """Look at what `_finite` found in iterations (from 0) since the last look.

        Asking a GPU means to wait for it, so it is asked when there is something else to wait for.
        """
        if isinstance(self.schedule, Members) or not good:
            return
        found = self._torch.stack([one for _, one in good]).cpu().numpy()
        if not found.all():
            at = int(np.argmin(found.all(axis=1)))
            seed = self.seeds[int(np.argmin(found[at]))]
            rate, wire = self.options.learning_rate, self.schedule.wire
            raise DivergedError(good[at][0] + 1, seed, rate, wire)
        good.clear()

    def _trace(
        self, measured: NDArray[np.int64], found: list[dict[str, Any]], drift: list[Any]
    ) -> Trace:
        if not found:
            return self._empty()
        dtype = np.float64 if self._dtype == self._torch.float64 else np.float32
        columns = trace_columns(found, drift, dtype)
        counts = self.evaluator.counts.columns(measured)
        return Trace(measured + 1, **columns, **counts, score=self.evaluator.score)

    def _empty(self) -> Trace:
        nothing, none = np.zeros((0, len(self.seeds))), np.zeros(0, np.int64)
        columns: dict[str, Any] = dict.fromkeys(COLUMNS, nothing)
        own = dict.fromkeys(self.evaluator.further, nothing)
        counts = self.evaluator.counts.columns(none)
        return Trace(none, **columns, own=own, **counts, score=self.evaluator.score)

    def train(self, state: TorchState | None = None) -> Iterator[tuple[TorchState, Trace]]:
        """Run to the end of the schedule; see `training.driver.chunks`."""
        return chunks(self, state)

    def run(self) -> Trace:
        """Run the whole schedule and return all evaluations."""
        return Trace.join([trace for _, trace in self.train()])

    def evaluate(self, state: TorchState) -> Trace:
        """Evaluate a state as it is; drift before the exchange is not known (NaN)."""
        last = np.array([max(state.iteration - 1, 0)])
        found = self.evaluator.evaluate(self._by_device(state.params), int(last[0]))
        unknown = np.full(len(self.seeds), np.nan)
        dtype = np.float64 if self._dtype == self._torch.float64 else np.float32
        columns = trace_columns([found], [unknown], dtype)
        counts = self.evaluator.counts.columns(last)
        at, score = np.array([state.iteration]), self.evaluator.score
        return Trace(at, **columns, **counts, score=score)

    def identity(self) -> dict[str, str]:
        """Digests of all that decides the numbers, by name."""
        return torch_identity(
            self.model, self.dataset, self.partitions, self.schedule, self.options, self.seeds
        )

    def digest(self) -> str:
        """One digest of `identity`."""
        return digest(f"{name} {mark}".encode() for name, mark in self.identity().items())


def _learns(learner: TorchLearner) -> Learner[TorchState]:
    """Checked by mypy: it is a learner."""
    return learner
