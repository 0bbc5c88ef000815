"""Gradients of many devices: all at once by ``torch.func.vmap``, or one device after another."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import deepcopy
from functools import cached_property, lru_cache
from threading import Lock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.data import Dataset, Partition
from joulemesh.data.reading import DATASETS
from joulemesh.models.torch_model import TorchModel
from joulemesh.registries import LOSSES
from joulemesh.training.batches import Batches, Data, scale_of
from joulemesh.training.schedule import Options
from joulemesh.training.torch import draws

Tensor: TypeAlias = Any
Criterion: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def is_own(model: TorchModel) -> bool:
    """Is what is minimised the user's own, and so a function of tensors?"""
    return model.loss is not None or model.minimised.name not in LOSSES.built_in


def criterion_of(model: TorchModel) -> Criterion:
    """The mean loss of a batch, of outputs and targets."""
    minimised = model.loss or model.minimised.torch
    if minimised is None:
        raise ScenarioError(
            f"loss {model.minimised.name!r} is written for JAX, and {model.name} is a PyTorch "
            "module: give the loss a function torch of tensors, too"
        )
    each = minimised

    def mean(outputs: Tensor, targets: Tensor) -> Tensor:
        value = each(outputs, targets)
        return value.mean() if value.dim() else value

    return mean


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


Leaves: TypeAlias = dict[str, Tensor]
Gradient: TypeAlias = Callable[[Leaves, Tensor, Tensor], Leaves]

_LOG = logging.getLogger("joulemesh")
_TRACING = Lock()  # PyTorch traces in one thread at a time; nodes of one process train in threads


