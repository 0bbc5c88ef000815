"""What a sweep found: one row per combination, method and seed, and a summary with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.metrics import Metric, reported, score_metric
from joulemesh.models.curves import own_curves
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import Combination, Varied
from joulemesh.study.comparison import Comparison
from joulemesh.study.runs import Row, Runs, Table, infeasible_row
from joulemesh.training.software import trained_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True)
class Figure:
    """A column of the table that can be drawn."""

    name: str  # of the column
    words: str  # what it is, for axes
    short: str  # what a switch that shows it says
    unit: str = ""  # joules, seconds, or none
    share: bool = False  # does it lie between 0 and 1, and is written in per cent?


FIGURES = (
    Figure("energy_j", "energy of all devices", "energy", "J"),
    Figure("time_s", "simulated time", "time", "s"),
    Figure("energy_to_target_j", "energy to the target", "energy to target", "J"),
    Figure("time_to_target_s", "time to the target", "time to target", "s"),
)
"""What can be drawn of every sweep, beside the score of the mean model and of devices' own."""


_WORDS = ("description", "citation")  # of methods, the same in every combination


@dataclass(frozen=True)
class Point:
    """One combination of the varied fields, and what was found there."""

    at: tuple[int, ...]  # of each varied field, the place of its value
    runs: tuple[Row, ...]  # one row for each method and seed, without the varied fields
    methods: tuple[Row, ...]  # one row for each method, with intervals and differences
    reason: str = ""  # why nothing could run there; empty if something did
    refused: bool = False  # did its values not go together, so that there was nothing to plan?

    @classmethod
    def found(cls, at: tuple[int, ...], comparison: Comparison) -> Point:
        table = [
            {name: value for name, value in row.items() if name not in _WORDS}
            | {"target": comparison.target if math.isfinite(comparison.target) else None}
            for row in comparison.table()
        ]
        ran = any(entry.ran for entry in comparison.entries)
        reason = "" if ran else comparison.entries[0].remarks[0]
        return cls(at, comparison.runs.rows, tuple(table), reason)

    @classmethod
    def without_runs(
        cls, at: tuple[int, ...], methods: Sequence[str], seeds: Sequence[int], reason: str
    ) -> Point:
        """A combination whose values do not go together, or that cannot be planned."""
        runs = [infeasible_row(method, seed, reason) for method in methods for seed in seeds]
        none = {"status": "refused", "seeds": 0, "notes": [reason]}
        rows = [{"method": method, **none} for method in methods]
        return cls(at, tuple(runs), tuple(rows), reason, refused=True)


