"""The convolutional network against the library's own convolution and pooling."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from joulemesh.models import build
from joulemesh.models.networks import conv3x3, max_pool


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


CATALOGUE = ((32, 32, 3), (28, 28, 1))


def library_conv(x: jax.Array, w: jax.Array) -> jax.Array:
    kernel = w.reshape(3, 3, x.shape[-1], -1)
    axes = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, kernel, (1, 1), "VALID", dimension_numbers=axes)


def library_pool(x: jax.Array) -> jax.Array:
    pooled: jax.Array = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return pooled


def library_apply(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    """The network as it is drawn: convolution, bias, ReLU, then pooling."""
    for layer in range(3):
        h = library_conv(x, params[f"conv{layer}_w"]) + params[f"conv{layer}_b"]
        x = library_pool(jax.nn.relu(h))
    h = jax.nn.relu(x.reshape(len(x), -1) @ params["dense0_w"] + params["dense0_b"])
    return h @ params["dense1_w"] + params["dense1_b"]


@pytest.mark.parametrize(("height", "width", "channels"), [(3, 3, 1), (7, 10, 3)])
def test_convolution_and_its_gradients_equal_the_librarys(
    height: int, width: int, channels: int
) -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (2, height, width, channels), jnp.float64)
    w = jax.random.normal(keys[1], (9 * channels, 5), jnp.float64)
    ours, ours_vjp = jax.vjp(jax.jit(conv3x3), x, w)
    theirs, theirs_vjp = jax.vjp(jax.jit(library_conv), x, w)
    cotangent = jax.random.normal(keys[2], ours.shape, jnp.float64)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    for a, b in zip(ours_vjp(cotangent), theirs_vjp(cotangent), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("height", "width"), [(4, 6), (5, 7)])
def test_pooling_and_its_gradient_equal_the_librarys(height: int, width: int) -> None:
    x = jax.random.normal(jax.random.key(1), (2, height, width, 3), jnp.float64)
    ours, ours_vjp = jax.vjp(jax.jit(max_pool), x)
    theirs, theirs_vjp = jax.vjp(jax.jit(library_pool), x)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(ours_vjp(ours)[0], theirs_vjp(ours)[0])


@pytest.mark.parametrize(
    "shape", [pytest.param(s, marks=pytest.mark.slow) for s in ((22, 24, 3), *CATALOGUE)]
)
def test_logits_and_gradients_equal_those_of_the_library_network(shape: tuple[int, ...]) -> None:
    model = build("cnn", shape, 10)
    params = jax.tree.map(lambda p: p.astype(jnp.float64), model.init(jax.random.key(2)))
    params = {k: p + 0.05 if k.endswith("_b") else p for k, p in params.items()}  # not zero
    x = jax.random.normal(jax.random.key(3), (3, *shape), jnp.float64)
    ours, ours_vjp = jax.vjp(jax.jit(model.apply), params, x)
    theirs, theirs_vjp = jax.vjp(jax.jit(library_apply), params, x)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
    cotangent = jax.random.normal(jax.random.key(4), ours.shape, jnp.float64) / 3
    (ours_params, ours_x), (theirs_params, theirs_x) = ours_vjp(cotangent), theirs_vjp(cotangent)
    np.testing.assert_allclose(ours_x, theirs_x, rtol=0, atol=1e-12)
    for name, gradient in theirs_params.items():
        np.testing.assert_allclose(ours_params[name], gradient, rtol=0, atol=1e-12, err_msg=name)
