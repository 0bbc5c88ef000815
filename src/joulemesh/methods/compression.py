"""Compressed messages, in figures: what is kept, and how many bits it takes.

top-k and random-k keep k = ⌊fraction · d⌋ numbers (at least one): the largest, whose coordinates
must be told, or those that a shared seed names. QSGD (Alistarh et al., NeurIPS 2017,
arXiv:1610.02132) sends, for each bucket of 512 numbers, a norm and, for each number, a sign and one
of ``levels`` + 1 levels. With one norm for all d numbers its error would grow with √d.
"""

from __future__ import annotations

__all__ = ["Compressor", "compressor"]

import math
from dataclasses import dataclass
from typing import Literal

_NORM_BITS = 32
BUCKET = 512
"""Numbers that share a norm in QSGD, as in its authors' experiments."""
_STEPS = {"identity": 1.0, "topk": 2.0, "qsgd": 1.4, "randk": 0.7}  # γ/δ


@dataclass(frozen=True)
class Compressor:
    """A way to send less.

    Attributes:
        kind: ``"identity"``, ``"topk"``, ``"randk"`` or ``"qsgd"``.
        amount: the fraction kept, or the number of levels.
    """

    kind: Literal["identity", "topk", "randk", "qsgd"]
    amount: float = 1.0

    def __str__(self) -> str:
        """As a user writes it."""
        return self.kind if self.kind == "identity" else f"{self.kind}:{self.amount:g}"

    def kept(self, size: int) -> int:
        """Numbers sent of ``size``.

        >>> Compressor("topk", 0.1).kept(4810)
        481
        """
        if self.kind in ("topk", "randk"):
            return max(1, math.floor(self.amount * size))
        return size

    def bits(self, size: int, bits_per_parameter: int) -> float:
        """Bits of one message.

        >>> Compressor("topk", 0.1).bits(1000, 32), Compressor("qsgd", 8).bits(1000, 32)
        (4200.0, 5064.0)
        """
        if self.kind == "qsgd":
            norms = math.ceil(size / BUCKET) * _NORM_BITS
            return float(size * (1 + math.ceil(math.log2(self.amount + 1))) + norms)
        index = math.ceil(math.log2(size)) if self.kind == "topk" else 0
        return float(self.kept(size) * (bits_per_parameter + index))

    def shrink(self, size: int) -> float:
        """Factor that makes QSGD a contraction: 1 + min(d/s², √d/s), d of a bucket; otherwise 1."""
        if self.kind != "qsgd":
            return 1.0
        together = min(size, BUCKET)
        return 1.0 + min(together / self.amount**2, math.sqrt(together) / self.amount)

    def passes(self, size: int) -> float:
        """δ: the share of a message's squared norm that surely passes.

        >>> Compressor("identity").passes(1000), Compressor("randk", 0.1).passes(1000)
        (1.0, 0.1)
        """
        return self.kept(size) / size / self.shrink(size)

    def step(self, size: int) -> float:
        """CHOCO's γ unless given: δ times 2 (top-k), 1.4 (QSGD) or 0.7 (random-k); at most 1.

        The bounds of its authors grow with δ² and with the square of the graph's spectral gap; such
        steps are far too small. What converges fastest is in proportion to δ and hardly depends on
        the graph or on the number of parameters (``python -m benchmarks.consensus``): devices come
        together at least half as fast with this default as with the best of nine steps, on rings,
        grids, geometric and complete graphs of 9 and 25 devices.

        >>> Compressor("identity").step(1000), Compressor("topk", 0.1).step(1000)
        (1.0, 0.2)
        """
        return min(1.0, _STEPS[self.kind] * self.passes(size))


def compressor(text: str) -> Compressor:
    """Read ``identity``, ``topk:0.1``, ``randk:0.1`` or ``qsgd:8``; ValueError for all else.

    >>> compressor("qsgd:8")
    Compressor(kind='qsgd', amount=8.0)
    """
    kind, _, amount = text.partition(":")
    if kind == "identity" and not amount:
        return Compressor("identity")
    if kind in ("topk", "randk") and 0 < float(amount) <= 1:
        return Compressor("topk" if kind == "topk" else "randk", float(amount))
    if kind == "qsgd" and int(amount) >= 1:
        return Compressor("qsgd", float(int(amount)))
    raise ValueError(text)
