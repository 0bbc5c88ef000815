"""The built-in models in JAX: how each is initialised and applied.

Convolutions are nine shifted slices and one matrix product. Batched over devices (each with
weights of its own) ``lax.conv`` becomes a grouped convolution, which is many times slower.

References:
    Onoszko et al. 2021, arXiv:2107.08517, and its authors' code: the convolutional network of PENS,
    73,418 parameters on 32x32x3 images. Three times 3x3 convolution without padding, max-pool by 2,
    ReLU (3→32→64→64 channels), then dense layers 256→64→10.
    Bengio, Ducharme, Vincent, Jauvin, "A Neural Probabilistic Language Model", JMLR 3, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from joulemesh.models.kinds import CONV_WIDTHS, FC_WIDTH, WIDTH, WINDOW, conv_output

# Multilayer perceptron: dense layers with ReLU between them, He initialisation.


def init_dense(key: jax.Array, inputs: int, outputs: int, *, gain: float = 2.0) -> jax.Array:
    """Draw a float32 [inputs, outputs] matrix of variance gain/inputs (He et al. 2015: 2)."""
    standard = jax.random.normal(key, (inputs, outputs), jnp.float32)
    return standard * math.sqrt(gain / inputs)


def dense(params: dict[str, jax.Array], layer: str, x: jax.Array) -> jax.Array:
    """Apply ``x @ w + b`` with the parameters that carry the layer's name."""
    return x @ params[f"{layer}_w"] + params[f"{layer}_b"]


def mlp_init(widths: Sequence[int]) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser for layers of these widths, inputs first and classes last."""
    sizes = tuple(pairwise(widths))

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        params = {}
        for layer, (inputs, outputs) in enumerate(sizes):
            # Nothing rectifies the last layer, so half the variance keeps the logits' scale.
            gain = 2.0 if layer < len(sizes) - 1 else 1.0
            params[f"dense{layer}_w"] = init_dense(
                jax.random.fold_in(key, layer), inputs, outputs, gain=gain
            )
            params[f"dense{layer}_b"] = jnp.zeros(outputs, jnp.float32)
        return params

    return draw


def mlp_apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, classes] of samples of any shape, in the dtype of the parameters."""
    flat = x.reshape(len(x), -1).astype(params["dense0_w"].dtype)
    return after_input(params, flat @ params["dense0_w"])


def after_input(params: dict[str, jax.Array], z: jax.Array) -> jax.Array:
    """Compute logits [B, classes] from the product with the input layer's weights."""
    z = z + params["dense0_b"]
    last = sum(name.endswith("_b") for name in params) - 1
    for layer in range(1, last + 1):
        z = dense(params, f"dense{layer}", jax.nn.relu(z))
    return z


# Multinomial logistic regression: convex, and strongly so with L2, with known constants.


def logistic_init(features: int, classes: int) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser: all zeros, since a convex problem has no symmetry to break."""

    def zeros(key: jax.Array) -> dict[str, jax.Array]:
        del key
        return {
            "w": jnp.zeros((features, classes), jnp.float32),
            "b": jnp.zeros(classes, jnp.float32),
        }

    return zeros


def logistic_apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, classes] of samples of any shape, in the dtype of the parameters."""
    flat = x.reshape(len(x), -1).astype(params["w"].dtype)
    return flat @ params["w"] + params["b"]


def curvature(x: NDArray[np.floating], l2: float) -> tuple[float, float]:
    """Bound the Hessian of the regularised loss over the whole parameter space.

    The Hessian of one sample is (diag p − p pᵀ) ⊗ x̃ x̃ᵀ + l2·I with x̃ = (x, 1), and the first
    factor lies between 0 and 1/2, whatever the number of classes (1/2 is reached at p = ½, ½).
    """
    flat = np.asarray(x).reshape(len(x), -1)
    n, features = flat.shape[0], flat.shape[1] + 1
    gram = np.zeros((features, features))
    for start in range(0, n, 4096):  # a float64 copy of a portion, never of the whole set
        portion = np.asarray(flat[start : start + 4096], np.float64)
        portion = np.concatenate([portion, np.ones((len(portion), 1))], axis=1)
        gram += portion.T @ portion
    top = features - 1
    largest = eigh(gram / n, eigvals_only=True, subset_by_index=[top, top])[0]
    return float(l2), float(l2 + largest / 2)


# The convolutional network of PENS: 73,418 parameters on 32x32x3 images.


def conv3x3(x: jax.Array, w: jax.Array) -> jax.Array:
    batch, height, width = x.shape[0], x.shape[1] - 2, x.shape[2] - 2
    shifted = [x[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    # A plain matrix, though the product would take four axes: 1.3 times quicker on a CPU.
    patches = jnp.concatenate(shifted, axis=-1).reshape(batch * height * width, -1)
    return (patches @ w).reshape(batch, height, width, -1)


def max_pool(x: jax.Array) -> jax.Array:
    """Take the maximum of each 2x2 block of [B, H, W, C]; an odd last row or column is dropped."""
    batch, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    x = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
    upper = jnp.maximum(x[:, :, 0, :, 0], x[:, :, 0, :, 1])
    lower = jnp.maximum(x[:, :, 1, :, 0], x[:, :, 1, :, 1])
    return jnp.maximum(upper, lower)


def cnn_init(shape: Sequence[int], classes: int) -> Callable[[jax.Array], dict[str, jax.Array]]:
    """Make the initialiser (He) for images of this shape."""
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


def cnn_apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, classes] of images [B, H, W, C], in the dtype of the parameters."""
    h = x.astype(params["conv0_w"].dtype)
    for layer in range(len(CONV_WIDTHS)):
        # What the pool would drop, an odd last row and column, is not computed; bias and ReLU
        # commute with the maximum, and after it there is a quarter of the work.
        height, width = (side - side % 2 for side in h.shape[1:3])
        pooled = max_pool(conv3x3(h[:, :height, :width], params[f"conv{layer}_w"]))
        h = jax.nn.relu(pooled + params[f"conv{layer}_b"])
    h = jax.nn.relu(dense(params, "dense0", h.reshape(len(h), -1)))
    return dense(params, "dense1", h)


# A neural language model: each token from an embedding of those before it.


def token_mlp_init(
    tokens: int, hidden: Sequence[int]
) -> Callable[[jax.Array], dict[str, jax.Array]]:
    layers = mlp_init((WINDOW * WIDTH, *hidden, tokens))

    def draw(key: jax.Array) -> dict[str, jax.Array]:
        own = jax.random.normal(jax.random.fold_in(key, 0x656D6264), (tokens, WIDTH), jnp.float32)
        return {"embedding": own, **layers(key)}

    return draw


def token_mlp_apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """Compute logits [B, positions, tokens]: at each position from it and those just before."""
    size, length = x.shape
    seen = params["embedding"][x]  # [B, positions, width]
    before = jnp.pad(seen, ((0, 0), (WINDOW - 1, 0), (0, 0)))
    near = jnp.concatenate([before[:, k : k + length] for k in range(WINDOW)], axis=2)
    layers = {name: leaf for name, leaf in params.items() if name != "embedding"}
    return mlp_apply(layers, near.reshape(size * length, -1)).reshape(size, length, -1)
