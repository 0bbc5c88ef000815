"""A neural language model: each token from an embedding of those before it.

Reference:
    Bengio, Ducharme, Vincent, Jauvin, "A Neural Probabilistic Language Model", JMLR 3, 2003.
"""

from __future__ import annotations

__all__ = ["apply", "init"]

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from joulemesh.models import mlp
from joulemesh.models.kinds.token_mlp import WIDTH, WINDOW


def init(tokens: int, hidden: Sequence[int]) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser.

    Args:
        tokens: how many different ones there are.
        hidden: widths of the hidden layers.

    Returns:
        key -> {"embedding": [tokens, width], "dense0_w", "dense0_b", ...}.
    """
    layers = mlp.init((WINDOW * WIDTH, *hidden, tokens))

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        own = jax.random.normal(jax.random.fold_in(key, 0x656D6264), (tokens, WIDTH), jnp.float32)
        return {"embedding": own, **layers(key)}

    return draw


def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, positions, tokens]: at each position from it and those just before.

    >>> apply(init(5, (8,))(jax.random.key(0)), jnp.zeros((2, 7), jnp.int32)).shape
    (2, 7, 5)
    """
    size, length = x.shape
    seen = params["embedding"][x]  # [B, positions, width]
    before = jnp.pad(seen, ((0, 0), (WINDOW - 1, 0), (0, 0)))
    near = jnp.concatenate([before[:, k : k + length] for k in range(WINDOW)], axis=2)
    layers = {name: leaf for name, leaf in params.items() if name != "embedding"}
    return mlp.apply(layers, near.reshape(size * length, -1)).reshape(size, length, -1)
