"""Carry out a scenario: plan it, train it to the plan, keep everything."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.planning.plan import Plan
from joulemesh.planning.plan import plan as make_plan
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.interrupt import Interrupt
from joulemesh.runs.result import Chunk, Result, cumulative, steps_per_round
from joulemesh.scenario import Scenario
from joulemesh.training.checkpoint import Checkpoints
from joulemesh.training.engine import Engine, State
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.options import Options
from joulemesh.training.platform import configure
from joulemesh.training.prepare import partitions, the_dataset, the_model
from joulemesh.training.trace import Trace

__all__ = ["Progress", "mean_params", "run"]

_SAVE_EVERY_S = 0.25


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
) -> Result:
    """Train on all devices as the plan says.

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
    chosen = tuple(range(scenario.seed, scenario.seed + seeds) if isinstance(seeds, int) else seeds)
    parts = partitions(scenario, dataset, chosen, plan.work.round_samples)
    options = Options.from_scenario(scenario.training, deterministic=deterministic)
    engine = Engine(learner, dataset, parts, schedule_of(plan), options, chosen)
    session = _Session(plan, engine, _folder(out, resume), begun)
    session.resume_or_begin()
    with Interrupt() as interrupt:
        while not session.finished:
            session.advance(last_wish=lambda: interrupt.asked)
            if on_progress is not None:
                on_progress(session.progress())
            if interrupt.asked and not session.finished:
                raise KeyboardInterrupt
    return session.finish()


class _Session:
    """One run under way: the engine's state, what was measured, and the folder that keeps it."""

    def __init__(self, plan: Plan, engine: Engine, folder: RunFolder | None, begun: float) -> None:
        self.plan, self.engine, self.folder, self.begun = plan, engine, folder, begun
        self.checkpoints = Checkpoints(folder.checkpoint) if folder is not None else None
        whole = engine.fingerprint() + plan.scenario.to_toml()
        self.fingerprint = hashlib.sha256(whole.encode()).hexdigest()
        self.traces: list[Trace] = []
        self.chunks: list[Chunk] = []
        self.saved_at = 0.0

    def resume_or_begin(self) -> None:
        """Take up the run in the folder where it was left, or start it."""
        engine, folder, state = self.engine, self.folder, None
        if folder is not None and folder.started:
            if folder.start_record()["fingerprint"] != self.fingerprint:
                raise ScenarioError(
                    f"the run in {folder.path} was made from another scenario, data or model; "
                    "resume it with its own scenario.toml, or choose another --out"
                )
            assert self.checkpoints is not None
            state = self.checkpoints.restore(engine)
        elif folder is not None:
            folder.begin(self.plan, engine.seeds, self.fingerprint)
        self.state = engine.init() if state is None else state
        if folder is not None and self.completed:
            wide = engine.options.precision == "float64"
            dtype = np.float64 if wide else np.float32
            self.traces = [folder.read_trace(engine.seeds, self.completed, dtype)]
        self.first = self.completed
        self.setup_s = time.perf_counter() - self.begun

    @property
    def completed(self) -> int:
        return int(self.state.iteration)

    @property
    def finished(self) -> bool:
        return self.completed >= self.plan.iterations

    def advance(self, last_wish: Callable[[], bool]) -> None:
        """Run one chunk and keep it."""
        start, clock = self.completed, time.perf_counter()
        self.state, trace = self.engine.run_chunk(self.state, start)
        wall = time.perf_counter() - clock
        self.traces.append(trace)
        per_round = steps_per_round(self.plan.scenario, self.engine.partitions)
        steps = self.plan.rounds[start : self.completed].sum(axis=0) * per_round
        self.chunks.append(Chunk(self.completed, int(steps.sum()), wall))
        self._keep(at_once=self.finished or last_wish())

    def _keep(self, at_once: bool) -> None:
        """Save after every chunk; chunks shorter than a quarter of a second share a checkpoint."""
        now = time.perf_counter()
        if self.folder is None or (now - self.saved_at < _SAVE_EVERY_S and not at_once):
            return
        assert self.checkpoints is not None
        self.folder.write_metrics(self.plan, self.trace, self.engine.seeds)
        self.folder.write_timings(self.setup_s, self.chunks)
        self.checkpoints.save(self.state)
        self.saved_at = time.perf_counter()

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
        if self.folder is not None and not self.folder.finished:
            self.folder.finish(result)
        if self.checkpoints is not None:
            self.checkpoints.close()
        return result


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
        wide = np.einsum("sn,sn...->s...", share, leaf.astype(np.float64))
        return np.asarray(wide[0] if len(wide) == 1 else wide, leaf.dtype)

    return jax.tree.map(mean, engine.params(state))
