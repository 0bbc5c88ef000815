"""What a run learned, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Partition
from joulemesh.metrics import ACCURACY
from joulemesh.models.curves import COUNTS, score_columns
from joulemesh.training.arrays import tree_flatten, tree_leaves, tree_map
from joulemesh.training.schedule import Options, Schedule

Floats = NDArray[np.floating]

_APART = ("own", "sent", "score")  # mappings and trees of arrays, and a name


@dataclass(frozen=True, eq=False)
class Trace:
    """Evaluations, [evaluations, seeds] each, and what every exchange reported as sent.

    Attributes:
        iteration: int64 [evaluations], iterations completed.
        train_loss: of the mean model, Σ_i p_i F_i with regulariser, on a fixed sample of every
            active device's data.
        test_loss: of the mean model (the weighted mean of the active devices).
        test_score: of the mean model: its accuracy, or what else ``score`` names.
        device_score_mean: of the active devices' own models.
        device_score_min: the lowest of them.
        device_score_max: the highest.
        drift: relative consensus error sqrt(mean_i ||w_i - w̄||²)/||w̄|| before the exchange.
        consensus: the same after it.
        test_samples: int64, on how many test samples; all of them in the last iteration.
        train_samples: int64, on how many training samples the training loss.
        device_samples: int64, on how many of the test samples the devices' own models; all of
            them where an exact exchange has left the devices with one model. If fewer, they are
            compared with the mean model on these, and their accuracy is its accuracy (on all)
            plus the difference.
        own: the curves of further metrics (``training.metrics``), by name.
        sent: what a method's own exchange reported, a pytree of [iterations, seeds, ...].
        score: the metric that runs are compared by; its columns are called after it.
    """

    iteration: NDArray[np.int64]
    train_loss: Floats
    test_loss: Floats
    test_score: Floats
    device_score_mean: Floats
    device_score_min: Floats
    device_score_max: Floats
    drift: Floats
    consensus: Floats
    test_samples: NDArray[np.int64]
    train_samples: NDArray[np.int64]
    device_samples: NDArray[np.int64]
    own: Mapping[str, Floats] = field(default_factory=dict)
    sent: Any = ()
    score: str = ACCURACY.name

    def __getattr__(self, name: str) -> Floats:
        """The score's columns by their own names, as in ``test_accuracy``."""
        if not name.startswith("_"):
            for known, column in score_columns(self.score).items():
                if name == column:
                    found: Floats = getattr(self, known)
                    return found
        raise AttributeError(f"a trace of {self.score} has no {name}")

    def _named(self) -> dict[str, str]:
        return {name: name for name in self._columns()} | score_columns(self.score)

    def curve(self, name: str) -> Floats:
        """A curve by name, those of further metrics included."""
        found: Floats = self.own[name] if name in self.own else getattr(self, name)
        return found

    @classmethod
    def _columns(cls) -> list[str]:
        return [one.name for one in fields(cls) if one.name not in _APART]

    @classmethod
    def join(cls, traces: Sequence[Trace]) -> Trace:
        """Concatenate the traces of consecutive chunks."""
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(trace, name) for trace in traces])
            for name in cls._columns()
        }
        joined["own"] = {
            name: np.concatenate([trace.own[name] for trace in traces]) for name in traces[0].own
        }
        sent = tree_map(lambda *parts: np.concatenate(parts), *[trace.sent for trace in traces])
        return cls(**joined, sent=sent, score=traces[0].score)

    @classmethod
    def of(
        cls,
        columns: Mapping[str, NDArray[Any]],
        *,
        score: str = ACCURACY.name,
        own: Mapping[str, Floats] | None = None,
        sent: Any = (),
    ) -> Trace:
        """A trace of columns by their names."""
        names = score_columns(score)
        fields_of = {name: columns[names.get(name, name)] for name in cls._columns()}
        return cls(**fields_of, own=own or {}, sent=sent, score=score)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything by name, what was sent by position; `from_arrays` takes it back."""
        columns = {column: getattr(self, name) for name, column in self._named().items()}
        columns |= dict(self.own)
        sent = {f"sent.{k}": np.asarray(leaf) for k, leaf in enumerate(tree_leaves(self.sent))}
        return columns | sent

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], like: Trace) -> Trace:
        """The trace that `to_arrays` gave."""
        names = set(like._named().values())
        columns: dict[str, Any] = {name: arrays[name] for name in names}
        own = {name: arrays[name] for name in like.own}
        leaves = [arrays[f"sent.{k}"] for k in range(len(arrays) - len(names) - len(own))]
        sent = tree_flatten(like.sent)[1](leaves)
        return cls.of(columns, score=like.score, own=own, sent=sent)

    def part(self, evaluations: NDArray[Any], seeds: slice) -> Trace:
        """Some evaluations of some seeds; what was sent is left out."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in self._columns()}
        iteration = columns.pop("iteration")[evaluations]
        some = {name: values[evaluations, seeds] for name, values in columns.items()}
        own = {name: values[evaluations, seeds] for name, values in self.own.items()}
        return Trace(iteration, **some, own=own, score=self.score)

    @property
    def last(self) -> Trace:
        """The last evaluation alone: of a finished run, that on all test samples."""
        columns: dict[str, Any] = {name: getattr(self, name)[-1:] for name in self._columns()}
        own = {name: values[-1:] for name, values in self.own.items()}
        return Trace(**columns, own=own, score=self.score)


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
