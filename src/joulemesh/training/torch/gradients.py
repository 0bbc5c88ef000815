"""Gradients of many devices: all at once by ``torch.func.vmap``, or one device after another."""

from __future__ import annotations

__all__ = ["Gradients", "Keys"]

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.models.torch_model import TorchModel
from joulemesh.optional import require

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

    Attributes:
        together: are all devices computed at once?
        reason: why not, in words; empty if they are.
    """

    def __init__(
        self,
        torch: Any,
        model: TorchModel,
        samples: tuple[Tensor, Tensor],
        precision: str,
        rows: int,
    ) -> None:
        self._torch, self._model = torch, model
        self._low = torch.bfloat16 if precision == "bfloat16" else None
        self.criterion = model.loss or torch.nn.functional.cross_entropy
        x = samples[0]
        self._module, self._most, self._on_gpu = model.module, rows, x.device.type == "cuda"
        self._programs: dict[tuple[int, int], Any] = {}
        self._constants = {
            name: one.to(x.device, x.dtype) if one.is_floating_point() else one.to(x.device)
            for name, one in model.constants().items()
        }
        self._batched = torch.func.vmap(torch.func.grad(self.loss), randomness="error")
        self.reason = self._why_not_together(*samples)
        self.together = not self.reason

    def loss(self, params: Leaves, x: Tensor, y: Tensor) -> Tensor:
        """The loss of one device on a batch, with its regulariser."""
        value = self.criterion(self.outputs(params, x), y)
        return value + self.penalty(params) if self._model.l2 else value

    def penalty(self, params: Leaves) -> Tensor:
        """(l2/2)·||params||², which training losses include and test losses do not."""
        return 0.5 * self._model.l2 * sum(one.square().sum() for one in params.values())

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

    def _why_not_together(self, x: Tensor, y: Tensor) -> str:
        torch = self._torch
        if x.device.type == "cpu" and _has_convolutions(torch, self._module):
            return "on a CPU convolutions of many devices at once are slower than one by one"
        first = self._model.initial(0)
        stacked = {
            name: torch.stack([one.to(x.device, x.dtype if x.is_floating_point() else None)] * 2)
            for name, one in first.items()
        }
        self._module.train(True)
        try:
            self._traced(stacked, torch.stack([x] * _TRIED), torch.stack([y] * _TRIED))
        except Exception as error:  # vmap may refuse in any way
            words = " ".join(str(error).split())
            return f"torch.func.vmap cannot trace {self._model.name}: {words[:120]}"
        finally:
            self._programs.clear()
        return ""

    def of(self, params: Leaves, x: Tensor, y: Tensor, keys: Keys) -> Leaves:
        """The gradients of every row.

        Args:
            params: [rows, ...] each.
            x: [rows, B, ...], normalised.
            y: [rows, B, ...].
            keys: what a module that draws (dropout) is seeded with, in each row.
        """
        self._module.train(True)
        if self.together:
            return self._traced(params, x, y)
        each = [self.of_one(row, params, x[row], y[row], int(keys[row])) for row in range(len(x))]
        return {name: self._torch.stack([one[k] for one in each]) for k, name in enumerate(params)}

    def _traced(self, params: Leaves, x: Tensor, y: Tensor) -> Leaves:
        """All rows at once, by a program that is traced once for each number of rows.

        ``vmap`` and ``grad`` dispatch every operation several times in Python; the traced program
        consists of the operations that come of it, in their order, and gives the same bits.
        """
        rows = len(x)
        wide = min(self._most, 1 << (rows - 1).bit_length())  # few programs serve all numbers
        if wide > rows:
            params, x, y = (_padded(self._torch, one, wide) for one in (params, x, y))
        program = self._programs.get((wide, x.shape[1]))
        if program is None:
            proxies = require("torch.fx.experimental.proxy_tensor", "training a PyTorch module")
            program = proxies.make_fx(lambda *given: self._batched(*given))(params, x, y)
            self._programs[wide, x.shape[1]] = program
        found: Leaves = program(params, x, y)
        return found if wide == rows else {name: one[:rows] for name, one in found.items()}

    def _seed(self, key: int) -> None:
        """Seed what a module draws; ``torch.manual_seed`` takes milliseconds."""
        self._torch.default_generator.manual_seed(key)
        if self._on_gpu:
            self._torch.cuda.manual_seed(key)

    def of_one(
        self, row: int, params: Leaves, x: Tensor, y: Tensor, key: int
    ) -> tuple[Tensor, ...]:
        """The gradients of one row, in the order of the parameters."""
        self._seed(key)
        own = {name: leaf[row].detach().requires_grad_() for name, leaf in params.items()}
        made: tuple[Tensor, ...] = self._torch.autograd.grad(
            self.loss(own, x, y), list(own.values()), materialize_grads=True
        )
        return made


def _padded(torch: Any, rows: Any, wide: int) -> Any:
    """Rows, or a mapping of them, with the last one repeated."""
    if isinstance(rows, dict):
        return {name: _padded(torch, one, wide) for name, one in rows.items()}
    more = rows[-1:].expand(wide - len(rows), *rows.shape[1:])
    return torch.cat([rows, more])


def _has_convolutions(torch: Any, module: Any) -> bool:
    kinds = (torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    return any(isinstance(part, kinds) for part in module.modules())
