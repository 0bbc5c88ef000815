"""One table of runs under everything that is repeated, and what is summed up from it.

A run is a row. Methods, seeds, worlds, varied fields and tuned plans are columns that say which run
it is; the others are what it reached and cost, as plain values.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_text, write_whole
from joulemesh.base.optional import frame, require
from joulemesh.data import Dataset
from joulemesh.methods import Citation, lookup
from joulemesh.metrics import ACCURACY, CROSS_ENTROPY, Metric, score_metric
from joulemesh.models.curves import column_names
from joulemesh.scenario.sections import Training
from joulemesh.study.statistics import Estimate, Reached, estimate, paired, reached_at

if TYPE_CHECKING:
    from joulemesh.study.comparison import WorldsEntry
    from joulemesh.study.record import Entry


FloatArray = NDArray[np.float64]

LABELS = ("compute_j", "exchange_j", "server_j", "bits", "receive_j", "idle_j")
_WORDS = ("description", "citation")  # of a method, whatever the world


Row = dict[str, Any]

REPETITIONS = ("world", "seed")
"""Columns by which runs differ that are repetitions of each other."""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of plain values with the same columns; None where there is no figure.

    Attributes:
        rows: in order.
        names: of the columns; those of the first row unless given.
    """

    rows: tuple[Row, ...]
    names: tuple[str, ...] = ()

    @property
    def header(self) -> tuple[str, ...]:
        """The names of the columns."""
        return self.names or tuple(self.rows[0])

    @classmethod
    def of(cls, rows: Iterable[Row], last: Sequence[str] = ()) -> Table:
        """A table of rows that lack some columns of others.

        Args:
            rows: in order.
            last: columns that stand after all others.
        """
        rows = list(rows)
        columns = dict.fromkeys(name for row in rows for name in row)
        order = sorted(columns, key=lambda name: name in last)
        return Table(tuple({name: row.get(name) for name in order} for row in rows))

    @property
    def columns(self) -> dict[str, list[Any]]:
        """The same, column by column."""
        return {name: [row[name] for row in self.rows] for name in self.header}

    def to_csv(self, path: str | Path | None = None) -> str:
        """The table as CSV; what is a list is joined by semicolons.

        Args:
            path: where to write it too, whole or not at all.

        Returns:
            The text.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        for row in self.rows:
            cells = (row[name] for name in self.header)
            writer.writerow("; ".join(v) if isinstance(v, list) else v for v in cells)
        if path is not None:
            write_text(path, text.getvalue())
        return text.getvalue()

    def to_pandas(self) -> Any:
        """The table as a pandas DataFrame."""
        return frame(self.columns)

    def to_parquet(self, path: str | Path) -> None:
        """Write the table as Parquet, whole or not at all; this needs pyarrow."""
        arrow = require("pyarrow", "writing Parquet")
        parquet = require("pyarrow.parquet", "writing Parquet", "pyarrow")
        table = arrow.table({name: _alike(cells) for name, cells in self.columns.items()})
        write_whole(Path(path), lambda draft: parquet.write_table(table, draft))


@dataclass(frozen=True, eq=False)
class Runs(Table):
    """A row for each run.

    Attributes:
        keys: columns that say which run it is: repetitions (``seed``, ``world``) and settings, of
            which the last is what is compared.
        score: the metric that runs are compared by.

    >>> rows = [{"method": m, "seed": s, "accuracy": a + s / 100}
    ...         for m, a in (("adaptive", 0.9), ("fixed:3", 0.8)) for s in (0, 1)]
    >>> runs = Runs(tuple(rows))
    >>> runs.best()["method"], round(runs.paired(against="fixed:3").rows[0]["difference"], 3)
    ('adaptive', 0.1)
    """

    keys: tuple[str, ...] = ("method", "seed")
    score: str = "accuracy"

    @property
    def settings(self) -> tuple[str, ...]:
        """The keys that are not repetitions."""
        return tuple(name for name in self.keys if name not in REPETITIONS)

    @cached_property
    def _groups(self) -> dict[tuple[Any, ...], dict[tuple[Any, ...], Row]]:
        """Rows by setting, then by repetition."""
        found: dict[tuple[Any, ...], dict[tuple[Any, ...], Row]] = {}
        for row in self.rows:
            setting = tuple(_hashable(row[name]) for name in self.settings)
            found.setdefault(setting, {})[tuple(row.get(name) for name in REPETITIONS)] = row
        return found

    def best(self, figure: str | None = None) -> Row:
        """The setting of the best mean of a figure, with that mean and its 95 % interval.

        Args:
            figure: a column; the score unless given. Of joules and seconds less is better.

        Raises:
            ScenarioError: there is no such column, or no run has a figure in it.
        """
        figure = self._known(figure)
        found = [self._mean(rows, figure) for rows in self._groups.values()]
        known = [row for row in found if row[figure] is not None]
        if not known:
            raise ScenarioError(f"no run has a figure in column {figure!r}: choose another column")
        return max(known, key=lambda row: self._sign(figure) * row[figure])

    def paired(self, against: Any, figure: str | None = None) -> Table:
        """Mean differences from one value of the last setting, with 95 % intervals.

        Runs are paired by seed; in several worlds a difference is first a mean over the seeds of
        a world, and worlds are what is counted.

        Args:
            against: of the last setting: ``"fixed:3"``, say, where methods are compared.
            figure: a column; the score unless given.

        Returns:
            A row for every other setting: its columns, ``difference``, ``difference_ci95``.

        Raises:
            ScenarioError: there is no such column or value.
        """
        figure = self._known(figure)
        rows = []
        for setting, mine in self._groups.items():
            if setting[-1] == _hashable(against):
                continue
            rival = self._groups.get((*setting[:-1], _hashable(against)))
            if rival is None:
                known = ", ".join(dict.fromkeys(str(one[-1]) for one in self._groups))
                raise ScenarioError(f"{against!r} is not among these runs: they have {known}")
            found = estimate(self._units(mine, figure, rival))
            first = next(iter(mine.values()))
            rows.append({n: first[n] for n in self.settings} | _cells("difference", found))
        return Table(tuple(rows))

    def differences(self, name: Any, against: Any, figure: str) -> FloatArray:
        """One difference for every seed, or world: NaN where one of the two has no figure."""
        return self._units(self._groups[name,], figure, self._groups[against,])

    def _known(self, figure: str | None) -> str:
        figure = figure or self.score
        if figure not in self.header:
            raise ScenarioError(f"{figure!r} is no column: use one of {', '.join(self.header)}")
        return figure

    def _sign(self, figure: str) -> int:
        if figure in (self.score, f"device_{self.score}"):
            return score_metric(self.score).sign
        return -1 if figure.endswith(("_j", "_s", "loss", "bits", "rate", "iterations")) else 1

    def _mean(self, rows: dict[tuple[Any, ...], Row], figure: str) -> Row:
        first = next(iter(rows.values()))
        found = estimate(self._units(rows, figure))
        return {name: first[name] for name in self.settings} | _cells(figure, found)

    def _units(
        self,
        rows: dict[tuple[Any, ...], Row],
        figure: str,
        rival: dict[tuple[Any, ...], Row] | None = None,
    ) -> FloatArray:
        """A figure, or its difference from a rival's, of every seed; in worlds of every world."""
        worlds: dict[Any, list[float]] = {}
        for place, row in rows.items():
            value = _number(row[figure])
            if rival is not None:
                value -= _number(rival[place][figure]) if place in rival else math.nan
            worlds.setdefault(place[0], []).append(value)
        if "world" not in self.keys:
            return np.array([value for values in worlds.values() for value in values])
        kept = [[value for value in values if math.isfinite(value)] for values in worlds.values()]
        return np.array([float(np.mean(values)) if values else math.nan for values in kept])


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, dict | list) else value


