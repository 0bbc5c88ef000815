"""One evaluation of all seeds as a traced function."""

from __future__ import annotations

__all__ = ["evaluate", "finite"]

from functools import partial

import jax
import jax.numpy as jnp

from joulemesh.models.core import Params
from joulemesh.training.jax.evaluation.samples import EvalSamples
from joulemesh.training.jax.evaluation.scores import (
    Evaluation,
    consensus_error,
    device_accuracy,
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
        partial(mean_scores, key.model, key.compute, key.mesh.size > 1),
        (WHOLE, WHOLE, samples.specs(), WHOLE, WHOLE),
        WHOLE,
    )(train, test, samples, centre, share)
    agree = samples.device is None
    accuracy = jnp.broadcast_to(scores.test_accuracy, (key.places, key.seeds))
    if not agree:
        own = key.sharded(
            partial(device_accuracy, key.model, key.compute, key.loop),
            (WHOLE, WHOLE, ROWS),
            ROWS,
        )(test, samples.device, params)
        own = own.reshape(key.places, key.seeds)
        accuracy = jnp.clip(accuracy + (own - scores.shared_accuracy), 0, 1)
    nothing = jnp.zeros_like(scores.test_loss)
    here = active[:, None]
    apart = jnp.where(here, accuracy - scores.test_accuracy, 0)  # nothing stays exactly nothing
    count = jnp.sum(active)
    return Evaluation(
        train_loss=scores.train_loss,
        test_loss=scores.test_loss,
        test_accuracy=scores.test_accuracy,
        device_accuracy_mean=scores.test_accuracy + jnp.sum(apart, axis=0) / count,
        device_accuracy_min=jnp.min(jnp.where(here, accuracy, jnp.inf), axis=0),
        device_accuracy_max=jnp.max(jnp.where(here, accuracy, -jnp.inf), axis=0),
        drift=nothing,
        consensus=nothing if agree else consensus_error(view, active),
    )
