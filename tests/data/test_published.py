"""The published data sets themselves, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from joulemesh.base.files import user_cache
from joulemesh.data import load, spec
from joulemesh.data.published import SOURCES, locate

MNIST_TRAIN = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
MNIST_TEST = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def data_folder(dataset: str) -> Path:
    """The folder with the files; skips the test where there is none (nothing is downloaded)."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    places = [os.environ.get("JOULEMESH_DATA"), beside, user_cache()]
    for place in places:
        if place and Path(place).is_dir() and locate(SOURCES[dataset], Path(place)):
            return Path(place)
    pytest.skip(f"{dataset} is neither in JOULEMESH_DATA nor in the cache")


@pytest.mark.parametrize(
    ("dataset", "train", "test", "first"),
    [
        ("mnist", MNIST_TRAIN, MNIST_TEST, [5, 0, 4, 1, 9]),
        ("fashion-mnist", [6000] * 10, [1000] * 10, [9, 0, 0, 3, 0]),
        pytest.param("cifar-10", [5000] * 10, [1000] * 10, [6, 9, 9, 4, 1], marks=pytest.mark.slow),
    ],
)
def test_counts_classes_and_moments(
    dataset: str, train: list[int], test: list[int], first: list[int], tmp_path: Path
) -> None:
    folder = data_folder(dataset)
    data, sizes = load(dataset, data_dir=folder, cache_dir=tmp_path, download=False), spec(dataset)
    assert data.x_train.shape == (sizes.train, *sizes.shape)
    assert data.x_test.shape == (sizes.test, *sizes.shape)
    assert data.x_train.dtype == np.uint8
    assert np.bincount(data.y_train).tolist() == train
    assert np.bincount(data.y_test).tolist() == test
    assert data.y_train[:5].tolist() == first
    counts = [
        np.bincount(data.x_train[..., c].ravel(), minlength=256) for c in range(data.shape[-1])
    ]
    values = data.normalise(np.arange(256)[:, None])  # what each byte becomes, per channel
    share = np.array(counts).T / data.x_train[..., 0].size
    np.testing.assert_allclose((share * values).sum(axis=0), 0, atol=1e-3)
    np.testing.assert_allclose((share * values**2).sum(axis=0), 1, atol=1e-3)
    again = load(dataset, data_dir=folder, cache_dir=tmp_path, download=False)
    np.testing.assert_array_equal(again.x_test, data.x_test)
    np.testing.assert_array_equal(again.y_train, data.y_train)


def test_one_data_set_is_not_taken_for_another() -> None:
    folder = data_folder("mnist") / "mnist"
    located = locate(SOURCES["fashion-mnist"], folder)
    assert located is not None  # the files have the same names
    with pytest.raises(
        ValueError, match=r"SHA-256 of its .* bytes is ba891046.*, expected c59f468a"
    ):
        next(located.contents())
