"""Batches drawn where they are used: on a GPU for many iterations at once, otherwise by NumPy."""

from __future__ import annotations

__all__ = ["PlacedBatches"]

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Partition
from joulemesh.training.batches import Batches
from joulemesh.training.options import Options
from joulemesh.training.torch import draws
from joulemesh.training.torch.gradients import is_gpu

Tensor: TypeAlias = Any
IntArray = NDArray[np.int64]

_BLOCK_BYTES = 2**27  # indices that are drawn at once on a GPU


class PlacedBatches(Batches):
    """Draws batches onto the processor that trains.

    On a GPU a draw is some 150 small operations whatever its size, so that one serves all steps of
    several iterations; the numbers are the same.

    Args:
        torch: the module.
        device: the processor.
        partitions: who holds which samples, one per seed.
        seeds: the repetition seeds.
        options: size of a batch, and what a round is.
        numbers: of the devices, where they are not all of them.
        ahead: whether to draw on the processor for several iterations; on a GPU unless given.
    """

    def __init__(
        self,
        torch: Any,
        device: Any,
        partitions: Sequence[Partition],
        seeds: Sequence[int],
        options: Options,
        *,
        numbers: Sequence[int] | None = None,
        ahead: bool | None = None,
    ) -> None:
        super().__init__(partitions, seeds, options, numbers)
        self._torch, self._on = torch, device
        wanted = is_gpu(device) if ahead is None else ahead
        self._ahead = wanted and not self._epoch
        self._block: tuple[int, int, int, Tensor] = (0, 0, 0, None)  # iterations, first step
        self._start, self._longest = 0, np.zeros(0, np.int64)
        if self._ahead:
            self._tensors = self._place()

    def _place(self) -> dict[str, Any]:
        def words(array: NDArray[Any]) -> Tensor:
            return draws.words(self._torch, array, self._on)

        first, second, device = (x[:, None] for x in (*self._key, self._device))
        sizes = self.sizes.reshape(-1, 1).astype(np.int64)
        return {
            "key": (words(first), words(second)),
            "device": words(device),
            "lanes": words(self._lanes),
            "sizes": self._torch.as_tensor(sizes).to(self._on),
            "start": self._torch.as_tensor(self._start_of_rows[:, None]).to(self._on),
            "order": self._torch.as_tensor(self._order).to(self._on),
        }

    def expect(self, start: int, longest: IntArray) -> None:
        """Say how many steps the iterations from one on have at most, [T]."""
        self._start, self._longest = start, longest

    def placed(
        self, t: int, rows: tuple[IntArray, Tensor | None], wide: int, start: int, stop: int
    ) -> tuple[Tensor, NDArray[np.bool_] | None]:
        """The samples of the first rows in steps start..stop-1 of an iteration (from 0).

        Args:
            t: the iteration.
            rows: all rows, in the order wanted; and the same on the processor, None if it is the
                natural one.
            wide: how many of them.
            start: first step.
            stop: end of the steps.

        Returns:
            As `draw`, the indices on the processor.
        """
        if not self._ahead:
            index, valid = self.draw(t, rows[0][:wide], start, stop)
            return self._torch.as_tensor(index).to(self._on), valid
        first, _, step, drawn = self._covering(t, start, stop)
        found = drawn[t - first, start - step : stop - step]
        return (found[:, :wide] if rows[1] is None else found[:, rows[1][:wide]]), None

    def _covering(self, t: int, start: int, stop: int) -> tuple[int, int, int, Tensor]:
        """A block with these steps: the kept one, or one of as many iterations as it may hold."""
        first, last, step, drawn = self._block
        if first <= t < last and step <= start and stop - step <= drawn.shape[1]:
            return self._block
        ahead = np.maximum.accumulate(self._longest[t - self._start :])
        fit = _BLOCK_BYTES // (8 * len(self._device) * len(self._lanes))  # steps
        count = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), fit, side="right"))
        begin, end = (0, int(ahead[count - 1])) if count else (start, stop)
        last = t + max(count, 1)
        self._block = (t, last, begin, self._drawn(t, last, begin, end))
        return self._block

    def _drawn(self, first: int, last: int, start: int, stop: int) -> Tensor:
        """int64 [iterations, steps, rows, batch]."""
        torch, placed = self._torch, self._tensors
        iterations = torch.arange(first, last, dtype=torch.int32, device=self._on)
        steps = torch.arange(start, stop, dtype=torch.int32, device=self._on)
        key = draws.fold(placed["key"], iterations[:, None, None, None])
        key = draws.fold(key, placed["device"])
        at = draws.step_positions(key, steps[:, None, None], placed["lanes"], placed["sizes"])
        return placed["order"][placed["start"] + at]
