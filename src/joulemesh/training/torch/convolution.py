"""Convolutions as matrix products of patches, which stacked devices compute many times faster.

Under ``vmap`` a convolution becomes a grouped one, with a group for each device, and those are
slow on a GPU: on one H200 the built-in CNN takes about seven times as long with them. One product
of patches for each device gives the same numbers up to rounding.
"""

from __future__ import annotations

__all__ = ["products_for_convolutions"]

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeAlias

Tensor: TypeAlias = Any


def products_for_convolutions(torch: Any) -> AbstractContextManager[None]:
    """Within it, plain two-dimensional convolutions are computed as products of patches.

    Plain: stride 1, no dilation, no groups, padding with zeros. Others are left as they are.
    """
    mode: AbstractContextManager[None] = _mode(torch)()
    return mode


@lru_cache(maxsize=1)
def _mode(torch: Any) -> Callable[[], Any]:
    """The class that takes convolutions' place; made when PyTorch is there."""
    from torch.overrides import TorchFunctionMode

    class Products(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = kwargs or {}
            if func is torch.conv2d:
                made = _convolved(torch, *args, **given)
                if made is not None:
                    return made
            return func(*args, **given)

    return Products


def _pair(one: int | Sequence[int]) -> tuple[int, int]:
    both = (one, one) if isinstance(one, int) else tuple(one)
    return (both[0], both[-1])


def _convolved(
    torch: Any,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """``torch.conv2d``; None where it is not a plain one."""
    if _pair(stride) != (1, 1) or _pair(dilation) != (1, 1) or groups != 1 or x.dim() != 4:
        return None
    if isinstance(padding, str):
        return None if padding != "valid" else _product(torch, x, weight, bias)
    down, across = _pair(padding)
    if down or across:
        x = torch.nn.functional.pad(x, (across, across, down, down))
    return _product(torch, x, weight, bias)


def _product(torch: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Convolve [B, C, H, W] with [O, C, k, l]; in memory channels are last."""
    outputs, _, k, width = weight.shape
    patches = _patches(torch).apply(x.permute(0, 2, 3, 1), k, width)
    kernel = weight.permute(2, 3, 1, 0).reshape(-1, outputs)
    made = patches.flatten(0, 2) @ kernel
    if bias is not None:
        made = made + bias
    return made.unflatten(0, patches.shape[:3]).permute(0, 3, 1, 2)


@lru_cache(maxsize=1)
def _patches(torch: Any) -> Any:
    """The function that gives every pixel's neighbourhood; made when PyTorch is there."""

    class Patches(torch.autograd.Function):  # type: ignore[misc, name-defined, unused-ignore]
        """[B, H, W, C] -> [B, h, w, k·l·C]; its gradient is a sum of shifted images."""

        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor, k: int, width: int) -> Tensor:
            windows = x.unfold(1, k, 1).unfold(2, width, 1)  # [B, h, w, C, k, l]
            return windows.permute(0, 1, 2, 4, 5, 3).flatten(3)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Tensor, int, int], output: Tensor) -> None:
            ctx.window = inputs[1:]

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
            k, width = ctx.window
            parts = grad.unflatten(3, (k, width, -1))
            found: Tensor = 0
            for i in range(k):
                for j in range(width):
                    around = (0, 0, j, width - 1 - j, i, k - 1 - i)
                    found = found + torch.nn.functional.pad(parts[:, :, :, i, j], around)
            return found, None, None

    return Patches
