"""Moments of stochastic gradients, from the gradients of whole devices and of single samples."""

from __future__ import annotations

__all__ = ["Moments", "moments_of"]

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


class Moments(NamedTuple):
    """Gradients of all devices at one point, each [N]."""

    variance: FloatArray  # E‖g_i − ∇F_i‖² of a batch
    second: FloatArray  # E‖g_i‖²
    apart: FloatArray  # E‖g_i − mean_j ∇F_j‖²


def moments_of(whole: FloatArray, squares: FloatArray, batch: int) -> Moments:
    """Exact expectations over the draw of a batch, with replacement.

    Args:
        whole: [N, P]: ∇F_i.
        squares: [N]: the mean over a device's samples of ‖gradient of one sample‖².
        batch: its size.

    >>> moments_of(np.array([[3.0], [1.0]]), np.array([10.0, 1.0]), 2).variance.tolist()
    [0.5, 0.0]
    """
    own = (whole**2).sum(axis=1)
    variance = np.maximum(squares - own, 0.0) / batch
    apart = ((whole - whole.mean(axis=0)) ** 2).sum(axis=1)
    return Moments(variance, variance + own, variance + apart)
