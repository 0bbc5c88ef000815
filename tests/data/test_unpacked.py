"""Parquet files with lists: unpacked once, and read by index as arrays on disk are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load, spec
from joulemesh.data import own as unpacked_module
from joulemesh.data.own import is_on_disk
from joulemesh.data.reading import Reading

arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed (the extra parquet)")
parquet: Any = pytest.importorskip("pyarrow.parquet")

NUMBERS = Reading(targets="numbers", loss="mse")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: Any) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setattr(unpacked_module, "user_cache", lambda: folder)
    monkeypatch.setattr(unpacked_module, "_ROWS", 7)
    return folder


def written(folder: Path, kind: Any = np.float32, fixed: bool = True) -> dict[str, Any]:
    """A pair of files; and what they hold."""
    draw = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for part, count in (("train", 40), ("test", 10)):
        x = draw.normal(size=(count, 5)).astype(kind)
        y = draw.normal(size=count)
        made[f"x_{part}"], made[f"y_{part}"] = x, y
        lists = arrow.array(list(x))
        if fixed:
            lists = arrow.FixedSizeListArray.from_arrays(arrow.array(x.ravel()), 5)
        table = arrow.table({"x": lists, "y": y})
        parquet.write_table(table, folder / f"big-{part}.parquet", row_group_size=16)
    return made


def read(folder: Path) -> Dataset:
    return load(str(folder / "big-train.parquet"), reading=NUMBERS)


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_lists_are_read_by_index(tmp_path: Path, cache: Path, kind: Any, fixed: bool) -> None:
    made = written(tmp_path, kind, fixed)
    path = str(tmp_path / "big-train.parquet")
    assert is_on_disk(path)
    sizes = spec(path, NUMBERS)
    assert (sizes.train, sizes.test, sizes.shape, sizes.targets) == (40, 10, (5,), "numbers")
    data = read(tmp_path)
    assert data.on_disk
    assert data.x_train.dtype == np.float32
    at = np.array([[31, 2], [2, 16]])
    np.testing.assert_array_equal(data.x_train[at], made["x_train"].astype(np.float32)[at])
    np.testing.assert_array_equal(data.x_test[:], made["x_test"].astype(np.float32))
    np.testing.assert_array_equal(data.y_train[:, 0], made["y_train"].astype(np.float32))
    assert len(list((cache / "unpacked").glob("*.npy"))) == 2


def test_files_are_unpacked_once_and_again_when_they_change(
    tmp_path: Path, cache: Path, monkeypatch: Any
) -> None:
    written(tmp_path)
    before = read(tmp_path).x_train[:]
    real = unpacked_module._unpack
    monkeypatch.setattr(unpacked_module, "_unpack", None)  # it would be called in vain
    np.testing.assert_array_equal(read(tmp_path).x_train[:], before)
    monkeypatch.setattr(unpacked_module, "_unpack", real)
    table = arrow.table({"x": [[1.0, 2.0]] * 3, "y": [0.5, 1.5, 2.5]})
    parquet.write_table(table, tmp_path / "big-train.parquet")
    parquet.write_table(table, tmp_path / "big-test.parquet")
    assert read(tmp_path).x_train[:].tolist() == [[1, 2]] * 3


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "no digest"])
def test_what_is_damaged_in_the_cache_is_unpacked_again(
    tmp_path: Path, cache: Path, damage: str
) -> None:
    made = written(tmp_path)
    read(tmp_path)
    for kept in (cache / "unpacked").glob("*.npy"):
        content = kept.read_bytes()
        if damage == "flipped":
            kept.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif damage == "cut":
            kept.write_bytes(content[:-1])
        else:
            (kept if damage == "gone" else kept.with_suffix(".sha256")).unlink()
    np.testing.assert_array_equal(read(tmp_path).x_train[:], made["x_train"])


def test_tables_stay_tables(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    parquet.write_table(arrow.table({"x": [1.0, 2.0, 3.0], "y": [0.5, 1.0, 2.0]}), path)
    assert not is_on_disk(str(path))
    assert load(str(path), reading=NUMBERS).shape == (1,)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[1.0, 2.0], [3.0]], "row 2 has 1 numbers, and those before it 2: make them"),
        ([[1.0, 2.0], [3.0, None]], "column x has missing values"),
        ([["a"], ["b"]], "holds lists of string: use numbers"),
    ],
)
def test_other_lists_are_refused(tmp_path: Path, cache: Path, x: Any, words: str) -> None:
    for part in ("train", "test"):
        parquet.write_table(
            arrow.table({"x": x, "y": [0.5, 1.0]}), tmp_path / f"big-{part}.parquet"
        )
    with pytest.raises(ScenarioError, match=words):
        read(tmp_path)
    left = cache / "unpacked"
    assert not left.exists() or not list(left.iterdir())


def test_a_missing_partner_or_column_is_named(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "big-test.parquet").unlink()
    with pytest.raises(ScenarioError, match=r"big-test\.parquet does not exist"):
        read(tmp_path)
    table = arrow.table({"x": [[1.0]], "label": [1]})
    parquet.write_table(table, tmp_path / "big-train.parquet")
    with pytest.raises(ScenarioError, match=r"with columns x .* and y"):
        read(tmp_path)
