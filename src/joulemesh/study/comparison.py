"""What a comparison found: every method's curves and costs, and a table with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.methods.setting import equal_terms
from joulemesh.metrics import Metric, reported, score_metric
from joulemesh.models.curves import column_names
from joulemesh.scenario import Scenario
from joulemesh.study.record import Entry, notes_over_worlds
from joulemesh.study.runs import Row, Runs, Table, default_target, row_of, run_rows, worlds_row
from joulemesh.study.statistics import estimate, holm, t_test
from joulemesh.training.software import trained_by
from joulemesh.world.redraw import redrawn_words

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
        from joulemesh.views.comparison import comparison_text

        return comparison_text(self)

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
        from joulemesh.study.kept import seeds_option

        return seeds_option(self.scenario, self.seeds)

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
        from joulemesh.views.figures import comparison_figure

        return comparison_figure(self, (x,) if isinstance(x, str) else tuple(x), width)

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
        from joulemesh.study.compare import write_comparison

        write_comparison(self, folder, code, formats, width, baseline)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from joulemesh.views.notebook import notebook_html

        return notebook_html(self)


FloatArray = NDArray[np.float64]

_MOST_POINTS = 400  # of a curve over worlds


@dataclass(frozen=True, eq=False, repr=False)
class WorldsEntry(Entry):
    """One method in several worlds: what an `Entry` has for a seed, this has for a world."""

    # Each is a mean over the world's seeds, NaN where the method has no run. Curves of worlds are
    # put side by side at equal shares of their runs, which may differ in length.

    each: tuple[Entry, ...] = ()  # the method's entry in every world

    @classmethod
    def over(cls, each: Sequence[Entry]) -> WorldsEntry:
        iteration, shares = _shares([entry for entry in each if entry.ran])

        def curve(values: Sequence[FloatArray]) -> FloatArray:
            at = [_at(shares, one, own) for one, own in zip(each, values, strict=True)]
            return np.stack(at, axis=1)

        def end(values: Sequence[FloatArray]) -> FloatArray:
            return np.stack([_mean(own) for own in values])

        return cls(
            each[0].name,
            iteration,
            {name: curve([one.curves[name] for one in each]) for name in each[0].curves},
            {name: end([one.final[name] for one in each]) for name in each[0].final},
            curve([one.energy_j for one in each]),
            curve([one.time_s for one in each]),
            end([one.spent_j for one in each]),
            end([one.leftover_j for one in each]),
            end([one.totals for one in each]),
            samples=_fewest(len(iteration), [one.samples for one in each if len(one.samples)]),
            learning_rate=float(
                np.mean([one.learning_rate for one in each if one.ran] or [np.nan])
            ),
            score=each[0].score,
            each=tuple(each),
        )

    @property
    def lost(self) -> tuple[int, ...]:
        return tuple(k for k, entry in enumerate(self.each) if not entry.ran)

    @property
    def status(self) -> str:
        """``"ran"``; ``"ran in 3 of 5 worlds"``; or why there is no run, as in a single world."""
        if not self.lost:
            return "ran"
        if len(self.lost) == len(self.each):
            return self.each[0].status
        return f"ran in {len(self.each) - len(self.lost)} of {len(self.each)} worlds"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Worlds without a run and seeds that diverged, then the notes, those of a kind in one."""
        notes = [entry.all_notes for entry in self.each]
        return (*self._without_run(), *self._diverged(), *notes_over_worlds(notes))

    def _without_run(self) -> Iterator[str]:
        if not self.lost:
            return
        first = self.each[self.lost[0]]
        kinds = " or ".join(sorted({self.each[k].status for k in self.lost}))
        rest = "figures are of the others" if self.ran else "there are no figures"
        yield (
            f"{kinds} in {len(self.lost)} of {len(self.each)} worlds "
            f"({_worlds(self.lost)}), and {rest}; world {self.lost[0]}: {first.remarks[0]}"
        )

    def _diverged(self) -> Iterator[str]:
        for k, entry in enumerate(self.each):
            if entry.ran and entry.diverged:
                yield f"world {k}: {entry.remarks[0]}"


