"""What it took a run to reach its target, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joulemesh.metrics.metric import score_metric
from joulemesh.views.comparison.table import target_text

__all__ = ["target_tile", "target_words"]


def target_words(found: Mapping[str, Any], seeds: int) -> str:
    """One sentence's worth.

    Args:
        found: what `results.target.to_target` gives.
        seeds: how many there are.

    >>> found = {"target_words": "test accuracy 0.9", "reached": 1, "energy_to_target_j": None}
    >>> target_words(found | {"time_to_target_s": None}, 3)
    'test accuracy 0.9: 1 of 3 seeds'
    """
    joules, seconds = _texts(found, seeds)
    if found["energy_to_target_j"] is None:
        return f"{found['target_words']}: {joules}"
    legend = "; in brackets: the error of not evaluating every iteration"
    given = legend if "(±" in joules + seconds else ""
    return f"{found['target_words']} after {joules} and {seconds}{given}"


def target_tile(found: Mapping[str, Any], seeds: int) -> tuple[str, str, str]:
    """A tile of a report: its name, the figure, and a note.

    >>> found = {"target": 0.9, "reached": 0, "energy_to_target_j": None, "time_to_target_s": None}
    >>> target_tile(found | {"target_metric": "accuracy"}, 3)
    ('energy to 90.0 % accuracy', 'not reached', '')
    """
    joules, seconds = _texts(found, seeds)
    note = "" if found["time_to_target_s"] is None else f"time {seconds}"
    metric = score_metric(found["target_metric"])
    return f"energy to {metric.text(found['target'])} {metric.label}", joules, note


def _texts(found: Mapping[str, Any], seeds: int) -> tuple[str, str]:
    row = {**found, "seeds": seeds}
    units = (("energy_to_target_j", "J"), ("time_to_target_s", "s"))
    joules, seconds = (target_text(row, name, unit) for name, unit in units)
    return joules, seconds
