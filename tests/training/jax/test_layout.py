from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from joulemesh.training.jax.layout import Layout


@st.composite
def layouts(draw: st.DrawFn) -> tuple[NDArray[np.int64], int, Layout]:
    work = np.array(draw(st.lists(st.integers(0, 50), min_size=1, max_size=30)))
    shards = draw(st.integers(1, len(work)))
    return work, shards, Layout.deal(work, draw(st.integers(1, 3)), shards)


@settings(deadline=None)
@given(layouts())
def test_every_device_has_one_place_and_comes_back(
    made: tuple[NDArray[np.int64], int, Layout],
) -> None:
    work, shards, layout = made
    devices = len(work)
    assert sorted(layout.order[layout.filled].tolist()) == list(range(devices))
    assert layout.slots % shards == 0
    assert layout.slots - devices < shards
    values = np.arange(layout.seeds * devices).reshape(layout.seeds, devices)
    np.testing.assert_array_equal(layout.devices_of(layout.rows(values, -1)), values)


@settings(deadline=None)
@given(layouts())
def test_no_processor_has_much_more_work_than_another(
    made: tuple[NDArray[np.int64], int, Layout],
) -> None:
    work, shards, layout = made
    if np.all(work == work[0]):
        return  # then devices stay in order
    shared = layout.spread(work, 0).reshape(shards, -1).sum(axis=1)
    assert shared.max() - shared.min() <= work.max()


@settings(deadline=None)
@given(layouts(), st.integers(0, 2**32 - 1))
def test_matrices_mix_places_as_devices(
    made: tuple[NDArray[np.int64], int, Layout], seed: int
) -> None:
    work, _, layout = made
    devices = len(work)
    rng = np.random.default_rng(seed)
    matrix, values = rng.random((1, devices, devices)), rng.random(devices)
    placed = layout.matrices(matrix)[0]
    expected = layout.spread(matrix[0] @ values, 7.0)
    np.testing.assert_allclose(placed @ layout.spread(values, 7.0), expected, rtol=1e-12)
    thin = layout.sparse(sparse.csr_array(matrix[0]))
    np.testing.assert_allclose(thin.toarray(), placed, rtol=1e-15)
