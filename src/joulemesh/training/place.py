"""Put a run's data and schedule where the program reads them."""

from __future__ import annotations

__all__ = [
    "check",
    "counts",
    "fixed_of",
    "longest_of",
    "marks_of",
    "mean_weights",
    "measured",
    "sizes_of",
    "slice_of",
]

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.data import Dataset, Partition
from joulemesh.errors import ScenarioError
from joulemesh.training import draws
from joulemesh.training.evaluate import sample_counts
from joulemesh.training.exchange import neighbour_lists
from joulemesh.training.layout import Layout
from joulemesh.training.local import Rows
from joulemesh.training.objective import Data, scale_of
from joulemesh.training.options import Options
from joulemesh.training.parts import Blocks, Fixed, Slice
from joulemesh.training.schedule import Schedule


def check(
    partitions: Sequence[Partition], schedule: Schedule, seeds: Sequence[int], samples: int
) -> None:
    """Refuse parts that do not fit together.

    >>> check([], Schedule(np.ones((1, 2), int)), [0], 5)
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: there are 0 partitions for 1 seeds: give one for each
    """
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) >= 2**64:
        raise ScenarioError(f"seeds are {list(seeds)}: give different numbers from 0 to 2**64 - 1")
    if len(partitions) != len(seeds):
        raise ScenarioError(
            f"there are {len(partitions)} partitions for {len(seeds)} seeds: give one for each"
        )
    weights = schedule.weights
    if weights is not None and weights.ndim == 2 and len(weights) != len(seeds):
        raise ScenarioError(
            f"weights are given for {len(weights)} seeds of {len(seeds)}: give one row for each"
        )
    for partition in partitions:
        if partition.devices != schedule.devices:
            raise ScenarioError(
                f"the partition has {partition.devices} devices but the schedule "
                f"{schedule.devices}: make them equal"
            )
        if partition.sizes.min() < 1:
            raise ScenarioError(
                f"device {partition.sizes.argmin()} holds no samples: give each at least 1"
            )
        if partition.order.max() >= samples:
            raise ScenarioError(
                f"the partition refers to sample {partition.order.max()} of {samples}: "
                "partition this data set"
            )


def sizes_of(partitions: Sequence[Partition]) -> NDArray[np.int64]:
    """D_i of every seed: [S, N]."""
    return np.stack([partition.sizes for partition in partitions])


