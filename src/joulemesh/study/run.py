"""Carry out a scenario: plan it, train it to the plan, keep everything."""

from __future__ import annotations

__all__ = ["Job", "Progress", "carry_out", "left_in", "prepare", "run"]

import hashlib
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.cache import user_cache
from joulemesh.base.errors import ScenarioError, named_refusals
from joulemesh.base.machine import collect_memory
from joulemesh.data.dataset import dataset_words
from joulemesh.data.load import device_names
from joulemesh.methods import Contender, Setting, build
from joulemesh.methods.setting import account_of
from joulemesh.metrics import reported, score_metric
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Account
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Scenario
from joulemesh.study.accounts import Pricing
from joulemesh.study.folder import RunFolder
from joulemesh.study.formats import trace_of
from joulemesh.study.identity import chosen_seeds
from joulemesh.study.request import Progress, RunRequest
from joulemesh.study.result import ADAPTIVE, Chunk, Metrics, Result, steps_per_round
from joulemesh.study.result_worlds import WorldsResult
from joulemesh.study.sinks import Kept, Shown, Stages, Timed, Told
from joulemesh.study.target import check_target
from joulemesh.study.worlds import WorldsFolder, over_worlds
from joulemesh.training import hosts
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.driver import Sink, interrupts, train
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.learner import Learner
from joulemesh.training.learners import AnyLearner, configured, learner_of
from joulemesh.training.options import Options
from joulemesh.training.prepare import (
    partitions,
    said_loss,
    the_dataset,
    the_model,
    with_data,
    with_outputs_noted,
)
from joulemesh.training.trace import Trace