def _worlds(numbers: Sequence[int]) -> str:
    return f"world{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _shares(ran: Sequence[Entry]) -> tuple[NDArray[np.int64], FloatArray]:
    """Where curves of worlds are put side by side: at shares of a run at which one is evaluated."""
    if not ran:
        return np.zeros(0, np.int64), np.zeros(0)
    own = [entry.iteration / entry.iteration[-1] for entry in ran]
    every = np.unique(np.concatenate(own))
    every = every[every >= max(float(shares[0]) for shares in own)]
    mean = np.rint(every * np.mean([entry.iteration[-1] for entry in ran])).astype(np.int64)
    last = np.append(np.diff(mean) > 0, True)  # of the shares that fall into one iteration
    iteration, every = mean[last], every[last]
    pick = np.unique(np.rint(np.linspace(0, len(every) - 1, _MOST_POINTS)).astype(np.int64))
    return iteration[pick], every[pick]


def _at(shares: FloatArray, entry: Entry, values: FloatArray) -> FloatArray:
    """[shares]: the mean over seeds [E, S] of an entry, on straight lines between evaluations."""
    if not entry.ran:
        return np.full(len(shares), np.nan)
    return np.asarray(np.interp(shares, entry.iteration / entry.iteration[-1], _mean(values.T)))


def _fewest(length: int, samples: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """[length, 2]: the fewest test samples of any world, of the curves and of their ends."""
    if not samples:
        return np.zeros((0, 2), np.int64)
    rows = np.tile(np.min([counts.min(axis=0) for counts in samples], axis=0), (length, 1))
    rows[-1] = np.min([counts[-1] for counts in samples], axis=0)
    return rows


def _mean(values: FloatArray) -> FloatArray:
    """Mean over the first axis of what is not NaN: NaN where nothing is left."""
    known = np.isfinite(values)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, values, 0.0).sum(axis=0) / known.sum(axis=0))


