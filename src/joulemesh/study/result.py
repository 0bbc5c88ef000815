"""What a run gives back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import duration, energy
from joulemesh.data import Dataset, Partition
from joulemesh.methods.setting import MethodAccount
from joulemesh.metrics import Metric, reported, score_metric
from joulemesh.models.curves import COUNTS, column_names, own_curves
from joulemesh.planning.plan import Account, Plan
from joulemesh.scenario import Scenario
from joulemesh.study.record import notes_over_worlds
from joulemesh.study.runs import Row, Runs, Table, chance_note, to_target
from joulemesh.study.statistics import estimate
from joulemesh.training.software import trained_by
from joulemesh.world.redraw import redrawn_words

if TYPE_CHECKING:
    from joulemesh.training.trace import Trace  # loads JAX; a result only holds one


FloatArray = NDArray[np.floating]
Metrics = dict[str, int | float]
"""One evaluation of one seed: a row of ``metrics.csv``."""


ADAPTIVE = "adaptive"  # what the plan itself is called among methods


class Chunk(NamedTuple):
    """One compiled call: iterations done after it, device-steps in it, its wall seconds."""

    completed: int
    device_steps: int
    wall_s: float


def steps_per_round(scenario: Scenario, partitions: Sequence[Partition]) -> NDArray[np.int64]:
    """int64 [seeds, devices]: SGD steps in one round of each device."""
    sizes = np.stack([partition.sizes for partition in partitions])
    if scenario.training.local_round == "step":
        return np.ones_like(sizes)
    return -(-sizes // scenario.training.batch_size)


def cumulative(
    account: Account, iteration: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Joules of all devices and seconds of the clock after some iterations (counted from 1)."""
    joules, seconds = account.iteration_j, account.latency_s
    return np.cumsum(joules, axis=0)[iteration - 1], np.cumsum(seconds, axis=0)[iteration - 1]