def _alike(cells: list[Any]) -> list[Any]:
    """A column of one kind: numbers, or texts where something else is among them."""
    known = {type(cell) for cell in cells if cell is not None}
    if len(known) < 2 or known == {int, float}:
        return cells
    return [None if cell is None else str(cell) for cell in cells]


def run_rows(entries: Sequence[Entry], seeds: Sequence[int], target: float) -> Iterator[Row]:
    """One row for each method and seed of a comparison."""
    for entry in entries:
        figures = {
            name: figure.value if isinstance(figure, Reached) else figure
            for name, figure in figures_of(entry, target).items()
        }
        for k, seed in enumerate(seeds):
            ran = entry.ran and seed not in entry.diverged
            row: Row = {"method": entry.name, "seed": seed}
            row["status"] = "ran" if ran else "diverged" if entry.diverged else entry.status
            row["iterations"] = int(entry.iteration[-1]) if ran else None
            row |= {name: _plain(values[k]) for name, values in figures.items()}
            row["target"] = _plain(target)
            row["leftover_j"] = _plain(entry.leftover_j[k].sum())
            for place, label in enumerate(LABELS):
                known = place < entry.totals.shape[1]
                row[label] = _plain(entry.totals[k, place]) if known else 0.0 if ran else None
            row["learning_rate"] = _plain(entry.learning_rate)
            row["reason"] = "" if ran else _why(entry.infeasible, entry.diverged.get(seed))
            yield row


def _why(infeasible: str | None, diverged: int | None) -> str:
    return infeasible if infeasible is not None else f"diverged in iteration {diverged}"


