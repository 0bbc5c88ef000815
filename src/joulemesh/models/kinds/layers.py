"""Arithmetic of dense layers."""

from __future__ import annotations

__all__ = ["dense_multiply_adds", "dense_parameters"]

from collections.abc import Sequence
from itertools import pairwise


def dense_parameters(widths: Sequence[int]) -> int:
    """Weights and biases of dense layers.

    >>> dense_parameters((64, 10))
    650
    """
    return sum(i * o + o for i, o in pairwise(widths))


def dense_multiply_adds(widths: Sequence[int]) -> int:
    """Multiply-adds of one sample in dense layers.

    >>> dense_multiply_adds((64, 64, 10))
    4736
    """
    return sum(i * o for i, o in pairwise(widths))
