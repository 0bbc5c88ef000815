"""When runs are evaluated and on how many samples, so that it stays a small share of the work."""

from __future__ import annotations

__all__ = [
    "TEST_ORDER",
    "SampleCounts",
    "curve_samples",
    "evaluated",
    "sample_counts",
    "train_sizes",
]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Partition
from joulemesh.models.curves import COUNTS
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

# Forward passes that one sample of training costs (its backward pass costs at least another).
_PASSES = 2
_LEAST_TEST, _LEAST_TRAIN, _LEAST_DEVICE = 1000, 500, 100
# The choice of test samples is the same for every seed: seeds are compared on it.
TEST_ORDER = 0x74657374


def evaluated(options: Options, schedule: Schedule, start: int, stop: int) -> NDArray[np.bool_]:
    """bool: which of iterations start..stop-1 are evaluated, with the last of the schedule."""
    done = np.arange(start, stop) + 1
    named = np.isin(done, options.eval_at) if options.eval_at else done % options.eval_every == 0
    chosen: NDArray[np.bool_] = named | (done == schedule.iterations)
    return chosen


@dataclass(frozen=True, eq=False)
class SampleCounts:
    """How many samples every evaluation of a run takes."""

    # test samples, training samples, and test samples for each device's own model, in all
    # evaluations but the last
    curve: tuple[int, int, int]
    test: int  # test samples that there are: the last evaluation takes all of them
    agree: NDArray[np.bool_]  # bool [n]: whether all devices hold one model after each iteration
    partitions: Sequence[Partition]  # who holds which samples, one per seed

    def at(self, iteration: int) -> tuple[int, int, int]:
        """Like ``curve``, after an iteration (from 0)."""
        on_test, on_train, each = self.curve
        if iteration + 1 == len(self.agree):
            on_test = each = self.test
        return on_test, on_train, each

    def columns(self, iterations: NDArray[np.int64]) -> dict[str, Any]:
        """The counts of a `Trace` after some iterations (from 0), int64 [evaluations, S] each."""
        trained = [int(train_sizes(one, self.curve[1]).sum()) for one in self.partitions]
        rows = np.zeros((len(iterations), 3, len(self.partitions)), np.int64)
        for row, t in zip(rows, iterations.tolist(), strict=True):
            on_test, _, each = self.at(t)
            row[0], row[1], row[2] = on_test, trained, on_test if self.agree[t] else each
        return {name: rows[:, k] for k, name in enumerate(COUNTS)}


def curve_samples(
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


def sample_counts(
    share: float, trained: float, devices: int, test: int, device_samples: int
) -> tuple[int, int, int]:
    """How many samples curves are evaluated on, so that evaluation stays a small share.

    Half of the allowance goes to the mean model's test accuracy, a sixth to its training loss
    and a third to the devices' own models where these differ from it; each has a floor that is
    never undercut, and grows by doubling, so that similar schedules share a compilation.
    """
    device_samples = min(device_samples, test)
    if share == 0:
        return test, test, device_samples
    allowance = share * _PASSES * trained
    on_test = _doubled(_LEAST_TEST, allowance / 2)
    on_train = _doubled(_LEAST_TRAIN, allowance / 6)
    each = _doubled(_LEAST_DEVICE, allowance / 3 / devices)
    on_test, each = min(test, on_test), min(device_samples, each)
    return max(on_test, each), on_train, each


def _doubled(least: int, most: float) -> int:
    while 2 * least <= most:
        least *= 2
    return least


def train_sizes(partition: Partition, on_train: int) -> NDArray[np.int64]:
    """How many of its samples each device puts into the training loss: alike, if it has so many."""
    return np.minimum(partition.sizes, -(-on_train // partition.devices))
