"""The mean model of several devices."""

from __future__ import annotations

__all__ = ["mean_of"]

from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from joulemesh.models.core import Params

_TOGETHER = 64  # devices whose parameters are averaged at once


def mean_of(params: Params, weights: NDArray[Any]) -> Params:
    """The weighted mean of devices' parameters.

    Args:
        params: a pytree of NumPy arrays [seeds, devices, ...], or [seeds, 1, ...] where all
            devices share theirs.
        weights: [seeds, devices] of any positive scale; 0 for a device that has departed.

    Returns:
        The pytree of [seeds, ...], or without that axis for a single seed.

    >>> mean_of({"w": np.array([[[0.0], [4.0]]])}, np.array([[1, 3]]))["w"].tolist()
    [3.0]
    """
    share = weights / weights.sum(axis=1, keepdims=True)

    def mean(leaf: NDArray[Any]) -> NDArray[Any]:
        if leaf.shape[1] == 1:  # all share one
            wide = leaf[:, 0]
        else:
            # Some devices at a time: a wider copy of all might not fit.
            parts = range(0, leaf.shape[1], _TOGETHER)
            cuts = [slice(first, first + _TOGETHER) for first in parts]
            wide = sum(np.einsum("sn,sn...->s...", share[:, c], leaf[:, c]) for c in cuts)
        return np.asarray(wide[0] if len(wide) == 1 else wide, leaf.dtype)

    return jax.tree.map(mean, params)
