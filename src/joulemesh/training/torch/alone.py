"""Steps of one device after another, in the parameters of one module.

What a CPU computes for convolutions is not quicker for many devices at once.
"""

from __future__ import annotations

__all__ = ["Alone"]

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.training.torch.gradients import Gradients
from joulemesh.training.torch.optimizers import Optimizer
from joulemesh.training.torch.samples import Samples

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
Held: TypeAlias = tuple[Leaves, Leaves]  # parameters and memory, [rows, ...] each
IntArray = NDArray[np.int64]


class Alone:
    """Trains rows by themselves, with modules that draw nothing: steps have no seeds here.

    Args:
        torch: the module.
        gradients: the model.
        samples: placed on the CPU.
        optimizer: of stacked rows.
    """

    def __init__(
        self, torch: Any, gradients: Gradients, samples: Samples, optimizer: Optimizer
    ) -> None:
        self._torch, self._gradients, self._samples = torch, gradients, samples
        self._optimizer = optimizer

    @cached_property
    def _module(self) -> Any:
        return self._gradients.twin()

    def play(
        self,
        held: Held,
        rows: IntArray,
        drawn: tuple[Tensor, NDArray[np.bool_] | None],
        steps: IntArray,
        rates: Tensor,
    ) -> None:
        """Steps of some rows, in place.

        Args:
            held: all rows.
            rows: which of them, those with most steps first.
            drawn: their samples, [steps, rows, B]; and of that shape False where a batch is
                shorter, or None if all are whole.
            steps: of each of them, at most as many as are drawn.
            rates: the learning rate of each of all rows.
        """
        index, valid = drawn
        counts = None if valid is None else valid.sum(axis=2)  # the first samples are there
        for i, row in enumerate(rows):
            batches = list(index[: int(steps[i]), i])
            if counts is not None:
                batches = [one[: int(counts[k, i])] for k, one in enumerate(batches)]
            self._train(held, int(row), batches, rates)

    def _train(self, held: Held, row: int, batches: list[Tensor], rates: Tensor) -> None:
        """The steps of one row, on a module's own parameters, whose layout suits it."""
        torch, module = self._torch, self._module
        named = dict(module.named_parameters())
        own = {name: named[name] for name in held[0]}
        # One row each, in the memory of the module's parameters.
        params = {name: one.detach()[None] for name, one in own.items()}
        memory = {name: leaf[row : row + 1] for name, leaf in held[1].items()}
        rate = rates[row : row + 1]
        for name, leaf in held[0].items():
            params[name][0].copy_(leaf[row])
        for batch in batches:
            x, y = self._samples.train(batch)
            found = torch.autograd.grad(
                self._gradients.scored(module(x), own, y),
                list(own.values()),
                materialize_grads=True,
            )
            grads = {name: one[None] for name, one in zip(own, found, strict=True)}
            with torch.no_grad():
                self._optimizer.update(params, grads, memory, rate)
        for name, leaf in held[0].items():
            leaf[row].copy_(params[name][0])
