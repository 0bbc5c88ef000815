"""Gradients of many devices: all at once by ``torch.func.vmap``, or one device after another."""

from __future__ import annotations

__all__ = ["Gradients", "Keys", "has_convolutions", "is_gpu"]

from copy import deepcopy
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.models.torch_model import TorchModel
from joulemesh.training.torch.losses import criterion_of, is_own
from joulemesh.training.torch.programs import Programs

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]
Keys: TypeAlias = NDArray[np.uint64]  # [rows]: seeds of what a module draws in one step

_TRIED = 2


class Gradients:
    """Computes the gradients of a model's loss on a batch of each device.

    Args:
        torch: the module.
        model: what is trained.
        samples: two samples as the model sees them, to try ``vmap`` on; and their targets.
        precision: ``"bfloat16"`` computes the loss in it, on float32 parameters.
        rows: the most that there are at once.
        compiled: whether a long run is ahead, for which compilation pays.

    Attributes:
        together: are all devices computed at once?
        alone: are devices computed one after another, in a `twin` of the module?
        reason: why not, in words; empty if they are.
        programs: what computes them.
    """

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
        """Could all devices be computed at once?"""
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
        """The gradients of every row.

        Args:
            params: [rows, ...] each.
            x: [rows, B, ...], normalised.
            y: [rows, B, ...].
            keys: what a module that draws (dropout) is seeded with, in each row; None where rows
                are computed at once, since such a module does not draw.
        """
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
    """Is a processor a GPU?"""
    return bool(device.type == "cuda")


def has_convolutions(torch: Any, module: Any) -> bool:
    """Does a module convolve?"""
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    return any(isinstance(part, kinds) for part in module.modules())
