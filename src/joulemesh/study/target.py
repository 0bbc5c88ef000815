"""What it took one run to reach a target score, named as in a comparison's table."""

from __future__ import annotations

__all__ = ["chance_note", "check_target", "default_target", "to_target"]

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.metrics import ACCURACY, CROSS_ENTROPY, Metric
from joulemesh.scenario.sections import Training
from joulemesh.study.statistics import estimate, reached_at

SHARE_OF_FINAL = 0.95  # the target, unless given


def check_target(target: float | None, metric: Metric = ACCURACY) -> None:
    """Refuse a target that is not a figure of the metric that runs are compared by.

    >>> check_target(0.9)
    >>> check_target(90)
    Traceback (most recent call last):
    joulemesh.ScenarioError: target = 90 is not an accuracy: give a number above 0, at most 1
    """
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
    """A target that is almost as good as a final figure, and where it comes from.

    Args:
        final: the figure.
        metric: what it is of.
        whose: in words: ``"the final"``.

    >>> default_target(0.9, ACCURACY, "the final")
    (0.855, '95 % of the final accuracy')
    >>> from joulemesh.registries import METRICS
    >>> default_target(2.0, METRICS["rmse"], "the final")
    (2.1, '1.05 times the final RMSE')
    """
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
    """Joules and seconds until a run's curve first reaches a target, means over seeds.

    Args:
        iteration: [evaluations], iterations done, ascending.
        curve: [evaluations, seeds], accuracy of the mean model, or another score.
        energy_j: [evaluations] or [evaluations, seeds], joules so far.
        time_s: [evaluations] or [evaluations, seeds], seconds so far.
        wanted: the target; 95 % of the final accuracy (mean over seeds) unless given, and
            `default_target` of another score.
        metric: that the curve is of.

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


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def chance_note(
    dataset: Dataset,
    training: Training,
    score: str,
    scores: NDArray[np.floating],
    losses: NDArray[np.floating],
    learning_rate: float | None = None,
) -> str:
    """A sentence on a run that ends no better than guessing; empty if it ends better.

    A classifier has learned nothing if its accuracy does not exceed the share of the most frequent
    class of the test set by more than a standard error, or if its cross-entropy is above ln K, that
    of calling all K classes equally likely. Nothing is said of regression.

    Args:
        dataset: what was learned from.
        training: with the loss, and the learning rate unless another is given.
        score: the metric that ``scores`` are of.
        scores: [S], final figures of the mean model; NaN where a seed diverged.
        losses: [S], final test losses.
        learning_rate: that of the run.

    >>> from joulemesh.data import load
    >>> chance_note(load("digits"), Training(), "accuracy", np.array([0.95]), np.array([0.2]))
    ''
    """
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
