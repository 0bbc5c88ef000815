"""One method at one seed: all that a comparison keeps of a run."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.files import find, keep, open_arrays, require_usable, user_cache
from joulemesh.metrics import Reported, score_metric
from joulemesh.models.curves import CURVES, column_names
from joulemesh.study.statistics import estimate

FloatArray = NDArray[np.float64]


FIGURE = re.compile(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?")


def notes_over_worlds(each: Sequence[Sequence[str]]) -> Iterator[str]:
    """Notes of several worlds; those that differ in figures alone become one."""
    kinds: dict[str, list[tuple[int, str]]] = {}
    for k, notes in enumerate(each):
        for note in notes:
            kinds.setdefault(FIGURE.sub("#", note), []).append((k, note))
    for found in kinds.values():
        count = len({k for k, _ in found})
        k, note = found[0]
        if count == len(each) and len({text for _, text in found}) == 1:
            yield note
        else:
            yield f"in {count} of {len(each)} worlds, for instance world {k}: {note}"


"""Of notes that say the same with other figures."""


def gathered(said: Iterable[tuple[str, Sequence[str]]]) -> list[tuple[str, str]]:
    """Notes with the names of all whom they concern, each note once."""
    names: dict[str, list[str]] = {}
    for name, notes in said:
        for note in dict.fromkeys(notes):
            names.setdefault(note, []).append(name)
    return [(", ".join(whom), note) for note, whom in names.items()]


@dataclass(frozen=True, eq=False)
class Entry:
    """One method in a comparison; seeds in the order of the study's, NaN where one diverged."""

    name: str  # as the user wrote it
    iteration: NDArray[np.int64]  # int64 [E], iterations done at each evaluation
    curves: Mapping[str, FloatArray]  # each of `metrics.curves.column_names`, float64 [E, S]
    # each of them after the last iteration, on all test samples, float64 [S]
    final: Mapping[str, FloatArray]
    energy_j: FloatArray  # float64 [E, S], joules of all devices so far
    time_s: FloatArray  # float64 [E, S], seconds of the modelled clock so far
    spent_j: FloatArray  # float64 [S, N], joules that each battery paid
    leftover_j: FloatArray  # float64 [S, N], what stayed in it; negative where it is overdrawn
    # float64 [S, 4] or [S, 6]: joules of training, of the radio, of a server; bits on the air;
    # where they cost anything, the radio's for receiving, and joules at rest
    totals: FloatArray
    notes: tuple[str, ...] = ()  # what a reader should know, one line each
    infeasible: str | None = None  # why the method cannot run at all; None if it can
    # the iteration in which each seed that diverged did so
    diverged: Mapping[int, int] = field(default_factory=dict)
    # int64 [E, 2], or [0, 2] where it is not kept: on how many test samples each evaluation was
    # made, and on how many of these devices were compared with the mean model
    samples: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    learning_rate: float = math.nan  # that it was trained with; NaN where that is not kept
    tuned: TunedRate | None = None  # how that rate was chosen; None if it is the scenario's
    score: str = "accuracy"  # the metric that methods are compared by

    @classmethod
    def drawn(
        cls,
        name: str,
        iteration: NDArray[np.int64],
        curves: Mapping[str, FloatArray],
        costs: Sequence[FloatArray],
        devices: int,
        **more: Any,
    ) -> Entry:
        """An entry of which curves, joules and seconds are known, and no battery."""
        joules, seconds = costs
        count = joules.shape[1]
        final = {
            curve: values[-1] if len(values) else np.full(count, np.nan)
            for curve, values in curves.items()
        }
        unknown, totals = np.full((count, devices), np.nan), np.full((count, 4), np.nan)
        return cls(
            name, iteration, curves, final, joules, seconds, unknown, unknown, totals, **more
        )

    @classmethod
    def refused(
        cls, name: str, why: str, seeds: int, devices: int, measured: Reported | None = None
    ) -> Entry:
        """The entry of a method that cannot run."""
        measured = measured or Reported()
        none = np.zeros((0, seeds))
        curves, costs = dict.fromkeys(column_names(*measured), none), (none, none)
        known = {"infeasible": why, "score": measured.score}
        return cls.drawn(name, np.zeros(0, np.int64), curves, costs, devices, **known)

    def __repr__(self) -> str:
        """In a few words."""
        if not self.ran:
            return f"Entry({self.name}: {self.status})"
        reached = f"{score_metric(self.score).label} {estimate(self.scores).mean:.4f}"
        return f"Entry({self.name}: {int(self.iteration[-1]):,} iterations, {reached})"

    @property
    def scores(self) -> FloatArray:
        """float64 [S]: what methods are compared by, after the last iteration."""
        return self.final[f"test_{self.score}"]

    @property
    def status(self) -> str:
        """``"ran"``, ``"infeasible"``, or ``"diverged"`` (at one seed at least)."""
        if self.infeasible is not None:
            return "infeasible"
        return "diverged" if self.diverged else "ran"

    @property
    def ran(self) -> bool:
        """Is there a run of at least one seed?"""
        return len(self.iteration) > 0

    @property
    def total_energy_j(self) -> FloatArray:
        """float64 [S]: joules of all batteries together."""
        return np.asarray(self.spent_j.sum(axis=1))

    @property
    def total_time_s(self) -> FloatArray:
        """float64 [S]: seconds of the whole run."""
        return self.time_s[-1] if self.ran else np.full(len(self.totals), np.nan)

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes, after those on how its learning rate was chosen."""
        return self.notes if self.tuned is None else (*self.tuned.notes, *self.notes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """The notes, with why it could not run and which seeds diverged before them."""
        if self.infeasible is not None:
            return (self.infeasible, *self.notes)
        notes = self.all_notes
        lost = [f"seed {seed} in iteration {when}" for seed, when in self.diverged.items()]
        if not lost:
            return notes
        rest = "; figures are of the other seeds" if self.ran else ""
        rate = self.learning_rate
        now = "" if math.isnan(rate) else f"; lower training.learning_rate (now {rate:g})"
        return (f"diverged: {', '.join(lost)}{rest}{now}", *notes)


@dataclass(frozen=True, eq=False)
class TunedRate:
    """How a method got its learning rate."""

    # The smaller of two as good; one that diverges at any seed loses.

    grid: tuple[float, ...]  # the rates that were tried, ascending
    seeds: tuple[int, ...]  # on which
    # float64 [rates, seeds]: final test accuracy of the mean model, or another score; NaN where
    # training diverged
    accuracy: FloatArray
    better: Literal["higher", "lower"] = "higher"  # whether higher or lower figures are better
    # which value of a parameter of its own was chosen besides, in words; empty for none
    own: str = ""

    @property
    def _best(self) -> int:
        means = self.accuracy.mean(axis=1) * (1 if self.better == "higher" else -1)
        return int(np.argmax(np.where(np.isnan(means), -np.inf, means)))

    @property
    def chosen(self) -> float:
        """The rate of the best mean score; the smallest one if all of them diverged."""
        return self.grid[self._best]

    @property
    def notes(self) -> tuple[str, ...]:
        """The choice in words, and what casts doubt on it."""
        best, count = self._best, len(self.seeds)
        seeds = "1 seed" if count == 1 else f"{count} seeds"
        low, high = f"{self.grid[0]:g}", f"{self.grid[-1]:g}"
        span = f"{len(self.grid)} from {low} to {high}, tried on {seeds} that no result uses"
        said = f"learning rate {self.chosen:g}, the best of {span}"
        if np.isnan(self.accuracy[best]).any():
            return (f"diverged at every learning rate ({span}): give smaller ones",)
        if len(self.grid) > 1 and best in (0, len(self.grid) - 1):
            end = "smallest" if best == 0 else "largest"
            said += f"; it is the {end} of them, so that a better one may lie beyond"
        return (said, self.own) if self.own else (said,)

    def lines(self) -> Iterator[tuple[float, int, float | str, bool]]:
        """Rate, seed, score ("" where it diverged), and whether the rate was chosen."""
        for rate, row in zip(self.grid, self.accuracy.tolist(), strict=True):
            for seed, value in zip(self.seeds, row, strict=True):
                yield rate, seed, "" if math.isnan(value) else value, rate == self.chosen


def across(entry: Entry, axis: str) -> NDArray[np.float64]:
    """[E]: where a method's evaluations stand on a horizontal axis, mean over seeds."""
    if axis == "iterations":
        return entry.iteration.astype(np.float64)
    costs = entry.energy_j if axis == "joules" else entry.time_s
    return np.asarray(np.nanmean(costs, axis=1))


