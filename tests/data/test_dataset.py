"""The user's own .npz, and the checks that every data set passes."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load, spec
from joulemesh.data.load import _DIGITS_FILE


def arrays(**changes: Any) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(0)
    usual = {
        "x_train": rng.normal(size=(6, 2, 3)),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "x_test": rng.normal(size=(3, 2, 3)),
        "y_test": np.array([2, 1, 0]),
    }
    return {name: np.asarray(value) for name, value in {**usual, **changes}.items()}


def written(folder: Path, **changes: Any) -> str:
    path = folder / "mine.npz"
    np.savez_compressed(path, **arrays(**changes))  # type: ignore[arg-type]
    return str(path)


def refused(path: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        load(path)
    assert "\n" not in str(caught.value)


def test_an_npz_is_loaded_and_its_sizes_are_known_beforehand(tmp_path: Path) -> None:
    path = written(tmp_path)
    mine, sizes = load(path), spec(path)
    assert (sizes.train, sizes.test, sizes.shape, sizes.classes) == (6, 3, (2, 3), 3)
    assert (mine.shape, mine.classes, mine.name) == ((2, 3), 3, path)
    assert mine.x_train.dtype == np.float32
    assert mine.y_train.dtype == np.int32
    np.testing.assert_array_equal(mine.normalise(mine.x_test), mine.x_test)


def test_bytes_stay_bytes_and_are_normalised_by_channel(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (6, 4, 5, 3), dtype=np.uint8)
    pixels[..., 2] = 7  # a constant channel must not divide by zero
    mine = load(written(tmp_path, x_train=pixels, x_test=pixels[:3]))
    assert mine.x_train.dtype == np.uint8
    seen = mine.normalise(mine.x_train)
    np.testing.assert_allclose(seen.mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(seen.std(axis=(0, 1, 2)), [1, 1, 0], atol=1e-5)


def test_only_labels_are_read_for_the_sizes(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays(x_train=np.full((6, 50_000), 3.0)))  # type: ignore[arg-type]
    damaged = path.read_bytes().replace(np.float64(3.0).tobytes(), bytes(8), 1)
    path.write_bytes(damaged)
    assert spec(str(path)).shape == (50_000,)
    refused(str(path), "not a readable .npz file .*CRC")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"x_train": np.full((6, 2, 3), np.nan)}, r"x_train\[0\] holds NaN"),
        ({"x_test": np.full((3, 2, 3), 1e300)}, r"x_test\[0\] holds NaN or infinity"),
        ({"y_test": [0, 3, 1]}, r"y_test\[1\] = 3 is outside the classes 0..2"),
        ({"y_train": [0, 1, -1, 0, 1, 2]}, r"y_train\[2\] = -1 is not a class"),
        ({"y_train": [0, 1, 2**40, 0, 1, 2]}, r"y_train\[2\] = 1099511627776 is not a class"),
        ({"y_train": [0, 1, 5000, 0, 1, 2]}, "makes 5001 classes of 6 samples"),
        ({"y_train": [0.0, 1, 2, 0, 1, 2]}, "y_test is float64 of shape"),
        ({"y_train": [[0], [1], [2], [0], [1], [2]]}, r"shape \(6, 1\)"),
        ({"y_train": [0, 1]}, "6 samples but y_train 2 labels"),
        ({"y_train": [0] * 6, "y_test": [0] * 3}, "1 class"),
        ({"x_test": np.zeros((3, 2, 2))}, r"shape \(2, 3\) but test samples \(2, 2\)"),
        ({"x_test": np.zeros((3, 2, 3), np.uint8)}, "x_train is float64|x_test uint8"),
        ({"x_train": np.zeros((6, 0)), "x_test": np.zeros((3, 0))}, "x_train is empty"),
        ({"x_train": np.zeros(6)}, r"x_train has shape \(6,\)"),
        ({"x_train": np.array(["a"] * 6)}, "x_train is <U1"),
        (
            {"x_train": np.array([None] * 6)},
            "Object arrays cannot be loaded.*texts as str, not as Python objects",
        ),
    ],
)
def test_bad_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    refused(written(tmp_path, **changes), words)


@pytest.mark.filterwarnings("ignore::UserWarning")  # of zipfile, on names that are no longer alike
def test_a_wrong_byte_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    path = Path(written(tmp_path))
    whole, good, wrong = path.read_bytes(), load(str(path)), 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            found = load(str(path))
        except ScenarioError:
            wrong += 1
        else:  # bytes that zip does not check: dates, attributes
            np.testing.assert_array_equal(found.x_train, good.x_train)
    assert wrong > len(whole) / 2


def test_bad_files_are_refused(tmp_path: Path) -> None:
    refused(str(tmp_path / "absent.npz"), "absent.npz does not exist")
    with pytest.raises(ScenarioError, match="does not exist"):
        spec(str(tmp_path / "absent.npz"))
    whole = Path(written(tmp_path)).read_bytes()
    cut = tmp_path / "cut.npz"
    cut.write_bytes(whole[: len(whole) // 2])
    refused(str(cut), "cut.npz is not a readable .npz file")
    cut.write_bytes(b"")
    refused(str(cut), "cut.npz is not a readable .npz file")
    part = tmp_path / "part.npz"
    np.savez(part, x_train=np.zeros((2, 2)), labels=np.zeros(2))
    refused(str(part), r"lacks y_train, x_test, y_test \(it holds x_train, labels\)")
    np.save(tmp_path / "one", np.zeros(3))
    (tmp_path / "one.npy").rename(tmp_path / "one.npz")
    refused(str(tmp_path / "one.npz"), "it holds one array")


@pytest.mark.parametrize("name", ["cifar10", "MNIST", "imagenet", ""])
def test_unknown_names_are_refused(name: str) -> None:
    refused(name, "is unknown.*use one of digits, mnist, fashion-mnist, cifar-10")
    with pytest.raises(ScenarioError, match="is unknown"):
        spec(name)


def test_a_dataset_takes_only_its_own_types() -> None:
    x, y = np.zeros((2, 1), np.float32), np.array([0, 1], np.int32)
    with pytest.raises(ScenarioError, match="x_train is float64"):
        Dataset("toy", x.astype(np.float64), y, x, y, 2)
    with pytest.raises(ScenarioError, match="y_test is int64"):
        Dataset("toy", x, y, x, y.astype(np.int64), 2)


def test_the_file_of_digits_is_the_published_one() -> None:
    """As scikit-learn has shipped it since 2010: whoever draws on it meets the same samples."""
    digest = hashlib.sha256(_DIGITS_FILE.read_bytes()).hexdigest()
    assert digest == "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"


def test_digits_are_what_the_catalogue_says() -> None:
    digits, sizes = load("digits"), spec("digits")
    assert (len(digits.y_train), len(digits.y_test)) == (sizes.train, sizes.test) == (1437, 360)
    assert digits.shape == sizes.shape == (8, 8, 1)
    assert digits.classes == sizes.classes == 10
    both = np.concatenate([digits.y_train, digits.y_test])
    assert np.bincount(both).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert digits.x_train.min() == 0.0
    assert digits.x_train.max() == 1.0
    # The split is fixed for ever: these figures change only if it does.
    assert np.bincount(digits.y_test).tolist() == [31, 29, 34, 36, 28, 40, 43, 39, 41, 39]
    seen = digits.normalise(digits.x_train)
    assert abs(float(seen.mean())) < 1e-3
    assert abs(float(seen.std()) - 1) < 1e-3
