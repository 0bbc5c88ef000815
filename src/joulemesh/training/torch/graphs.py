"""Steps of a GPU captured as CUDA graphs: one launch for all the operations of a step."""

from __future__ import annotations

__all__ = ["Graphs"]

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
Held: TypeAlias = tuple[Leaves, Leaves]  # parameters and memory
Step: TypeAlias = Callable[[Held, Tensor, Tensor, int], None]

_LOG = logging.getLogger("joulemesh")
_KEPT = 64  # graphs; each keeps what its step computes
_WARM = 2


@dataclass(frozen=True, eq=False)
class _Captured:
    graph: Any
    index: Tensor  # which samples: written before each replay


class Graphs:
    """Replays steps on the same memory; a step that cannot be captured runs as it is.

    A graph is of one place in memory, one number of rows that are at work and one tensor of
    learning rates: the schedules of a run have few of them, again and again.

    Args:
        torch: the module.
        step: (held, index, rates, busy) -> None, in place.
    """

    def __init__(self, torch: Any, step: Step) -> None:
        self._torch, self._step = torch, step
        self._captured: dict[tuple[Any, ...], _Captured] = {}
        self._seen: set[tuple[Any, ...]] = set()
        self._works = True
        self._pool: Any = None  # one for all graphs, since they follow one another

    def step(self, held: Held, index: Tensor, rates: Tensor, busy: int) -> None:
        """Do a step."""
        if not self._works:
            self._step(held, index, rates, busy)
            return
        addresses = tuple(leaf.data_ptr() for leaves in held for leaf in leaves.values())
        key = (addresses, tuple(index.shape), rates.data_ptr(), busy)
        found = self._captured.get(key)
        if found is None:
            found = self._tried(key, held, index, rates, busy)
            if found is None:
                return
        found.index.copy_(index)
        found.graph.replay()

    def _tried(
        self, key: tuple[Any, ...], held: Held, index: Tensor, rates: Tensor, busy: int
    ) -> _Captured | None:
        """The graph of a step; None where this step has been done without one.

        The first time it is done as it is: that makes the program, and most numbers of rows that
        are at work come once.
        """
        if key not in self._seen or len(self._captured) >= _KEPT:
            self._seen.add(key)
            self._step(held, index, rates, busy)
            return None
        try:
            self._captured[key] = self._capture(held, index, rates, busy)
        except Exception as error:  # a module may do what no graph can hold
            self._works = False
            self._torch.cuda.synchronize()
            reason = " ".join(str(error).split())[:120]
            _LOG.warning("steps are not captured as CUDA graphs (%s), only slower", reason)
            self._step(held, index, rates, busy)
            return None
        return self._captured[key]

    def _capture(self, held: Held, index: Tensor, rates: Tensor, busy: int) -> _Captured:
        torch, own = self._torch, index.clone()
        side = torch.cuda.Stream()
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
        with torch.cuda.graph(graph, pool=self._pool, stream=side):
            self._step(held, own, rates, busy)
        return _Captured(graph, own)