_EMPTY: FloatArray = np.zeros(0)
_FEWEST = len(column_names((), "loss"))


@dataclass(frozen=True, eq=False)
class Record:
    """What one run reached and cost."""

    # int64 [E], iterations done at each evaluation
    iteration: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    # float64 [E, C], of each evaluation the `column_names` of what the scenario reports
    curves: FloatArray = field(default_factory=lambda: np.zeros((0, len(CURVES))))
    # float64 [C], the same at the end, on all test samples
    final: FloatArray = field(default_factory=lambda: np.full(len(CURVES), np.nan))
    # float64 [E], joules of all devices so far
    energy_j: FloatArray = field(default_factory=lambda: _EMPTY)
    # float64 [E], seconds of the modelled clock so far
    time_s: FloatArray = field(default_factory=lambda: _EMPTY)
    # float64 [N], joules that each battery paid
    spent_j: FloatArray = field(default_factory=lambda: _EMPTY)
    # float64 [4] or [6]: joules of training, joules of the radio, joules of a server, bits; where
    # they cost anything, what of the radio's was for receiving, and at rest
    totals: FloatArray = field(default_factory=lambda: np.full(4, np.nan))
    # the iteration in which parameters ceased to be finite; 0 if they never did. A diverged run has
    # nothing else
    diverged: int = 0
    # int64 [E, 2], or [0, 2] where it is not kept: on how many test samples each evaluation was
    # made, and on how many of these devices were compared with the mean model
    samples: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    def __post_init__(self) -> None:
        """Refuse arrays that do not fit together: a damaged file must not pass for a run."""
        count = len(self.iteration)
        good = (
            self.iteration.shape == self.energy_j.shape == self.time_s.shape == (count,)
            and self.final.ndim == 1
            and len(self.final) >= _FEWEST
            and self.curves.shape == (count, len(self.final))
            and self.spent_j.ndim == 1
            and self.totals.shape in ((4,), (6,))
            and self.samples.shape in ((0, 2), (count, 2))
            and (count > 0) == (self.diverged == 0)
        )
        if not good:
            raise ValueError("the arrays of a run do not fit together")


