"""Carry out a scenario: plan it, train it to the plan, keep everything."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, Unpack, overload

from joulemesh.errors import ScenarioError
from joulemesh.files.cache import user_cache
from joulemesh.metrics.losses import reported
from joulemesh.metrics.metric import score_metric
from joulemesh.results.result import ADAPTIVE, Metrics, Result
from joulemesh.results.result_worlds import WorldsResult
from joulemesh.results.target import check_target
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.job import Job, prepare
from joulemesh.runs.over_worlds import over_worlds
from joulemesh.runs.progress import Progress
from joulemesh.runs.sinks import Kept, Shown, Stages, Timed, Told
from joulemesh.runs.worlds_folder import Asked
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import said_loss
from joulemesh.training.driver import Sink, interrupts, train
from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.platform import configure, give_back_memory
from joulemesh.training.trace import Trace

__all__ = ["Progress", "RunOptions", "run"]


class RunOptions(TypedDict, total=False):
    """The options of `run` that do not change what it returns."""

    model: Any
    data: Any
    out: str | Path | None
    seeds: int | Sequence[int]
    method: str | None
    equal: str | None
    resume: bool
    deterministic: bool
    target: float | None
    on_progress: Callable[[Progress], None] | None
    on_metrics: Callable[[Metrics], None] | None
    on_stage: Callable[[str], None] | None


@overload
def run(scenario: Scenario, *, worlds: None = None, **options: Unpack[RunOptions]) -> Result: ...
@overload
def run(scenario: Scenario, *, worlds: int, **options: Unpack[RunOptions]) -> WorldsResult: ...
def run(
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
    scenario = said_loss(scenario, loss)
    check_target(target, score_metric(reported(scenario.training).score))
    options = RunOptions(
        model=model,
        data=data,
        out=out,
        seeds=seeds,
        method=method,
        equal=equal,
        resume=resume,
        deterministic=deterministic,
        target=target,
        on_progress=on_progress,
        on_metrics=on_metrics,
        on_stage=on_stage,
    )
    if worlds is None:
        return _run(scenario, options)

    def one(k: int, mine: Scenario, folder: Path | None) -> Result:
        own: RunOptions = {**options, "out": folder}
        if on_progress is not None:
            own["on_progress"] = lambda step: on_progress(replace(step, world=k))
        if on_metrics is not None:
            own["on_metrics"] = lambda row: on_metrics({"world": k, **row})
        return _run(mine, own)

    wanted = Asked(scenario, worlds, seeds, deterministic, method, equal)
    return over_worlds(wanted, one, out=out, resume=resume)


def _run(scenario: Scenario, options: RunOptions) -> Result:
    """Carry out a scenario in its own world."""
    begun = time.perf_counter()
    configure(cache_dir=user_cache() / "xla")
    stage = options["on_stage"]
    if stage is None or not hosts.leads():
        stage = _nobody
    job = prepare(
        scenario,
        options["model"],
        options["data"],
        options["seeds"],
        _method(options),
        deterministic=options["deterministic"],
        on_stage=stage,
    )
    stage("compiling")
    with ExitStack() as stack, hosts.losses_named():
        folder = job.open_folder(options["out"], options["resume"], stack)
        result = _trained(job, folder, options, begun, stage)
        stage("writing")
        del job  # the room is for what is written of many devices
        give_back_memory()
        hosts.on_leader(partial(_write, folder, result))
    return result


def _method(options: RunOptions) -> tuple[str | None, str | None]:
    """The method to run in place of the plan and what is equal, as given or as a run was begun."""
    method, equal, out = options["method"], options["equal"], options["out"]
    if options["resume"] and out is not None:
        left = json.loads(hosts.on_leader(RunFolder(out).method_left))
        method, equal = (method or left[0], equal or left[1])
    if method is None or method.strip() == ADAPTIVE:
        if equal is not None and method is None:
            raise ScenarioError(
                f"equal = {equal!r} needs a method: give one, such as fixed:3, or leave it out"
            )
        return None, None
    return method.strip(), equal


def _nobody(stage: str) -> None:
    """Nobody wants to know what is begun."""


def _trained(
    job: Job,
    folder: RunFolder | None,
    options: RunOptions,
    begun: float,
    stage: Callable[[str], None],
) -> Result:
    """Train what is left of a job.

    Args:
        job: what is carried out.
        folder: of the run, if it has one.
        options: as given.
        begun: when the run was.
        stage: called with what is begun.
    """
    state, before = job.resume_or_begin(folder)
    setup_s = time.perf_counter() - begun
    give_back_memory()
    timed = Timed(job.steps_per_round)
    on_metrics, on_progress = options["on_metrics"], options["on_progress"]
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
    give_back_memory()
    if before is not None:  # what was sent before is not among the evaluations that are kept
        traces = [before, *(replace(trace, sent=()) for trace in traces)]
    return job.result(
        state,
        Trace.join(traces),
        setup_s=setup_s,
        chunks=tuple(timed.chunks),
        target=options["target"],
    )


def _write(folder: RunFolder | None, result: Result) -> str:
    if folder is not None and not folder.finished:
        folder.finish(result)
    return ""
