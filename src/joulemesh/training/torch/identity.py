"""What decides the numbers of a run of a PyTorch module, as digests."""

from __future__ import annotations

__all__ = ["torch_identity", "torch_model_digest"]

import inspect
from collections.abc import Sequence
from typing import Any

from joulemesh.data import Dataset, Partition
from joulemesh.metrics.losses import CROSS_ENTROPY, Reported, reported
from joulemesh.metrics.metric import LOSS, metrics_of
from joulemesh.models.torch_model import TorchModel
from joulemesh.training.digests import array_parts, data_digest, digest, scaling_digest
from joulemesh.training.jax.identity import metrics_digest, partition_parts, two_targets
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule


def torch_model_digest(model: TorchModel, seeds: Sequence[int] = (0,)) -> str:
    """A digest of a module: its structure, its code where that can be read, and its start."""
    parts: list[bytes | memoryview] = [repr((model.name, model.l2, repr(model.module))).encode()]
    kinds = {type(part) for part in model.module.modules()}
    own = [kind for kind in kinds if kind.__module__.split(".")[0] != "torch"]
    own.sort(key=lambda kind: kind.__qualname__)
    named = None if model.minimised is CROSS_ENTROPY else model.minimised
    parts += [_source(one) for one in (*own, model.loss)]
    if named is not None:
        parts += [named.name.encode(), _source(named.torch or named.values)]
    for name, one in model.constants().items():
        parts += [name.encode(), *array_parts(one.detach().cpu().numpy())]
    for seed in seeds if model.make is not None else seeds[:1]:
        for name, one in model.initial(seed).items():
            parts += [name.encode(), *array_parts(one.numpy())]
    return digest(parts)


def _source(code: Any) -> bytes:
    """The text of a class or function; only its name where it is in no file."""
    if code is None:
        return b""
    try:
        return inspect.getsource(code).encode()
    except (OSError, TypeError):
        return repr(getattr(code, "__qualname__", code)).encode()


def torch_identity(
    model: TorchModel,
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
) -> dict[str, str]:
    """Digests of all that decides a run's numbers, by name."""
    digests = {
        "normalisation": scaling_digest(dataset),
        "data": data_digest(dataset),
        "model": torch_model_digest(model, seeds),
        "partition": digest(partition_parts(partitions)),
        "plan": schedule.digest(),
        "options": digest([repr((options, "torch", tuple(seeds))).encode()]),
    }
    if reported(options) != Reported():
        measured = [m for m in metrics_of(*reported(options)) if m.name != LOSS.name]
        digests["evaluation"] = metrics_digest(measured, dataset.outputs, two_targets(dataset))
    return digests
