"""A comparison in several worlds, so that its intervals contain the world.

Worlds are independent of each other. Seeds within a world are not: they share placement, batteries
and channel, and counting them as independent would make intervals too narrow. So every figure is
first a mean over the seeds of a world, and intervals are over worlds; differences between methods
are paired by seed, then by world.
"""

from __future__ import annotations

__all__ = ["WorldsComparison", "WorldsEntry"]

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.scenario import Scenario
from joulemesh.study.comparison import Comparison
from joulemesh.study.entry import Entry, notes_over_worlds
from joulemesh.study.runs import Runs, Table, worlds_row
from joulemesh.world.redraw import redrawn_words

FloatArray = NDArray[np.float64]

_MOST_POINTS = 400  # of a curve over worlds


@dataclass(frozen=True, eq=False, repr=False)
class WorldsEntry(Entry):
    """One method in several worlds: what an `Entry` has for every seed, this has for every world.

    Each is a mean over the world's seeds, NaN where the method has no run. Curves of worlds are
    put side by side at equal shares of their runs, which may differ in length.

    Attributes:
        each: the method's entry in every world.
    """

    each: tuple[Entry, ...] = ()

    @classmethod
    def over(cls, each: Sequence[Entry]) -> WorldsEntry:
        """Put one method's worlds side by side."""
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
        """The worlds in which the method has no run."""
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
    """Where curves of worlds are put side by side: at shares of a run at which one is evaluated.

    Returns:
        Mean iterations, ascending, and the shares, up to 1. None lies before some world's first
        evaluation.
    """
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
