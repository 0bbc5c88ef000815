"""Programs of stacked devices: traced once for each number of rows, and compiled where it pays."""

from __future__ import annotations

__all__ = ["Programs", "keep_on"]

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any, TypeAlias, cast

from joulemesh.optional import require
from joulemesh.training.torch.convolution import products_for_convolutions

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
Gradient: TypeAlias = Callable[[Leaves, Tensor, Tensor], Leaves]

_LOG = logging.getLogger("joulemesh")
_TRACING = Lock()  # PyTorch traces in one thread at a time; nodes of one process train in threads


class Programs:
    """Computes the gradients of all rows at once.

    ``vmap`` and ``grad`` dispatch every operation several times in Python; a traced program
    consists of the operations that come of it, in their order, and gives the same bits.

    Args:
        torch: the module.
        gradient: of one row.
        rows: the most that there are at once.
        on_gpu: whether it runs there, where convolutions are computed as products of patches.
        convolves: whether the module has convolutions.
        compiled: whether the program of all rows is to be compiled.

    Attributes:
        compiles: whether it is.
    """

    def __init__(
        self,
        torch: Any,
        gradient: Gradient,
        rows: int,
        *,
        on_gpu: bool,
        convolves: bool,
        compiled: bool,
    ) -> None:
        self._torch, self._rows, self._on_gpu = torch, rows, on_gpu
        self._batched = torch.func.vmap(gradient, randomness="error")
        self._patches = on_gpu and convolves
        self.compiles = compiled and importlib.util.find_spec("triton") is not None
        self._made: dict[tuple[int, ...], Gradient] = {}

    def width(self, rows: int) -> int:
        """As many rows as a program is made for, at least those given: few serve all numbers.

        >>> import types
        >>> torch = types.SimpleNamespace(func=types.SimpleNamespace(vmap=lambda f, **_: f))
        >>> plain = {"on_gpu": False, "convolves": False, "compiled": False}
        >>> programs = Programs(torch, print, 100, **plain)
        >>> [programs.width(rows) for rows in (1, 7, 9, 33, 65, 97)]
        [1, 7, 10, 40, 80, 100]
        """
        step = 1 << max(0, (rows - 1).bit_length() - 3)
        return min(self._rows, -(-rows // step) * step)

    def clear(self) -> None:
        """Forget the programs."""
        self._made.clear()

    def __call__(self, params: Leaves, x: Tensor, y: Tensor) -> Leaves:
        """The gradients of rows; [rows, ...] each."""
        key = tuple(x.shape[:2])
        with self._precise(x):
            program = self._made.get(key)
            if program is None:
                program = self._made[key] = self._program(params, x, y)
            return program(params, x, y)

    def _program(self, params: Leaves, x: Tensor, y: Tensor) -> Gradient:
        proxies = require("torch.fx.experimental.proxy_tensor", "training a PyTorch module")

        def batched(*given: Any) -> Any:
            with products_for_convolutions(self._torch) if self._patches else nullcontext():
                return self._batched(*given)

        with _TRACING:
            traced = proxies.make_fx(batched)(params, x, y)
        keep_on(self._torch, traced, x.device)
        if not self.compiles or len(x) < self._rows:
            return cast(Gradient, traced)
        compiled: Gradient = self._torch.compile(traced, dynamic=False, fullgraph=True)
        try:
            compiled(params, x, y)
        except Exception as error:  # what is missing for it may show in any way
            reason = " ".join(str(error).split())[:120]
            self.compiles = False
            _LOG.warning("torch.compile failed (%s); the program runs as it was traced", reason)
            return cast(Gradient, traced)
        return compiled

    @contextmanager
    def _precise(self, x: Tensor) -> Iterator[None]:
        """Products that stand for convolutions are as precise as PyTorch lets those be."""
        torch = self._torch
        was = torch.get_float32_matmul_precision() if self._patches else ""
        if was != "highest" or not torch.backends.cudnn.allow_tf32 or x.dtype != torch.float32:
            yield
            return
        torch.set_float32_matmul_precision("high")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(was)


def keep_on(torch: Any, traced: Any, device: Any) -> None:
    """Let a traced program, all whose inputs are on one processor, compute nothing elsewhere.

    A module or a loss that writes ``torch.tensor([1.0, 2.0])`` or ``torch.arange(8).to(x.device)``
    would wait for a copy from the CPU in every step, which no CUDA graph can hold.
    """
    for name, constant in list(traced.named_buffers(recurse=False)):
        if constant.device.type != device.type:
            setattr(traced, name, constant.to(device))
    for node in traced.graph.nodes:
        made_on = node.kwargs.get("device")
        if made_on is not None and torch.device(made_on).type != device.type:
            node.kwargs = {**node.kwargs, "device": device}
    traced.recompile()