def infeasible_row(method: str, seed: int, reason: str) -> Row:
    """The row of a run that there is not, because nothing could be planned."""
    return {"method": method, "seed": seed, "status": "refused", "reason": reason}


def about(name: str) -> tuple[str, Citation | None]:
    """What a method does, and where it was published; nothing if it is not known here."""
    try:
        method = lookup(name)
    except ScenarioError:  # of a study that was made elsewhere
        return "", None
    return method.description, method.citation


def figures_of(entry: Entry, target: float) -> dict[str, FloatArray | Reached]:
    score, better = entry.score, score_metric(entry.score).better
    always, curve = column_names((), score), entry.curves[f"test_{score}"]

    def taken(cost: FloatArray) -> Reached:
        return reached_at(entry.iteration, curve, cost, target, better)

    return {
        score: entry.scores,
        f"device_{score}": entry.final[f"device_{score}_mean"],
        **{name: values for name, values in entry.final.items() if name not in always},
        "energy_j": entry.total_energy_j,
        "time_s": entry.total_time_s,
        "energy_to_target_j": taken(entry.energy_j),
        "time_to_target_s": taken(entry.time_s),
    }


def row_of(entry: Entry, first: Entry, target: float) -> dict[str, Any]:
    mine, rivals = figures_of(entry, target), figures_of(first, target)
    taken = mine["energy_to_target_j"]
    assert isinstance(taken, Reached)
    row: dict[str, Any] = {
        "method": entry.name,
        "status": entry.status,
        "seeds": len(entry.totals) - len(entry.diverged) if entry.ran else 0,
        "iterations": int(entry.iteration[-1]) if entry.ran else None,
        "reached": int(np.isfinite(taken.value).sum()),
        "learning_rate": _plain(entry.learning_rate),
    }
    for name, figures in mine.items():
        against = rivals[name]
        if isinstance(figures, Reached) and isinstance(against, Reached):
            row |= _to_target(name, entry, figures, first, against)
        elif isinstance(figures, np.ndarray) and isinstance(against, np.ndarray):
            row |= _cells(name, estimate(figures))
            apart = paired(figures, against) if entry is not first else None
            row |= _cells(f"{name}_difference", apart)
    row["leftover_j"] = _plain(estimate(entry.leftover_j.sum(axis=1)).mean)
    for k, label in enumerate(LABELS):  # the last two only where they cost anything
        known = k < entry.totals.shape[1]
        row[label] = _plain(estimate(entry.totals[:, k]).mean) if known else 0.0
    both = row["exchange_j"], row["receive_j"]
    row["transmit_j"] = None if None in both else both[0] - both[1]
    said, citation = about(entry.name)
    row |= {"description": said, "citation": str(citation or "")}
    row["notes"] = list(entry.remarks)
    return row


def worlds_row(entry: WorldsEntry, first: WorldsEntry, target: float) -> dict[str, Any]:
    rows = [row_of(one, rival, target) for one, rival in zip(entry.each, first.each, strict=True)]
    ran = np.array([one.ran for one in entry.each])
    both = ran & np.array([one.ran for one in first.each])
    total: dict[str, Any] = {
        "method": entry.name,
        "status": entry.status,
        "worlds": int(ran.sum()),
        "worlds_asked": len(rows),
        "seeds": sum(row["seeds"] for row in rows),
        "iterations": int(entry.iteration[-1]) if entry.ran else None,
        "reached": sum(row["reached"] for row in rows),
    }
    words = {name: rows[0][name] for name in _WORDS}
    for name in rows[0]:
        if name in total or name in words or name == "notes" or name.endswith("_ci95"):
            continue
        values = np.array([row[name] for row in rows], np.float64)  # None becomes NaN
        # What it took to reach the target is known only if it is so in every world with a run.
        needed = both if "_difference" in name else ran
        missing = "_to_target_" in name and np.isnan(values[needed]).any()
        found = None if missing else estimate(values)
        if f"{name}_ci95" in rows[0]:
            total |= _cells(name, found)
        else:
            total[name] = None if found is None else _plain(found.mean)
    return {**total, **words, "notes": list(entry.remarks)}


def _to_target(
    name: str, entry: Entry, taken: Reached, first: Entry, rival: Reached
) -> dict[str, float | None]:
    """Energy or time to the target, with what evaluations leave open of it."""
    # A mean over the seeds that reach the target would flatter a method that rarely does: there is
    # none unless all do.
    whole = _all_reached(entry, taken.value)
    both = entry is not first and whole and _all_reached(first, rival.value)
    cells = _cells(name, estimate(taken.value) if whole else None)
    cells[f"{name}_error"] = _plain(estimate(taken.error).mean) if whole else None
    label = f"{name}_difference"
    cells |= _cells(label, paired(taken.value, rival.value) if both else None)
    cells[f"{label}_error"] = _plain(estimate(taken.error + rival.error).mean) if both else None
    return cells


