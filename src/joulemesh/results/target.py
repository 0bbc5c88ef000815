"""What it took one run to reach a target accuracy, named as in a comparison's table."""

from __future__ import annotations

__all__ = ["check_target", "to_target"]

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.results.statistics import estimate, reached_at

SHARE_OF_FINAL = 0.95  # the target, unless given


def check_target(target: float | None) -> None:
    """Refuse a target that is not an accuracy.

    >>> check_target(0.9)
    >>> check_target(90)
    Traceback (most recent call last):
    joulemesh.errors.ScenarioError: target = 90 is not an accuracy: give a number above 0, at most 1
    """
    if target is not None and not 0 < target <= 1:
        raise ScenarioError(
            f"target = {target} is not an accuracy: give a number above 0, at most 1"
        )


def to_target(
    iteration: NDArray[Any],
    accuracy: NDArray[Any],
    energy_j: NDArray[np.float64],
    time_s: NDArray[np.float64],
    wanted: float | None = None,
) -> dict[str, Any]:
    """Joules and seconds until a run's curve first reaches a target, means over seeds.

    Args:
        iteration: [evaluations], iterations done, ascending.
        accuracy: [evaluations, seeds] of the mean model.
        energy_j: [evaluations] or [evaluations, seeds], joules so far.
        time_s: [evaluations] or [evaluations, seeds], seconds so far.
        wanted: the target; 95 % of the final accuracy (mean over seeds) unless given.

    Returns:
        Plain values: ``target``, ``target_words``, ``reached`` (how many seeds do), and for
        ``energy_to_target_j`` and ``time_to_target_s`` the mean X, half the width ``X_ci95`` of its
        95 % interval over seeds, and ``X_error``, how far the true mean can be from X because not
        every iteration was evaluated (see `statistics.reached_at`). None where there is no such
        figure: X is known only if all seeds reach the target.

    >>> curve, cost = np.array([[0.5], [0.7], [0.9], [0.9]]), np.array([1.0, 2.0, 3.0, 4.0])
    >>> found = to_target(np.array([5, 10, 15, 20]), curve, cost, 10 * cost, 0.8)
    >>> found["energy_to_target_j"], found["energy_to_target_j_error"], found["time_to_target_s"]
    (2.6, 0.6000000000000001, 26.0)
    """
    check_target(wanted)
    final = float(np.asarray(accuracy)[-1].mean())
    target = SHARE_OF_FINAL * final if wanted is None else wanted
    why = "95 % of the final accuracy" if wanted is None else "as asked"
    found: dict[str, Any] = {
        "target": target,
        "target_words": f"test accuracy {target:.4f} of the mean model ({why})",
        "target_asked": wanted is not None,
        "reached": 0,
    }
    for name, cost in (("energy_to_target_j", energy_j), ("time_to_target_s", time_s)):
        each = np.broadcast_to(cost if cost.ndim == 2 else cost[:, None], np.shape(accuracy))
        taken = reached_at(iteration, accuracy, each, target)
        found["reached"] = int(np.isfinite(taken.value).sum())
        whole = found["reached"] == len(taken.value)
        mean = estimate(taken.value)
        found[name] = _plain(mean.mean) if whole else None
        found[f"{name}_ci95"] = _plain(mean.half) if whole else None
        found[f"{name}_error"] = _plain(estimate(taken.error).mean) if whole else None
    return found


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