@dataclass(frozen=True, eq=False, repr=False)
class WorldsComparison(Comparison):
    """Several methods on one scenario in several worlds.

    As a `Comparison`, but ``seeds`` are those of the worlds, and ``entries`` are `WorldsEntry`.

    Attributes:
        worlds: the comparison in each world, as it is with the world's seed.
    """

    worlds: tuple[Comparison, ...] = ()

    @classmethod
    def of(
        cls, scenario: Scenario, worlds: Sequence[Comparison], target: float | None
    ) -> WorldsComparison:
        """Combine comparisons of the same methods in several worlds."""
        entries = zip(*(study.entries for study in worlds), strict=True)
        notes = dict.fromkeys(note for study in worlds for note in study.notes)
        return cls(
            scenario,
            worlds[0].equal,
            tuple(study.scenario.seed for study in worlds),
            tuple(WorldsEntry.over(each) for each in entries),
            target,
            sum(study.computed for study in worlds),
            tuple(notes),
            worlds[0].dataset,
            worlds[0].model,
            worlds[0].parameters,
            worlds[0].rates,
            worlds[0].tuned_on,
            library=worlds[0].library,
            worlds=tuple(worlds),
        )

    @property
    def unit(self) -> str:
        """What intervals are over."""
        return "world"

    @property
    def repeats(self) -> str:
        """How often everything was done, in words."""
        seeds = len(self.worlds[0].seeds)
        each = "one seed" if seeds == 1 else f"{seeds} seeds"
        return f"{len(self.worlds)} worlds of {each} each"

    @property
    def repeated(self) -> dict[str, Any]:
        """How often everything was done: the seeds of the worlds, and how many each has."""
        return {"worlds": list(self.seeds), "seeds": len(self.worlds[0].seeds)}

    @property
    def repeat_options(self) -> list[str]:
        """The options of a command that does it as often."""
        return ["--seeds", str(len(self.worlds[0].seeds)), "--worlds", str(len(self.worlds))]

    @cached_property
    def repeats_note(self) -> str:
        """What differs from world to world."""
        return redrawn_words(self.scenario)

    def table(self) -> list[dict[str, Any]]:
        """One row per method.

        Returns:
            Dicts of plain values, as in `Comparison.table`, with means over the seeds of a world in
            place of seeds: ``X_ci95`` is of the interval over worlds, and ``X_difference`` is
            paired by seed within a world, then by world. ``worlds`` says in how many of
            ``worlds_asked`` the method has a run; all its figures are of these.
        """
        first, target = self.entries[0], self.target
        return [worlds_row(entry, first, target) for entry in self.entries]  # type: ignore[arg-type]

    @cached_property
    def runs(self) -> Runs:
        """One row per world, method and seed."""
        table = _by_world(study.runs for study in self._to_one_target())
        return Runs(table.rows, keys=("world", "method", "seed"), score=self.score)

    @property
    def curves(self) -> Table:
        """All curves in long form: one row per world, method, seed and evaluation."""
        return _by_world(study.curves for study in self.worlds)

    @property
    def tried_rates(self) -> Table:
        """What every method reached at every learning rate that was tried, in every world."""
        return _by_world(study.tried_rates for study in self.worlds)

    def _to_one_target(self) -> list[Comparison]:
        """The worlds, all with the same target: by themselves each has its own."""
        target = self.target if math.isfinite(self.target) else None
        return [replace(study, wanted=target) for study in self.worlds]

    def worlds_csv(self) -> str:
        """The table of every world as CSV, one below the other, with the target of all."""
        return Table.of(
            {"world": k, "world_seed": study.scenario.seed, **row}
            for k, study in enumerate(self._to_one_target())
            for row in study.table()
        ).to_csv()

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh compare --worlds K --json`."""
        each = [
            {"world": k, "seed": study.scenario.seed, "methods": study.table()}
            for k, study in enumerate(self._to_one_target())
        ]
        return {**super().summary(), "redrawn": self.repeats_note, "each": each}


def _by_world(tables: Iterable[Table]) -> Table:
    """The worlds' tables in one, with the number of the world before each row."""
    tables = list(tables)
    rows = [{"world": k, **row} for k, table in enumerate(tables) for row in table.rows]
    return Table(tuple(rows), ("world", *tables[0].header))


def merits(study: Comparison) -> dict[str, int]:
    """Figures of the table that judge a method: 1 where more is better, -1 where less."""
    # They are the score of the mean model and of the devices' own, and what it took to reach the
    # target.
    score, sign = study.score, study.metric.sign
    owned = {f"device_{score}": sign} if study.metric.devices else {}
    return {score: sign, **owned, "energy_to_target_j": -1, "time_to_target_s": -1}


@dataclass(frozen=True)
class Judgement:
    """One figure of all methods, tested against one of them."""

    best: int | None  # position of the best method; None where no method has the figure
    against: int | None  # position of the method that the others are tested against, or None
    # for each method, the p-value of the paired t-test, corrected by Holm's method for the tests of
    # this figure; NaN where there is no test
    p: tuple[float, ...]


def judged(study: Comparison, figure: str, baseline: str | None = None) -> Judgement:
    rows = study.table()
    known = [k for k, row in enumerate(rows) if row[figure] is not None]
    sign = merits(study)[figure]
    best = max(known, key=lambda k: sign * rows[k][figure], default=None)
    against = best
    if baseline is not None:
        chosen = study.entries.index(study[baseline])
        against = chosen if chosen in known else None
    if against is None:
        return Judgement(best, None, (math.nan,) * len(rows))
    rival, runs = study.entries[against].name, study.runs
    raw = [
        t_test(runs.differences(entry.name, rival, figure))
        if k in known and k != against
        else math.nan
        for k, entry in enumerate(study.entries)
    ]
    return Judgement(best, against, tuple(holm(raw)))
