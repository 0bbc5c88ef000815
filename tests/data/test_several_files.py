"""Samples, targets and test samples in files side by side: read as those of one file are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load, spec
from joulemesh.data.arrays import read_npz
from joulemesh.data.own import in_several_files
from joulemesh.data.reading import Reading

LOSSES = {"classes": "cross-entropy", "numbers": "mse", "tokens": "token-cross-entropy"}
NUMBERS = Reading(targets="numbers", loss="mse")


def arrays(kind: str) -> dict[str, Any]:
    draw = np.random.default_rng(3)
    x: Any
    y: Any
    if kind == "tokens":
        text = draw.integers(0, 6, (30, 5))
        x, y = text[:, :-1], text[:, 1:]
    elif kind == "numbers":
        x, y = draw.normal(size=(30, 5)), draw.normal(size=30)
    else:
        x, y = draw.integers(0, 256, (30, 4, 4, 1), np.uint8), draw.integers(0, 3, 30)
    return {"x_train": x[:20], "y_train": y[:20], "x_test": x[20:], "y_test": y[20:]}


def as_numpy(folder: Path, made: dict[str, Any]) -> Path:
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    return folder / "x_train.npy"


def as_lists(folder: Path, made: dict[str, Any], ending: str, fixed: bool = True) -> Path:
    arrow: Any = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    for part in ("train", "test"):
        x, y = made[f"x_{part}"], list(made[f"y_{part}"])
        lists = arrow.array(list(x))
        if fixed:
            lists = arrow.FixedSizeListArray.from_arrays(arrow.array(x.ravel()), x.shape[1])
        table = arrow.table({"x": lists, "y": y})
        path = folder / f"mine-{part}.{ending}"
        if ending == "arrow":
            with arrow.ipc.new_file(str(path), table.schema) as file:
                file.write_table(table, max_chunksize=16)
        else:
            pytest.importorskip("pyarrow.parquet").write_table(table, path, row_group_size=16)
    return folder / f"mine-train.{ending}"


FORMATS: dict[str, Any] = {
    "npy": as_numpy,
    "arrow": lambda folder, made: as_lists(folder, made, "arrow"),
    "parquet": lambda folder, made: as_lists(folder, made, "parquet"),
    "parquet, lists": lambda folder, made: as_lists(folder, made, "parquet", fixed=False),
}


def same(one: Dataset, other: Dataset) -> None:
    for name in ("x_train", "y_train", "x_test", "y_test", "mean", "std"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert np.asarray(getattr(one, name)).dtype == np.asarray(getattr(other, name)).dtype
    assert (one.classes, one.shape, one.outputs) == (other.classes, other.shape, other.outputs)


@pytest.mark.parametrize(
    ("form", "kind"),
    [("npy", "classes"), *((form, kind) for form in FORMATS for kind in ("numbers", "tokens"))],
)
def test_the_data_are_those_of_one_file(form: str, kind: Any, tmp_path: Path) -> None:
    made = arrays(kind)
    np.savez(tmp_path / "all.npz", **made)
    path = FORMATS[form](tmp_path, made)
    reading = Reading(targets=kind, loss=LOSSES[kind])
    assert in_several_files(str(path))
    data = load(str(path), reading=reading)
    same(data, read_npz(tmp_path / "all.npz", reading))
    sizes = spec(str(path), reading)
    assert (sizes.train, sizes.test, sizes.shape) == (20, 10, data.shape)
    assert (sizes.classes, sizes.targets) == (data.classes, data.targets)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y_train": np.zeros(19)}, "20 samples to train on have 19 targets"),
        ({"x_test": None}, "x_test.npy does not exist"),
    ],
)
def test_files_that_do_not_do_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    made = {n: a for n, a in {**arrays("numbers"), **change}.items() if a is not None}
    with pytest.raises(ScenarioError, match=words):
        load(str(as_numpy(tmp_path, made)), reading=NUMBERS)
    np.save(tmp_path / "mine.npy", np.zeros(3))
    with pytest.raises(ScenarioError, match=r"name the file x_train\.npy"):
        load(str(tmp_path / "mine.npy"), reading=NUMBERS)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([[1.0, 2.0], [3.0]], "row 2 has 1 numbers, and those before it 2: make them"),
        ([[1.0, 2.0], [3.0, None]], "column x has missing values"),
        ([["a"], ["b"]], "holds lists of string: use numbers"),
    ],
)
def test_other_lists_are_refused(tmp_path: Path, x: Any, words: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    for part in ("train", "test"):
        table = arrow.table({"x": x, "y": [0.5, 1.0]})
        parquet.write_table(table, tmp_path / f"big-{part}.parquet")
    with pytest.raises(ScenarioError, match=words):
        load(str(tmp_path / "big-train.parquet"), reading=NUMBERS)


def test_tables_stay_tables_and_a_missing_partner_or_column_is_named(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    plain = arrow.table({"x": [1.0, 2.0, 3.0], "y": [0.5, 1.0, 2.0]})
    parquet.write_table(plain, tmp_path / "train.parquet")
    assert not in_several_files(str(tmp_path / "train.parquet"))
    assert load(str(tmp_path / "train.parquet"), reading=NUMBERS).shape == (1,)
    path = as_lists(tmp_path, arrays("numbers"), "parquet")
    (tmp_path / "mine-test.parquet").unlink()
    with pytest.raises(ScenarioError, match=r"mine-test\.parquet does not exist"):
        load(str(path), reading=NUMBERS)
    parquet.write_table(arrow.table({"x": [[1.0]], "label": [1]}), path)
    with pytest.raises(ScenarioError, match=r"with columns x .* and y"):
        load(str(path), reading=NUMBERS)
