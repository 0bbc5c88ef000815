"""Samples on the processor, and which of them are drawn: on a GPU for many iterations at once."""

from __future__ import annotations

__all__ = ["PlacedBatches", "Samples", "seen_shape"]

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset, Partition
from joulemesh.data.catalog import DATASETS
from joulemesh.training.batches import Batches, Data, scale_of
from joulemesh.training.options import Options
from joulemesh.training.torch import draws
from joulemesh.training.torch.gradients import is_gpu

Tensor: TypeAlias = Any


def _channels_first(dataset: Dataset) -> bool:
    """Are its samples images with their channels last, which a module wants first?

    Data of the user's own are shown to a module as they are.
    """
    return dataset.name in DATASETS and len(dataset.shape) == 3


def seen_shape(dataset: Dataset) -> tuple[int, ...]:
    """The shape of one sample as a module sees it."""
    if _channels_first(dataset):
        height, width, channels = dataset.shape
        return channels, height, width
    return tuple(dataset.shape)


class Samples:
    """A data set on a processor; a module sees x · scale + shift."""

    def __init__(
        self, torch: Any, dataset: Dataset, device: Any, dtype: Any, *, last: bool = False
    ) -> None:
        self._torch, self._dtype = torch, dtype
        first = _channels_first(dataset)
        shape = seen_shape(dataset)
        self._last = (
            last and len(shape) == 3 and shape[0] < min(shape[1:])
        )  # images, by their shape

        def placed(x: NDArray[Any]) -> Tensor:
            return self._lying(np.moveaxis(x, 3, 1) if first else x).to(device)

        self._x, self._x_test = placed(dataset.x_train), placed(dataset.x_test)
        y = torch.as_tensor(np.asarray(dataset.y_train))
        self._y = (y.to(dtype) if y.is_floating_point() else y.long()).to(device)
        self._targets = np.asarray(dataset.y_test)
        wide = np.float64 if dtype == torch.float64 else np.float32
        scale, shift = scale_of(dataset, wide)
        self._scale, self._shift = (
            torch.as_tensor(np.ascontiguousarray(self._moved(one, first))).to(device)
            for one in (scale, shift)
        )
        self.tested = len(dataset.y_test)
        self.device = device

    def _lying(self, x: NDArray[Any]) -> Tensor:
        """Samples [..., shape] as a tensor, in the order in which they are to lie in memory."""
        if not self._last:
            return self._torch.as_tensor(np.ascontiguousarray(x))
        lying = np.ascontiguousarray(np.moveaxis(x, -3, -1))
        return self._torch.as_tensor(lying).movedim(-1, -3)

    @staticmethod
    def _moved(figure: NDArray[Any], first: bool) -> NDArray[Any]:
        """A factor for each channel or pixel, in the order in which a module sees them."""
        if not first or figure.ndim == 0:
            return figure
        wide = np.broadcast_to(figure, np.broadcast_shapes(figure.shape, (1, 1, 1)))
        return np.moveaxis(wide, 2, 0)

    def _seen(self, x: Tensor) -> Tensor:
        if x.dtype == self._torch.int32:  # tokens
            return x.long()
        # Samples were copied when they were taken, or are when their type is another.
        return x.to(self._dtype).mul_(self._scale).add_(self._shift)

    @property
    def data(self) -> Data:
        """Training samples and their targets, as they are kept."""
        return Data(self._x, self._y, self._scale, self._shift)

    def train(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Training samples by index, of any shape, normalised; and their targets."""
        index = index.to(self.device)
        return self._seen(self._x[index]), self._y[index]

    def test(self, index: NDArray[np.int64]) -> Tensor:
        """Test samples by index, normalised."""
        return self._seen(self._x_test[self._torch.as_tensor(index).to(self.device)])

    def targets(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Targets of test samples by index."""
        return self._targets[index]


IntArray = NDArray[np.int64]

_BLOCK_BYTES = 2**27  # indices that are drawn at once on a GPU


class PlacedBatches(Batches):
    """Draws batches onto the processor that trains.

    On a GPU a draw is some 150 small operations whatever its size, so that one serves all steps of
    several iterations; the numbers are the same.
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
        """The samples of the first rows in steps start..stop-1 of an iteration (from 0)."""
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
