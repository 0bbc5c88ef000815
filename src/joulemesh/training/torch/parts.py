"""What a learner of many devices and a trainer of one have in common, made ready on a processor."""

from __future__ import annotations

__all__ = ["Parts", "processor"]

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.optional import require
from joulemesh.data import Dataset, Partition
from joulemesh.models.torch_model import TorchModel, checked
from joulemesh.training.options import Options
from joulemesh.training.torch.gradients import Gradients, has_convolutions
from joulemesh.training.torch.samples import PlacedBatches, Samples, seen_shape
from joulemesh.training.torch.steps import LocalSteps

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]

_LOG = logging.getLogger("joulemesh")
# Multiply-adds of a forward pass that are worth a second thread. Below it all threads gain at most
# 1.4 times on two quiet cores, and lose up to a hundredfold on busy ones (torch-threads.md).
WORTH_THREADS = 100e6


def processor(torch: Any) -> Any:
    """The processor that trains: a GPU if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Parts:
    """Samples, batches and gradients of a model on a processor: a GPU if there is one."""

    def __init__(
        self,
        model: TorchModel,
        dataset: Dataset,
        partitions: Sequence[Partition],
        options: Options,
        seeds: Sequence[int],
        *,
        numbers: Sequence[int] | None = None,
        compiled: bool = False,
    ) -> None:
        self.torch = torch = require("torch", "training a PyTorch module")
        checked(model, seen_shape(dataset), dataset.outputs, dataset.seen)
        self.device = processor(torch)
        if self.device.type == "cuda":  # JAX, which computes metrics, would take most of its memory
            os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        self.dtype = torch.float64 if options.precision == "float64" else torch.float32
        self._options = options
        self.batches = PlacedBatches(
            torch, self.device, partitions, seeds, options, numbers=numbers
        )
        last = self.device.type == "cpu" and has_convolutions(torch, model.module)
        self.samples = Samples(torch, dataset, self.device, self.dtype, last=last)
        two = self.samples.train(torch.zeros(2, dtype=torch.int64))
        self._rows = rows = len(seeds) * partitions[0].devices
        self.gradients = Gradients(torch, model, two, options.precision, rows, compiled=compiled)
        _LOG.info("%s is trained on %s", model.name, self.device_name)
        if self.gradients.reason.startswith("torch.func"):
            _LOG.warning("%s; devices are trained one by one", self.gradients.reason)

    @property
    def device_name(self) -> str:
        """The processor that trains, in words."""
        if self.device.type == "cuda":
            return str(self.torch.cuda.get_device_name(self.device))
        return f"CPU, {self.torch.get_num_threads()} threads"

    @property
    def forked(self) -> list[Any]:
        """Processors beside the CPU whose random state training must leave as it is."""
        return [self.device] if self.device.type == "cuda" else []

    @cached_property
    def multiply_adds(self) -> float:
        """Multiply-adds of a forward pass of what is computed at once: all rows, or one."""
        each = self.gradients.multiply_adds * self._options.batch_size
        return each * self._rows if self.gradients.together else each

    @contextmanager
    def threads(self) -> Iterator[None]:
        """One thread for steps too small to be shared; the caller's number of threads returns.

        PyTorch's threads wait for each other at every operation, busily: a step of microseconds
        becomes one of milliseconds where others use the processor, too. The choice is by the size
        of the work alone, since other sums would come of another number of threads.
        """
        torch, before = self.torch, self.torch.get_num_threads()  # of the calling thread
        small = self.multiply_adds < WORTH_THREADS
        if before > 1 and self.device.type == "cpu" and small:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            if torch.get_num_threads() != before:
                torch.set_num_threads(before)

    def steps(self, rates: NDArray[np.float64], *, pulled: bool = False) -> LocalSteps:
        """What trains rows with these learning rates; a method may correct every step."""
        held = (self.torch, self.gradients, self.samples, self.batches, self._options)
        return LocalSteps(*held, rates, pulled=pulled)

    def stacked(self, first: Sequence[Mapping[str, Tensor]], devices: int) -> Leaves:
        """Rows of parameters: of each seed one set, the same for all its devices."""
        return {
            name: self.torch.stack([one[name].to(self.dtype) for one in first])
            .repeat_interleave(devices, dim=0)
            .to(self.device)
            for name in first[0]
        }
