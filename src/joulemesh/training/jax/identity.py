"""What decides the numbers of a run, as digests: two runs with equal ones compute the same."""

from __future__ import annotations

__all__ = ["metrics_digest", "model_digest", "run_identity", "two_targets"]

import re
from collections.abc import Sequence

import jax
import numpy as np

from joulemesh.data import Dataset, Partition
from joulemesh.metrics import CROSS_ENTROPY, Metric, Reported, metrics_of, reported
from joulemesh.models.core import Model
from joulemesh.training.digests import (
    array_parts,
    data_digest,
    digest,
    partition_parts,
    scaling_digest,
)
from joulemesh.training.exchange import Exchange
from joulemesh.training.jax.mixing import Mixing
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

_ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]+")


def model_digest(
    model: Model, shape: tuple[int, ...], targets: jax.ShapeDtypeStruct | None = None
) -> str:
    """A digest of what a model computes: its functions as JAX traces them, constants included."""
    key = jax.random.key(0)
    batch = jax.ShapeDtypeStruct((2, *shape), np.dtype(model.seen))
    params = jax.eval_shape(model.init, key)
    traced = [jax.make_jaxpr(model.init)(key), jax.make_jaxpr(model.apply)(params, batch)]
    if model.loss is not CROSS_ENTROPY and targets is not None:
        outputs = jax.eval_shape(model.apply, params, batch)
        traced.append(jax.make_jaxpr(model.loss.values)(outputs, targets))
    text = [_ADDRESS.sub("", str(program)).encode() for program in traced]
    constants = [part for program in traced for part in array_parts(*program.consts)]
    return digest([*text, *constants, repr((model.name, model.l2, model.batch_axis)).encode()])


def run_identity(
    model: Model,
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    exchange: Exchange | Mixing,
) -> dict[str, str]:
    """Digests of all that decides a run's numbers, by name."""
    own = exchange.apply
    method = (own.__module__, getattr(own, "__qualname__", ""))
    digests = {
        "normalisation": scaling_digest(dataset),
        "data": data_digest(dataset),
        "model": model_digest(model, dataset.shape, two_targets(dataset)),
        "partition": digest(partition_parts(partitions)),
        "plan": schedule.digest(),
        "options": digest([repr((options, method, seeds)).encode()]),
    }
    if reported(options) != Reported():
        measured = metrics_of(*reported(options), model.loss)
        digests["evaluation"] = metrics_digest(measured, dataset.outputs, two_targets(dataset))
    return digests


def two_targets(dataset: Dataset) -> jax.ShapeDtypeStruct:
    """The targets of two samples, described."""
    return jax.ShapeDtypeStruct((2, *dataset.y_train.shape[1:]), dataset.y_train.dtype)


def metrics_digest(
    metrics: Sequence[Metric], outputs: tuple[int, ...], targets: jax.ShapeDtypeStruct
) -> str:
    """A digest of what metrics compute, as JAX traces them."""
    logits, labels = jax.ShapeDtypeStruct((2, *outputs), np.float32), targets
    parts: list[bytes | memoryview] = []
    for metric in metrics:
        programs = [jax.make_jaxpr(metric.values)(logits, labels)]
        width = jax.eval_shape(metric.values, logits, labels).shape[1:] or (1,)
        if metric.finish is not None:
            programs.append(jax.make_jaxpr(metric.finish)(np.zeros(width, np.float32)))
        parts.append(repr((metric.name, metric.share, metric.devices)).encode())
        for program in programs:
            parts += [_ADDRESS.sub("", str(program)).encode(), *array_parts(*program.consts)]
    return digest(parts)
