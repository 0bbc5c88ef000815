"""A learner of PyTorch modules: all devices of all seeds stacked, trained on a schedule.

Parameters are stacked on a leading axis of rows, seed after seed, and stay on the processor, as do
the samples, gathered by index. What is drawn is what every other learner draws."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset, Partition
from joulemesh.metrics import CROSS_ENTROPY, LOSS, Metric, Reported, metrics_of, reported
from joulemesh.models.torch_model import TorchModel
from joulemesh.training import draws
from joulemesh.training.arrays import Tree
from joulemesh.training.exchange import Exchange
from joulemesh.training.learner import DivergedError, Learner, check_inputs, chunks, mean_of
from joulemesh.training.schedule import (
    Members,
    Options,
    Schedule,
    array_parts,
    data_digest,
    digest,
    partition_parts,
    scaling_digest,
)
from joulemesh.training.tensors import Arrays, Shapes
from joulemesh.training.torch.evaluation import COLUMNS, Evaluator, trace_columns
from joulemesh.training.torch.exchange import OwnExchange, loaded, saved
from joulemesh.training.torch.mixing import Mixer
from joulemesh.training.torch.steps import PULL, Parts
from joulemesh.training.trace import Trace, evaluated


def torch_model_digest(model: TorchModel, seeds: Sequence[int] = (0,)) -> str:
    """A digest of a module: its structure, its code where that can be read, and its start."""
    parts: list[bytes | memoryview] = [repr((model.name, model.l2, repr(model.module))).encode()]
    kinds = {type(part) for part in model.module.modules()}
    own = [kind for kind in kinds if kind.__module__.split(".")[0] != "torch"]
    own.sort(key=lambda kind: kind.__qualname__)
    named = None if model.minimised is CROSS_ENTROPY else model.minimised
    parts += [_source(one) for one in (*own, model.loss)]
    if named is not None:
        parts += [named.name.encode(), _source(named.torch or named.values)]
    for name, one in model.constants().items():
        parts += [name.encode(), *array_parts(one.detach().cpu().numpy())]
    for seed in seeds if model.make is not None else seeds[:1]:
        for name, one in model.initial(seed).items():
            parts += [name.encode(), *array_parts(one.numpy())]
    return digest(parts)


def _source(code: Any) -> bytes:
    """The text of a class or function; only its name where it is in no file."""
    if code is None:
        return b""
    try:
        return inspect.getsource(code).encode()
    except (OSError, TypeError):
        return repr(getattr(code, "__qualname__", code)).encode()


def _metric_parts(metric: Metric) -> list[bytes | memoryview]:
    told = repr((metric.name, metric.share, metric.devices)).encode()
    return [told, _source(metric.values), _source(metric.finish)]


def torch_identity(
    model: TorchModel,
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    exchange: Exchange | None = None,
) -> dict[str, str]:
    """Digests of all that decides a run's numbers, by name."""
    told: tuple[Any, ...] = (options, "torch", tuple(seeds))
    if exchange is not None:
        told += (exchange.apply.__module__, getattr(exchange.apply, "__qualname__", ""))
    digests = {
        "normalisation": scaling_digest(dataset),
        "data": data_digest(dataset),
        "model": torch_model_digest(model, seeds),
        "partition": digest(partition_parts(partitions)),
        "plan": schedule.digest(),
        "options": digest([repr(told).encode()]),
    }
    if reported(options) != Reported():
        measured = [m for m in metrics_of(*reported(options)) if m.name != LOSS.name]
        digests["evaluation"] = digest(part for m in measured for part in _metric_parts(m))
    return digests


Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]

_LONG = 1_000_000  # device-steps