class Programs:
    """Computes the gradients of all rows at once.

    ``vmap`` and ``grad`` dispatch every operation several times in Python; a traced program
    consists of the operations that come of it, in their order, and gives the same bits.
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
        """As many rows as a program is made for, at least those given: few serve all numbers."""
        step = 1 << max(0, (rows - 1).bit_length() - 3)
        return min(self._rows, -(-rows // step) * step)

    def clear(self) -> None:
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


Keys: TypeAlias = NDArray[np.uint64]  # [rows]: seeds of what a module draws in one step

_TRIED = 2


class Gradients:
    """Computes the gradients of a model's loss on a batch of each device."""

    def __init__(
        self,
        torch: Any,
        model: TorchModel,
        samples: tuple[Tensor, Tensor],
        precision: str,
        rows: int,
        *,
        compiled: bool = False,
    ) -> None:
        self._torch, self._model = torch, model
        self._low = torch.bfloat16 if precision == "bfloat16" else None
        self.criterion = criterion_of(model)
        self.own_loss, self.minimised = is_own(model), model.minimised
        x = samples[0]
        self._module, self._on_gpu = model.module, is_gpu(x.device)
        self._convolves = has_convolutions(torch, model.module)
        self._wide = torch.float64 if precision == "float64" else torch.float32
        self._constants = {
            name: one.to(x.device, self._wide) if one.is_floating_point() else one.to(x.device)
            for name, one in model.constants().items()
        }
        self.programs = Programs(
            torch,
            torch.func.grad(self.loss),
            rows,
            on_gpu=self._on_gpu,
            convolves=self._convolves,
            compiled=compiled and self._on_gpu and self._convolves,
        )
        self._two = samples
        if self._convolves and not self._on_gpu:
            self.reason = "on a CPU convolutions of many devices at once are slower than one by one"
        else:
            self.reason = self._untraceable
        self.together = not self.reason
        # What vmap can trace does not draw.
        self.alone = not (self.together or self._on_gpu or self._low) and self.traceable

    @property
    def traceable(self) -> bool:
        return not self._untraceable

    def loss(self, params: Leaves, x: Tensor, y: Tensor) -> Tensor:
        """The loss of one device on a batch, with its regulariser."""
        return self.scored(self.outputs(params, x), params, y)

    def scored(self, outputs: Tensor, params: Leaves, y: Tensor) -> Tensor:
        """`loss`, of what the module gave."""
        value = self.criterion(outputs, y)
        return value + self.penalty(params) if self._model.l2 else value

    def penalty(self, params: Leaves) -> Tensor:
        """(l2/2)·||params||², which training losses include and test losses do not."""
        return 0.5 * self._model.l2 * sum(one.square().sum() for one in params.values())

    def twin(self) -> Any:
        """A copy of the module, in whose parameters one device after another is trained."""
        torch = self._torch
        module = deepcopy(self._module).to(self._wide).train(True)
        return module.to(memory_format=torch.channels_last) if self._convolves else module

    def tested(self, params: Leaves, x: Tensor) -> Tensor:
        """`outputs` of a module that is not being trained."""
        self._module.eval()
        return self.outputs(params, x)

    def outputs(self, params: Leaves, x: Tensor) -> Tensor:
        """What the module gives for normalised samples, in float32 or wider."""
        low = self._low
        held = {**self._constants, **params}
        if low is not None:
            held = {n: one.to(low) if one.is_floating_point() else one for n, one in held.items()}
            x = x.to(low) if x.is_floating_point() else x
        made = self._torch.func.functional_call(self._module, held, (x,))
        return made.float() if low is not None else made

    @cached_property
    def multiply_adds(self) -> float:
        """Of a forward pass of one device on one sample: products of matrices and convolutions.

        PyTorch does not count those of recurrent layers; a module without any other has one for
        each of its parameters.
        """
        from torch.utils.flop_counter import FlopCounterMode

        self._module.train(True)
        x, first = self._two[0], self._model.initial(0)
        wide = {name: one.to(x.device, self._wide) for name, one in first.items()}
        counted = FlopCounterMode(display=False)
        with self._torch.random.fork_rng(devices=[]), self._torch.no_grad(), counted:
            self.outputs(wide, x)
        return float(counted.get_total_flops()) / 2 / len(x) or float(self._model.parameters)

    @cached_property
    def _untraceable(self) -> str:
        """Why ``vmap`` cannot trace the module, in words; empty if it can."""
        torch, (x, y) = self._torch, self._two
        first = self._model.initial(0)
        wide = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        stacked = {name: torch.stack([one.to(x.device, wide)] * 2) for name, one in first.items()}
        self._module.train(True)
        try:
            self.programs(stacked, torch.stack([x] * _TRIED), torch.stack([y] * _TRIED))
        except Exception as error:  # vmap may refuse in any way
            words = " ".join(str(error).split())
            return f"torch.func.vmap cannot trace {self._model.name}: {words[:120]}"
        finally:
            self.programs.clear()
        return ""

    def of(self, params: Leaves, x: Tensor, y: Tensor, keys: Keys | None) -> Leaves:
        self._module.train(True)
        if self.together:
            return self.programs(params, x, y)
        assert keys is not None
        each = [self.of_one(row, params, x[row], y[row], int(keys[row])) for row in range(len(x))]
        return {name: self._torch.stack([one[k] for one in each]) for k, name in enumerate(params)}

    def _seed(self, key: int) -> None:
        """Seed what a module draws; ``torch.manual_seed`` takes milliseconds."""
        self._torch.default_generator.manual_seed(key)
        if self._torch.cuda.is_available():
            self._torch.cuda.manual_seed(key)

    def _laid_out(self, images: Tensor) -> Tensor:
        """Images and kernels with their channels last, which is quicker on CPUs."""
        if self._on_gpu or not self._convolves or images.ndim != 4:
            return images
        return images.contiguous(memory_format=self._torch.channels_last)

    def of_one(
        self, row: int, params: Leaves, x: Tensor, y: Tensor, key: int | None
    ) -> tuple[Tensor, ...]:
        """The gradients of one row, in the order of the parameters."""
        if key is not None:
            self._seed(key)
        own = {
            name: self._laid_out(leaf[row].detach()).requires_grad_()
            for name, leaf in params.items()
        }
        x = self._laid_out(x)
        made: tuple[Tensor, ...] = self._torch.autograd.grad(
            self.loss(own, x, y), list(own.values()), materialize_grads=True
        )
        return made


def is_gpu(device: Any) -> bool:
    return bool(device.type == "cuda")


def has_convolutions(torch: Any, module: Any) -> bool:
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    return any(isinstance(part, kinds) for part in module.modules())


def _channels_first(dataset: Dataset) -> bool:
    """Are its samples images with their channels last, which a module wants first?

    Data of the user's own are shown to a module as they are.
    """
    return dataset.name in DATASETS and len(dataset.shape) == 3


def seen_shape(dataset: Dataset) -> tuple[int, ...]:
    """The shape of one sample as a module sees it."""
    if _channels_first(dataset):
        height, width, channels = dataset.shape
        return channels, height, width
    return tuple(dataset.shape)


