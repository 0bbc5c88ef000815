"""Evaluate on samples that stay on disk: on those that are needed, in pieces if they are many."""

from __future__ import annotations

__all__ = ["StreamedEvaluator"]

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.metrics.curves import score_columns
from joulemesh.metrics.metric import Metric
from joulemesh.models.core import REMEMBERED, Params
from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.evaluation.evaluator import Evaluator
from joulemesh.training.jax.evaluation.samples import (
    TEST_ORDER,
    EvalSamples,
    SampleBatches,
    in_batches,
)
from joulemesh.training.jax.evaluation.scores import (
    Evaluation,
    figure,
    in_groups,
    mean_model,
    score,
)
from joulemesh.training.jax.loss import Data, scale_of
from joulemesh.training.jax.platform import WHOLE, sharding
from joulemesh.training.jax.pools import POOL_BYTES, checked_samples
from joulemesh.training.jax.types import ProgramKey

Sums = tuple[NDArray[np.float64], ...]


class StreamedEvaluator(Evaluator):
    """Evaluates states of a run whose samples stay on disk.

    What fits into `POOL_BYTES` is evaluated by the same program as samples in memory, to the same
    bits; larger test sets piece by piece, to rounding.

    Args:
        dataset: on disk.
        arguments: as of an `Evaluator`.
    """

    def __init__(self, dataset: Dataset, *arguments: Any) -> None:
        self._dataset = dataset
        self._pools: dict[tuple[int, int, int], tuple[Data, Data]] = {}
        super().__init__(*arguments, tested=len(dataset.y_test))

    def _data(self, part: str, index: NDArray[np.integer[Any]]) -> Data:
        """Some samples, read and placed."""
        data = self._dataset
        x = checked_samples(data, f"x_{part}", index)
        scale = scale_of(data, self._inputs.weights.dtype)
        made = Data(x, getattr(data, f"y_{part}")[index], *scale)
        placed: Data = hosts.put(made, sharding(self._key.mesh, WHOLE))
        return placed

    def _chosen(self, counts: tuple[int, int, int]) -> EvalSamples:
        """Which samples, by their place among those that are read."""
        made = super()._chosen(counts)
        train, trained = _compact(made.train)
        test, tested = _compact(made.test, *([] if made.device is None else [made.device]))
        self._pools = {counts: (self._data("train", trained), self._data("test", tested))}
        device = None if made.device is None else test[1]
        return made._replace(train=train[0], test=test[0], device=device)

    def _read(self, counts: tuple[int, int, int]) -> tuple[Data, Data]:
        if counts not in self._pools:  # those of the curve are chosen again after the last
            self._curve = self._samples(counts)
        return self._pools[counts]

    def evaluate(
        self, program: Callable[..., Evaluation], params: Params, iteration: int
    ) -> Evaluation:
        """Evaluate parameters after an iteration (from 0); see `Evaluator.evaluate`."""
        on_test, _, _ = self.counts.at(iteration)
        whole = on_test * max(1, self._dataset.x_test[:1].nbytes)
        described = any(isinstance(p, jax.ShapeDtypeStruct) for p in jax.tree.leaves(params))
        if whole <= POOL_BYTES or self.counts.at(iteration) == self.counts.curve:
            return super().evaluate(program, params, iteration)
        found = self._evaluate(program, params, iteration, self.counts.curve)
        if described:
            return found
        return found._replace(**self._in_pieces(params, iteration, on_test))

    def _in_pieces(self, params: Params, iteration: int, on_test: int) -> dict[str, Any]:
        """The figures on test samples, piece by piece."""
        key, metrics = self._key, self._key.metrics
        active = self._layout.spread(self._schedule.active[iteration], False)
        measured = [metric for metric in metrics if metric.devices]
        centre_of, of_centre, of_rows = _programs(key)
        centre = centre_of(params, self._inputs.weights, active)
        agree = bool(self.counts.agree[iteration])
        picked = np.random.default_rng(TEST_ORDER).permutation(self.counts.test)[:on_test]
        step = max(1, POOL_BYTES // max(1, self._dataset.x_test[:1].nbytes))
        totals: list[Sums] = []
        for first in range(0, on_test, step):
            piece = np.sort(picked[first : first + step])
            data, batch = self._data("test", piece), self._together
            ones = np.ones(len(piece), self._inputs.weights.dtype)
            some = in_batches(np.arange(len(piece)), ones, 1, batch)
            sums = [of_centre(centre, data, some)]
            if not agree:
                sums.append(of_rows(params, data, some))
            found = tuple(np.asarray(one, np.float64) for part in sums for one in part)
            totals = [tuple(map(np.add, totals[0], found))] if totals else [found]
        whole, count = totals[0], np.asarray(float(on_test))
        test = {m.name: _figures(m, one, count) for m, one in zip(metrics, whole, strict=False)}
        shape = (key.slots, key.seeds)
        own = {m.name: np.broadcast_to(test[m.name], shape) for m in measured}
        if not agree:
            rows = whole[len(metrics) :]
            for metric, one in zip(measured, rows, strict=True):
                own[metric.name] = _figures(metric, one, count).reshape(shape)
        return self._columns(test, own, active)

    def _columns(
        self,
        test: dict[str, NDArray[Any]],
        own: dict[str, NDArray[Any]],
        active: NDArray[np.bool_],
    ) -> dict[str, Any]:
        dtype = self._inputs.weights.dtype
        curves: dict[str, Any] = {
            f"test_{name}": value.astype(dtype) for name, value in test.items()
        }
        for name, each in own.items():
            here = each[active]
            ends = {"mean": here.mean(axis=0), "min": here.min(axis=0), "max": here.max(axis=0)}
            curves |= {f"device_{name}_{end}": one.astype(dtype) for end, one in ends.items()}
        names = score_columns(self._key.metrics[0].name)
        always = {field: curves.pop(name) for field, name in names.items()}
        lost = curves.pop("test_loss", always["test_score"])
        return {**always, "test_loss": lost, "own": curves}


def _compact(
    *batches: SampleBatches,
) -> tuple[list[SampleBatches], NDArray[np.int64]]:
    """Batches by their places among the samples that they refer to, and these samples."""
    used = np.unique(np.concatenate([np.ravel(one.index) for one in batches]))
    moved = [
        one._replace(index=np.searchsorted(used, one.index).astype(np.int32)) for one in batches
    ]
    return moved, used.astype(np.int64)


def _figures(
    metric: Metric, sums: NDArray[np.float64], count: NDArray[np.float64]
) -> NDArray[np.float64]:
    """A metric from sums [rows, 1] or [rows, 1, k]: [rows]."""
    mine = sums[:, 0]
    return np.asarray(figure(metric, jnp.asarray(mine), jnp.full(len(mine), count)), np.float64)


@lru_cache(maxsize=REMEMBERED)
def _programs(key: ProgramKey) -> tuple[Callable[..., Any], ...]:
    """The mean models; sums over a piece of theirs, and of every row's own."""
    measured = tuple(metric for metric in key.metrics if metric.devices)

    def centre(params: Params, weights: jax.Array, active: jax.Array) -> Params:
        if key.strategy.shared:
            return params
        share = jnp.where(active[:, None], weights, 0)
        return mean_model(key.by_device(params), share / jnp.sum(share, axis=0))

    def one(metrics: tuple[Metric, ...], data: Data, some: SampleBatches, params: Params) -> Any:
        return score(key.model, key.compute, data, some, params, metrics)

    def of_centre(centres: Params, data: Data, some: SampleBatches) -> Any:
        return lax.map(partial(one, key.metrics, data, some), centres)

    def of_rows(params: Params, data: Data, some: SampleBatches) -> Any:
        return in_groups(partial(one, measured, data, some), params, 1 if key.loop else 32)

    return jax.jit(centre), jax.jit(of_centre), jax.jit(of_rows)
