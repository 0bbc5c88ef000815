"""Sequences: what is minimised, and how well the tokens at a sample's positions are predicted."""

from __future__ import annotations

__all__ = ["correct_tokens", "surprise", "token_cross_entropy"]

from typing import TYPE_CHECKING, Any

from joulemesh.metrics.losses import Loss
from joulemesh.metrics.metric import Metric, cross_entropy
from joulemesh.optional import require
from joulemesh.registries import LOSSES, METRICS

if TYPE_CHECKING:
    import jax


def token_cross_entropy(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """-ln of the right token's probability, the mean over a sample's positions that count.

    Args:
        outputs: [B, positions, tokens].
        targets: int [B, positions]; negative where there is nothing to predict.

    >>> import jax.numpy as jnp
    >>> value = token_cross_entropy(jnp.zeros((1, 3, 4)), jnp.array([[1, 2, -1]]))
    >>> round(float(value[0]), 4)  # ln 4
    1.3863
    """
    import jax.numpy as jnp

    size, length, tokens = outputs.shape
    each = cross_entropy(outputs.reshape(-1, tokens), targets.reshape(-1)).reshape(size, length)
    counts = targets >= 0
    most = jnp.maximum(jnp.sum(counts, axis=1), 1).astype(outputs.dtype)
    return jnp.sum(jnp.where(counts, each, 0), axis=1) / most


def correct_tokens(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """How many tokens have the largest output, and how many count: [B, 2].

    >>> import jax.numpy as jnp
    >>> correct_tokens(jnp.array([[[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]]),
    ...                jnp.array([[1, 0, -1]])).tolist()
    [[1.0, 2.0]]
    """
    import jax.numpy as jnp

    counts = targets >= 0
    hits = (jnp.argmax(outputs, axis=2) == targets) & counts
    each = jnp.stack([jnp.sum(hits, axis=1), jnp.sum(counts, axis=1)], axis=1)
    return each.astype(outputs.dtype)


def surprise(outputs: jax.Array, targets: jax.Array) -> jax.Array:
    """-ln of the tokens' probabilities, added up, and how many tokens count: [B, 2].

    >>> import jax.numpy as jnp
    >>> sums, counted = surprise(jnp.zeros((1, 2, 4)), jnp.array([[3, -1]]))[0].tolist()
    >>> round(sums, 4), counted  # ln 4
    (1.3863, 1.0)
    """
    import jax.numpy as jnp

    size, length, tokens = outputs.shape
    each = cross_entropy(outputs.reshape(-1, tokens), targets.reshape(-1)).reshape(size, length)
    counts = targets >= 0
    total = jnp.sum(jnp.where(counts, each, 0), axis=1)
    return jnp.stack([total, jnp.sum(counts, axis=1).astype(outputs.dtype)], axis=1)


def _quotient(means: jax.Array) -> jax.Array:
    """The first of two averages over the second; 0 where nothing counts."""
    import jax.numpy as jnp

    there = means[1] > 0
    return jnp.where(there, means[0] / jnp.where(there, means[1], 1), 0)


def _perplexity(means: jax.Array) -> jax.Array:
    import jax.numpy as jnp

    return jnp.exp(_quotient(means))


METRICS.register(
    Metric("token_accuracy", "share of the tokens that have the largest output", correct_tokens,
           _quotient, label="token accuracy", share=True, targets="tokens")
)  # fmt: skip
METRICS.register(
    Metric("perplexity", "e to the mean cross-entropy of a token: of so many it is in doubt",
           surprise, _perplexity, better="lower", targets="tokens")
)  # fmt: skip


def _of_tensors(outputs: Any, targets: Any) -> Any:
    """`token_cross_entropy` of PyTorch tensors, [B]."""
    torch = require("torch", "a PyTorch module")
    counts = targets >= 0
    each = torch.nn.functional.cross_entropy(
        outputs.transpose(1, 2), targets.clamp_min(0), reduction="none"
    )
    return torch.where(counts, each, 0.0).sum(dim=1) / counts.sum(dim=1).clamp_min(1)


LOSSES.register(
    Loss("token-cross-entropy", "-ln of each token's probability, for sequences of tokens",
         token_cross_entropy, "tokens", score="token_accuracy", metrics=("perplexity",),
         torch=_of_tensors)
)  # fmt: skip
