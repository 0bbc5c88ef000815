"""What a comparison found: every method's curves and costs, and a table with intervals."""

from __future__ import annotations

__all__ = ["AXES", "Comparison"]

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.methods.setting import equal_terms
from joulemesh.metrics import Metric, reported, score_metric
from joulemesh.models.curves import column_names
from joulemesh.scenario import Scenario
from joulemesh.study.entry import Entry
from joulemesh.study.runs import Row, Runs, Table, row_of, run_rows
from joulemesh.study.statistics import estimate
from joulemesh.study.target import default_target
from joulemesh.training.software import trained_by

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = ("iterations", "joules", "seconds")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several methods on one scenario, on equal terms.

    Attributes:
        scenario: what was asked.
        equal: ``"iterations"``, ``"batteries"``, ``"time"`` or ``"budget"``.
        seeds: repetition seeds.
        entries: one for each method, in the order asked for; differences are against the first.
        wanted: the accuracy, or other score, asked for as target; None for 95 % of the best.
        computed: runs (methods × seeds) that were trained for this study, not found in the cache;
            those that only served to choose a learning rate count too.
        notes: what a reader should know about the data, one line each.
        dataset: what the data are called.
        model: what the model is called.
        parameters: how many parameters it has.
        rates: the learning rates of which each method has got its own; empty without tuning.
        tuned_on: the seeds on which that was decided.
        own_data: the user's, if it was given in memory.
        own_model: whether the model was the user's own, not the scenario's.
        library: of the model: what trained it.
    """

    scenario: Scenario
    equal: str
    seeds: tuple[int, ...]
    entries: tuple[Entry, ...]
    wanted: float | None = None
    computed: int = 0
    notes: tuple[str, ...] = ()
    dataset: str = ""
    model: str = ""
    parameters: int = 0
    rates: tuple[float, ...] = ()
    tuned_on: tuple[int, ...] = ()
    own_data: Dataset | None = None
    own_model: bool = False
    library: str = "jax"

    def __post_init__(self) -> None:
        """Call what is equal by its own name."""
        object.__setattr__(self, "equal", equal_terms(self.equal))

    def __repr__(self) -> str:
        """In one line: every method with its score; `table` has the figures."""
        found = (
            f"{entry.name} {estimate(entry.scores).mean:.4f}"
            if entry.ran
            else f"{entry.name} {entry.status}"
            for entry in self.entries
        )
        return f"{type(self).__name__}({', '.join(found)}; equal {self.equal}, {self.repeats})"

    def __str__(self) -> str:
        """The table of `joulemesh compare`."""
        import joulemesh  # the front door knows the views; this room does not

        return joulemesh.comparison_text(self)

    @property
    def unit(self) -> str:
        """What intervals are over."""
        return "seed"

    @property
    def repeats(self) -> str:
        """How often everything was done, in words."""
        return "1 seed" if len(self.seeds) == 1 else f"{len(self.seeds)} seeds"

    @property
    def repeated(self) -> dict[str, Any]:
        """How often everything was done, as plain values."""
        return {"seeds": list(self.seeds)}

    @property
    def repeat_options(self) -> list[str] | None:
        """The options of a command that does it as often; None for seeds that none can name."""
        first = self.scenario.seed
        if self.seeds != tuple(range(first, first + len(self.seeds))):
            return None
        return ["--seeds", str(len(self.seeds))]

    @property
    def repeats_note(self) -> str:
        """What a reader should know of the repetitions, if anything."""
        return ""

    def __getitem__(self, name: str) -> Entry:
        """The entry of a method, by name."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        known = ", ".join(entry.name for entry in self.entries)
        raise ScenarioError(f"method {name!r} is not in this comparison: it has {known}")

    @property
    def score(self) -> str:
        """The metric that methods are compared by: the key of its figures in `table`."""
        return reported(self.scenario.training).score

    @property
    def metric(self) -> Metric:
        """The same, with its words and which direction is better."""
        return score_metric(self.score)

    @cached_property
    def _target(self) -> tuple[float, str]:
        if self.wanted is not None:
            return self.wanted, "as asked"
        ran = [estimate(entry.scores).mean for entry in self.entries if entry.ran]
        best = max(ran, key=lambda mean: self.metric.sign * mean) if ran else math.nan
        return default_target(best, self.metric, "the best method's final")

    @property
    def target(self) -> float:
        """The score of the mean model that energy and time to target refer to."""
        return self._target[0]

    @property
    def target_words(self) -> str:
        """The target, and where it comes from."""
        return f"test {self.metric.label} {self.target:.4f} of the mean model ({self._target[1]})"

    @cached_property
    def runs(self) -> Runs:
        """One row per method and seed."""
        rows = tuple(run_rows(self.entries, self.seeds, self.target))
        return Runs(rows, score=self.score)

    def table(self) -> list[dict[str, Any]]:
        """One row per method.

        Returns:
            Dicts of plain values. ``X_ci95`` is half the width of the 95 % interval of X over
            seeds (Student's t); ``X_difference`` is X minus that of the first method, paired by
            seed, with its own ``X_difference_ci95``. For what it took to reach the target,
            ``X_error`` says how far the true mean can be from X, because methods are not
            evaluated after every iteration (see `statistics.reached_at`). None where there is no
            such figure: one seed has no interval, and what it took to reach the target is known
            only if all seeds did.
        """
        return [row_of(entry, self.entries[0], self.target) for entry in self.entries]

    def to_csv(self, path: str | Path | None = None) -> str:
        """All curves in long form: one line per method, seed and evaluation.

        Args:
            path: where to write them too, whole or not at all.

        Returns:
            The text.
        """
        return self.curves.to_csv(path)

    @property
    def curves(self) -> Table:
        """All curves in long form: one row per method, seed and evaluation."""
        counts = ("test_samples", "device_samples")
        names = column_names(*reported(self.scenario.training))
        header = ("method", "seed", "iteration", "energy_j", "time_s", *names, *counts)
        return Table(tuple(self._evaluations()), header)

    def _evaluations(self) -> Iterator[Row]:
        names = column_names(*reported(self.scenario.training))
        for entry in self.entries:
            for s, seed in enumerate(self.seeds):
                if not entry.ran or seed in entry.diverged:
                    continue
                for k, iteration in enumerate(entry.iteration):
                    test, device = entry.samples[k].tolist() if len(entry.samples) else (None, None)
                    yield {
                        "method": entry.name,
                        "seed": seed,
                        "iteration": int(iteration),
                        "energy_j": float(entry.energy_j[k, s]),
                        "time_s": float(entry.time_s[k, s]),
                        **{name: float(entry.curves[name][k, s]) for name in names},
                        "test_samples": test,
                        "device_samples": device,
                    }

    @property
    def tried_rates(self) -> Table:
        """What every method reached at every learning rate that was tried, in long form."""
        header = ("method", "learning_rate", "seed", self.score, "chosen")
        rows = (
            dict(zip(header, (entry.name, *line), strict=True))
            for entry in self.entries
            if entry.tuned is not None
            for line in entry.tuned.lines()
        )
        return Table(tuple(rows), header)

    def rates_csv(self) -> str:
        """The same as CSV."""
        return self.tried_rates.to_csv()

    def table_csv(self) -> str:
        """The table as CSV; notes are joined by semicolons."""
        return Table(tuple(self.table())).to_csv()

    @property
    def samples(self) -> dict[str, int]:
        """On how many test samples final figures and curves rest, the fewest of all methods."""
        known = [entry.samples for entry in self.entries if len(entry.samples)]
        if not known:
            return {}
        fewest = np.min([counts.min(axis=0) for counts in known], axis=0)
        return {
            "test_samples": int(min(counts[-1, 0] for counts in known)),
            "curve_test_samples": int(fewest[0]),
            "curve_device_samples": int(fewest[1]),
        }

    @property
    def sampling_error(self) -> float | None:
        """The largest standard error that the number of test samples leaves a final figure."""
        samples, figures = (
            self.samples.get("test_samples", 0),
            [r[self.score] for r in self.table()],
        )
        found = [self.metric.sampling_error(one, samples) for one in figures if one is not None]
        return max((error for error in found if error is not None), default=None)

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh compare --json`.

        Accuracies are those after the last iteration, on all ``test_samples``; curves, and with
        them energy and time to target, rest on at least ``curve_test_samples``. ``accuracy_se`` is
        the largest standard error that the number of test samples leaves an accuracy (None for a
        score that is no share).
        """
        return {
            "equal": self.equal,
            **self.repeated,
            "target": self.target if math.isfinite(self.target) else None,
            "target_words": self.target_words,
            "computed": self.computed,
            "trained_by": trained_by(self.library),
            **({"rates": list(self.rates), "tuned_on": list(self.tuned_on)} if self.rates else {}),
            **self.samples,
            f"{self.score}_se": self.sampling_error,
            "notes": list(self.notes),
            "methods": self.table(),
        }

    def frame(self, what: str = "curves") -> Any:
        """Curves or table, as a pandas DataFrame.

        Args:
            what: ``"curves"`` (a row for every method, seed and evaluation) or ``"table"`` (a row
                for every method, with intervals and differences).

        Returns:
            The columns of ``comparison.csv`` or of ``table.csv``.
        """
        if what not in ("curves", "table"):
            raise ScenarioError(f"frame({what!r}) is unknown; use 'curves' or 'table'")
        return (self.curves if what == "curves" else Table(tuple(self.table()))).to_pandas()

    def figure(self, x: str | Sequence[str] = AXES, *, width: str | float | None = None) -> Figure:
        """Draw accuracy, or another score, with its 95 % bands.

        Args:
            x: against ``"iterations"``, ``"joules"`` or ``"seconds"``, or several of these.
            width: for the column of a paper: ``"ieee"``, ``"ieee-wide"``, ``"acm"``,
                ``"acm-wide"``, or inches; None for a screen.

        Returns:
            A figure with one panel for each.
        """
        import joulemesh  # the front door knows the views; this room does not

        axes = (x,) if isinstance(x, str) else tuple(x)
        return joulemesh.comparison_figure(self, axes, width)

    def save(
        self,
        folder: str | Path,
        *,
        code: Sequence[str | Path] = (),
        formats: str | Sequence[str] | None = None,
        width: str | float | None = None,
        baseline: str | None = None,
    ) -> None:
        """Write ``comparison.csv``, ``table.csv``, the figures and ``report.html``.

        Where learning rates were tuned, ``rates.csv`` has what each method reached at each.

        For a paper there are ``table.tex`` (intervals and significance), ``methods.txt`` (the
        setting in words) and ``references.bib``.

        What it takes to make the comparison again is written too, with names relative to the
        folder: ``scenario.toml``, copies of the files that it names (``inputs/``), and
        ``study.json``, which has methods, seeds, terms, versions and the command.

        Args:
            folder: made if need be; files of these names in it are replaced.
            code: Python files of the user's own that register methods, to be kept too.
            formats: of the figures: some of ``"pdf"``, ``"svg"``, ``"pgf"`` and ``"png"``, in a
                list or in one text with commas; PNG and SVG unless given.
            width: of the figures, as in `figure`.
            baseline: the method that significance in ``table.tex`` is against; the best of each
                column unless given.
        """
        import joulemesh  # the front door knows who writes folders; this room does not

        joulemesh.save_comparison(
            self, folder, code, formats=formats, width=width, baseline=baseline
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        import joulemesh

        return joulemesh.notebook_html(self)
