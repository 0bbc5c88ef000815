"""Steps of a GPU captured as CUDA graphs: one launch for all the operations of a step."""

from __future__ import annotations

__all__ = ["Graphs"]

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
Held: TypeAlias = tuple[Leaves, Leaves]  # parameters and memory
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

    Args:
        torch: the module.
        step: (held, index, rates, busy) -> None, in place.
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
        """Are steps replayed?"""
        return bool(self._captured)

    def step(self, held: Held, index: Tensor, rates: Tensor, busy: int) -> None:
        """Do a step."""
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
