"""The local rounds of all rows: steps of those that are still at work, drawn ahead; optimisers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.data import Dataset, Partition
from joulemesh.models.torch_model import TorchModel, checked
from joulemesh.training.schedule import Options
from joulemesh.training.torch.gradients import (
    Gradients,
    PlacedBatches,
    Samples,
    has_convolutions,
    seen_shape,
)

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]  # [rows, ...] each

PULL = "pull."
"""Names of what a method subtracts after each step begin with it."""
_B1, _B2, _EPS, _DECAY = 0.9, 0.999, 1e-8, 1e-4  # optax's defaults


@dataclass(frozen=True)
class Optimizer:
    """An optimiser whose memory is tensors with one row for each device."""

    memory: Callable[[Leaves], Leaves]  # parameters -> memory by name; nothing for plain SGD
    # (parameters, gradients, memory, learning rates [rows]): changes the first and the third in
    # place
    update: Callable[[Leaves, Leaves, Leaves, Tensor], None]


def _wide(rate: Tensor, leaf: Tensor) -> Tensor:
    return rate.to(leaf.dtype).reshape(-1, *[1] * (leaf.dim() - 1))


def _sgd(params: Leaves, grads: Leaves, memory: Leaves, rate: Tensor) -> None:
    for name, leaf in params.items():
        leaf.addcmul_(_wide(rate, leaf), grads[name], value=-1)


def _moments(params: Leaves) -> Leaves:
    zeros = {f"{which}.{n}": p.new_zeros(p.shape) for which in "mv" for n, p in params.items()}
    first = next(iter(params.values()))
    return {**zeros, "count": first.new_zeros(len(first))}


def _adam(decay: float) -> Callable[[Leaves, Leaves, Leaves, Tensor], None]:
    def update(params: Leaves, grads: Leaves, memory: Leaves, rate: Tensor) -> None:
        count = memory["count"].add_(1)
        for name, leaf in params.items():
            grad, mean, square = grads[name], memory[f"m.{name}"], memory[f"v.{name}"]
            mean.mul_(_B1).add_(grad, alpha=1 - _B1)
            square.mul_(_B2).addcmul_(grad, grad, value=1 - _B2)
            corrected = mean / _wide(1 - _B1**count, leaf)
            spread = (square / _wide(1 - _B2**count, leaf)).sqrt_().add_(_EPS)
            step = corrected / spread
            if decay:
                step.add_(leaf, alpha=decay)
            leaf.sub_(_wide(rate, leaf) * step)

    return update


OPTIMIZERS = {
    "sgd": Optimizer(lambda params: {}, _sgd),
    "adam": Optimizer(_moments, _adam(0.0)),
    "adamw": Optimizer(_moments, _adam(_DECAY)),
}


def optimizer_of(name: str) -> Optimizer:
    if name not in OPTIMIZERS:
        raise ScenarioError(
            f"training.optimizer = {name!r} is not one of those for PyTorch modules: use "
            f"{', '.join(OPTIMIZERS)}"
        )
    return OPTIMIZERS[name]


def corrected(optimizer: Optimizer) -> Optimizer:
    """An optimiser after whose steps a method's correction is subtracted, kept in its memory."""

    def memory(params: Leaves) -> Leaves:
        pull = {f"{PULL}{name}": leaf.new_zeros(leaf.shape) for name, leaf in params.items()}
        return {**optimizer.memory(params), **pull}

    def update(params: Leaves, grads: Leaves, memory: Leaves, rate: Tensor) -> None:
        optimizer.update(params, grads, memory, rate)
        for name, leaf in params.items():
            leaf.sub_(memory[f"{PULL}{name}"])

    return Optimizer(memory, update)


Held: TypeAlias = tuple[Leaves, Leaves]  # parameters and memory, [rows, ...] each
IntArray = NDArray[np.int64]


class Alone:
    """Trains rows by themselves, with modules that draw nothing: steps have no seeds here."""

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


Step: TypeAlias = Callable[[Held, Tensor, Tensor, int], None]

_LOG = logging.getLogger("joulemesh")
_KEPT = 64  # graphs
_WARM = 2
_ABANDONED: list[Any] = []  # PyTorch's allocator may still ask the graph of a capture that failed


@dataclass(frozen=True, eq=False)
class _Captured:
    graph: Any
    index: Tensor  # which samples: written before each replay