def metrics(account: Account, trace: Trace, seeds: Sequence[int]) -> Iterator[Metrics]:
    """One row for every seed of the evaluations, with the joules and seconds so far."""
    names = column_names(*reported(account.scenario.training))
    shape = (len(seeds), len(trace.iteration))
    energy, clock = (
        np.broadcast_to(so_far.T, shape) for so_far in cumulative(account, trace.iteration)
    )
    for k, iteration in enumerate(trace.iteration.tolist()):
        for s, seed in enumerate(seeds):
            values = {name: float(trace.curve(name)[k, s]) for name in names}
            costs = {"energy_j": float(energy[s, k]), "time_s": float(clock[s, k])}
            counts = {name: int(getattr(trace, name)[k, s]) for name in COUNTS}
            yield {"seed": seed, "iteration": iteration, **values, **costs, **counts}


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run.

    Attributes:
        account: what joules and seconds come from: the plan that was carried out, or the account
            of the ``method``.
        trace: evaluations, [evaluations, seeds] each; the last one on all test samples, those
            before it on as many as ``trace.test_samples`` says.
        params: the mean model's parameters, as NumPy arrays; with several seeds stacked [seeds, …].
        seeds: the repetition seeds.
        dataset: what was learned from.
        partitions: who held which samples, one per seed.
        setup_s: wall seconds before training.
        chunks: how far each chunk of this process came, and its wall seconds.
        model: what the model is called.
        own_model: whether the model was the user's own, not the scenario's.
        target: the score asked for as target; None for 95 % of the final accuracy, and
            `study.runs.default_target` of another score.
        method: what was run, as the user wrote it: ``"adaptive"`` for the plan.
        library: of the model: what trained it.
    """

    account: Account
    trace: Trace
    params: Any
    seeds: tuple[int, ...]
    dataset: Dataset
    partitions: tuple[Partition, ...]
    setup_s: float
    chunks: tuple[Chunk, ...]
    model: str = ""
    own_model: bool = False
    target: float | None = None
    method: str = ADAPTIVE
    library: str = "jax"

    @property
    def plan(self) -> Plan:
        """The plan that was carried out.

        Raises:
            ScenarioError: a method without one was run.
        """
        if not isinstance(self.account, Plan):
            raise ScenarioError(
                f"a run of {self.method} has no plan: take rounds and joules from result.account"
            )
        return self.account

    def _curve(self, values: FloatArray) -> FloatArray:
        return values[:, 0] if len(self.seeds) == 1 else values

    @property
    def iteration(self) -> NDArray[np.int64]:
        """int [evaluations]: iterations done at each evaluation."""
        return self.trace.iteration

    @property
    def final(self) -> Trace:
        """The last evaluation, on all test samples."""
        return self.trace.last

    @property
    def metric(self) -> Metric:
        """What runs of this scenario are compared by: accuracy, unless it says otherwise."""
        return score_metric(self.trace.score)

    @property
    def score(self) -> FloatArray:
        """The score of the mean model, by `metric`: [evaluations], or [evaluations, seeds]."""
        return self._curve(self.trace.test_score)

    @property
    def accuracy(self) -> FloatArray:
        """Test accuracy of the mean model: [evaluations], or [evaluations, seeds].

        Raises:
            ScenarioError: the run was measured by something else; see `score`.
        """
        if self.trace.score != "accuracy":
            raise ScenarioError(
                f"this run is measured by {self.metric.label}, not by accuracy: take result.score"
            )
        return self._curve(self.trace.test_score)

    @property
    def loss(self) -> FloatArray:
        """Test loss of the mean model: [evaluations], or [evaluations, seeds]."""
        return self._curve(self.trace.test_loss)

    @property
    def energy_j(self) -> NDArray[np.float64]:
        """Joules spent by all devices so far, as the account has them: [evaluations].

        [evaluations, seeds] where several seeds of a method cost differently.
        """
        return self._costs[0]

    @property
    def time_s(self) -> NDArray[np.float64]:
        """Seconds of the modelled clock so far, [evaluations] or [evaluations, seeds]."""
        return self._costs[1]

    @property
    def _costs(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        joules, seconds = cumulative(self.account, self.iteration)
        if joules.ndim == 2 and joules.shape[1] == 1:
            return joules[:, 0], seconds[:, 0]
        return joules, seconds

    @property
    def device_steps(self) -> int:
        """SGD steps of all devices and seeds."""
        per_round = steps_per_round(self.account.scenario, self.partitions)
        return int((self.account.rounds.sum(axis=0, dtype=np.int64) * per_round).sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, a line each: of the plan, the data and who holds them.

        Before all else, that the run ends no better than guessing, if it does.
        """
        held, chance = self.partitions[0].note, self.chance
        own = (*self.account.notes, *self.dataset.notes, *([held] if held else []))
        return (chance, *own) if chance else own

    @property
    def chance(self) -> str:
        """A sentence on a run that ends no better than guessing; empty if it ends better."""
        final, training = self.final, self.account.scenario.training
        scores, losses = final.test_score[-1], final.test_loss[-1]
        return chance_note(self.dataset, training, self.trace.score, scores, losses)

    @property
    def answer(self) -> str:
        """What binds the plan and what would help; empty for a method without a plan.

        Of a run that ends no better than guessing, what to change first: no battery would help.
        """
        planned = self.account.answer.text if isinstance(self.account, Plan) else ""
        return self.chance or planned

    def to_target(self, target: float | None = None) -> dict[str, Any]:
        """Joules and seconds until the mean model first reaches an accuracy, or another score.

        Args:
            target: the score; unless given, what was asked for, or 95 % of the final accuracy.

        Returns:
            Plain values, described in `summary`.
        """
        wanted = self.target if target is None else target
        costs = self.energy_j, self.time_s
        return to_target(self.iteration, self.trace.test_score, *costs, wanted, self.metric)

    @property
    def trained_s(self) -> float:
        """Seconds that training took on this machine."""
        return sum(chunk.wall_s for chunk in self.chunks)

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh run --json`.

        Accuracies and loss are those of the last row of ``metrics.csv``: after the last iteration,
        on all test samples. Where runs are compared by another metric, it has the place of
        accuracy, under its own name. ``curve_…_samples`` are those of the evaluations before, at
        least; ``accuracy_se`` is the standard error that ``test_samples`` leave it (None for a
        metric that is no share).

        Three clocks: ``time_s`` is modelled, what the devices would take; ``wall_s`` is what
        training took on this machine, and ``whole_s`` the run with its set-up, ``setup_s``.

        ``energy_to_target_j`` and ``time_to_target_s`` are means over seeds, interpolated between
        evaluations: ``…_ci95`` is half the width of the 95 % interval over seeds, ``…_error`` what
        the iterations that were not evaluated leave open. They are None unless all seeds reach the
        target; ``reached`` says how many do.

        Where packets are lost, ``energy_j`` and ``time_s`` are as drawn; ``expected_energy_j`` and
        ``expected_time_s`` are the plan's, and ``messages``, ``messages_lost``,
        ``messages_unpaid`` (lost because a battery could not pay) and ``iterations_late`` (ended
        after the deadline) count what happened.
        """
        # The first chunk of a process holds the compilation; the rate is of those after it.
        steady = self.chunks[1:] or self.chunks
        wall = sum(chunk.wall_s for chunk in steady)
        final = self.final
        name, end = self.metric.name, self.metric.weakest
        weakest = final.device_score_min.min() if end == "min" else final.device_score_max.max()
        return {
            name: float(final.test_score.mean()),
            f"{name}_se": self.metric.sampling_error(
                float(final.test_score.mean()), int(final.test_samples.min())
            ),
            f"device_{name}": float(final.device_score_mean.mean()),
            f"device_{name}_{end}": float(weakest),
            "loss": float(final.test_loss.mean()),
            **self._further(),
            "test_samples": int(final.test_samples.min()),
            **{f"curve_{name}": int(getattr(self.trace, name).min()) for name in COUNTS},
            "energy_j": float(self.energy_j[-1].mean()),
            "time_s": float(self.time_s[-1].mean()),
            "iterations": self.account.iterations,
            "devices": int(self.account.rounds.shape[1]),
            "seeds": list(self.seeds),
            **self.to_target(),
            "method": self.method,
            "trained_by": trained_by(self.library),
            **self._priced(),
            "device_steps": self.device_steps,
            "device_steps_per_s": sum(chunk.device_steps for chunk in steady) / max(wall, 1e-9),
            "wall_s": self.trained_s,
            "setup_s": self.setup_s,
            "whole_s": self.setup_s + self.trained_s,
            "notes": list(self.notes),
            **({"answer": self.answer} if isinstance(self.account, Plan) else {}),
        }

    def _further(self) -> dict[str, float]:
        """The final figures of the scenario's further metrics, means over seeds."""
        # Of the devices' own models the smallest and the largest of all seeds.
        figures = {}
        for curve in own_curves(*reported(self.account.scenario.training)):
            values, over = self.final.own[curve.name], curve.of
            end = values.min() if over == "min" else values.max()
            figures[curve.name] = float(end if over in ("min", "max") else values.mean())
        return figures

    def _priced(self) -> dict[str, Any]:
        """What a plan has and a method has not, and the other way round."""
        if isinstance(self.account, MethodAccount):
            own = self.account
            sums = {"bits": float(own.bits.sum()), "server_j": float(own.server_j.sum())}
            return {"equal": own.equal, **sums}
        drawn = self.plan.drawn
        return {"scheme": self.plan.scheme, **(drawn.figures(self.plan) if drawn else {})}

    def frame(self) -> Any:
        """All evaluations, as a pandas DataFrame: one row for every evaluation and seed.

        Returns:
            The columns of ``metrics.csv``.
        """
        return Table(tuple(metrics(self.account, self.trace, self.seeds))).to_pandas()

    @cached_property
    def runs(self) -> Runs:
        """One row per seed: what it reached and cost after the last iteration."""
        name, rows = self.metric.name, []
        for last in metrics(self.account, self.final, self.seeds):
            row: Row = {"method": self.method, "seed": last["seed"]}
            row["iterations"] = last["iteration"]
            row |= {name: last[f"test_{name}"], f"device_{name}": last[f"device_{name}_mean"]}
            row |= {"loss": last["test_loss"]}
            rows.append(row | {cost: last[cost] for cost in ("energy_j", "time_s")})
        return Runs(tuple(rows), score=name)

    def __repr__(self) -> str:
        """In one line; `summary` and `frame` have the figures."""
        n, count = self.account.rounds.shape
        own = "" if self.method == ADAPTIVE else f"{self.method}, "
        seeds = "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return (
            f"Result({own}{self.metric.label} {float(self.final.test_score.mean()):.4f}, "
            f"{n:,} iterations, "
            f"{count:,} devices, {seeds}, {energy(float(self.energy_j[-1].mean()))}, "
            f"{duration(float(self.time_s[-1].mean()))})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from joulemesh.views.notebook import notebook_html

        return notebook_html(self)

    def save(self, folder: str | Path) -> None:
        """Write the run folder of this result (all but the checkpoint) to a new place."""
        from joulemesh.study.folder import RunFolder

        RunFolder(folder).save(self)


@dataclass(frozen=True, eq=False)
class WorldRun:
    """What came of one world."""

    seed: int  # of the world; the scenario with this seed is the same run
    result: Result | None  # the run; None if there is none
    status: str = "ran"  # `"ran"`, `"infeasible"` or `"diverged"`
    reason: str = ""  # why there is none

    def figures(self, names: Sequence[str]) -> dict[str, float]:
        """Some figures of this world, means over its seeds; NaN where there is no run."""
        if self.result is None:
            return dict.fromkeys(names, float("nan"))
        found = self.result.summary()
        return {name: float(found[name]) for name in names}


@dataclass(frozen=True, eq=False)
class WorldsResult:
    """A scenario carried out in several worlds.

    Worlds are independent of each other, seeds within a world are not: they share placement,
    batteries and channel. So figures are means over seeds first, and intervals are over worlds.

    Attributes:
        scenario: what was asked.
        worlds: what came of each.
    """

    scenario: Scenario
    worlds: tuple[WorldRun, ...]

    @property
    def metric(self) -> Metric:
        """What runs of this scenario are compared by."""
        return score_metric(reported(self.scenario.training).score)

    def _names(self) -> tuple[str, ...]:
        """The figures of each world."""
        name, end = self.metric.name, self.metric.weakest
        scores = (name, f"device_{name}", f"device_{name}_{end}")
        return tuple(dict.fromkeys((*scores, "loss", "energy_j", "time_s", "iterations")))

    @property
    def results(self) -> tuple[Result, ...]:
        """The runs, of the worlds that have one."""
        return tuple(world.result for world in self.worlds if world.result is not None)

    @cached_property
    def runs(self) -> Runs:
        """One row per world that has a run, and seed."""
        rows = [
            {"world": k, **row}
            for k, world in enumerate(self.worlds)
            if world.result is not None
            for row in world.result.runs.rows
        ]
        return Runs(tuple(rows), keys=("world", "method", "seed"), score=self.metric.name)

    @property
    def missing(self) -> str:
        """Which worlds have no run, and why, in a sentence; empty if all have."""
        lost = [k for k, world in enumerate(self.worlds) if world.result is None]
        if not lost:
            return ""
        first, count = self.worlds[lost[0]], len(self.worlds)
        kinds = " or ".join(sorted({self.worlds[k].status for k in lost}))
        figures = "there are no figures" if len(lost) == count else "figures are of the others"
        return (
            f"{len(lost)} of {count} worlds {'is' if len(lost) == 1 else 'are'} {kinds} (world "
            f"{', '.join(map(str, lost))}), and {figures}; world {lost[0]}: {first.reason}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the runs, those notes of a kind in one."""
        each = [() if world.result is None else world.result.notes for world in self.worlds]
        return tuple(notes_over_worlds(each))

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh run --worlds K --json`.

        ``X`` is the mean over worlds of the mean over seeds, ``X_ci95`` half the width of its 95 %
        interval over worlds (Student's t), None with fewer than two worlds.
        """
        names = self._names()
        each = [world.figures(names) for world in self.worlds]
        means: dict[str, float | None] = {}
        for name in names:
            found = estimate(np.array([figures[name] for figures in each]))
            means[name], means[f"{name}_ci95"] = _plain(found.mean), _plain(found.half)
        rows = [
            {"world": k, "seed": world.seed, "status": world.status, "reason": world.reason}
            | {name: _plain(value) for name, value in figures.items()}
            | ({"iterations": int(figures["iterations"])} if world.result is not None else {})
            for k, (world, figures) in enumerate(zip(self.worlds, each, strict=True))
        ]
        seeds = len(self.results[0].seeds) if self.results else 0
        return {
            "worlds": len(self.worlds),
            "worlds_run": len(self.results),
            "seeds": seeds,
            "trained_by": trained_by(*{one.library: None for one in self.results}),
            **means,
            "redrawn": redrawn_words(self.scenario),
            "missing": self.missing,
            "notes": list(self.notes),
            "each": rows,
        }

    def to_csv(self) -> str:
        """One row for each world."""
        return Table(tuple(self.summary()["each"])).to_csv()

    def __repr__(self) -> str:
        """In one line; `summary` has the figures."""
        found, name = self.summary(), self.metric.name
        if found[name] is None:
            return f"WorldsResult(none of {len(self.worlds)} worlds ran)"
        half = found[f"{name}_ci95"]
        return (
            f"WorldsResult({self.metric.label} {found[name]:.4f}"
            f"{'' if half is None else f' ± {half:.4f}'}, "
            f"{found['worlds_run']} of {found['worlds']} worlds, {energy(found['energy_j'])}, "
            f"{duration(found['time_s'])})"
        )


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None
