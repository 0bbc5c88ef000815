"""What a comparison found: every method's curves and costs, and a table with intervals."""

from __future__ import annotations

__all__ = ["AXES", "Entry", "Study"]

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files import write_text
from joulemesh.methods.terms import equal_terms
from joulemesh.scenario import Scenario
from joulemesh.studies.record import CURVES, Record
from joulemesh.studies.statistics import estimate
from joulemesh.studies.table import row_of

FloatArray = NDArray[np.float64]

AXES = ("iterations", "joules", "seconds")
SHARE_OF_BEST = 0.95  # the target, unless given


@dataclass(frozen=True, eq=False)
class Entry:
    """One method in a comparison; seeds in the order of the study's, NaN where one diverged.

    Attributes:
        name: as the user wrote it.
        iteration: int64 [E], iterations done at each evaluation.
        curves: each of `CURVES`, float64 [E, S].
        final: each of `CURVES` after the last iteration, on all test samples, float64 [S].
        energy_j: float64 [E, S], joules of all devices so far.
        time_s: float64 [E, S], seconds of the modelled clock so far.
        spent_j: float64 [S, N], joules that each battery paid.
        leftover_j: float64 [S, N], what stayed in it; negative where it is overdrawn.
        totals: float64 [S, 4]: joules of training, of the radio, of a server; bits on the air.
        notes: what a reader should know, one line each.
        infeasible: why the method cannot run at all; None if it can.
        diverged: the iteration in which each seed that diverged did so.
        samples: int64 [E, 2], on how many test samples each evaluation was made, and on how many
            of these devices were compared with the mean model; [0, 2] where that is not kept.
    """

    name: str
    iteration: NDArray[np.int64]
    curves: Mapping[str, FloatArray]
    final: Mapping[str, FloatArray]
    energy_j: FloatArray
    time_s: FloatArray
    spent_j: FloatArray
    leftover_j: FloatArray
    totals: FloatArray
    notes: tuple[str, ...] = ()
    infeasible: str | None = None
    diverged: Mapping[int, int] = field(default_factory=dict)
    samples: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 2), np.int64))

    @classmethod
    def refused(cls, name: str, why: str, seeds: int, devices: int) -> Entry:
        """The entry of a method that cannot run."""
        none, shape = np.zeros((0, seeds)), (seeds, devices)
        return cls(
            name,
            np.zeros(0, np.int64),
            dict.fromkeys(CURVES, none),
            dict.fromkeys(CURVES, np.full(seeds, np.nan)),
            none,
            none,
            np.full(shape, np.nan),
            np.full(shape, np.nan),
            np.full((seeds, 4), np.nan),
            infeasible=why,
        )

    @classmethod
    def of(
        cls,
        name: str,
        records: Mapping[int, Record],
        battery_j: FloatArray,
        notes: Sequence[str] = (),
    ) -> Entry:
        """Put one method's runs side by side.

        Args:
            name: of the method.
            records: by seed, in order.
            battery_j: [N].
            notes: what a reader should know.
        """
        ran = [record for record in records.values() if not record.diverged]
        iteration = ran[0].iteration if ran else np.zeros(0, np.int64)
        length, devices = len(iteration), len(battery_j)

        def side_by_side(part: str, *shape: int) -> FloatArray:
            missing = np.full(shape, np.nan)
            columns = [missing if r.diverged else getattr(r, part) for r in records.values()]
            return np.stack(columns, axis=0)

        curves = side_by_side("curves", length, len(CURVES))
        final = side_by_side("final", len(CURVES))
        spent_j = side_by_side("spent_j", devices)
        return cls(
            name,
            iteration,
            {curve: curves[:, :, k].T for k, curve in enumerate(CURVES)},
            {curve: final[:, k] for k, curve in enumerate(CURVES)},
            side_by_side("energy_j", length).T,
            side_by_side("time_s", length).T,
            spent_j,
            battery_j - spent_j,
            side_by_side("totals", 4),
            tuple(notes),
            diverged={seed: r.diverged for seed, r in records.items() if r.diverged},
            samples=ran[0].samples if ran else np.zeros((0, 2), np.int64),
        )

    def __repr__(self) -> str:
        """In a few words."""
        if not self.ran:
            return f"Entry({self.name}: {self.status})"
        accuracy = estimate(self.final["test_accuracy"]).mean
        return (
            f"Entry({self.name}: {int(self.iteration[-1]):,} iterations, accuracy {accuracy:.4f})"
        )

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
    def remarks(self) -> tuple[str, ...]:
        """The notes, with why it could not run and which seeds diverged before them."""
        if self.infeasible is not None:
            return (self.infeasible, *self.notes)
        lost = [f"seed {seed} in iteration {when}" for seed, when in self.diverged.items()]
        if not lost:
            return self.notes
        rest = "; figures are of the other seeds" if self.ran else ""
        return (f"diverged: {', '.join(lost)}{rest}", *self.notes)


