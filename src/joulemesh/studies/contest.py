"""Train one method at several seeds in one program, and price what it did."""

from __future__ import annotations

__all__ = ["Contest", "Learning"]

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from joulemesh.data import Dataset
from joulemesh.methods import Contender, Setting
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.scenario import Scenario
from joulemesh.setup.learner import AnyLearner, learner_of
from joulemesh.setup.prepare import partitions
from joulemesh.studies.grid import evaluations
from joulemesh.studies.record import Record
from joulemesh.studies.sinks import Accuracy, records_of
from joulemesh.studies.unfinished import Unfinished
from joulemesh.training.digests import digest
from joulemesh.training.driver import DivergedError, Sink, interrupts, train, train_seeds
from joulemesh.training.interrupt import Interrupt
from joulemesh.training.learner import Learner
from joulemesh.training.options import Options

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
    model: Model | TorchModel
    dataset: Dataset


class Contest:
    """One method, ready to be trained.

    Args:
        learning: model and data.
        contender: the method.
        setting: the terms of the comparison.
        folder: where trainings under way are kept, or None.
        keys: under which runs are kept, by seed; None for one that is not.
        final_only: evaluate after the last iteration only.
    """

    def __init__(
        self,
        learning: Learning,
        contender: Contender,
        setting: Setting,
        folder: Path | None = None,
        keys: Mapping[int, str | None] | None = None,
        *,
        final_only: bool = False,
    ) -> None:
        self.learning, self.contender, self.setting = learning, contender, setting
        self.folder, self.keys, self.final_only = folder, dict(keys or {}), final_only
        self._unfinished = Unfinished(None)

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
        with interrupts() as interrupt:
            once = partial(self._together, progress=progress, interrupt=interrupt)
            for seed, found in train_seeds(once, seeds):
                if isinstance(found, DivergedError):
                    yield seed, Record(diverged=found.iteration)
                else:
                    yield seed, found
            if interrupt.asked:  # in the last chunk: what it gave is kept first
                raise KeyboardInterrupt

    def _together(
        self,
        seeds: tuple[int, ...],
        progress: Callable[[int, float], None],
        interrupt: Interrupt,
    ) -> list[Record]:
        engine: Learner[Any] = self.learner(seeds)
        self._unfinished = unfinished = Unfinished(self._place(seeds))
        state = unfinished.restore(engine)
        state = engine.begin() if state is None else state
        progress(int(state.iteration), math.nan)
        sinks: list[Sink] = [unfinished, Accuracy(progress)]
        try:
            train(engine, sinks, state=state, interrupt=interrupt)
        except DivergedError:
            unfinished.remove()
            raise
        return records_of(self.contender, unfinished.trace())

    def _place(self, seeds: tuple[int, ...]) -> Path | None:
        """The folder of a training under way; None for one that cannot be kept."""
        keys = [self.keys.get(seed) for seed in seeds]
        if self.folder is None or None in keys:
            return None
        return self.folder / digest(str(key).encode() for key in keys)

    def forget(self) -> None:
        """Remove what was kept of the training under way: its runs are kept."""
        self._unfinished.remove()

    def learner(self, seeds: tuple[int, ...]) -> AnyLearner:
        """What trains all seeds together, before its beginning."""
        what, schedule = self.learning, self.contender.schedule
        samples = self.setting.work.round_samples
        return learner_of(
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
        end = (schedule.iterations,)
        at = end if self.final_only else evaluations(self.setting, self.contender.reserve)
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
