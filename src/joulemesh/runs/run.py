"""Carry out a scenario: plan it, train it to the plan, keep everything."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files.cache import user_cache
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as make_plan
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.formats import trace_of
from joulemesh.runs.identity import repetition_seeds, start_of
from joulemesh.runs.interrupt import Interrupt
from joulemesh.runs.result import Chunk, Metrics, Result, cumulative, metrics, steps_per_round
from joulemesh.runs.worlds import WorldsResult, over_worlds
from joulemesh.scenario import Scenario
from joulemesh.setup.from_plan import schedule_of
from joulemesh.setup.prepare import partitions, the_dataset, the_model, with_data
from joulemesh.studies.target import check_target
from joulemesh.training.jax.checkpoint import Checkpoints
from joulemesh.training.jax.distributed import hosts
from joulemesh.training.jax.engine import Engine, State
from joulemesh.training.jax.platform import configure, give_back_memory
from joulemesh.training.options import Options
from joulemesh.training.trace import Trace
from joulemesh.views.words import dataset_words

__all__ = ["Progress", "mean_params", "run"]

_TOGETHER = 64  # devices whose parameters are averaged at once
_SAVE_EVERY_S = 0.25
# With several processes a stop signal can arrive more than once (terminal, parent, scheduler);
# repeats within this time are ignored.
_SETTLE_S = 2.0


@dataclass(frozen=True)
class Progress:
    """How far a run has come, after a chunk.

    Attributes:
        completed: iterations done.
        iterations: iterations in all.
        accuracy: latest test accuracy of the mean model, mean over seeds; NaN before the first. At
            the end that of the result, on all test samples.
        energy_j: joules spent so far.
        seconds_left: estimated wall time to the end.
        world: number of the world, from 0.
    """

    completed: int
    iterations: int
    accuracy: float
    energy_j: float
    seconds_left: float
    world: int = 0


@overload
def run(
    scenario: Scenario,
    *,
    model: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    worlds: None = None,
    resume: bool = False,
    deterministic: bool = False,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_metrics: Callable[[Metrics], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Result: ...
@overload
def run(
    scenario: Scenario,
    *,
    model: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    worlds: int,
    resume: bool = False,
    deterministic: bool = False,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_metrics: Callable[[Metrics], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> WorldsResult: ...
def run(
    scenario: Scenario,
    *,
    model: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    worlds: int | None = None,
    resume: bool = False,
    deterministic: bool = False,
    target: float | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_metrics: Callable[[Metrics], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Result | WorldsResult:
    """Train on all devices as the plan says.

    In a program of several processes (``jax.distributed``) all of them call this alike, and all
    get the result; process 0 alone writes, and calls ``on_progress``, ``on_metrics`` and
    ``on_stage``.

    Args:
        scenario: what is asked.
        model: the user's own, as a pair ``(init(key), apply(params, x))``, a Flax module or a
            ``joulemesh.models.Model``; the scenario's unless given.
        data: the user's own, as a ``Dataset``, the path of a file (``.csv``, ``.tsv``, ``.parquet``
            or ``.npz``), a pandas data frame with a column of labels, or a mapping or tuple of
            x_train, y_train, x_test, y_test; the scenario's unless given. ``[training]`` says how
            to read it (``label``, ``test_fraction``, ``partition``, ``normalize`` and so on).
        out: a new folder to keep the run in.
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world, and run in one program.
        worlds: how many worlds to run in, one after another: the scenario's own, and others whose
            seeds are higher by whole millions. They redraw what is drawn from the scenario's seed:
            placement, batteries and other ranges, channel. The scenario's own alone unless given.
        resume: go on with the run in ``out``, if there is one.
        deterministic: ask XLA for kernels that give the same bits in every run.
        target: accuracy to which joules and seconds are reported; 95 % of the final accuracy
            unless given.
        on_progress: called after every chunk.
        on_metrics: called with a dict for every evaluation and seed, a row of ``metrics.csv``, once
            it is kept: a run that is stopped and resumed tells each of them once. Where
            ``worlds`` is given a row also has the number of its ``world``.
        on_stage: called with what is begun: ``"loading data"``, ``"planning"``, ``"compiling"``,
            ``"training"``, ``"evaluating"`` and ``"writing"``.

    Returns:
        The result; where ``worlds`` is given a `WorldsResult`, in which a world that cannot be
        planned, or in which training diverges, is named with the reason.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("default").override({"plan.iterations": 10})
    >>> result = joulemesh.run(scenario)
    >>> result.accuracy.shape, bool(result.energy_j[-1] <= result.plan.energy_budget_j.sum())
    ((2,), True)
    """
    check_target(target)
    if worlds is not None:

        def one(k: int, mine: Scenario, folder: Path | None) -> Result:
            return run(
                mine,
                model=model,
                data=data,
                out=folder,
                seeds=seeds,
                resume=resume,
                deterministic=deterministic,
                target=target,
                on_progress=on_progress and (lambda step: on_progress(replace(step, world=k))),
                on_metrics=on_metrics and (lambda row: on_metrics({"world": k, **row})),
                on_stage=on_stage,
            )

        return over_worlds(
            scenario, worlds, one, seeds=seeds, out=out, resume=resume, deterministic=deterministic
        )
    begun = time.perf_counter()
    configure(cache_dir=user_cache() / "xla")
    alone, leads = hosts.alone(), hosts.leads()
    stage = on_stage if on_stage is not None and leads else _nobody
    stage("loading data")
    dataset = the_dataset(scenario, data)
    scenario = with_data(scenario, data)
    learner = the_model(scenario, model, dataset)
    stage("planning")
    plan = make_plan(scenario, parameters=learner.parameters, data=dataset)
    give_back_memory()  # planning many devices leaves holes, as does placing them
    chosen = repetition_seeds(scenario, seeds)
    parts = partitions(scenario, dataset, chosen, plan.work.round_samples)
    options = Options.from_scenario(scenario.training, deterministic=deterministic)
    session = _Session(  # which alone holds the engine, to let go of it
        plan,
        Engine(learner, dataset, parts, schedule_of(plan), options, chosen),
        begun,
        own_model=model is not None,
        target=target,
    )
    stage("compiling")
    with ExitStack() as stack, hosts.losses_named():
        session.resume_or_begin(out, resume, stack)
        give_back_memory()
        with Interrupt(0.0 if alone else _SETTLE_S) as interrupt:
            while not session.finished:
                stop = session.advance(last_wish=lambda: interrupt.asked)
                if on_metrics is not None and leads:
                    session.tell(on_metrics)
                if on_progress is not None and leads:
                    on_progress(session.progress())
                if (stop or (alone and interrupt.asked)) and not session.finished:
                    raise KeyboardInterrupt
                session.engine.on_stage = stage  # not before: the first chunk is compiled
                stage("training")
        stage("writing")
        return session.finish()


def _nobody(stage: str) -> None:
    """Nobody wants to know what is begun."""


class _Session:
    """One run under way: the engine's state, what was measured, and the folder that keeps it."""

    def __init__(
        self, plan: Plan, engine: Engine, begun: float, *, own_model: bool, target: float | None
    ) -> None:
        self.plan, self.engine, self.begun, self.own_model = plan, engine, begun, own_model
        self.target = target
        self.folder: RunFolder | None = None  # of several processes only the leader has one
        self.checkpoints: Checkpoints | None = None
        self.start = {
            **start_of(plan.scenario, engine.seeds),
            "learned": {"dataset": dataset_words(engine.dataset.name), "model": engine.model.name},
            "deterministic": engine.options.deterministic,
            "identity": engine.identity(),
        }
        self.traces: list[Trace] = []
        self.chunks: list[Chunk] = []
        self.saved_at = 0.0
        self.steps = steps_per_round(plan.scenario, engine.partitions)
        # Traces and chunks that are kept on disk, and traces whose evaluations were told.
        self.kept_traces = self.kept_chunks = self.told = 0
        self.trained_s = 0.0

    def resume_or_begin(self, out: str | Path | None, resume: bool, stack: ExitStack) -> None:
        """Take up the run in the folder where it was left, or start it.

        Args:
            out: the folder, if there is one.
            resume: go on with the run in it.
            stack: holds the folder until the run is over.
        """
        engine = self.engine
        if out is None and resume:
            raise ScenarioError("resume needs the run's folder: give out (--out DIR)")
        wanted = f"{engine.fingerprint()} {self.plan.scenario.to_toml()} {out is None} {resume}"
        hosts.same(hashlib.sha256(wanted.encode()).hexdigest(), "scenario, data or option")
        hosts.meet(engine.key.mesh)
        done = int(hosts.on_leader(partial(self._open, out, resume, stack)))
        if out is not None:
            self.checkpoints = Checkpoints(RunFolder(out).checkpoint)
        restored = self.checkpoints is not None and done > 0
        self.state = (
            self.checkpoints.restore(engine, done)
            if restored and self.checkpoints is not None
            else engine.init()
        )
        if restored:
            text = hosts.on_leader(lambda: self.folder.metrics_text() if self.folder else "")
            wide = engine.options.precision == "float64"
            self.traces = [trace_of(text, engine.seeds, np.float64 if wide else np.float32)]
            self.kept_traces = self.told = 1
        self.first = self.completed
        self.setup_s = time.perf_counter() - self.begun

    def _open(self, out: str | Path | None, resume: bool, stack: ExitStack) -> str:
        """Make the folder, or look at the run in it; the text is the iterations completed."""
        if out is None:
            return "0"
        self.folder = folder = RunFolder(out)
        stack.enter_context(folder.held(resume=resume))
        if not folder.started:
            engine = self.engine
            held, own = engine.partitions[0], self.own_model
            folder.begin(self.plan, self.start, engine.dataset, held, own_model=own)
            return "0"
        folder.require_start(self.start)
        if folder.finished:
            folder.refuse_damage(remedy="restore it from a copy, or run the scenario again")
            return str(folder.completed)
        return str(folder.take_up())

    @property
    def completed(self) -> int:
        return int(self.state.iteration)

    @property
    def finished(self) -> bool:
        return self.completed >= self.plan.iterations

    def advance(self, last_wish: Callable[[], bool]) -> bool:
        """Run one chunk and keep it.

        Args:
            last_wish: asked after the chunk: is this to be the last?

        Returns:
            Whether it is for any of the processes.
        """
        start, clock = self.completed, time.perf_counter()
        self.state, trace = self.engine.run_chunk(self.state, start)
        wall = time.perf_counter() - clock
        self.trained_s += wall
        self.traces.append(trace)
        steps = self.plan.rounds[start : self.completed].sum(axis=0) * self.steps
        self.chunks.append(Chunk(self.completed, int(steps.sum()), wall))
        # Chunks shorter than a quarter of a second share a checkpoint; the leader's clock counts.
        due = self.folder is not None and time.perf_counter() - self.saved_at >= _SAVE_EVERY_S
        stop, due = hosts.any_of(last_wish(), due)
        if self.checkpoints is not None and (due or stop or self.finished):
            self._keep(self.checkpoints)
        return stop

    def _keep(self, checkpoints: Checkpoints) -> None:
        checkpoints.save(self.engine, self.state)
        hosts.on_leader(self._commit)
        self.saved_at = time.perf_counter()
        self.kept_traces = len(self.traces)
        self.kept_chunks = len(self.chunks)

    def _commit(self) -> str:
        folder = self.folder
        assert folder is not None
        new = Trace.join(self.traces[self.kept_traces :])
        folder.add_metrics(self.plan, new, self.engine.seeds)
        first = self.kept_chunks == 0
        folder.add_timings(self.setup_s if first else 0.0, self.chunks[self.kept_chunks :])
        folder.keep(self.completed)
        return ""

    def tell(self, listener: Callable[[Metrics], None]) -> None:
        """Pass on the evaluations that are kept and were not passed on before."""
        known = len(self.traces) if self.folder is None else self.kept_traces
        for trace in self.traces[self.told : known]:
            for row in metrics(self.plan, trace, self.engine.seeds):
                listener(row)
        self.told = known

    @property
    def trace(self) -> Trace:
        return Trace.join(self.traces)

    def progress(self) -> Progress:
        done, total = self.completed, self.plan.iterations
        measured = (t.test_accuracy for t in reversed(self.traces) if len(t.iteration))
        accuracy = next(measured, np.zeros((0, 1)))
        pace = self.trained_s / max(done - self.first, 1)
        return Progress(
            done,
            total,
            float(accuracy[-1].mean()) if len(accuracy) else float("nan"),
            float(cumulative(self.plan, np.array([done]))[0][0]),
            pace * (total - done),
        )

    def finish(self) -> Result:
        give_back_memory()
        result = Result(
            self.plan,
            self.trace,
            mean_params(self.engine, self.state),
            self.engine.seeds,
            self.engine.dataset,
            self.engine.partitions,
            self.setup_s,
            tuple(self.chunks),
            self.engine.model.name,
            self.own_model,
            self.target,
        )
        del self.engine, self.state  # the room is for what is written of many devices
        give_back_memory()
        hosts.on_leader(partial(self._write_result, result))
        return result

    def _write_result(self, result: Result) -> str:
        if self.folder is not None and not self.folder.finished:
            self.folder.finish(result)
        return ""


def mean_params(engine: Engine, state: State) -> Any:
    """The mean model of the active devices; with several seeds stacked [seeds, …]."""
    active = engine.schedule.active[max(int(state.iteration) - 1, 0)]
    sizes = np.stack([part.sizes for part in engine.partitions])
    by_samples = engine.options.weights == "samples"
    weights = (sizes if by_samples else np.ones_like(sizes)) * active  # [S, N]
    share = weights / weights.sum(axis=1, keepdims=True)

    def mean(leaf: NDArray[Any]) -> NDArray[Any]:
        if leaf.shape[1] == 1:  # all share one
            wide = leaf[:, 0]
        else:
            # Some devices at a time: a wider copy of all might not fit.
            parts = range(0, leaf.shape[1], _TOGETHER)
            cuts = [slice(first, first + _TOGETHER) for first in parts]
            wide = sum(np.einsum("sn,sn...->s...", share[:, c], leaf[:, c]) for c in cuts)
        return np.asarray(wide[0] if len(wide) == 1 else wide, leaf.dtype)

    return jax.tree.map(mean, engine.kept(state))
