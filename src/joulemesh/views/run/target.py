"""What it took a run to reach its target, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from joulemesh.metrics.metric import score_metric
from joulemesh.views.comparison.table import open_text, target_text

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
    unsure = open_text([found])
    given = f", {unsure}" if unsure else ""
    return f"{found['target_words']} after {joules} and {seconds}{given}"


def target_tile(found: Mapping[str, Any], seeds: int) -> tuple[str, str, str]:
    """A tile of a report: its name, the figure, and a note.

    >>> found = {"target": 0.9, "reached": 0, "energy_to_target_j": None, "time_to_target_s": None}
    >>> target_tile(found | {"target_metric": "accuracy"}, 3)
    ('energy to 90.0 % accuracy', 'not reached', '')
    >>> found |= {"reached": 3, "energy_to_target_j": 48.4, "energy_to_target_j_ci95": 13.1}
    >>> found |= {"energy_to_target_j_error": 2.31, "target_metric": "accuracy"}
    >>> found |= {"time_to_target_s": 0.5, "time_to_target_s_ci95": 0.2}
    >>> for words in target_tile(found | {"time_to_target_s_error": 0.07}, 3)[1:]:
    ...     print(words)
    48.4 ± 13.1 J
    time 500 ± 200 ms; interpolated between evaluations, to within 2.31 J and 70 ms
    """
    joules, seconds = _texts(found, seeds)
    note = "" if found["time_to_target_s"] is None else f"time {seconds}"
    unsure = open_text([found])
    note += f"; {unsure}" if unsure else ""
    metric = score_metric(found["target_metric"])
    return f"energy to {metric.text(found['target'])} {metric.label}", joules, note


def _texts(found: Mapping[str, Any], seeds: int) -> tuple[str, str]:
    row = {**found, "seeds": seeds}
    units = (("energy_to_target_j", "J"), ("time_to_target_s", "s"))
    joules, seconds = (target_text(row, name, unit) for name, unit in units)
    return joules, seconds