class Graphs:
    """Replays steps on the same memory; a step that cannot be captured runs as it is.

    A graph is of one place in memory, one number of rows that are at work and one tensor of
    learning rates: the schedules of a run have few of them, again and again.

    Only the main thread captures: PyTorch captures one graph at a time in a process, and nodes of
    one process train in threads.
    """

    def __init__(self, torch: Any, step: Step) -> None:
        self._torch, self._step = torch, step
        self._captured: dict[tuple[Any, ...], _Captured] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._works = True
        # One for all graphs: they follow one another, and share what their steps compute in.
        self._pool: Any = None
        self._side: Any = None

    @property
    def captured(self) -> bool:
        return bool(self._captured)

    def step(self, held: Held, index: Tensor, rates: Tensor, busy: int) -> None:
        if not self._works or threading.current_thread() is not threading.main_thread():
            self._step(held, index, rates, busy)
            return
        addresses = tuple(leaf.data_ptr() for leaves in held for leaf in leaves.values())
        key = (addresses, tuple(index.shape), rates.data_ptr(), busy)
        found = self._captured.get(key)
        if found is None and key in self._seen and len(self._captured) < _KEPT:
            found = self._tried(key, held, index, rates, busy)
        if found is None:
            # The first time too: that makes the program, and most numbers of rows come once.
            self._seen.add(key)
            self._step(held, index, rates, busy)
            return
        found.index.copy_(index)
        found.graph.replay()

    def _tried(
        self, key: tuple[Any, ...], held: Held, index: Tensor, rates: Tensor, busy: int
    ) -> _Captured | None:
        """The graph of a step, kept; None where there cannot be one."""
        torch = self._torch
        current = torch.cuda.current_stream()
        try:
            self._captured[key] = self._capture(held, index, rates, busy)
        except Exception as error:  # a module may do what no graph can hold
            self._works = False
            self._captured.clear()
            torch.cuda.set_stream(current)  # a capture that fails stays on its own
            reason = " ".join(str(error).split())[:120]
            _LOG.warning("steps are not captured as CUDA graphs (%s), only slower", reason)
            return None
        return self._captured[key]

    def _capture(self, held: Held, index: Tensor, rates: Tensor, busy: int) -> _Captured:
        torch, own = self._torch, index.clone()
        self._side = side = self._side or torch.cuda.Stream()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # what was computed without it stays with another stream
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            # What libraries set up at their first call is not captured, so steps go ahead, on
            # copies: the held rows are as they were.
            spare: Any = tuple({n: leaf.clone() for n, leaf in leaves.items()} for leaves in held)
            for _ in range(_WARM):
                self._step(spare, own, rates, busy)
            del spare
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # the steps that went ahead would hold as much again
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        _ABANDONED.append(graph)
        # Other threads may prepare the next run on this GPU meanwhile.
        mode = {"pool": self._pool, "stream": side, "capture_error_mode": "thread_local"}
        with torch.cuda.graph(graph, **mode):
            self._step(held, own, rates, busy)
        _ABANDONED.remove(graph)
        return _Captured(graph, own)


_DRAWN_BYTES = 2**26  # indices of samples that are drawn at once
_GROUP_BYTES = 12 << 20  # of parameters; gradients and samples want as much again
_DROPOUT = 0x64726F70  # purpose of the draws that a module makes itself


class LocalSteps:
    """Trains rows on their own samples."""

    def __init__(
        self,
        torch: Any,
        gradients: Gradients,
        samples: Samples,
        batches: PlacedBatches,
        options: Options,
        rates: NDArray[np.float64],
        *,
        pulled: bool = False,
    ) -> None:
        self._torch, self._gradients, self._samples = torch, gradients, samples
        self._batches, self._batch = batches, options.batch_size
        plain = optimizer_of(options.optimizer)
        self.optimizer = corrected(plain) if pulled else plain
        self._rates = torch.as_tensor(rates).to(samples.device)
        self._rows = np.arange(len(rates))
        self._graphs: Graphs | None = None
        if samples.device.type == "cuda" and gradients.together:
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
        return self._graphs is not None and self._graphs.captured

    def expect(self, start: int, rounds: list[NDArray[np.integer[Any]]]) -> None:
        """Say the rounds [S, N] of the iterations that come next, from one on."""
        self._start = start
        self._steps = np.stack([self._batches.steps(one) for one in rounds])
        self._batches.expect(start, self._steps.max(axis=1))

    def of(self, iteration: int) -> IntArray:
        """int64 [rows]: the steps of an iteration (from 0)."""
        return np.asarray(self._steps[iteration - self._start])

    def train(self, params: Leaves, memory: Leaves, iteration: int) -> None:
        """The rounds of an iteration (from 0), in place; rows with most steps are worked first."""
        steps = self.of(iteration)
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