def to_bytes(record: Record) -> bytes:
    """A record as an .npz file."""
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {f.name: np.asarray(getattr(record, f.name)) for f in fields(record)}
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def from_bytes(content: bytes) -> Record:
    """Read what `to_bytes` wrote."""
    try:
        with open_arrays(content) as file:
            arrays: dict[str, Any] = {name: file[name] for name in (f.name for f in fields(Record))}
        return Record(**{**arrays, "diverged": int(arrays["diverged"])})
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"not a kept run: {error}") from None


def default_folder() -> Path:
    """Where runs are kept unless told otherwise: in the user's cache folder."""
    return user_cache() / "compare"


class Cache:
    """A folder of runs, one small file each, whole or not at all."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = default_folder() if folder is None else Path(folder)

    @property
    def unfinished(self) -> Path:
        """Where trainings under way are kept, each in a folder of its own."""
        return self.folder / "unfinished"

    def _place(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key}.run"

    def find(self, key: str | None) -> Record | None:
        """The run under a key; None if there is none, or if its file is damaged."""
        if key is None:
            return None
        content = find(self._place(key))
        with suppress(ValueError):
            return None if content is None else from_bytes(content)
        return None

    def keep(self, key: str | None, record: Record) -> None:
        """Keep a run; without a key it is not kept."""
        if key is not None:
            keep(self._place(key), to_bytes(record))

    def require_usable(self) -> None:
        """Refuse a folder that runs could not be kept in, before they are computed."""
        require_usable(self.folder, "choose another --cache")


def entry_of(
    name: str,
    records: Mapping[int, Record],
    battery_j: FloatArray,
    notes: Sequence[str] = (),
    measured: Reported | None = None,
) -> Entry:
    """Put one method's runs side by side."""
    measured = measured or Reported()
    ran = [record for record in records.values() if not record.diverged]
    iteration = ran[0].iteration if ran else np.zeros(0, np.int64)
    length, devices, names = len(iteration), len(battery_j), column_names(*measured)

    def side_by_side(part: str, *shape: int) -> FloatArray:
        missing = np.full(shape, np.nan)
        columns = [missing if r.diverged else getattr(r, part) for r in records.values()]
        return np.stack(columns, axis=0)

    curves = side_by_side("curves", length, len(names))
    final = side_by_side("final", len(names))
    spent_j = side_by_side("spent_j", devices)
    return Entry(
        name,
        iteration,
        {curve: curves[:, :, k].T for k, curve in enumerate(names)},
        {curve: final[:, k] for k, curve in enumerate(names)},
        side_by_side("energy_j", length).T,
        side_by_side("time_s", length).T,
        spent_j,
        battery_j - spent_j,
        side_by_side("totals", len(ran[0].totals) if ran else 4),
        tuple(notes),
        diverged={seed: r.diverged for seed, r in records.items() if r.diverged},
        samples=ran[0].samples if ran else np.zeros((0, 2), np.int64),
        score=measured.score,
    )
