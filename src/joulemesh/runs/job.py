"""One run to be carried out: what is trained, and the folder that keeps it."""

from __future__ import annotations

__all__ = ["Job", "prepare"]

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.chosen import device_names
from joulemesh.data.naming import named_refusals
from joulemesh.errors import ScenarioError
from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.account import account_of
from joulemesh.metrics.losses import reported
from joulemesh.planning.account import Account
from joulemesh.planning.drawn import carried_out
from joulemesh.planning.static import plan as make_plan
from joulemesh.results.result import ADAPTIVE, Chunk, Result, steps_per_round
from joulemesh.runs.accounts import Pricing
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.formats import trace_of
from joulemesh.runs.identity import repetition_seeds, start_of
from joulemesh.scenario import Scenario
from joulemesh.setup.from_plan import schedule_of
from joulemesh.setup.learner import AnyLearner, learner_of
from joulemesh.setup.outputs import with_outputs_noted
from joulemesh.setup.prepare import partitions, the_dataset, the_model, with_data
from joulemesh.training.jax.checkpoint import Checkpoints
from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.platform import give_back_memory
from joulemesh.training.learner import Learner
from joulemesh.training.options import Options
from joulemesh.training.trace import Trace
from joulemesh.views.words import dataset_words


@dataclass(frozen=True, eq=False)
class Job:
    """A scenario made ready to be carried out.

    Attributes:
        pricing: what joules and seconds come from.
        learner: what trains.
        own_model: whether the model is the user's own, not the scenario's.
        method: what is run in place of the plan, or None.
        equal: what decides how long a method runs, or None.
    """

    pricing: Pricing
    learner: AnyLearner
    own_model: bool
    method: str | None = None
    equal: str | None = None

    @property
    def scenario(self) -> Scenario:
        """What is carried out."""
        return self.pricing.reserve.scenario

    @property
    def steps_per_round(self) -> NDArray[np.int64]:
        """int64 [seeds, devices]: SGD steps in one round of each device."""
        return steps_per_round(self.scenario, self.learner.partitions)

    def start(self) -> dict[str, Any]:
        """Everything that decides the bits, as plain values."""
        learner = self.learner
        return {
            **start_of(self.scenario, learner.seeds, learner.model.library),
            "method": self.method,
            "equal": self.equal,
            "learned": {
                "dataset": dataset_words(learner.dataset.name),
                "model": learner.model.name,
            },
            "deterministic": learner.options.deterministic,
            "identity": learner.identity(),
        }

    def open_folder(
        self, out: str | Path | None, resume: bool, stack: ExitStack
    ) -> RunFolder | None:
        """Make the run's folder, or look at the run in it.

        Args:
            out: the folder, if there is one.
            resume: go on with the run in it.
            stack: holds the folder until the run is over.

        Returns:
            The folder; of several processes only the leader's may be looked at.
        """
        if out is None and resume:
            raise ScenarioError("resume needs the run's folder: give out (--out DIR)")
        asked = f"{self.scenario.to_toml()} {self.method} {self.equal} {out is None} {resume}"
        wanted = f"{self.learner.digest()} {asked}"
        hosts.same(hashlib.sha256(wanted.encode()).hexdigest(), "scenario, data or option")
        if out is None:
            return None
        folder = RunFolder(out)
        hosts.on_leader(partial(self._open, folder, resume, stack))
        return folder

    def _open(self, folder: RunFolder, resume: bool, stack: ExitStack) -> str:
        stack.enter_context(folder.held(resume=resume))
        start, learner = self.start(), self.learner
        if not folder.started:
            held, own = learner.partitions[0], self.own_model
            folder.begin(self.pricing.reserve, start, learner.dataset, held, own_model=own)
            return ""
        folder.require_start(start)
        if folder.finished:
            folder.refuse_damage(remedy="restore it from a copy, or run the scenario again")
        else:
            folder.take_up()
        return ""

    def resume_or_begin(self, folder: RunFolder | None) -> tuple[Any, Trace | None]:
        """The state that the run in a folder was left in and its evaluations, or the beginning."""
        done = 0
        if folder is not None:
            done = int(hosts.on_leader(lambda: str(folder.completed)))
        if folder is None or done == 0:
            return self.learner.begin(), None
        learner: Learner[Any] = self.learner
        state, beside = Checkpoints(folder.checkpoint).restore(learner, done)
        self.pricing.restore(beside)
        if done == self.learner.schedule.iterations and hosts.leads():
            self.pricing.settled(folder.account())
        text = hosts.on_leader(folder.metrics_text)
        wide = self.learner.options.precision == "float64"
        score = reported(self.scenario.training).score
        return state, trace_of(text, self.learner.seeds, np.float64 if wide else np.float32, score)

    def result(
        self,
        state: Any,
        trace: Trace,
        *,
        setup_s: float,
        chunks: tuple[Chunk, ...],
        target: float | None,
    ) -> Result:
        """What came of it."""
        learner = self.learner
        return Result(
            self.pricing.account,
            trace,
            learner.mean_params(state),
            learner.seeds,
            learner.dataset,
            learner.partitions,
            setup_s,
            chunks,
            learner.model.name,
            self.own_model,
            target,
            self.method or ADAPTIVE,
            learner.model.library,
        )