@dataclass(frozen=True, eq=False)
class Sweep:
    """Several methods at every combination of some fields' values, on equal terms in each.

    Attributes:
        scenario: what was not varied.
        varied: the fields that were, each with its values.
        methods: in the order asked for; differences are against the first.
        equal: what was equal for all methods of a combination.
        seeds: repetition seeds, the same in every combination.
        points: what was found in every combination; the last field varies fastest.
        wanted: the score asked for as target; None for almost each combination's best.
        computed: runs that were trained for this sweep, not found in the cache.
        rates: the learning rates of which each method has got its own; empty without tuning.
        own_data: the user's, if it was given in memory.
        own_model: whether the model was the user's own, not the scenario's.
        libraries: of the models: what trained them.
        combinations: of the fields' values, as scenarios.
    """

    scenario: Scenario
    varied: tuple[Varied, ...]
    methods: tuple[str, ...]
    equal: str
    seeds: tuple[int, ...]
    points: tuple[Point, ...] = ()
    wanted: float | None = None
    computed: int = 0
    rates: tuple[float, ...] = ()
    own_data: Dataset | None = None
    own_model: bool = False
    libraries: tuple[str, ...] = ("jax",)
    combinations: tuple[Combination, ...] = ()

    @property
    def count(self) -> int:
        """How many runs there are in all: combinations × methods × seeds."""
        return len(self.combinations) * len(self.methods) * len(self.seeds)

    def __repr__(self) -> str:
        """In one line; `table` has the figures."""
        fields = " × ".join(f"{len(one.values)} {one.name}" for one in self.varied)
        times = "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"
        return f"Sweep({fields}; {', '.join(self.methods)}; equal {self.equal}, {times})"

    def __str__(self) -> str:
        """The table of `joulemesh sweep`."""
        from joulemesh.views.sweep import sweep_text

        return sweep_text(self)

    @property
    def ran(self) -> bool:
        """Is there a run in any combination?"""
        return not all(point.reason for point in self.points)

    def fields_of(self, point: Point) -> Row:
        """The values of the varied fields in a combination, by the table's columns."""
        return {
            column_of(one.name): one.plain[k] for one, k in zip(self.varied, point.at, strict=True)
        }

    @cached_property
    def runs(self) -> Runs:
        """One row per combination, method and seed."""
        rows = self._table([(point, point.runs) for point in self.points]).rows
        varied = (column_of(one.name) for one in self.varied)
        return Runs(rows, keys=(*varied, "method", "seed"), score=self.score)

    def table(self) -> list[Row]:
        """The rows of `runs`.

        Returns:
            Dicts of plain values: the varied fields, then what was reached and spent. ``status``
            is ``"ran"``, ``"diverged"``, ``"infeasible"`` (the method cannot run there) or
            ``"refused"`` (the values do not go together), and ``reason`` says why. None where
            there is no figure.
        """
        return list(self.runs.rows)

    def summary_table(self) -> list[Row]:
        """One row per combination and method: means over ``seeds`` seeds with 95 % intervals.

        Returns:
            The columns of `Comparison.table`, after the varied fields.
        """
        return list(self._summary.rows)

    @property
    def _summary(self) -> Table:
        return self._table([(point, point.methods) for point in self.points])

    def _table(self, parts: Sequence[tuple[Point, Sequence[Row]]]) -> Table:
        every = [row for _, rows in parts for row in rows]
        fields = [self.fields_of(point) for point, rows in parts for _ in rows]
        known = Table.of(every, last=("notes", "reason")).rows
        return Table(tuple({**at, **row} for at, row in zip(fields, known, strict=True)))

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV, one line per combination, method and seed.

        Args:
            path: where to write it too, whole or not at all.

        Returns:
            The text.
        """
        return self.runs.to_csv(path)

    def summary_csv(self, path: str | Path | None = None) -> str:
        """The summary as CSV, one line per combination and method."""
        return self._summary.to_csv(path)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet, whole or not at all; this needs pyarrow."""
        self.runs.to_parquet(path)

    def to_pandas(self, what: str = "runs") -> Any:
        """The table or its summary, as a pandas DataFrame.

        Args:
            what: ``"runs"`` (a row for every combination, method and seed) or ``"summary"`` (a row
                for every combination and method, with intervals and differences).

        Returns:
            The columns of ``table.csv`` or of ``summary.csv``.
        """
        if what not in ("runs", "summary"):
            raise ScenarioError(f"to_pandas({what!r}) is unknown; use 'runs' or 'summary'")
        return (self.runs if what == "runs" else self._summary).to_pandas()

    frame = to_pandas

    @cached_property
    def _arrays(self) -> Mapping[str, NDArray[np.float64]]:
        shape = (*(len(one.values) for one in self.varied), len(self.methods), len(self.seeds))
        cells = {name: np.full(shape, np.nan) for name in self.figures}
        for point in self.points:
            for k, row in enumerate(point.runs):
                place = (*point.at, *divmod(k, len(self.seeds)))
                for name, array in cells.items():
                    value = row.get(name)
                    array[place] = math.nan if value is None else value
        return cells

    @property
    def score(self) -> str:
        """The metric that methods are compared by: a column of the tables."""
        return reported(self.scenario.training).score

    @property
    def metric(self) -> Metric:
        """What it is."""
        return score_metric(self.score)

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Columns that can be drawn: the score, `FIGURES`, and the scenario's further metrics."""
        name, label, share = self.metric.name, self.metric.label, self.metric.share
        scores = (
            Figure(name, f"test {label} of the mean model", label, share=share),
            Figure(
                f"device_{name}",
                f"test {label} of devices' own models",
                "devices’ own",
                share=share,
            ),
        )
        further = [
            Figure(curve.name, curve.words, curve.short, share=curve.share)
            for curve in own_curves(reported(self.scenario.training).metrics, self.score)
            if curve.short
        ]
        return {one.name: one for one in (*scores, *FIGURES, *further)}

    def array(self, figure: str | None = None) -> NDArray[np.float64]:
        """A figure of every run.

        Args:
            figure: one of `figures`; the score unless given.

        Returns:
            float64, one axis for each varied field, then methods, then seeds; NaN where there is
            no figure.
        """
        figure = self.score if figure is None else figure
        if figure not in self._arrays:
            raise ScenarioError(
                f"{figure!r:.60} is not a figure of a sweep: use one of {', '.join(self.figures)}"
            )
        return self._arrays[figure]

    def summary(self) -> Row:
        """The figures of `joulemesh sweep --json`."""
        return {
            "varied": {one.name: list(one.plain) for one in self.varied},
            "methods": list(self.methods),
            "equal": self.equal,
            "seeds": list(self.seeds),
            "target": self.wanted,
            "computed": self.computed,
            "trained_by": trained_by(*self.libraries),
            "combinations": [
                {
                    "fields": self.fields_of(point),
                    "reason": point.reason,
                    "methods": list(point.methods),
                }
                for point in self.points
            ],
        }

    def figure(self, y: str | None = None, width: str | float | None = None) -> Drawing:
        """Draw a figure against every varied field, with 95 % bands.

        Args:
            y: one of `figures`; the score unless given.
            width: for the column of a paper: ``"ieee"``, ``"ieee-wide"``, ``"acm"``,
                ``"acm-wide"``, or inches; None for a screen.

        Returns:
            A figure with one panel for each varied field; the others are averaged over.
        """
        from joulemesh.views.figures import sweep_figure

        return sweep_figure(self, y, width)

    def save(
        self,
        folder: str | Path,
        *,
        code: Sequence[str | Path] = (),
        formats: str | Sequence[str] | None = None,
        width: str | float | None = None,
    ) -> None:
        """Write ``table.csv``, ``table.parquet``, ``summary.csv``, ``table.tex``, figure and page.

        Args:
            folder: made if need be; files of these names in it are replaced.
            code: Python files of the user's own that register methods, to be kept too.
            formats: of the figure; PNG and SVG unless given.
            width: of the figure, as in `figure`.
        """
        from joulemesh.study.sweep import write_sweep

        write_sweep(self, folder, code, formats, width)


def column_of(field: str) -> str:
    """A varied field's column; the scenario's own seed is not that of a repetition."""
    return "scenario.seed" if field == "seed" else field
