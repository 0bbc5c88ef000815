"""What tuning found: every candidate with its price, the rungs, and the winner on fresh seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.files import commit_all
from joulemesh.data import Dataset
from joulemesh.models.curves import score_place
from joulemesh.scenario import Scenario
from joulemesh.study.pricing import Candidate, Offer, Priced
from joulemesh.study.record import Record
from joulemesh.study.runs import Runs, Table
from joulemesh.study.search import Objective, Score, Space, final_scores
from joulemesh.study.statistics import Estimate, estimate, paired
from joulemesh.training.software import trained_by

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Judged:
    candidate: int  # its number
    score: Score | None  # by the objective; None where the share does not pay for an iteration
    # of the mean model at the end, or another score, mean over seeds; NaN if there is none
    accuracy: float
    energy_j: float  # joules of all devices within the share
    time_s: float  # seconds within the share
    iterations: int  # within the share
    kept: bool  # does it go on, or win?


@dataclass(frozen=True)
class Rung:
    share: float  # of the budget
    rows: tuple[Judged, ...]  # its candidates, the best first


@dataclass(frozen=True, eq=False)
class Final:
    """A plan on fresh seeds and on test samples that no choice was made by."""

    candidate: Candidate  # which
    iterations: int  # n
    energy_j: float  # joules of all devices
    time_s: float  # seconds
    runs: tuple[Record, ...]  # one for each fresh seed
    by: str = "accuracy"  # the metric that is the score
    notes: tuple[str, ...] = ()  # what a reader of the plan should know, one line each

    @property
    def accuracy(self) -> FloatArray:
        """Of the mean model, or another score, [seeds]; NaN where a seed diverged."""
        return final_scores(self.runs, self.by)

    @property
    def device_accuracy(self) -> FloatArray:
        """Of the devices' own models, their mean, [seeds]."""
        return np.array([run.final[score_place(self.by) + 1] for run in self.runs])