def mean_weights(
    options: Options, schedule: Schedule, sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Weights of the mean, [S, N]: by samples, the schedule's, or all 1.

    >>> mean_weights(Options(weights="samples"), Schedule(np.ones((1, 2), int)), np.array([[3, 4]]))
    array([[3., 4.]])
    """
    if options.weights == "samples":
        return sizes.astype(np.float64)
    given = np.ones(1) if schedule.weights is None else schedule.weights
    return np.broadcast_to(given, sizes.shape)


def counts(
    options: Options, schedule: Schedule, sizes: NDArray[np.int64], test: int
) -> tuple[int, int, int]:
    """Samples that curves are evaluated on: test, training, test for each device's own model."""
    each = sizes.mean(axis=0) if options.local_round == "epoch" else options.batch_size
    n = schedule.iterations
    between = n / len(options.eval_at) if options.eval_at else min(options.eval_every, n)
    trained = float(np.mean([(rounds * each).sum() for rounds in schedule.rounds])) * between
    on_test, on_train, own = sample_counts(
        options.eval_share, trained, schedule.devices, test, options.eval_device_samples
    )
    return max(on_test, min(test, options.eval_test_samples)), on_train, own


def _keys(seeds: Sequence[int], purpose: int) -> draws.Key:
    """The seeds' keys for a purpose, two uint32 [S]."""
    keys = [draws.seed_key(seed, purpose) for seed in seeds]
    return np.concatenate([key[0] for key in keys]), np.concatenate([key[1] for key in keys])


def fixed_of(
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    layout: Layout,
    dtype: Any,
) -> Fixed:
    """Gather what does not change during a run, as NumPy arrays."""
    sizes = sizes_of(partitions)
    before = np.cumsum([0, *(len(partition.order) for partition in partitions)])[:-1, None]
    starts = before + np.stack([partition.offsets[:-1] for partition in partitions])
    first, second = _keys(seeds, draws.BATCH)
    scale, shift = scale_of(dataset, dtype)
    mixing: Any = schedule.mixing
    return Fixed(
        train=Data(dataset.x_train, dataset.y_train, scale, shift),
        test=Data(dataset.x_test, dataset.y_test, scale, shift),
        order=np.concatenate(
            [partition.order.astype(np.int32, copy=False) for partition in partitions]
        ),
        rows=Rows(
            start=layout.rows(starts.astype(np.int32), 0),
            size=layout.rows(sizes.astype(np.uint32), 1),
            device=np.repeat(layout.order.astype(np.uint32), len(seeds)),
            key=(np.tile(first, layout.places), np.tile(second, layout.places)),
        ),
        weights=layout.spread(mean_weights(options, schedule, sizes), 0).T.astype(dtype),
        learning_rate=np.asarray(options.learning_rate, dtype),
        mixing=neighbour_lists(layout.sparse(mixing), schedule.mixing_rounds, dtype)
        if schedule.kind == "sparse"
        else (),
        exchange_key=_keys(seeds, draws.EXCHANGE),
    )


def measured(options: Options, schedule: Schedule, start: int, stop: int) -> NDArray[np.bool_]:
    """Which of the iterations start..stop-1 are evaluated: those named, or every so many; the last.

    >>> five = Schedule(np.ones((5, 1), int))
    >>> measured(Options(eval_every=2), five, 2, 5).tolist()
    [False, True, True]
    >>> measured(Options(eval_at=(1, 3)), five, 0, 5).tolist()
    [True, False, True, False, True]
    """
    done = np.arange(start, stop) + 1
    named = np.isin(done, options.eval_at) if options.eval_at else done % options.eval_every == 0
    chosen: NDArray[np.bool_] = named | (done == schedule.iterations)
    return chosen


def marks_of(schedule: Schedule) -> Iterator[bytes | memoryview]:
    """All that tells a schedule from another, as bytes.

    Matrices that are made when they are needed are looked at in three iterations only.

    >>> rounds = np.full((1, 2), 5)
    >>> list(marks_of(Schedule(rounds))) == list(marks_of(Schedule(rounds, weights=np.ones(2))))
    False
    """
    n, mixing = schedule.iterations, schedule.mixing
    parts: list[Any] = [schedule.exchanged]
    if sparse.issparse(mixing):
        matrix: Any = mixing
        parts += [matrix.indptr, matrix.indices, matrix.data]
    elif callable(mixing):
        parts += [schedule.matrices(t, t + 1) for t in sorted({0, n // 2, n - 1})]
    elif not isinstance(mixing, str):
        parts.append(mixing)
    parts += [] if schedule.weights is None else [schedule.weights]
    yield repr((schedule.kind, schedule.mixing_rounds, schedule.weights is None)).encode()
    for rounds, active in zip(schedule.rounds, schedule.active, strict=True):
        yield rounds.astype(np.int32).data
        yield np.ascontiguousarray(active).data
    for part in parts:
        yield np.ascontiguousarray(part).data


def longest_of(schedule: Schedule, options: Options, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Steps of the device with most in each iteration, [n]."""
    per_round = draws.steps_per_round(sizes, options.batch_size, options.local_round).max(axis=0)
    return np.array([(rounds * per_round).max() for rounds in schedule.rounds], np.int64)


def slice_of(
    schedule: Schedule,
    chunk: int,
    layout: Layout,
    start: int,
    stop: int,
    dtype: Any,
    longest: NDArray[np.int64],
    stride: int,
) -> tuple[Slice, Blocks, NDArray[np.int64]]:
    """The schedule of iterations start..stop-1, padded to the length of a chunk.

    Args:
        schedule: of the run.
        chunk: iterations in a chunk.
        layout: of devices.
        start: first iteration, from 0.
        stop: one past the last.
        dtype: of mixing matrices.
        longest: steps of each iteration of the run, [n].
        stride: steps in a block; 0 for all of an iteration.

    Returns:
        The slice, its blocks, and for each iteration the block that ends it.
    """

    def padded(values: NDArray[Any]) -> NDArray[Any]:
        return np.pad(values, [(0, chunk - len(values))] + [(0, 0)] * (values.ndim - 1))

    mixing: Any = ()
    if schedule.kind == "dense":
        mixing = layout.matrices(schedule.matrices(start, stop)).astype(dtype)
        mixing = mixing if schedule.static else padded(mixing)
    count = np.maximum(1, -(-longest // stride)) if stride else np.ones_like(longest)
    here = count[start:stop]
    ends = np.cumsum(here) - 1
    iteration = np.repeat(np.arange(stop - start), here)
    nth = np.arange(len(iteration)) - (ends - here + 1)[iteration]
    last = np.zeros(len(iteration), bool)
    last[ends] = True
    made = Slice(
        rounds=padded(layout.spread(schedule.rounds[start:stop].astype(np.int32), 0)),
        active=padded(layout.spread(schedule.active[start:stop], False)),
        exchanged=padded(schedule.exchanged[start:stop]),
        mixing=mixing,
    )
    blocks = Blocks(iteration.astype(np.int32), (nth * stride).astype(np.int32), last)
    return made, blocks, ends
