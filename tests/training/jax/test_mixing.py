from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from joulemesh.training.jax import mixing as mixings
from joulemesh.training.jax.mixing import Mixing, MixingInputs, neighbour_lists


def met(
    kind: Mixing,
    values: ArrayLike,
    *,
    active: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    mixing: Any = (),
) -> NDArray[Any]:
    """Exchange single numbers, one seed."""
    devices = np.size(values)
    active = np.ones(devices, bool) if active is None else np.array(active)
    weights = np.ones(devices) if weights is None else np.array(weights)
    context = MixingInputs(jnp.asarray(active), jnp.asarray(weights)[:, None], mixing)
    params = {"w": jnp.asarray(values, jnp.float32).reshape(devices, 1, 1)}
    new, _ = kind.apply(params, context, ())
    return np.asarray(new["w"]).ravel()


def test_mean_by_hand() -> None:
    assert met(mixings.mean, [1, 2, 6]).tolist() == [3, 3, 3]
    assert met(mixings.mean, [1, 2, 6], weights=[2, 1, 1]).tolist() == [2.5] * 3
    assert met(mixings.mean, [1, 2, 6], active=[True, False, True]).tolist()[0] == 3.5


def test_dense_by_hand() -> None:
    matrix = jnp.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.5, 0.5]])
    assert met(mixings.dense, [4, 8, 0], mixing=matrix).tolist() == [6, 5, 4]
    # Device 1 has left: what it would have said, the others say to themselves.
    heard = met(mixings.dense, [4, 8, 0], mixing=matrix, active=[True, False, True])
    assert heard[[0, 2]].tolist() == [4, 0]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 6]), st.integers(1, 3), st.integers(0, 2**32 - 1))
def test_sparse_is_the_power_of_the_dense_matrix(devices: int, rounds: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = (rng.random((devices, devices)) < 0.4) + np.eye(devices)
    matrix = matrix / matrix.sum(axis=1, keepdims=True)
    active = rng.random(devices) < 0.7
    active[0] = True
    values = rng.normal(size=devices)
    lists = neighbour_lists(sparse.csr_array(matrix), rounds, np.float32)
    found = met(mixings.sparse, values, active=active, mixing=lists)
    present = np.where(active, matrix, 0.0)
    present += np.diag(1 - present.sum(axis=1))
    expected = np.linalg.matrix_power(present, rounds) @ values
    np.testing.assert_allclose(found[active], expected[active], rtol=2e-5, atol=2e-6)


def test_half_precision_adds_up_in_single() -> None:
    many = 4096
    values = jnp.ones((many, 1, 1), jnp.bfloat16)
    context = MixingInputs(jnp.ones(many, bool), jnp.ones((many, 1)), ())
    new: Any = mixings.mean.apply(values, context, ())[0]
    assert new.dtype == jnp.bfloat16  # a sum in bfloat16 would stop at 256 of 4096
    assert float(new[0, 0, 0]) == pytest.approx(1.0, rel=1e-2)
