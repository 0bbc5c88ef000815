"""Training and test samples as tensors on the processor, gathered by index."""

from __future__ import annotations

__all__ = ["Samples", "seen_shape"]

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.data.catalog import DATASETS
from joulemesh.data.disk import OnDisk
from joulemesh.training.jax.loss import scale_of

Tensor: TypeAlias = Any


def _channels_first(dataset: Dataset) -> bool:
    """Are its samples images with their channels last, which a module wants first?

    Data of the user's own are shown to a module as they are.
    """
    return dataset.name in DATASETS and len(dataset.shape) == 3


def seen_shape(dataset: Dataset) -> tuple[int, ...]:
    """The shape of one sample as a module sees it.

    >>> from joulemesh.data import load
    >>> seen_shape(load("digits"))
    (1, 8, 8)
    """
    if _channels_first(dataset):
        height, width, channels = dataset.shape
        return channels, height, width
    return tuple(dataset.shape)


class Samples:
    """A data set on a processor; a module sees x · scale + shift.

    Args:
        torch: the module.
        dataset: training and test samples.
        device: where tensors are.
        dtype: in which samples are computed with.
        last: whether images lie in memory with their channels last, which convolutions on a CPU
            compute quicker.

    Attributes:
        device: where tensors are.
        tested: number of test samples.
        resident: whether samples are in the processor's memory, not on disk.
    """

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
            if dataset.on_disk:
                return x  # read as it is needed
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
        self.tested, self.resident = len(dataset.y_test), not dataset.on_disk
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

    def train(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Training samples by index, of any shape, normalised; and their targets."""
        index = index.to(self.device)
        return self._seen(self._taken(self._x, index)), self._y[index]

    def _taken(self, x: Any, index: Tensor) -> Tensor:
        """Samples by index, from the processor's memory or from disk."""
        if isinstance(x, OnDisk):
            return self._lying(x[index.cpu().numpy()]).to(self.device)
        return x[index]

    def test(self, index: NDArray[np.int64]) -> Tensor:
        """Test samples by index, normalised."""
        return self._seen(self._taken(self._x_test, self._torch.as_tensor(index).to(self.device)))

    def targets(self, index: NDArray[np.int64]) -> NDArray[Any]:
        """Targets of test samples by index."""
        return self._targets[index]
