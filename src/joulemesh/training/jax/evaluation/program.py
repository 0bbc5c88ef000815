"""One evaluation of all seeds as a traced function."""

from __future__ import annotations

__all__ = ["evaluate", "finite"]

from functools import partial

import jax
import jax.numpy as jnp

from joulemesh.metrics.curves import score_columns
from joulemesh.models.core import Params
from joulemesh.training.jax.evaluation.samples import EvalSamples
from joulemesh.training.jax.evaluation.scores import (
    Evaluation,
    MeanScores,
    consensus_error,
    device_scores,
    mean_model,
    mean_scores,
)
from joulemesh.training.jax.loss import Data
from joulemesh.training.jax.platform import ROWS, WHOLE
from joulemesh.training.jax.types import ProgramKey


def finite(key: ProgramKey, params: Params) -> jax.Array:
    """Whether all parameters of each seed are finite, [S]."""
    checks = [
        jnp.all(jnp.isfinite(leaf), axis=(0, *range(2, leaf.ndim)))
        for leaf in jax.tree.leaves(key.by_device(params))
    ]
    return jnp.all(jnp.stack(checks), axis=0)


def evaluate(
    key: ProgramKey,
    params: Params,
    train: Data,
    test: Data,
    weights: jax.Array,
    samples: EvalSamples,
    active: jax.Array,
) -> Evaluation:
    """Evaluate the mean model and the devices' own.

    Devices that agree have no samples of their own: the mean model is theirs. Those that do not
    are evaluated on some of the mean model's samples, as it is; by how much they differ from it
    there is added to its accuracy on all of its samples. So no gap between the two is one between
    samples.
    """
    view = key.by_device(params)
    share = jnp.where(active[:, None], weights, 0)
    share = share / jnp.sum(share, axis=0)
    centre = params if key.strategy.shared else mean_model(view, share)
    scores = key.sharded(
        partial(mean_scores, key),
        (WHOLE, WHOLE, samples.specs(), WHOLE, WHOLE),
        WHOLE,
    )(train, test, samples, centre, share)
    here = active[:, None]
    own = _devices(key, params, test, samples, scores)
    curves = {f"test_{m.name}": one for m, one in zip(key.metrics, scores.test, strict=True)}
    for name, each in own.items():
        centre_score = curves[f"test_{name}"]
        apart = jnp.where(here, each - centre_score, 0)  # nothing stays exactly nothing
        curves[f"device_{name}_mean"] = centre_score + jnp.sum(apart, axis=0) / jnp.sum(active)
        curves[f"device_{name}_min"] = jnp.min(jnp.where(here, each, jnp.inf), axis=0)
        curves[f"device_{name}_max"] = jnp.max(jnp.where(here, each, -jnp.inf), axis=0)
    nothing = jnp.zeros_like(scores.train_loss)
    names = score_columns(key.metrics[0].name)
    always = {field: curves.pop(name) for field, name in names.items()}
    return Evaluation(
        train_loss=scores.train_loss,
        test_loss=curves.pop("test_loss", always["test_score"]),
        **always,
        drift=nothing,
        consensus=nothing if samples.device is None else consensus_error(view, active),
        own=curves,
    )


def _devices(
    key: ProgramKey, params: Params, test: Data, samples: EvalSamples, scores: MeanScores
) -> dict[str, jax.Array]:
    """Of each metric that measures them, the figures of the devices' own models, [slots, S]."""
    shape = (key.slots, key.seeds)
    measured = [k for k, metric in enumerate(key.metrics) if metric.devices]
    found = {key.metrics[k].name: jnp.broadcast_to(scores.test[k], shape) for k in measured}
    if samples.device is None:
        return found
    specs = (WHOLE, WHOLE, ROWS)
    each = key.sharded(partial(device_scores, key), specs, ROWS)(test, samples.device, params)
    for k, one in zip(measured, each, strict=True):
        metric = key.metrics[k]
        moved = found[metric.name] + (one.reshape(shape) - scores.shared[k])
        found[metric.name] = jnp.clip(moved, 0, 1) if metric.share else moved
    return found
