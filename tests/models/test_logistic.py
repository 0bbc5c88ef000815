"""Logistic regression: its curvature is bounded as promised."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.flatten_util import ravel_pytree

from joulemesh.models import build, curvature, loss


def test_curvature_by_hand() -> None:
    # x̃ = (2, 1) and (-2, 1): X̃ᵀX̃/n = diag(4, 1), so M = 0.5 + 4/2.
    assert curvature(np.array([[2.0], [-2.0]]), 0.5) == (0.5, 2.5)


def test_curvature_is_attained_by_two_classes() -> None:
    # p = (½, ½) at zero weights: the Hessian's largest eigenvalue is M itself.
    x, y = jnp.array([[2.0], [-2.0]]), jnp.array([0, 1])
    eigenvalues = np.linalg.eigvalsh(hessian(x, y, 0.0, 0, classes=2, l2=0.5))
    assert eigenvalues[-1] == pytest.approx(2.5, rel=1e-5)
    assert eigenvalues[0] == pytest.approx(0.5, rel=1e-5)


@partial(jax.jit, static_argnames=("classes", "l2"))
def hessian(
    x: jax.Array, y: jax.Array, scale: float, seed: int, *, classes: int, l2: float
) -> jax.Array:
    model = build("logistic", x.shape[1:], classes, l2=l2)
    flat, unravel = ravel_pytree(model.init(jax.random.key(0)))
    point = scale * jax.random.normal(jax.random.key(seed), flat.shape)
    matrix: jax.Array = jax.hessian(lambda p: loss(model, unravel(p), x, y))(point)
    return matrix


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    scale=st.sampled_from([0.0, 0.3, 3.0]),
    l2=st.sampled_from([0.0, 0.01, 1.0]),
)
def test_every_hessian_lies_between_the_bounds(seed: int, scale: float, l2: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(rng.normal(), 2.0, size=(6, 2, 2))
    y = rng.integers(0, 4, 6)
    m, M = curvature(x, l2)
    eigenvalues = np.linalg.eigvalsh(
        hessian(jnp.asarray(x), jnp.asarray(y), scale, seed, classes=4, l2=l2)
    )
    slack = 1e-5 * M
    assert m - slack <= eigenvalues[0]
    assert eigenvalues[-1] <= M + slack


def test_blocks_of_rows_do_not_change_the_bound() -> None:
    x = np.random.default_rng(0).normal(size=(5000, 3))
    extended = np.concatenate([x, np.ones((5000, 1))], axis=1)
    whole = np.linalg.eigvalsh(extended.T @ extended / 5000)[-1] / 2
    assert curvature(x, 0.0)[1] == pytest.approx(whole, rel=1e-12)