@dataclass
class TorchState:
    """All that training carries from one iteration to the next; rows are seed after seed."""

    iteration: int  # iterations completed
    params: Leaves  # [rows, ...] each
    memory: Leaves  # what the optimisers remember, [rows, ...] each
    # what exchanges remember of each seed
    exchange: list[Tree] = field(default_factory=list)


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
        own_exchange: a method's own exchange, in place of the schedule's mixing.

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
        *,
        own_exchange: Exchange | None = None,
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
        self._method, own = own_exchange, own_exchange is not None
        self._mixer = Mixer(self._torch, schedule, weights, by_samples=by_samples, own=own)
        self.evaluator = Evaluator(
            self._torch, parts.gradients, parts.samples, self.partitions, schedule, self._mixer,
            self.options,
        )  # fmt: skip
        self._own: OwnExchange | None = None
        if own_exchange is not None:
            self._own = OwnExchange(
                self._torch, own_exchange, schedule, self._mixer, parts.gradients, parts.samples,
                self.partitions, self.seeds,
            )  # fmt: skip
        self._pulled = self._own is not None and self._own.corrects
        self._steps = parts.steps(self._rate_of_rows(), pulled=self._pulled)

    @property
    def together(self) -> bool:
        """Are all devices computed at once, by ``torch.func.vmap``?"""
        return self._parts.gradients.together

    @property
    def compiled(self) -> bool:
        return self._parts.gradients.programs.compiles

    @property
    def captured(self) -> bool:
        return self._steps.captured

    @property
    def multiply_adds(self) -> float:
        """Of a forward pass of what is computed at once."""
        return self._parts.multiply_adds

    @property
    def device_name(self) -> str:
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

    # States -------------------------------------------------------------------------------------

    def begin(self) -> TorchState:
        """The initial parameters: of each seed one set, the same for all its devices."""
        first = [self.model.initial(seed) for seed in self.seeds]
        params = self._parts.stacked(first, self.schedule.devices)
        exchanges = self._mixer if self._own is None else self._own
        states: list[Tree] = [*exchanges.begin(self._by_device(params))]
        return TorchState(0, params, self._steps.optimizer.memory(params), states)

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
        kept = {name: one for name, one in state.memory.items() if not name.startswith(PULL)}
        for part, leaves in (("params", state.params), ("optimizer", kept)):
            for name, leaf in self._by_device(leaves).items():
                yield f"{part}.{name}", leaf

    def saved_shapes(self) -> Shapes:
        """Names, shapes and types of the arrays that `save` gives."""
        made = self.save(self.begin())
        return {name: (array.shape, array.dtype) for name, array in made.items()}

    def save(self, state: TorchState) -> Arrays:
        """The state as named arrays, [seeds, devices, ...]."""
        arrays = {name: np.array(leaf.cpu().numpy()) for name, leaf in self._named(state)}
        done = np.array(state.iteration, np.int64)
        return {"iteration": done, **arrays, **saved(state.exchange)}

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> TorchState:
        """The state that `save` gave."""
        state = self.begin()
        for name, leaf in self._named(state):
            leaf.copy_(self._torch.as_tensor(np.asarray(arrays[name])))
        state.iteration = int(arrays["iteration"])
        state.exchange = loaded(state.exchange, arrays)
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
        reports: list[Tree | None] = []
        self._steps.expect(start, [self._rounds(t) for t in range(start, stop)])
        with self._torch.random.fork_rng(devices=self._parts.forked):
            for t in range(start, stop):
                params = self._by_device(state.params)
                with self._torch.no_grad():
                    self._mixer.give(t, params, state.exchange)
                    self._pull(state, t)
                self._steps.train(state.params, state.memory, t)
                if t in measured:
                    drift.append(self.evaluator.consensus(params, t))
                with self._torch.no_grad():
                    reports.append(self._exchange(state, t, params))
                good.append((t, self._finite(params)))
                if t in measured:
                    self._require_finite(good)
                    self.on_stage("evaluating")
                    found.append(self.evaluator.evaluate(params, t))
                    self.on_stage("training")
            self._require_finite(good)
        state.iteration = stop
        sent = () if self._own is None else self._own.reports(reports)
        return state, self._trace(measured, found, drift, sent)

    def _pull(self, state: TorchState, t: int) -> None:
        """Have every step of an iteration corrected as the method says."""
        if self._own is not None and self._pulled:
            for name, leaf in self._own.pull(state.exchange, self._steps.of(t)).items():
                state.memory[f"{PULL}{name}"].copy_(leaf)

    def _exchange(self, state: TorchState, t: int, params: Leaves) -> Tree | None:
        """Exchange parameters in place, in iterations that do; what a method reports of it."""
        if not self.schedule.exchanged[t]:
            return None
        if self._own is not None:
            return self._own.mix(t, params, state.exchange)
        self._mixer.mix(t, params, state.exchange)
        return None

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
        self,
        measured: NDArray[np.int64],
        found: list[dict[str, Any]],
        drift: list[Any],
        sent: Tree,
    ) -> Trace:
        if not found:
            return self._empty(sent)
        dtype = np.float64 if self._dtype == self._torch.float64 else np.float32
        columns = trace_columns(found, drift, dtype)
        counts = self.evaluator.counts.columns(measured)
        return Trace(measured + 1, **columns, **counts, sent=sent, score=self.evaluator.score)

    def _empty(self, sent: Tree) -> Trace:
        nothing, none = np.zeros((0, len(self.seeds))), np.zeros(0, np.int64)
        columns: dict[str, Any] = dict.fromkeys(COLUMNS, nothing)
        own = dict.fromkeys(self.evaluator.further, nothing)
        counts = self.evaluator.counts.columns(none)
        return Trace(none, **columns, own=own, **counts, sent=sent, score=self.evaluator.score)

    def train(self, state: TorchState | None = None) -> Iterator[tuple[TorchState, Trace]]:
        """Run to the end of the schedule; see `training.learner.chunks`."""
        return chunks(self, state)

    def run(self) -> Trace:
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
        return torch_identity(
            self.model,
            self.dataset,
            self.partitions,
            self.schedule,
            self.options,
            self.seeds,
            self._method,
        )

    def digest(self) -> str:
        """One digest of `identity`."""
        return digest(f"{name} {mark}".encode() for name, mark in self.identity().items())


def _learns(learner: TorchLearner) -> Learner[TorchState]:
    """Checked by mypy: it is a learner."""
    return learner
