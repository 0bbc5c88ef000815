"""What was found in one combination of a sweep: a row for each run, and one for each method."""

from __future__ import annotations

__all__ = ["Point", "Row", "rows_of"]

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from joulemesh.results.comparison import Comparison
from joulemesh.results.statistics import Reached
from joulemesh.results.table import LABELS, figures_of

_WORDS = ("description", "citation")  # of methods, the same in every combination
Row = dict[str, Any]


@dataclass(frozen=True)
class Point:
    """One combination of the varied fields, and what was found there.

    Attributes:
        at: of each varied field, the place of its value.
        runs: one row for each method and seed, without the varied fields.
        methods: one row for each method, with intervals and differences.
        reason: why nothing could run there; empty if something did.
        refused: did its values not go together, so that there was nothing to plan?
    """

    at: tuple[int, ...]
    runs: tuple[Row, ...]
    methods: tuple[Row, ...]
    reason: str = ""
    refused: bool = False

    @classmethod
    def found(cls, at: tuple[int, ...], comparison: Comparison) -> Point:
        """What a comparison found."""
        table = [
            {name: value for name, value in row.items() if name not in _WORDS}
            | {"target": comparison.target if math.isfinite(comparison.target) else None}
            for row in comparison.table()
        ]
        ran = any(entry.ran for entry in comparison.entries)
        reason = "" if ran else comparison.entries[0].remarks[0]
        return cls(at, tuple(rows_of(comparison)), tuple(table), reason)

    @classmethod
    def without_runs(
        cls, at: tuple[int, ...], methods: Sequence[str], seeds: Sequence[int], reason: str
    ) -> Point:
        """A combination whose values do not go together, or that cannot be planned."""
        told: Row = {"status": "refused"}
        runs = [{"method": m, "seed": s, **told, "reason": reason} for m in methods for s in seeds]
        rows = [{"method": m, **told, "seeds": 0, "notes": [reason]} for m in methods]
        return cls(at, tuple(runs), tuple(rows), reason, refused=True)


def rows_of(found: Comparison) -> Iterable[Row]:
    """One row for each method and seed of a comparison, of plain values; None for no figure."""
    for entry in found.entries:
        figures = {
            name: figure.value if isinstance(figure, Reached) else figure
            for name, figure in figures_of(entry, found.target).items()
        }
        for k, seed in enumerate(found.seeds):
            ran = entry.ran and seed not in entry.diverged
            row: Row = {"method": entry.name, "seed": seed}
            row["status"] = "ran" if ran else "diverged" if entry.diverged else entry.status
            row["iterations"] = int(entry.iteration[-1]) if ran else None
            row |= {name: _plain(values[k]) for name, values in figures.items()}
            row["target"] = _plain(found.target)
            row["leftover_j"] = _plain(entry.leftover_j[k].sum())
            for place, label in enumerate(LABELS):
                known = place < entry.totals.shape[1]
                row[label] = _plain(entry.totals[k, place]) if known else 0.0 if ran else None
            row["learning_rate"] = _plain(entry.learning_rate)
            row["reason"] = "" if ran else _why(entry.infeasible, entry.diverged.get(seed))
            yield row


def _why(infeasible: str | None, diverged: int | None) -> str:
    return infeasible if infeasible is not None else f"diverged in iteration {diverged}"


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