@dataclass(frozen=True, eq=False)
class Tuned:
    """What tuning found.

    Attributes:
        scenario: what was asked.
        space: what was varied.
        objective: what was to be best.
        offer: all candidates, priced, and those that were not trained.
        rungs: how the others did.
        seeds: by which they were judged.
        fresh: by which the winner and the scenario as it is are reported.
        winner: on fresh seeds.
        given: the scenario as it is, on fresh seeds; None where it has no plan.
        computed: runs that were trained now; others were kept from before.
        test_samples: on how many samples candidates are judged, and on how many others the
            winner is reported.
        library: of the model: what trained it.
        own_data: the user's, if it was given in memory.
        own_model: whether the model was the user's own, not the scenario's.
    """

    scenario: Scenario
    space: Space
    objective: Objective
    offer: Offer
    rungs: tuple[Rung, ...]
    seeds: tuple[int, ...]
    fresh: tuple[int, ...]
    winner: Final
    given: Final | None
    computed: int = 0
    test_samples: int = 0
    library: str = "jax"
    own_data: Dataset | None = None
    own_model: bool = False

    @property
    def best(self) -> Scenario:
        """The winning scenario; `joulemesh.run` takes it."""
        changes = self.winner.candidate.changes
        return self.scenario.override(changes, source="tune") if changes else self.scenario

    @cached_property
    def priced(self) -> dict[int, Priced]:
        """The candidates that were trained, by number."""
        return {one.candidate.number: one for one in self.offer.kept}

    @property
    def difference(self) -> Estimate | None:
        """The objective's figure of the winner minus that of the scenario as it is, paired by seed.

        None where the scenario has no plan of its own.
        """
        if self.given is None:
            return None
        ours, theirs = (self.objective.figures(one.runs) for one in (self.winner, self.given))
        return paired(ours, theirs)

    @property
    def finals(self) -> list[tuple[str, Final]]:
        """The plans that were run on fresh seeds, and what each of them is."""
        given = self.given is not None and self.given is not self.winner
        others = [("as given", self.given)] if given and self.given is not None else []
        return [("winner", self.winner), *others]

    @cached_property
    def runs(self) -> Runs:
        """One row per plan that was run on fresh seeds, and seed."""
        by = self.objective.by
        rows = [
            {
                "plan": name,
                "seed": seed,
                "iterations": final.iterations,
                by: _finite(reached),
                f"device_{by}": _finite(owned),
                "energy_j": final.energy_j,
                "time_s": final.time_s,
            }
            for name, final in self.finals
            for seed, reached, owned in zip(
                self.fresh, final.accuracy, final.device_accuracy, strict=True
            )
        ]
        return Runs(tuple(rows), keys=("plan", "seed"), score=by)

    def figure(self, final: Final) -> Estimate:
        """The objective's figure on fresh seeds: accuracy, joules or seconds."""
        return estimate(self.objective.figures(final.runs))

    def table(self) -> list[dict[str, Any]]:
        """One row per candidate, in their order, with plain values; None where there is none."""
        fields = [axis.name for axis in self.space.axes]
        reached = self._reached()
        rows = []
        for priced in self.offer.kept:
            number = priced.candidate.number
            won = number == self.winner.candidate.number
            row = _row(
                priced.candidate, fields, "winner" if won else f"rung {len(reached[number])}"
            )
            row |= {"scheme": priced.scheme, "iterations": priced.iterations}
            row |= {"rounds": priced.rounds, "energy_j": priced.energy_j, "time_s": priced.time_s}
            for k, one in enumerate(reached[number]):
                figure = None if math.isnan(one.accuracy) else one.accuracy
                row[f"{self.objective.by}_{k + 1}"] = figure
                row[f"score_{k + 1}"] = (
                    None if one.score is None else self.objective.text(one.score)
                )
            rows.append(row)
        for dropped in self.offer.dropped:
            row = _row(dropped.candidate, fields, dropped.why)
            rows.append(row | {"reason": dropped.reason})
        names = Table.of(rows).header
        ordered = sorted(rows, key=lambda row: row["candidate"])
        return [{name: row.get(name) for name in names} for row in ordered]

    def _reached(self) -> dict[int, list[Judged]]:
        """How each candidate did, rung by rung."""
        found: dict[int, list[Judged]] = {number: [] for number in self.priced}
        for rung in self.rungs:
            for one in rung.rows:
                found[one.candidate].append(one)
        return found

    def to_csv(self) -> str:
        """The table as CSV."""
        return Table(tuple(self.table())).to_csv()

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh tune --json`."""
        return {
            "objective": str(self.objective),
            "winner": self._final(self.winner),
            "given": None if self.given is None else self._final(self.given),
            "difference": _plain(self.difference),
            "seeds": list(self.seeds),
            "fresh_seeds": list(self.fresh),
            "test_samples": self.test_samples,
            "computed": self.computed,
            "trained_by": trained_by(self.library),
            "space": self.space.to_dict(),
            "rungs": [{"share": r.share, "candidates": len(r.rows)} for r in self.rungs],
            "candidates": self.table(),
        }

    def _final(self, final: Final) -> dict[str, Any]:
        return {
            "candidate": final.candidate.number,
            "changes": dict(final.candidate.changes),
            "iterations": final.iterations,
            "energy_j": final.energy_j,
            "time_s": final.time_s,
            self.objective.by: _plain(estimate(final.accuracy)),
            f"device_{self.objective.by}": _plain(estimate(final.device_accuracy)),
            "objective": _plain(self.figure(final)),
            "notes": list(final.notes),
        }

    def __repr__(self) -> str:
        """In one line; `table` and `summary` have the figures."""
        return (
            f"Tuning({self.objective}, {len(self.offer.kept)} candidates trained of "
            f"{len(self.offer.kept) + len(self.offer.dropped)}, "
            f"winner: {self.winner.candidate.name})"
        )

    def save(self, folder: str | Path, *, code: Sequence[str | Path] = ()) -> None:
        """Write ``candidates.csv``, ``best.toml``, ``report.html`` and ``tuning.json``.

        ``best.toml`` is the winning scenario, which `joulemesh run` takes; ``scenario.toml`` is
        what was asked. Files that they name are copied (``inputs/``).

        Args:
            folder: made if need be; files of these names in it are replaced.
            code: Python files of the user's own, to be kept too.
        """
        from joulemesh.study.kept import held
        from joulemesh.study.tune import write_tuning

        with held(folder) as place:
            write_tuning(self, place, code)

    def save_figure(
        self,
        folder: str | Path,
        *,
        formats: str | Sequence[str] | None = None,
        width: str | float | None = None,
    ) -> list[Path]:
        """Draw the candidates, their front and the winner beside what `save` wrote.

        Args:
            folder: of the tuning.
            formats: some of ``"pdf"``, ``"svg"``, ``"pgf"`` and ``"png"``, in a list or in one
                text with commas; PNG and SVG unless given.
            width: for the column of a paper: ``"ieee"``, ``"ieee-wide"``, ``"acm"``,
                ``"acm-wide"``, or inches; None for a screen.

        Returns:
            The files that were written.
        """
        from joulemesh.study.kept import held
        from joulemesh.views.figures import tuning_figure
        from joulemesh.views.printing import ON_SCREEN, Printing
        from joulemesh.views.style import save_figure

        printing = Printing.asked(formats, width) or ON_SCREEN
        with held(folder) as place:
            figure = tuning_figure(self, printing.width)
            wrote = save_figure(figure, place / "figure", printing.formats)
            commit_all(place, stage="tuning")
        return wrote


def _plain(found: Estimate | None) -> dict[str, float | None] | None:
    if found is None:
        return None
    mean, half = (None if math.isnan(value) else value for value in (found.mean, found.half))
    return {"mean": mean, "ci95": half}


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _row(candidate: Candidate, fields: Sequence[str], status: str) -> dict[str, Any]:
    changes: Mapping[str, Any] = candidate.changes
    given = {name: _cell(changes.get(name)) for name in fields}
    return {"candidate": candidate.number, "status": status, **given}


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, Mapping | list | tuple) else value


def front(
    cost: Sequence[float],
    accuracy: Sequence[float],
    better: Literal["higher", "lower"] = "higher",
) -> list[int]:
    """The places of the points that no other beats: none costs less and is as accurate."""
    found: list[int] = []
    accuracy = [one if better == "higher" else -one for one in accuracy]
    order = sorted(range(len(cost)), key=lambda k: (cost[k], -accuracy[k]))
    for k in order:
        if math.isfinite(accuracy[k]) and (not found or accuracy[k] > accuracy[found[-1]]):
            found.append(k)
    return found
