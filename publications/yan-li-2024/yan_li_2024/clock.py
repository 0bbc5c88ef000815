"""Where the time of a reproduction goes: compiling, training, evaluating."""

from __future__ import annotations

__all__ = ["Account", "Chunk", "Compilations", "compilations"]

import threading
import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

_COMPILING = "/jax/core/compile/"
_COMPILED = "backend_compile_duration"
_SAME_S = 1e-3  # between the end of an event and its report


@dataclass
class Compilations:
    """Programs compiled so far in this process, and the seconds that took, tracing included.

    >>> heard = Compilations()
    >>> for seconds in (0.5, 0.5):  # as good as at the same moment: the second holds the first
    ...     heard.hear("/jax/core/compile/backend_compile_duration", seconds)
    >>> heard.count, round(heard.seconds, 2)
    (2, 0.5)
    """

    count: int = 0
    seconds: float = 0.0
    _heard: list[tuple[float, float]] = field(default_factory=list)  # beginning and end of each
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def hear(self, event: str, duration_secs: float, **_: Any) -> None:
        """Take note of one of JAX's events, which comes at its end.

        Tracing a function traces those that it calls, and programs are compiled side by side: no
        moment is counted twice.
        """
        if not event.startswith(_COMPILING):
            return
        with self._lock:
            end = time.perf_counter()
            begun = end - duration_secs
            while self._heard and self._heard[-1][0] >= begun - _SAME_S:
                first, last = self._heard.pop()
                self.seconds -= last - first
            if self._heard:
                begun = max(begun, self._heard[-1][1])
            self._heard.append((begun, end))
            self.seconds += end - begun
            self.count += event.endswith(_COMPILED)


_HEARD: list[Compilations] = []


def compilations() -> Compilations:
    """The process's compilations, counted since this was first called.

    >>> compilations() is compilations()
    True
    """
    if not _HEARD:
        import jax.monitoring

        _HEARD.append(Compilations())
        jax.monitoring.register_event_duration_secs_listener(_HEARD[0].hear)
    return _HEARD[0]


@dataclass(frozen=True)
class Chunk:
    """One call of the engine.

    Attributes:
        program: what tells programs apart that cost differently.
        work: steps of training, in any unit.
        evaluations: how many were made.
        seconds: wall time, without compiling.
    """

    program: Hashable
    work: float
    evaluations: int
    seconds: float


@dataclass
class Account:
    """What one figure took.

    Attributes:
        wall_s: from beginning to end.
        compile_s: of it, tracing and compiling.
        compilations: programs compiled, the small ones too.
        device_steps: SGD steps of all devices and seeds.
        computed: runs (curves × seeds) that were trained.
        cached: runs that were found in the cache.
        chunks: every call of the engine.
        pool: calls of other figures too, whose programs may be the same.
    """

    wall_s: float = 0.0
    compile_s: float = 0.0
    compilations: int = 0
    device_steps: int = 0
    computed: int = 0
    cached: int = 0
    chunks: list[Chunk] = field(default_factory=list)
    pool: list[Chunk] = field(default_factory=list)

    def charge(self, chunk: Chunk) -> None:
        """Enter one call of the engine."""
        self.chunks.append(chunk)
        self.pool.append(chunk)

    def split(self) -> tuple[float, float]:
        """Seconds of training and of evaluating.

        Both happen inside the engine's calls, which wait for nothing in between. Calls differ in
        how much they train and how often they evaluate, so least squares tells the two apart.

        >>> account = Account()
        >>> for chunk in (Chunk("a", 10, 0, 1.0), Chunk("a", 10, 1, 1.5)):
        ...     account.charge(chunk)
        >>> [round(seconds, 6) for seconds in account.split()]
        [2.0, 0.5]
        """
        training = evaluating = 0.0
        for program in {chunk.program for chunk in self.chunks}:
            known = _table([chunk for chunk in self.pool if chunk.program == program])
            mine = _table([chunk for chunk in self.chunks if chunk.program == program])
            scale = np.maximum(known[:, :2].max(axis=0), 1.0)
            rates, _ = nnls(known[:, :2] / scale, known[:, 2])
            parts = (mine[:, :2] / scale).sum(axis=0) * rates
            whole = float(mine[:, 2].sum())
            share = float(parts[0] / parts.sum()) if parts.sum() > 0 else 1.0
            training += share * whole
            evaluating += (1 - share) * whole
        return training, evaluating

    def row(self) -> dict[str, Any]:
        """The account in plain numbers, for ``timings.json``."""
        training, evaluating = self.split()
        return {
            "wall_s": round(self.wall_s, 3),
            "compile_s": round(self.compile_s, 3),
            "train_s": round(training, 3),
            "evaluate_s": round(evaluating, 3),
            "device_steps": int(self.device_steps),
            "compilations": int(self.compilations),
            "runs_computed": int(self.computed),
            "runs_cached": int(self.cached),
        }


def _table(chunks: list[Chunk]) -> NDArray[np.float64]:
    """[calls, 3]: work, evaluations, seconds."""
    return np.array([(chunk.work, chunk.evaluations, chunk.seconds) for chunk in chunks], float)
