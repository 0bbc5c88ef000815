"""The convolutional network of PENS: 73,418 parameters on 32x32x3 images.

Three times 3x3 convolution without padding, max-pool by 2, ReLU (3→32→64→64 channels), then
dense layers 256→64→10. Source: Onoszko et al. 2021, arXiv:2107.08517, and its authors' code.

Convolutions are nine shifted slices and one matrix product. Batched over devices (each with
weights of its own) ``lax.conv`` becomes a grouped convolution, which is many times slower.
"""

from __future__ import annotations

__all__ = ["apply", "conv3x3", "init", "max_pool"]

from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp

from joulemesh.models.kinds.cnn import CONV_WIDTHS, FC_WIDTH, conv_output
from joulemesh.models.mlp import dense, init_dense


def conv3x3(x: jax.Array, w: jax.Array) -> jax.Array:
    """Convolve without padding.

    Args:
        x: [B, H, W, C].
        w: [9·C, O], the kernel [3, 3, C, O] with its first three axes merged.

    Returns:
        [B, H − 2, W − 2, O].

    >>> conv3x3(jnp.ones((1, 4, 4, 2)), jnp.ones((18, 5)))[0, :, :, 0]
    Array([[18., 18.],
           [18., 18.]], dtype=float32)
    """
    batch, height, width = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    shifted = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    # A plain matrix, though the product would take four axes: 1.3 times quicker on a CPU.
    patches = jnp.concatenate(shifted, axis=-1).reshape(batch * height * width, -1)
    return (patches @ w).reshape(batch, height, width, -1)


def max_pool(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2x2 block of [B, H, W, C]; an odd last row or column is dropped.

    >>> max_pool(jnp.arange(9.0).reshape(1, 3, 3, 1)).ravel()
    Array([4.], dtype=float32)
    """
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    x = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    upper = jnp.maximum(x[:, :, 0, :, 0], x[:, :, 0, :, 1])
    lower = jnp.maximum(x[:, :, 1, :, 0], x[:, :, 1, :, 1])
    return jnp.maximum(upper, lower)


def init(shape: Sequence[int], classes: int) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser (He) for images of this shape.

    Args:
        shape: (height, width, channels).
        classes: number of classes.

    Returns:
        key -> {"conv0_w", "conv0_b", ..., "dense1_b"}.

    >>> init((28, 28, 1), 10)(jax.random.key(0))["dense0_w"].shape
    (64, 64)
    """
    height, width, channels = shape
    flat = conv_output(height) * conv_output(width) * CONV_WIDTHS[-1]
    sizes = [
        (f"conv{i}", 9 * wide_in, wide_out, 2.0)
        for i, (wide_in, wide_out) in enumerate(pairwise((channels, *CONV_WIDTHS)))
    ]
    sizes += [("dense0", flat, FC_WIDTH, 2.0), ("dense1", FC_WIDTH, classes, 1.0)]

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        params = {}
        for layer, (name, inputs, outputs, gain) in enumerate(sizes):
            layer_key = jax.random.fold_in(key, layer)
            params[f"{name}_w"] = init_dense(layer_key, inputs, outputs, gain=gain)
            params[f"{name}_b"] = jnp.zeros(outputs, jnp.float32)
        return params

    return draw


def apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, classes] of images [B, H, W, C], in the dtype of the parameters.

    >>> apply(init((22, 22, 1), 3)(jax.random.key(0)), jnp.ones((2, 22, 22, 1))).shape
    (2, 3)
    """
    h = x.astype(params["conv0_w"].dtype)
    for layer in range(len(CONV_WIDTHS)):
        # What the pool would drop, an odd last row and column, is not computed; bias and ReLU
        # commute with the maximum, and after it there is a quarter of the work.
        height, width = (side - side % 2 for side in h.shape[1:3])
        pooled = max_pool(conv3x3(h[:, :height, :width], params[f"conv{layer}_w"]))
        h = jax.nn.relu(pooled + params[f"conv{layer}_b"])
    h = jax.nn.relu(dense(params, "dense0", h.reshape(len(h), -1)))
    return dense(params, "dense1", h)