class Samples:
    """A data set on a processor; a module sees x · scale + shift."""

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
        self.tested = len(dataset.y_test)
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

    @property
    def data(self) -> Data:
        return Data(self._x, self._y, self._scale, self._shift)

    def train(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Training samples by index, of any shape, normalised; and their targets."""
        index = index.to(self.device)
        return self._seen(self._x[index]), self._y[index]

    def test(self, index: NDArray[np.int64]) -> Tensor:
        return self._seen(self._x_test[self._torch.as_tensor(index).to(self.device)])

    def targets(self, index: NDArray[np.int64]) -> NDArray[Any]:
        return self._targets[index]


IntArray = NDArray[np.int64]

_BLOCK_BYTES = 2**27  # indices that are drawn at once on a GPU


class PlacedBatches(Batches):
    """Draws batches onto the processor that trains.

    On a GPU a draw is some 150 small operations whatever its size, so that one serves all steps of
    several iterations; the numbers are the same.
    """

    def __init__(
        self,
        torch: Any,
        device: Any,
        partitions: Sequence[Partition],
        seeds: Sequence[int],
        options: Options,
        *,
        numbers: Sequence[int] | None = None,
        ahead: bool | None = None,
    ) -> None:
        super().__init__(partitions, seeds, options, numbers)
        self._torch, self._on = torch, device
        wanted = is_gpu(device) if ahead is None else ahead
        self._ahead = wanted and not self._epoch
        self._block: tuple[int, int, int, Tensor] = (0, 0, 0, None)  # iterations, first step
        self._start, self._longest = 0, np.zeros(0, np.int64)
        if self._ahead:
            self._tensors = self._place()

    def _place(self) -> dict[str, Any]:
        def words(array: NDArray[Any]) -> Tensor:
            return draws.words(self._torch, array, self._on)

        first, second, device = (x[:, None] for x in (*self._key, self._device))
        sizes = self.sizes.reshape(-1, 1).astype(np.int64)
        return {
            "key": (words(first), words(second)),
            "device": words(device),
            "lanes": words(self._lanes),
            "sizes": self._torch.as_tensor(sizes).to(self._on),
            "start": self._torch.as_tensor(self._start_of_rows[:, None]).to(self._on),
            "order": self._torch.as_tensor(self._order).to(self._on),
        }

    def expect(self, start: int, longest: IntArray) -> None:
        """Say how many steps the iterations from one on have at most, [T]."""
        self._start, self._longest = start, longest

    def placed(
        self, t: int, rows: tuple[IntArray, Tensor | None], wide: int, start: int, stop: int
    ) -> tuple[Tensor, NDArray[np.bool_] | None]:
        """The samples of the first rows in steps start..stop-1 of an iteration (from 0)."""
        if not self._ahead:
            index, valid = self.draw(t, rows[0][:wide], start, stop)
            return self._torch.as_tensor(index).to(self._on), valid
        first, _, step, drawn = self._covering(t, start, stop)
        found = drawn[t - first, start - step : stop - step]
        return (found[:, :wide] if rows[1] is None else found[:, rows[1][:wide]]), None

    def _covering(self, t: int, start: int, stop: int) -> tuple[int, int, int, Tensor]:
        """A block with these steps: the kept one, or one of as many iterations as it may hold."""
        first, last, step, drawn = self._block
        if first <= t < last and step <= start and stop - step <= drawn.shape[1]:
            return self._block
        ahead = np.maximum.accumulate(self._longest[t - self._start :])
        fit = _BLOCK_BYTES // (8 * len(self._device) * len(self._lanes))  # steps
        count = int(np.searchsorted(ahead * np.arange(1, len(ahead) + 1), fit, side="right"))
        begin, end = (0, int(ahead[count - 1])) if count else (start, stop)
        last = t + max(count, 1)
        self._block = (t, last, begin, self._drawn(t, last, begin, end))
        return self._block

    def _drawn(self, first: int, last: int, start: int, stop: int) -> Tensor:
        """int64 [iterations, steps, rows, batch]."""
        torch, placed = self._torch, self._tensors
        iterations = torch.arange(first, last, dtype=torch.int32, device=self._on)
        steps = torch.arange(start, stop, dtype=torch.int32, device=self._on)
        key = draws.fold(placed["key"], iterations[:, None, None, None])
        key = draws.fold(key, placed["device"])
        at = draws.step_positions(key, steps[:, None, None], placed["lanes"], placed["sizes"])
        return placed["order"][placed["start"] + at]
