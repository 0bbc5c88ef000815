"""One scenario carried out in several worlds, so that error bars contain the world."""

from __future__ import annotations

__all__ = ["WorldRun", "WorldsResult", "over_worlds"]

import csv
import io
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.errors import InfeasibleError
from joulemesh.runs.result import Result
from joulemesh.runs.worlds_folder import Asked, WorldsFolder
from joulemesh.scenario import Scenario
from joulemesh.studies.statistics import estimate
from joulemesh.training.driver import DivergedError
from joulemesh.training.jax.distributed import hosts
from joulemesh.units import duration, energy
from joulemesh.world.redraw import redrawn_words, worlds_of

_FIGURES = ("accuracy", "device_accuracy", "device_accuracy_min", "loss", "energy_j", "time_s")

One = Callable[[int, Scenario, Path | None], Result]
"""(number of the world, its scenario, its folder) -> its run."""


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

    def figures(self) -> dict[str, float]:
        """The figures of this world, means over its seeds; NaN where there is no run."""
        if self.result is None:
            return dict.fromkeys((*_FIGURES, "iterations"), float("nan"))
        found = self.result.summary()
        return {name: float(found[name]) for name in (*_FIGURES, "iterations")}


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
    def results(self) -> tuple[Result, ...]:
        """The runs, of the worlds that have one."""
        return tuple(world.result for world in self.worlds if world.result is not None)

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

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh run --worlds K --json`.

        ``X`` is the mean over worlds of the mean over seeds, ``X_ci95`` half the width of its 95 %
        interval over worlds (Student's t), None with fewer than two worlds.
        """
        each = [world.figures() for world in self.worlds]
        means: dict[str, float | None] = {}
        for name in (*_FIGURES, "iterations"):
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
            **means,
            "redrawn": redrawn_words(self.scenario),
            "missing": self.missing,
            "each": rows,
        }

    def to_csv(self) -> str:
        """One row for each world."""
        rows, text = self.summary()["each"], io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()

    def __repr__(self) -> str:
        """In one line; `summary` has the figures."""
        found = self.summary()
        if found["accuracy"] is None:
            return f"WorldsResult(none of {len(self.worlds)} worlds ran)"
        half = found["accuracy_ci95"]
        return (
            f"WorldsResult(accuracy {found['accuracy']:.4f}"
            f"{'' if half is None else f' ± {half:.4f}'}, "
            f"{found['worlds_run']} of {found['worlds']} worlds, {energy(found['energy_j'])}, "
            f"{duration(found['time_s'])})"
        )


def over_worlds(
    wanted: Asked,
    one: One,
    *,
    out: str | Path | None = None,
    resume: bool = False,
) -> WorldsResult:
    """Carry out a scenario in several worlds, one after another.

    Args:
        wanted: what is asked: the scenario, whose own world is the first, and how many worlds. A
            list of seeds is refused: worlds that shared seeds would not be independent.
        one: carries out one of them.
        out: a new folder for all.
        resume: go on with the worlds in ``out``, if there are any.

    Returns:
        What came of each. A world that cannot be planned, or in which training diverges, is in it
        with the reason.

    Raises:
        ScenarioError: the scenario is wrong, in whichever world that shows.
    """
    scenario, seeds = wanted.scenario, wanted.seeds
    drawn = worlds_of(scenario, wanted.worlds, seeds)
    assert isinstance(seeds, int)
    folder = None if out is None else WorldsFolder(out)
    done: list[WorldRun] = []
    with ExitStack() as stack:
        if folder is not None:
            _on_leader(lambda: folder.take(wanted, resume=resume, stack=stack))
        for k, mine in enumerate(drawn):
            try:
                found = one(k, mine, None if folder is None else folder.world(k))
                # All worlds learn from the same data: one copy is enough.
                shared = next((w.result.dataset for w in done if w.result), found.dataset)
                done.append(WorldRun(mine.seed, replace(found, dataset=shared)))
            except InfeasibleError as error:
                done.append(WorldRun(mine.seed, None, "infeasible", str(error)))
            except DivergedError as error:
                done.append(WorldRun(mine.seed, None, "diverged", str(error)))
        result = WorldsResult(scenario, tuple(done))
        if folder is not None:
            _on_leader(lambda: folder.finish(result.to_csv(), result.summary()))
    return result


def _on_leader(action: Callable[[], None]) -> None:
    """Do something on the process that writes; a refusal there is one of all."""

    def told() -> str:
        action()
        return ""

    hosts.on_leader(told)


def _plain(value: float) -> float | None:
    return value if np.isfinite(value) else None
