"""The rows of a study's table: every figure with its interval, and against the first method."""

from __future__ import annotations

__all__ = ["LABELS", "about", "figures_of", "row_of", "worlds_row"]

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.methods import Citation, lookup
from joulemesh.metrics.curves import column_names
from joulemesh.metrics.metric import score_metric
from joulemesh.results.statistics import Estimate, Reached, estimate, paired, reached_at

if TYPE_CHECKING:
    from joulemesh.results.comparison_worlds import WorldsEntry
    from joulemesh.results.entry import Entry

FloatArray = NDArray[np.float64]

LABELS = ("compute_j", "exchange_j", "server_j", "bits", "receive_j", "idle_j")
_WORDS = ("description", "citation")  # of a method, whatever the world


def about(name: str) -> tuple[str, Citation | None]:
    """What a method does, in one line, and where it was published; nothing if it is not known here.

    >>> said, citation = about("fixed:3")
    >>> said.split(",")[0], citation.arxiv
    ('The same number of rounds on every device in every iteration', '2403.20075')
    >>> about("of-another-machine")
    ('', None)
    """
    try:
        method = lookup(name)
    except ScenarioError:  # of a study that was made elsewhere
        return "", None
    return method.description, method.citation


def figures_of(entry: Entry, target: float) -> dict[str, FloatArray | Reached]:
    """Each figure of the table, by seed.

    Args:
        entry: the method.
        target: the score that energy and time to target refer to.
    """
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
    """One method's row; see `Comparison.table`.

    Args:
        entry: the method.
        first: the method that it is compared with.
        target: the score that energy and time to target refer to.
    """
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
    """One method's row in several worlds; see `WorldsComparison.table`.

    Args:
        entry: the method.
        first: the method that it is compared with.
        target: the score that energy and time to target refer to.
    """
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
    """Energy or time to the target, with what evaluations leave open of it.

    A mean over the seeds that reach the target would flatter a method that rarely does: there is
    none unless all do.
    """
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
    return value if math.isfinite(value) else None


def _cells(name: str, found: Estimate | None) -> dict[str, float | None]:
    if found is None:
        return {name: None, f"{name}_ci95": None}
    return {name: _plain(found.mean), f"{name}_ci95": _plain(found.half)}