@overload
def run(scenario: Scenario, *, worlds: None = None, **options: Any) -> Result: ...
@overload
def run(scenario: Scenario, *, worlds: int, **options: Any) -> WorldsResult: ...
def run(  # type: ignore[misc]  # names and types of the options are checked when it is called
    scenario: Scenario,
    *,
    model: Any = None,
    data: Any = None,
    loss: Any = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    worlds: int | None = None,
    method: str | None = None,
    equal: str | None = None,
    resume: bool = False,
    deterministic: bool = False,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_metrics: Callable[[Metrics], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Result | WorldsResult:
    """Train on all devices as the plan says, or as another method does.

    In a program of several processes (``jax.distributed``) all of them call this alike, and all
    get the result; process 0 alone writes, and calls ``on_progress``, ``on_metrics`` and
    ``on_stage``.

    Args:
        scenario: what is asked.
        model: the user's own, as a pair ``(init(key), apply(params, x))``, a Flax module, a PyTorch
            ``nn.Module`` (whose parameters every seed then begins with) or a class of such, or a
            ``joulemesh.models.Model``; the scenario's unless given.
        data: the user's own, as a ``Dataset``, the path of a file (``.csv``, ``.tsv``, ``.parquet``
            or ``.npz``), a pandas data frame with a column of labels, or a mapping or tuple of
            x_train, y_train, x_test, y_test; the scenario's unless given. ``[training]`` says how
            to read it (``label``, ``test_fraction``, ``partition``, ``normalize`` and so on).
        loss: what is minimised, in place of ``training.loss``: a name, a function of outputs and
            targets that gives one value per sample (of JAX arrays or, for a PyTorch module, of
            tensors), or a ``joulemesh.metrics.Loss``.
        out: a new folder to keep the run in.
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world, and run in one program.
        worlds: how many worlds to run in, one after another: the scenario's own, and others whose
            seeds are higher by whole millions. They redraw what is drawn from the scenario's seed:
            placement, batteries and other ranges, channel. The scenario's own alone unless given.
        method: what to run in place of the plan, for instance ``"fixed:3"`` or ``"d-psgd"``: any
            method of `joulemesh.compare`. Resumed, a run has the method that it was started with.
        equal: how long a method runs, as in `joulemesh.compare`.
        resume: go on with the run in ``out``, if there is one.
        deterministic: ask XLA for kernels that give the same bits in every run.
        target: accuracy, or other score, to which joules and seconds are reported; 95 % of the
            final accuracy unless given.
        on_progress: called after every chunk.
        on_metrics: called with a dict for every evaluation and seed, a row of ``metrics.csv``, once
            it is kept: a run that is stopped and resumed tells each of them once. Where
            ``worlds`` is given a row also has the number of its ``world``.
        on_stage: called with what is begun: ``"loading data"``, ``"planning"``, ``"compiling"``,
            ``"training"``, ``"evaluating"`` and ``"writing"``; and with ``"note: …"`` for what a
            user should know before training begins.

    Returns:
        The result; where ``worlds`` is given a `WorldsResult`, in which a world that cannot be
        planned, or in which training diverges, is named with the reason.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"plan.iterations": 10})
    >>> result = joulemesh.run(scenario)
    >>> result.accuracy.shape, bool(result.energy_j[-1] <= result.plan.energy_budget_j.sum())
    ((2,), True)
    """
    given = {name: value for name, value in locals().items() if name != "loss"}
    given["scenario"] = said_loss(scenario, loss)
    request = RunRequest.of(**given)
    check_target(target, score_metric(reported(request.scenario.training).score))
    if worlds is None:
        return carry_out(request)

    def one(k: int, own: RunRequest) -> Result:
        if on_progress is not None:
            own = own.having(on_progress=lambda step: on_progress(replace(step, world=k)))
        if on_metrics is not None:
            own = own.having(on_metrics=lambda row: on_metrics({"world": k, **row}))
        return carry_out(own)

    return over_worlds(request, one)


def carry_out(request: RunRequest) -> Result:
    """Carry out a request in the scenario's own world."""
    begun = time.perf_counter()
    configured(request.scenario, request.model, user_cache() / "xla")
    stage = request.on_stage
    if stage is None or not hosts.leads():
        stage = _ignore
    job = prepare(_with_method(request), stage)
    stage("compiling")
    with ExitStack() as stack, hosts.losses_named():
        folder = job.open_folder(stack)
        result = _trained(job, folder, begun, stage)
        stage("writing")
        del job  # the room is for what is written of many devices
        collect_memory()
        hosts.on_leader(partial(_write, folder, result))
    return result


def _with_method(request: RunRequest) -> RunRequest:
    """The method to run in place of the plan and what is equal, as given or as a run was begun."""
    if request.resume and request.out is not None:
        left = hosts.on_leader(partial(left_in, request.out))
        request = request.resumed(RunRequest.from_text(left) if left else None)
    method = request.method
    if method is None or method.strip() == ADAPTIVE:
        if request.equal is not None and method is None:
            raise ScenarioError(
                f"equal = {request.equal!r} needs a method: give one, such as fixed:3, or leave it "
                "out"
            )
        return request.having(method=None, equal=None)
    return request.having(method=method.strip())


def left_in(out: Path) -> str:
    """What the run or the worlds in a folder were asked to do, as text; empty of a new folder."""
    left = WorldsFolder(out).request() or RunFolder(out).request()
    return "" if left is None else left.to_text()


def _ignore(stage: str) -> None:
    """Default `on_stage`."""


def _trained(
    job: Job,
    folder: RunFolder | None,
    begun: float,
    stage: Callable[[str], None],
) -> Result:
    """Train what is left of a job.

    Args:
        job: what is carried out.
        folder: of the run, if it has one.
        begun: when the run was.
        stage: called with what is begun.
    """
    state, before = job.resume_or_begin(folder)
    setup_s = time.perf_counter() - begun
    collect_memory()
    timed = Timed(job.steps_per_round)
    on_metrics, on_progress = job.request.on_metrics, job.request.on_progress
    told = Told(job.pricing, on_metrics) if on_metrics is not None and hosts.leads() else None
    sinks: list[Sink] = [timed, job.pricing]
    if folder is not None:
        sinks.append(Kept(folder, job.pricing, timed, setup_s, told))
    elif told is not None:
        sinks.append(told)
    if on_progress is not None and hosts.leads():
        measured = before is not None and len(before.iteration) > 0
        accuracy = float(before.test_score[-1].mean()) if before and measured else math.nan
        sinks.append(Shown(job.pricing, on_progress, int(state.iteration), accuracy))
    sinks.append(Stages(stage))
    with interrupts() as interrupt:
        state, traces = train(job.learner, sinks, state=state, interrupt=interrupt)
    collect_memory()
    if before is not None:  # what was sent before is not among the evaluations that are kept
        traces = [before, *(replace(trace, sent=()) for trace in traces)]
    return job.result(
        state,
        Trace.join(traces),
        setup_s=setup_s,
        chunks=tuple(timed.chunks),
    )


def _write(folder: RunFolder | None, result: Result) -> str:
    if folder is not None and not folder.finished:
        folder.finish(result)
    return ""


@dataclass(frozen=True, eq=False)
class Job:
    """A scenario made ready to be carried out.

    Attributes:
        pricing: what joules and seconds come from.
        learner: what trains.
        request: what it is asked to do, with what is equal, if it is a method's, decided.
    """

    pricing: Pricing
    learner: AnyLearner
    request: RunRequest

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
        learned = {"dataset": dataset_words(learner.dataset.name), "model": learner.model.name}
        return {
            **self.request.record(learner.model.library, learner.identity()),
            "learned": learned,
        }

    def open_folder(self, stack: ExitStack) -> RunFolder | None:
        """Make the run's folder, or look at the run in it.

        Args:
            stack: holds the folder until the run is over.

        Returns:
            The folder; of several processes only the leader's may be looked at.
        """
        out, resume = self.request.out, self.request.resume
        if out is None and resume:
            raise ScenarioError("resume needs the run's folder: give out (--out DIR)")
        asked = f"{self.scenario.to_toml()} {self.request.kept()} {out is None} {resume}"
        wanted = f"{self.learner.digest()} {asked}"
        hosts.same(hashlib.sha256(wanted.encode()).hexdigest(), "scenario, data or option")
        if out is None:
            return None
        folder = RunFolder(out)
        hosts.on_leader(partial(self._open, folder, stack))
        return folder

    def _open(self, folder: RunFolder, stack: ExitStack) -> str:
        stack.enter_context(folder.held(resume=self.request.resume))
        start, learner = self.start(), self.learner
        if not folder.started:
            held, own = learner.partitions[0], self.request.model is not None
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
            self.request.model is not None,
            self.request.target,
            self.request.method or ADAPTIVE,
            learner.model.library,
        )


def prepare(request: RunRequest, on_stage: Callable[[str], None] = _ignore) -> Job:
    """Load, plan and place what a run trains.

    Args:
        request: what is asked.
        on_stage: called with what is begun.
    """
    with named_refusals(lambda: device_names(request.scenario)):
        return _prepared(request, on_stage)


def _prepared(request: RunRequest, on_stage: Callable[[str], None]) -> Job:
    scenario, model, data = request.scenario, request.model, request.data
    on_stage("loading data")
    dataset = the_dataset(scenario, data)
    scenario = with_data(scenario, data)
    learned = the_model(scenario, model, dataset)
    before = len(dataset.notes)
    dataset = with_outputs_noted(scenario, learned, model, dataset)
    for note in dataset.notes[before:]:
        on_stage(f"note: {note}")
    on_stage("planning")
    chosen = chosen_seeds(scenario, request.seeds)
    equal = request.equal
    if request.method is None:
        plan = carried_out(make_plan(scenario, parameters=learned.parameters, data=dataset))
        pricing, schedule, exchange = Pricing(plan), schedule_of(plan), None
        samples = plan.work.round_samples
    else:
        setting = Setting(scenario, equal, chosen, model=learned, data=dataset)
        contender = build(request.method, setting)
        pricing, equal = _priced(setting, contender), setting.equal
        schedule, exchange = contender.schedule, contender.exchange
        samples = setting.work.round_samples
    collect_memory()  # planning many devices leaves holes, as does placing them
    parts = partitions(scenario, dataset, chosen, samples)
    options = Options.from_scenario(scenario.training, deterministic=request.deterministic)
    learner = learner_of(learned, dataset, parts, schedule, options, chosen, own_exchange=exchange)
    return Job(pricing, learner, request.having(scenario=scenario, seeds=chosen, equal=equal))


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
