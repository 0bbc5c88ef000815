"""The simulator's draws on tensors: the same words as `joulemesh.training.draws`, on a GPU.

Words are int32, whose sums and products wrap as those of uint32 do; PyTorch shifts no unsigned
words on a GPU.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Tensor: TypeAlias = Any  # int32
Key: TypeAlias = tuple[Tensor, Tensor]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_WORD = 0xFFFFFFFF


def words(torch: Any, array: NDArray[np.uint32], device: Any) -> Tensor:
    """Unsigned words as a tensor of the same bits."""
    plain = np.ascontiguousarray(array, dtype=np.uint32).view(np.int32)
    return torch.as_tensor(plain.copy()).to(device)


def fold(key: Key, data: Tensor) -> Key:
    """Fold integers into keys; any shapes that broadcast."""
    k0, k1 = key
    schedule = (k0, k1, k0 ^ k1 ^ 0x1BD11BDA)
    x, y = k0, data + k1
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x = x + y
            low = (y >> (32 - rotation)) & ((1 << rotation) - 1)
            y = ((y << rotation) | low) ^ x
        x = x + schedule[(group + 1) % 3]
        y = y + (schedule[(group + 2) % 3] + (group + 1))
    return x, y


def below(bits: Tensor, bound: Tensor) -> Tensor:
    """Scale uniform words to 0..bound-1; the bound and what is given are int64."""
    return ((bits.long() & _WORD) * bound) >> 32


def step_positions(key: Key, step: Tensor, lanes: Tensor, size: Tensor) -> Tensor:
    """Positions of a batch among a device's own samples, drawn with replacement."""
    return below(fold(fold(key, step), lanes)[0], size)