def _all_reached(entry: Entry, values: FloatArray) -> bool:
    """Has every seed that did not diverge a figure, and is there one?"""
    missing = int(np.isnan(values).sum())
    return missing == len(entry.diverged) < len(values)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _cells(name: str, found: Estimate | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_ci95": None}
    return {name: _plain(found.mean), f"{name}_ci95": _plain(found.half)}


SHARE_OF_FINAL = 0.95  # the target, unless given


def check_target(target: float | None, metric: Metric = ACCURACY) -> None:
    """Refuse a target that is not a figure of the metric that runs are compared by."""
    if target is None:
        return
    if metric.share and not 0 < target <= 1:
        a = "an" if metric.label[0] in "aeiou" else "a"
        raise ScenarioError(
            f"target = {target} is not {a} {metric.label}: give a number above 0, at most 1"
        )
    if not math.isfinite(target):
        raise ScenarioError(f"target = {target} is not a {metric.label}: give a number")


def default_target(final: float, metric: Metric, whose: str) -> tuple[float, str]:
    """A target that is almost as good as a final figure, and where it comes from."""
    if metric.better == "higher" and final >= 0:
        return SHARE_OF_FINAL * final, f"95 % of {whose} {metric.label}"
    if metric.better == "lower" and final >= 0:
        return (2 - SHARE_OF_FINAL) * final, f"1.05 times {whose} {metric.label}"
    less = 0.05 * abs(final) * metric.sign
    return final - less, f"5 % short of {whose} {metric.label}"


def to_target(
    iteration: NDArray[Any],
    curve: NDArray[Any],
    energy_j: NDArray[np.float64],
    time_s: NDArray[np.float64],
    wanted: float | None = None,
    metric: Metric = ACCURACY,
) -> dict[str, Any]:
    """Joules and seconds until a run's curve first reaches a target, means over seeds."""
    check_target(wanted, metric)
    final = float(np.asarray(curve)[-1].mean())
    target, why = default_target(final, metric, "the final")
    if wanted is not None:
        target, why = wanted, "as asked"
    found: dict[str, Any] = {
        "target": target,
        "target_words": f"test {metric.label} {target:.4f} of the mean model ({why})",
        "target_metric": metric.name,
        "target_asked": wanted is not None,
        "reached": 0,
    }
    for name, cost in (("energy_to_target_j", energy_j), ("time_to_target_s", time_s)):
        each = np.broadcast_to(cost if cost.ndim == 2 else cost[:, None], np.shape(curve))
        taken = reached_at(iteration, curve, each, target, metric.better)
        found["reached"] = int(np.isfinite(taken.value).sum())
        whole = found["reached"] == len(taken.value)
        mean = estimate(taken.value)
        found[name] = _plain(mean.mean) if whole else None
        found[f"{name}_ci95"] = _plain(mean.half) if whole else None
        found[f"{name}_error"] = _plain(estimate(taken.error).mean) if whole else None
    return found


def chance_note(
    dataset: Dataset,
    training: Training,
    score: str,
    scores: NDArray[np.floating],
    losses: NDArray[np.floating],
    learning_rate: float | None = None,
) -> str:
    """A sentence on a run that ends no better than guessing; empty if it ends better."""
    # A classifier has learned nothing if its accuracy does not exceed the share of the most
    # frequent class of the test set by more than a standard error, or if its cross-entropy is above
    # ln K, that of calling all K classes equally likely. Nothing is said of regression.
    if training.loss != CROSS_ENTROPY.name or dataset.classes < 2 or np.isnan(losses).all():
        return ""
    found = []
    loss, limit = float(np.nanmean(losses)), math.log(dataset.classes)
    if score == "accuracy":
        counts = np.unique(np.asarray(dataset.y_test), return_counts=True)[1]
        samples, accuracy = int(counts.sum()), float(np.nanmean(scores))
        share = counts.max() / samples
        error = math.sqrt(share * (1 - share) / samples)
        if accuracy <= share + error:
            found.append(
                f"no better than chance: accuracy {accuracy:.4f}, and the most frequent class of "
                f"the {samples:,} test samples alone gives {share:.4f} ± {error:.4f} (standard "
                "error)"
            )
    above = not loss <= limit
    if above:
        found.append(
            f"the test loss ends at {loss:.3g}, above ln {dataset.classes} = {limit:.3g}, that of "
            "calling all classes equally likely"
        )
    if not found:
        return ""
    rate = training.learning_rate if learning_rate is None else learning_rate
    change = "lower" if above else "change"
    return f"{'; '.join(found)}; {change} training.learning_rate first (now {rate:g})"
