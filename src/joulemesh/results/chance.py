"""Has training learned anything? Figures that are no better than guessing, in a sentence."""

from __future__ import annotations

__all__ = ["chance_note"]

import math

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.metrics.losses import CROSS_ENTROPY
from joulemesh.scenario.learning import Training


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
