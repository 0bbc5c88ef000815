"""A PyTorch module as a model: what is trained by the torch learner."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any, ClassVar, TypeAlias

from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.metrics import CROSS_ENTROPY
from joulemesh.metrics import Loss as NamedLoss

Tensor: TypeAlias = Any
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""(outputs [B, ...], targets [B, ...]) -> the mean over the batch."""


class NotOfJaxError(ScenarioError):
    """A PyTorch module is given for something that is written for models of JAX."""


_DRAWING = Lock()  # modules draw from one generator, whichever thread they are made in


@dataclass(frozen=True, eq=False)
class TorchModel:
    """A PyTorch module, with where its initial parameters come from and its loss.

    Attributes:
        name: for reports.
        module: the structure; its own parameters are the start of every seed without ``make``.
        make: makes the module anew, so that every seed begins with parameters of its own; None
            where one module was given.
        loss: of outputs and targets, in place of ``minimised``.
        l2: weight of the regulariser (l2/2)·||params||².
        minimised: what a scenario says is minimised.
    """

    library: ClassVar[str] = "torch"  # what trains it

    name: str
    module: Any
    make: Callable[[], Any] | None = None
    loss: Loss | None = None
    l2: float = 0.0
    minimised: NamedLoss = CROSS_ENTROPY

    @cached_property
    def parameters(self) -> int:
        return sum(one.numel() for one in self.module.parameters() if one.requires_grad)

    def initial(self, seed: int) -> dict[str, Tensor]:
        """The parameters that every device of a seed begins with, on the CPU, in order of names."""
        torch = require("torch", "a PyTorch module")
        module = self.module
        if self.make is not None:
            with _DRAWING, torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                module = self.make()
        return {
            name: one.detach().clone().cpu()
            for name, one in sorted(module.named_parameters())
            if one.requires_grad
        }

    def copy(self) -> TorchModel:
        """The same model with a module of its own, which another thread may call meanwhile."""
        return replace(self, module=deepcopy(self.module))

    def constants(self) -> dict[str, Tensor]:
        """What the module holds beside the parameters that are trained: the same on all devices."""
        frozen = {n: p.detach() for n, p in self.module.named_parameters() if not p.requires_grad}
        return {**dict(self.module.named_buffers()), **frozen}


def is_torch(obj: Any) -> bool:
    """Is it a PyTorch module, a class of such, or a function without arguments that may make one?

    PyTorch is not imported to find out: whoever gives a module has done so.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "nn"):
        return isinstance(obj, TorchModel)
    base = torch.nn.Module
    if isinstance(obj, TorchModel | base):
        return True
    if isinstance(obj, type):
        return issubclass(obj, base)
    return inspect.isfunction(obj) and not any(
        one.default is one.empty for one in inspect.signature(obj).parameters.values()
    )


def from_torch(obj: Any, *, loss: Loss | None = None, l2: float = 0.0) -> TorchModel:
    """Make a model of a PyTorch module, or of whatever makes one.

    Args:
        obj: a module, whose own parameters every seed then begins with; or a class of modules, or
            a function without arguments that makes one, so that each seed draws its own.
        loss: the mean over a batch, of outputs and targets; cross-entropy unless given.
        l2: weight of the regulariser.

    Returns:
        The model.

    Raises:
        ScenarioError: no module is made, or it keeps statistics that devices would not exchange.
    """
    torch = require("torch", "a PyTorch module")
    if isinstance(obj, TorchModel):
        return obj
    make = None if isinstance(obj, torch.nn.Module) else obj
    module = obj if make is None else _made(make)
    if not isinstance(module, torch.nn.Module):
        raise ScenarioError(
            f"{getattr(obj, '__name__', obj)!r} makes a {type(module).__name__}, not a torch "
            "module: return an nn.Module"
        )
    name = type(module).__name__
    _refuse_statistics(torch, module, name)
    model = TorchModel(name, module, make, loss, l2)
    if not model.parameters:
        raise ScenarioError(f"module {name} has no parameters to train: give it some")
    return model


def _made(make: Callable[[], Any]) -> Any:
    name = getattr(make, "__name__", str(make))
    try:
        with _DRAWING:
            return make()
    except TypeError as error:
        reason = " ".join(str(error).split())[:160]
        raise ScenarioError(
            f"{name} cannot be made without arguments ({reason}): give a module, or a function "
            "without arguments that makes one"
        ) from None


def _refuse_statistics(torch: Any, module: Any, name: str) -> None:
    """Refuse modules whose buffers change in training: devices would have to exchange them."""
    for path, part in module.named_modules():
        if getattr(part, "track_running_stats", False):
            where = f"{name}.{path}" if path else name
            raise ScenarioError(
                f"{where} is a {type(part).__name__} that keeps running statistics, which devices "
                "with different data would have to exchange: use GroupNorm, or "
                "torch.func.replace_all_batch_norm_modules_(module)"
            )


def checked(
    model: TorchModel, shape: Sequence[int], outputs: Sequence[int], seen: str = "float32"
) -> TorchModel:
    """The model, unless it does not give what is to be predicted for each sample of the data."""
    torch = require("torch", "a PyTorch module")
    before = {name: one.clone() for name, one in model.module.named_buffers()}
    was = model.module.training
    try:
        with torch.no_grad():
            kind = torch.int64 if seen == "int32" else torch.float32
            made = model.module.eval()(torch.zeros((2, *shape), dtype=kind))
    except Exception as error:  # the user's code may raise anything
        reason = " ".join(str(error).split())[:200]
        raise ScenarioError(
            f"module {model.name} does not accept samples of shape {tuple(shape)} "
            f"({type(error).__name__}: {reason}): match the module to the data"
        ) from error
    finally:
        model.module.train(was)
    _refuse_changed(model, before)
    found = tuple(getattr(made, "shape", ()))
    if model.loss is None and found != (2, *outputs):
        wanted = f"the {outputs[0]} classes" if len(outputs) == 1 else "the positions and tokens"
        wanted = "the numbers" if tuple(outputs) == (1,) else wanted
        raise ScenarioError(
            f"module {model.name} gives {found} for 2 samples of shape {tuple(shape)}, not "
            f"{(2, *outputs)}: match its output to {wanted} of the data"
        )
    return model


def _refuse_changed(model: TorchModel, before: Mapping[str, Tensor]) -> None:
    for name, one in model.module.named_buffers():
        if not before[name].equal(one):
            raise ScenarioError(
                f"module {model.name} changes its buffer {name} when it is called, which devices "
                "would not exchange: leave it out"
            )