@dataclass(frozen=True, eq=False)
class Study:
    """Several methods on one scenario, on equal terms.

    Attributes:
        scenario: what was asked.
        equal: ``"iterations"``, ``"batteries"`` or ``"time"``.
        seeds: repetition seeds.
        entries: one for each method, in the order asked for; differences are against the first.
        wanted: the accuracy asked for as target; None for 95 % of the best.
        computed: runs (methods × seeds) that were trained for this study, not found in the cache.
        notes: what a reader should know about the data, one line each.
        dataset: what the data are called.
        model: what the model is called.
        parameters: how many parameters it has.
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

    def __post_init__(self) -> None:
        """Call what is equal by its own name."""
        object.__setattr__(self, "equal", equal_terms(self.equal))

    def __repr__(self) -> str:
        """In one line: every method with its accuracy; `table` has the figures."""
        found = (
            f"{entry.name} {estimate(entry.final['test_accuracy']).mean:.4f}"
            if entry.ran
            else f"{entry.name} {entry.status}"
            for entry in self.entries
        )
        return f"{type(self).__name__}({', '.join(found)}; equal {self.equal}, {self.repeats})"

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

    @cached_property
    def target(self) -> float:
        """The accuracy of the mean model that energy and time to target refer to."""
        if self.wanted is not None:
            return self.wanted
        best = [estimate(entry.final["test_accuracy"]).mean for entry in self.entries if entry.ran]
        return SHARE_OF_BEST * max(best) if best else math.nan

    @property
    def target_words(self) -> str:
        """The target, and where it comes from."""
        why = "as asked" if self.wanted is not None else "95 % of the best method's final accuracy"
        return f"test accuracy {self.target:.4f} of the mean model ({why})"

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
        rows = io.StringIO()
        writer = csv.writer(rows, lineterminator="\n")
        counts = ("test_samples", "device_samples")
        writer.writerow(["method", "seed", "iteration", "energy_j", "time_s", *CURVES, *counts])
        for entry in self.entries:
            for s, seed in enumerate(self.seeds):
                if not entry.ran or seed in entry.diverged:
                    continue
                for k, iteration in enumerate(entry.iteration):
                    costs = [float(entry.energy_j[k, s]), float(entry.time_s[k, s])]
                    values = [float(entry.curves[name][k, s]) for name in CURVES]
                    rests_on = entry.samples[k].tolist() if len(entry.samples) else ["", ""]
                    writer.writerow([entry.name, seed, int(iteration), *costs, *values, *rests_on])
        if path is not None:
            write_text(path, rows.getvalue())
        return rows.getvalue()

    def table_csv(self) -> str:
        """The table as CSV; notes are joined by semicolons."""
        rows, text = self.table(), io.StringIO()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, "notes": "; ".join(row["notes"])} for row in rows)
        return text.getvalue()

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

    def summary(self) -> dict[str, Any]:
        """The figures of `joulemesh compare --json`.

        Accuracies are those after the last iteration, on all ``test_samples``; curves, and with
        them energy and time to target, rest on at least ``curve_test_samples``.
        """
        return {
            "equal": self.equal,
            **self.repeated,
            "target": self.target if math.isfinite(self.target) else None,
            "target_words": self.target_words,
            "computed": self.computed,
            **self.samples,
            "notes": list(self.notes),
            "methods": self.table(),
        }
