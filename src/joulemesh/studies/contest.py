"""Train one method at several seeds in one program, and price what it did."""

from __future__ import annotations

__all__ = ["Contest", "Learning"]

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from joulemesh.data import Dataset
from joulemesh.methods import Contender, Setting
from joulemesh.models.core import Model
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import partitions
from joulemesh.studies.grid import evaluations
from joulemesh.studies.record import CURVES, FloatArray, Record
from joulemesh.training.jax.engine import DivergedError, Engine
from joulemesh.training.options import Options
from joulemesh.training.trace import Trace

_EVAL_SHARE = 0.08  # of the adaptive plan's training, which evaluation may add
_MOST_SHARE = 0.99
_SMALL_TEST = 1000  # samples; a test set up to this size is always evaluated whole


@dataclass(frozen=True)
class Learning:
    """What is learned: the same for all methods.

    Attributes:
        scenario: says how the data are shared out, and the settings of training.
        model: what is trained.
        dataset: what it is trained on.
    """

    scenario: Scenario
    model: Model
    dataset: Dataset


class Contest:
    """One method, ready to be trained.

    Args:
        learning: model and data.
        contender: the method.
        setting: the terms of the comparison.
    """

    def __init__(self, learning: Learning, contender: Contender, setting: Setting) -> None:
        self.learning, self.contender, self.setting = learning, contender, setting

    def train(
        self, seeds: Sequence[int], progress: Callable[[int, float], None]
    ) -> Iterator[tuple[int, Record]]:
        """Train all seeds together; if one diverges, the others once more without it.

        Args:
            seeds: repetition seeds.
            progress: called with the iterations done and the latest accuracy.

        Yields:
            Each seed with its run, a diverged one as soon as it is known to be.
        """
        left = tuple(seeds)
        while left:
            try:
                done = self._together(left, progress)
            except DivergedError as error:
                yield error.seed, Record(diverged=error.iteration)
                left = tuple(seed for seed in left if seed != error.seed)
            else:
                yield from zip(left, done, strict=True)
                return

    def _together(
        self, seeds: tuple[int, ...], progress: Callable[[int, float], None]
    ) -> list[Record]:
        engine, traces = self._engine(seeds), []
        state, latest = engine.init(), float("nan")
        progress(0, latest)
        for state, trace in engine.train(state):  # noqa: B020 (each state consumes the one before)
            traces.append(trace)
            if len(trace.iteration):
                latest = float(trace.test_accuracy[-1].mean())
            progress(int(state.iteration), latest)
        return self._records(engine, Trace.join(traces))

    def _engine(self, seeds: tuple[int, ...]) -> Engine:
        what, schedule = self.learning, self.contender.schedule
        samples = self.setting.work.round_samples
        return Engine(
            what.model,
            what.dataset,
            partitions(what.scenario, what.dataset, seeds, samples),
            schedule,
            self.options(),
            seeds,
            own_exchange=self.contender.exchange,
        )

    def options(self) -> Options:
        """The scenario's settings, with evaluations that are fair between methods.

        All methods are evaluated on the same grids of joules and of seconds, and on the same
        samples: curves can be compared, and programs of one shape share a compilation. The mean
        model is evaluated on all test samples: the target is a share of a final accuracy on all
        of them, and some of them may be harder than the rest by more than methods differ.
        """
        training, schedule = self.learning.scenario.training, self.contender.schedule
        at = evaluations(self.setting, self.contender.reserve)
        test = len(self.learning.dataset.y_test)
        if test <= _SMALL_TEST:
            return Options.from_scenario(
                training, eval_at=at, eval_share=0.0, eval_device_samples=test
            )
        samples = self.setting.work.round_samples
        usual = self.setting.rounds * float(samples.sum()) * training.eval_every
        own = float((schedule.rounds * samples).sum()) / len(at)
        share = min(_EVAL_SHARE * usual / max(own, 1.0), _MOST_SHARE)
        return Options.from_scenario(training, eval_at=at, eval_share=share, eval_test_samples=test)

    def _records(self, engine: Engine, trace: Trace) -> list[Record]:
        """One run for each seed; its last evaluation, on all test samples, is the final one."""
        curves = np.stack([np.asarray(getattr(trace, name), np.float64) for name in CURVES])
        at, records = trace.iteration - 1, []
        for seed_index in range(len(engine.seeds)):
            ledger = self.contender.ledger(trace.sent, seed_index)
            paid = [float(column.sum()) for column in (ledger.compute_j, ledger.exchange_j)]
            paid += [float(ledger.server_j.sum()), float(ledger.bits.sum())]
            records.append(
                Record(
                    trace.iteration,
                    curves[:, :, seed_index].T,
                    curves[:, -1, seed_index],
                    _so_far(ledger.energy_j.sum(axis=1))[at],
                    _so_far(ledger.latency_s)[at],
                    ledger.spent_j,
                    np.array(paid),
                    samples=np.stack([trace.test_samples, trace.device_samples], -1)[:, seed_index],
                )
            )
        return records


def _so_far(each: FloatArray) -> FloatArray:
    return np.cumsum(each, dtype=np.float64)
