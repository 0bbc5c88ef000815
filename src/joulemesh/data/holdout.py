"""Hold samples out for testing: the same share of each class, as a pure function of the seed."""

from __future__ import annotations

__all__ = ["held_out"]

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError

_PURPOSE = 0x686F6C64  # "hold": keeps these draws apart from every other use of the seed


def held_out(
    labels: NDArray[np.int32],
    fraction: float,
    seed: int,
    holders: NDArray[np.int32] | None = None,
) -> NDArray[np.bool_]:
    """Choose the test samples.

    Args:
        labels: class of each sample.
        fraction: of each class, to the nearest whole number; one sample of a class stays at least.
        seed: of the draw.
        holders: who holds each sample; each class is then also spread evenly over its holders.

    Returns:
        bool [n], true for a test sample.

    Raises:
        ScenarioError: no class has two samples.

    >>> held_out(np.repeat([0, 1], [10, 5]).astype(np.int32), 0.2, seed=0).nonzero()[0].tolist()
    [1, 7, 14]
    """
    rng = np.random.default_rng([seed, _PURPOSE])
    order = rng.permutation(len(labels))
    keys = (labels[order],) if holders is None else (holders[order], labels[order])
    order = order[np.lexsort(keys)]
    counts = np.bincount(labels)
    wanted = np.minimum(np.rint(counts * fraction).astype(np.int64), np.maximum(counts - 1, 0))
    if not wanted.any() and counts.max() > 1:
        wanted[counts.argmax()] = 1
    if not wanted.any():
        raise ScenarioError(
            f"{len(labels)} samples of {len(counts)} classes leave none to test on: add samples, "
            "or give training.test_dataset"
        )
    chosen = np.zeros(len(labels), bool)
    first = np.cumsum(counts) - counts
    for label in np.flatnonzero(wanted):
        # Evenly spaced from a random start: neighbours in the order share a holder.
        spaced = np.arange(wanted[label]) + rng.random()
        steps = np.minimum(spaced * (counts[label] / wanted[label]), counts[label] - 1)
        chosen[order[first[label] + steps.astype(np.int64)]] = True
    return chosen
