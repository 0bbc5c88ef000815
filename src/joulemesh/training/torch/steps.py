"""The local rounds of all rows: steps of those that are still at work, drawn ahead."""

from __future__ import annotations

__all__ = ["LocalSteps"]

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.training.options import Options
from joulemesh.training.torch.alone import Alone
from joulemesh.training.torch.gradients import Gradients
from joulemesh.training.torch.graphs import Graphs
from joulemesh.training.torch.optimizers import optimizer_of
from joulemesh.training.torch.placed import PlacedBatches
from joulemesh.training.torch.samples import Samples

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
Held: TypeAlias = tuple[Leaves, Leaves]  # parameters and memory, [rows, ...] each
IntArray = NDArray[np.int64]

_DRAWN_BYTES = 2**26  # indices of samples that are drawn at once
_GROUP_BYTES = 12 << 20  # of parameters; gradients and samples want as much again
_DROPOUT = 0x64726F70  # purpose of the draws that a module makes itself


class LocalSteps:
    """Trains rows on their own samples.

    Args:
        torch: the module.
        gradients: the model.
        samples: placed on the processor.
        batches: which of them are drawn.
        options: the optimiser and the size of a batch.
        rates: the learning rate of each row.
    """

    def __init__(
        self,
        torch: Any,
        gradients: Gradients,
        samples: Samples,
        batches: PlacedBatches,
        options: Options,
        rates: NDArray[np.float64],
    ) -> None:
        self._torch, self._gradients, self._samples = torch, gradients, samples
        self._batches, self._batch = batches, options.batch_size
        self.optimizer = optimizer_of(options.optimizer)
        self._rates = torch.as_tensor(rates).to(samples.device)
        self._rows = np.arange(len(rates))
        self._graphs: Graphs | None = None
        if samples.device.type == "cuda" and gradients.together and samples.resident:
            self._graphs = Graphs(torch, self._step)
        if samples.device.type == "cpu":
            _keep_freed_memory()
        self._alone: Alone | None = None
        if gradients.alone:
            self._alone = Alone(torch, gradients, samples, self.optimizer)
        self._start, self._steps = 0, np.zeros((0, len(rates)), np.int64)
        self._scratch: Held | None = None
        self._arranged: tuple[bytes, Any] = (b"", None)
        self._sorted_rates = self._rates.clone()

    @property
    def captured(self) -> bool:
        """Are steps replayed from CUDA graphs?"""
        return self._graphs is not None and self._graphs.captured

    def expect(self, start: int, rounds: list[NDArray[np.integer[Any]]]) -> None:
        """Say the rounds [S, N] of the iterations that come next, from one on."""
        self._start = start
        self._steps = np.stack([self._batches.steps(one) for one in rounds])
        self._batches.expect(start, self._steps.max(axis=1))

    def train(self, params: Leaves, memory: Leaves, iteration: int) -> None:
        """The rounds of an iteration (from 0), in place; rows with most steps are worked first."""
        steps = self._steps[iteration - self._start]
        if not steps.any():
            return
        if self._alone is not None:
            self._play_alone(self._alone, (params, memory), iteration, steps)
            return
        if (steps == steps[0]).all():
            for part in self._groups(params):
                held = _cut((params, memory), part)
                self._play(
                    held, iteration, (self._rows[part], None), steps[part], self._rates[part]
                )
            return
        order = np.argsort(-steps, kind="stable")
        at = self._placed(order)
        held = self._sorted((params, memory), at)
        for part in self._groups(params):
            rows, rates = (order[part], at[part]), self._sorted_rates[part]
            self._play(_cut(held, part), iteration, rows, steps[order[part]], rates)
        for leaves, moved in zip((params, memory), held, strict=True):
            for name, leaf in leaves.items():
                leaf.index_copy_(0, at, moved[name])

    def _placed(self, order: IntArray) -> Tensor:
        """An order of rows on the processor, and kept: most iterations have the same one."""
        key = order.tobytes()
        if self._arranged[0] != key:
            at = self._torch.as_tensor(order).to(self._samples.device, non_blocking=True)
            self._arranged = (key, at)
            self._torch.index_select(self._rates, 0, at, out=self._sorted_rates)
        return self._arranged[1]

    def _sorted(self, held: Held, at: Tensor) -> Held:
        """Rows in another order, always in the same memory, which captured graphs rely on."""
        if self._scratch is None:
            self._scratch = tuple(
                {name: self._torch.empty_like(leaf) for name, leaf in leaves.items()}
                for leaves in held
            )  # type: ignore[assignment]
        assert self._scratch is not None
        for leaves, moved in zip(held, self._scratch, strict=True):
            for name, leaf in leaves.items():
                self._torch.index_select(leaf, 0, at, out=moved[name])
        return self._scratch

    def _groups(self, params: Leaves) -> list[slice]:
        """Rows whose parameters fit a CPU's cache are trained through before the next ones."""
        count = len(self._rows)
        if self._samples.device.type != "cpu":  # whose graphs are captured for all rows
            return [slice(None)]
        each = sum(leaf[0].numel() * leaf.element_size() for leaf in params.values())
        most = max(1, _GROUP_BYTES // max(each, 1))
        size = -(-count // -(-count // most))  # groups are about equally large
        return [slice(first, first + size) for first in range(0, count, size)]

    def _play_alone(self, alone: Alone, held: Held, t: int, steps: IntArray) -> None:
        """Steps of rows that are trained by themselves: those with most begin first."""
        k, rows = 0, np.argsort(-steps, kind="stable")
        while len(rows := rows[steps[rows] > k]):
            most = max(1, _DRAWN_BYTES // (8 * len(rows) * self._batch))
            stop = min(int(steps[rows[0]]), k + most)
            drawn = self._batches.placed(t, (rows, None), len(rows), k, stop)
            alone.play(held, rows, drawn, np.minimum(steps[rows], stop) - k, self._rates)
            k = stop

    def _play(
        self,
        held: Held,
        t: int,
        placed: tuple[IntArray, Tensor | None],
        steps: IntArray,
        rates: Tensor,
    ) -> None:
        """Steps of rows that are sorted by their number of steps: a prefix is still at work."""
        k, rows = 0, placed[0]
        while k < steps[0]:
            busy = int(np.searchsorted(-steps, -k, side="left"))  # rows with more than k steps
            wide = self._gradients.programs.width(busy) if self._gradients.together else busy
            together = int(steps[busy - 1])  # until the first of them is done
            most = max(1, _DRAWN_BYTES // (8 * wide * self._batch))
            stop = min(together, k + most)
            index, valid = self._batches.placed(t, placed, wide, k, stop)
            keys = None
            if not self._gradients.together:
                keys = self._batches.keys(_DROPOUT, rows[:busy], t, k, stop)
            for j in range(stop - k):
                short = valid is not None and not valid[j, :busy].all()
                own = None if keys is None else keys[j]
                if short:
                    assert valid is not None
                    self._short(held, rates[:busy], index[j], valid[j, :busy], own)
                elif self._graphs is not None:
                    self._graphs.step(held, index[j], rates, busy)
                else:
                    self._step(held, index[j], rates, busy, own)
            k = stop

    def _step(self, held: Held, index: Tensor, rates: Tensor, busy: int, keys: Any = None) -> None:
        """One step of the first rows; of some more, for which there is a program, only computed."""
        wide = {name: leaf[: len(index)] for name, leaf in held[0].items()}
        grads = self._gradients.of(wide, *self._samples.train(index), keys)
        self._update(held, grads, rates[:busy])

    def _update(self, held: Held, grads: Leaves, rates: Tensor) -> None:
        busy = len(rates)
        params, memory = ({n: leaf[:busy] for n, leaf in leaves.items()} for leaves in held)
        with self._torch.no_grad():
            first = {name: one[:busy] for name, one in grads.items()}
            self.optimizer.update(params, first, memory, rates)

    def _short(
        self, held: Held, rates: Tensor, index: Tensor, valid: NDArray[np.bool_], keys: Any
    ) -> None:
        """A step in which the last batch of a pass has fewer samples in some rows."""
        each = []
        for row, there in enumerate(valid):
            x, y = self._samples.train(index[row][: int(there.sum())])  # the first ones are there
            key = None if keys is None else int(keys[row])
            each.append(self._gradients.of_one(row, held[0], x, y, key))
        grads = {n: self._torch.stack([one[k] for one in each]) for k, n in enumerate(held[0])}
        self._update(held, grads, rates)


def _cut(held: Held, part: slice) -> Held:
    """Some rows of parameters and of what the optimiser remembers; the whole is left as it is."""
    if part == slice(None):
        return held
    params, memory = ({name: leaf[part] for name, leaf in leaves.items()} for leaves in held)
    return params, memory


def _keep_freed_memory() -> None:
    """Let the allocator of glibc keep what a step frees for the next one; elsewhere do nothing.

    It gives freed memory back to the system beyond twice the largest block that has been freed so
    far, up to 32 MiB: without such a block every step may ask for all its pages again, which takes
    a quarter of the time.
    """
    np.empty((32 << 20) - (64 << 10), np.uint8)  # and freed
