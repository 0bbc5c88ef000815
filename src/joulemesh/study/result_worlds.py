"""What a run in several worlds gives back: error bars that contain the world."""

from __future__ import annotations

__all__ = ["WorldRun", "WorldsResult"]

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from joulemesh.base.units import duration, energy
from joulemesh.metrics import Metric, reported, score_metric
from joulemesh.scenario import Scenario
from joulemesh.study.entry import notes_over_worlds
from joulemesh.study.result import Result
from joulemesh.study.runs import Runs, Table
from joulemesh.study.statistics import estimate
from joulemesh.training.software import trained_by
from joulemesh.world.redraw import redrawn_words


@dataclass(frozen=True, eq=False)
class WorldRun:
    """What came of one world.

    Attributes:
        seed: of the world; the scenario with this seed is the same run.
        result: the run; None if there is none.
        status: ``"ran"``, ``"infeasible"`` or ``"diverged"``.
        reason: why there is none.
    """

    seed: int
    result: Result | None
    status: str = "ran"
    reason: str = ""

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