def prepare(
    scenario: Scenario,
    model: Any,
    data: Any,
    seeds: int | Sequence[int],
    what: tuple[str | None, str | None] = (None, None),
    *,
    deterministic: bool,
    on_stage: Callable[[str], None],
) -> Job:
    """Load, plan and place what a run trains.

    Args:
        scenario: what is asked.
        model: the user's own, in place of the scenario's.
        data: the user's own, in place of the scenario's.
        seeds: how many repetition seeds, or which.
        what: the method to run in place of the plan, and what is equal.
        deterministic: ask XLA for kernels that give the same bits in every run.
        on_stage: called with what is begun.
    """
    with named_refusals(lambda: device_names(scenario)):
        return _prepared(scenario, model, data, seeds, what, deterministic, on_stage)


def _prepared(
    scenario: Scenario,
    model: Any,
    data: Any,
    seeds: int | Sequence[int],
    what: tuple[str | None, str | None],
    deterministic: bool,
    on_stage: Callable[[str], None],
) -> Job:
    on_stage("loading data")
    dataset = the_dataset(scenario, data)
    scenario = with_data(scenario, data)
    learned = the_model(scenario, model, dataset)
    before = len(dataset.notes)
    dataset = with_outputs_noted(scenario, learned, model, dataset)
    for note in dataset.notes[before:]:
        on_stage(f"note: {note}")
    on_stage("planning")
    chosen = repetition_seeds(scenario, seeds)
    method, equal = what
    if method is None:
        plan = carried_out(make_plan(scenario, parameters=learned.parameters, data=dataset))
        pricing, schedule, exchange = Pricing(plan), schedule_of(plan), None
        samples = plan.work.round_samples
    else:
        setting = Setting(scenario, equal, chosen, model=learned, data=dataset)
        contender = build(method, setting)
        pricing, equal = _priced(setting, contender), setting.equal
        schedule, exchange = contender.schedule, contender.exchange
        samples = setting.work.round_samples
    give_back_memory()  # planning many devices leaves holes, as does placing them
    parts = partitions(scenario, dataset, chosen, samples)
    options = Options.from_scenario(scenario.training, deterministic=deterministic)
    learner = learner_of(learned, dataset, parts, schedule, options, chosen, own_exchange=exchange)
    return Job(pricing, learner, model is not None, method, equal)


def _priced(setting: Setting, contender: Contender) -> Pricing:
    """The price of a method: that of its plan if it has one, or settled by what was sent."""
    if contender.plan is not None:
        return Pricing(contender.plan)
    if contender.settle is None:
        return Pricing(account_of(setting, contender))
    count = len(setting.seeds)

    def settle(sent: Any) -> Account:
        ledgers = [contender.ledger(sent, seed) for seed in range(count)]
        return account_of(setting, contender, ledgers)

    return Pricing(account_of(setting, contender), settle)
