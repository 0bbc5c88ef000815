"""Carry out a scenario: plan it, train it to the plan, keep everything."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.planning.plan import Plan
from joulemesh.planning.plan import plan as make_plan
from joulemesh.runs.folder import RunFolder, trace_of
from joulemesh.runs.interrupt import Interrupt
from joulemesh.runs.result import Chunk, Metrics, Result, cumulative, metrics, steps_per_round
from joulemesh.scenario import Scenario
from joulemesh.training import hosts
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.engine import Engine, State
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.options import Options
from joulemesh.training.platform import configure, give_back_memory
from joulemesh.training.prepare import partitions, the_dataset, the_model
from joulemesh.training.trace import Trace

__all__ = ["Progress", "mean_params", "run"]

_TOGETHER = 64  # devices whose parameters are averaged at once
_SAVE_EVERY_S = 0.25
# Of several processes each may be told to stop more than once, by who has started it.
_SETTLE_S = 2.0


@dataclass(frozen=True)
class Progress:
    """How far a run has come, after a chunk.

    Attributes:
        completed: iterations done.
        iterations: iterations in all.
        accuracy: latest test accuracy of the mean model, mean over seeds; NaN before the first.
        energy_j: joules spent so far.
        seconds_left: estimated wall time to the end.
    """

    completed: int
    iterations: int
    accuracy: float
    energy_j: float
    seconds_left: float


def run(
    scenario: Scenario,
    *,
    model: Any = None,
    data: Any = None,
    out: str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    resume: bool = False,
    deterministic: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_metrics: Callable[[Metrics], None] | None = None,
) -> Result:
    """Train on all devices as the plan says.

    In a program of several processes (``jax.distributed``) all of them call this alike, and all
    get the result; process 0 alone writes, and calls ``on_progress`` and ``on_metrics``.

    Args:
        scenario: what is asked.
        model: the user's own, as a pair ``(init(key), apply(params, x))``, a Flax module or a
            ``joulemesh.models.Model``; the scenario's unless given.
        data: the user's own, as a ``Dataset``, the path of an ``.npz`` file, or a mapping or tuple
            of x_train, y_train, x_test, y_test; the scenario's unless given.
        out: a new folder to keep the run in.
        seeds: how many repetition seeds, or which; they redraw partition, initial parameters and
            batches, never the world, and run in one program.
        resume: go on with the run in ``out``, if there is one.
        deterministic: ask XLA for kernels that give the same bits in every run.
        on_progress: called after every chunk.
        on_metrics: called with a dict for every evaluation and seed, a row of ``metrics.csv``, once
            it is kept: a run that is stopped and resumed tells each of them once.

    Returns:
        The result.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("default").override({"plan.iterations": 10})
    >>> result = joulemesh.run(scenario)
    >>> result.accuracy.shape, bool(result.energy_j[-1] <= result.plan.energy_budget_j.sum())
    ((2,), True)
    """
    begun = time.perf_counter()
    configure(cache_dir=_compilation_cache())
    dataset = the_dataset(scenario, data)
    learner = the_model(scenario, model, dataset)
    plan = make_plan(scenario, parameters=learner.parameters, labels=dataset.y_train)
    give_back_memory()  # planning many devices leaves holes, as does placing them
    chosen = tuple(range(scenario.seed, scenario.seed + seeds) if isinstance(seeds, int) else seeds)
    parts = partitions(scenario, dataset, chosen, plan.work.round_samples)
    options = Options.from_scenario(scenario.training, deterministic=deterministic)
    session = _Session(
        plan, Engine(learner, dataset, parts, schedule_of(plan), options, chosen), begun
    )
    alone, leads = hosts.alone(), hosts.leads()
    with hosts.losses_named():
        session.resume_or_begin(out, resume)
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
        return session.finish()


class _Session:
    """One run under way: the engine's state, what was measured, and the folder that keeps it."""

    def __init__(self, plan: Plan, engine: Engine, begun: float) -> None:
        self.plan, self.engine, self.begun = plan, engine, begun
        self.folder: RunFolder | None = None  # of several processes only the leader has one
        self.checkpoints: Checkpoints | None = None
        whole = engine.fingerprint() + plan.scenario.to_toml()
        self.fingerprint = hashlib.sha256(whole.encode()).hexdigest()
        self.traces: list[Trace] = []
        self.chunks: list[Chunk] = []
        self.saved_at = 0.0
        self.kept = self.told = 0

    def resume_or_begin(self, out: str | Path | None, resume: bool) -> None:
        """Take up the run in the folder where it was left, or start it."""
        engine, state = self.engine, None
        asked = f"{self.fingerprint} {out is not None} {resume}"
        hosts.same(hashlib.sha256(asked.encode()).hexdigest(), "scenario, data or option")
        hosts.meet(engine.spec.mesh)
        begun = hosts.on_leader(partial(self._open, out, resume))
        if out is not None:
            self.checkpoints = Checkpoints(RunFolder(out).checkpoint)
            state = self.checkpoints.restore(engine) if begun else None
        self.state = engine.init() if state is None else state
        if self.completed:
            text = hosts.on_leader(lambda: self.folder.metrics_text() if self.folder else "")
            wide = engine.options.precision == "float64"
            dtype = np.float64 if wide else np.float32
            self.traces = [trace_of(text, engine.seeds, self.completed, dtype)]
            self.told = len(self.traces[0].iteration)
        self.first = self.completed
        self.setup_s = time.perf_counter() - self.begun

    def _open(self, out: str | Path | None, resume: bool) -> str:
        """Make the folder, or look at the run in it; the text is empty for a new run."""
        self.folder = folder = _folder(out, resume)
        if folder is None:
            return ""
        if not folder.started:
            folder.begin(self.plan, self.engine.seeds, self.fingerprint)
            return ""
        if folder.start_record()["fingerprint"] != self.fingerprint:
            raise ScenarioError(
                f"the run in {folder.path} was made from another scenario, data or model; "
                "resume it with its own scenario.toml, or choose another --out"
            )
        return "begun"

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
        self.traces.append(trace)
        per_round = steps_per_round(self.plan.scenario, self.engine.partitions)
        steps = self.plan.rounds[start : self.completed].sum(axis=0) * per_round
        self.chunks.append(Chunk(self.completed, int(steps.sum()), wall))
        # Chunks shorter than a quarter of a second share a checkpoint; the leader's clock counts.
        due = self.folder is not None and time.perf_counter() - self.saved_at >= _SAVE_EVERY_S
        stop, due = hosts.any_of(last_wish(), due)
        if self.checkpoints is not None and (due or stop or self.finished):
            self._keep(self.checkpoints)
        return stop

    def _keep(self, checkpoints: Checkpoints) -> None:
        hosts.on_leader(self._write_curves)
        checkpoints.save(self.engine, self.state)
        self.saved_at = time.perf_counter()
        self.kept = self.completed

    def _write_curves(self) -> str:
        assert self.folder is not None
        self.folder.write_metrics(self.plan, self.trace, self.engine.seeds)
        self.folder.write_timings(self.setup_s, self.chunks)
        return ""

    def tell(self, listener: Callable[[Metrics], None]) -> None:
        """Pass on the evaluations that are kept and were not passed on before."""
        kept = self.completed if self.folder is None else self.kept
        trace = self.trace
        known = int(np.sum(trace.iteration <= kept))
        for row in metrics(self.plan, trace, self.engine.seeds, since=self.told, until=known):
            listener(row)
        self.told = max(known, self.told)

    @property
    def trace(self) -> Trace:
        return Trace.join(self.traces)

    def progress(self) -> Progress:
        done, total = self.completed, self.plan.iterations
        accuracy = self.trace.test_accuracy
        pace = sum(chunk.wall_s for chunk in self.chunks) / max(done - self.first, 1)
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
            self.engine.evaluate(self.state),
            mean_params(self.engine, self.state),
            self.engine.seeds,
            self.engine.dataset,
            self.engine.partitions,
            self.setup_s,
            tuple(self.chunks),
        )
        del self.engine, self.state  # the room is for what is written of many devices
        give_back_memory()
        hosts.on_leader(partial(self._write_result, result))
        if self.checkpoints is not None:
            self.checkpoints.close()
        return result

    def _write_result(self, result: Result) -> str:
        if self.folder is not None and not self.folder.finished:
            self.folder.finish(result)
        return ""


def _compilation_cache() -> Path:
    """JAX's persistent compilation cache, beside the decoded data sets."""
    import pooch

    return Path(pooch.os_cache("joulemesh")) / "xla"


def _folder(out: str | Path | None, resume: bool) -> RunFolder | None:
    if out is None:
        if resume:
            raise ScenarioError("resume needs the run's folder: give out (--out DIR)")
        return None
    folder = RunFolder(out)
    return folder if resume and folder.started else RunFolder.create(out)


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
