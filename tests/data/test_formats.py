"""One table in every format gives one data set: CSV, TSV, Parquet, .npz, data frame, arrays."""

from __future__ import annotations

import csv
import io
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Reading, from_arrays, load
from joulemesh.scenario import Scenario
from joulemesh.training.prepare import the_dataset


class Rows(NamedTuple):
    """A table: features by column, and labels, holders and splits by row."""

    x: np.ndarray[Any, np.dtype[np.float64]]
    labels: list[str]
    holders: list[str]
    tested: list[bool]


NAMES = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=6)
NUMBERS = st.floats(-1e30, 1e30, allow_subnormal=False) | st.integers(-(2**53), 2**53).map(float)


def is_plain(name: str) -> bool:
    """A name that no reader takes for a number or for a missing value."""
    try:
        float(name)
    except ValueError:
        return True
    return False


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    columns, classes = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    words = st.lists(NAMES.filter(is_plain), min_size=classes, max_size=classes, unique=True)
    names = draw(words | st.just([str(k) for k in range(classes)]))
    labels = names + names + draw(st.lists(st.sampled_from(names), max_size=20))
    count = len(labels)
    cells = draw(st.lists(NUMBERS, min_size=count * columns, max_size=count * columns))
    holders = ["p", "q", *draw(st.lists(st.sampled_from("pqr"), min_size=count - 2,
                                        max_size=count - 2))]  # fmt: skip
    tested = [k < classes for k in range(count)]  # every class is tested once at least
    tested[classes + classes :] = draw(
        st.lists(st.booleans(), min_size=count - 2 * classes, max_size=count - 2 * classes)
    )
    return Rows(np.array(cells).reshape(count, columns), labels, holders, tested)


def lines(rows: Rows, separator: str, decimal: str) -> str:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    columns = rows.x.shape[1]
    writer.writerow([*(f"f{k}" for k in range(columns)), "site", "split", "label"])
    for k, row in enumerate(rows.x.tolist()):
        cells = [repr(cell).replace(".", decimal) for cell in row]
        part = "test" if rows.tested[k] else "train"
        writer.writerow([*cells, rows.holders[k], part, rows.labels[k]])
    return text.getvalue()


def as_csv(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    (folder / "a.csv").write_text(lines(rows, ",", "."), "utf-8")
    return load(str(folder / "a.csv"), reading=reading)


def as_european_csv(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    (folder / "a.csv").write_text(lines(rows, ";", ","), "utf-8-sig")
    return load(str(folder / "a.csv"), reading=reading)


def as_tsv(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    (folder / "a.tsv").write_text(lines(rows, "\t", "."), "utf-8")
    return load(str(folder / "a.tsv"), reading=reading)


def as_dict(rows: Rows) -> dict[str, Any]:
    columns: dict[str, Any] = {f"f{k}": column for k, column in enumerate(rows.x.T)}
    parts = ["test" if tested else "train" for tested in rows.tested]
    return {**columns, "site": rows.holders, "split": parts, "label": rows.labels}


def as_parquet(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(as_dict(rows)), folder / "a.parquet")
    return load(str(folder / "a.parquet"), reading=reading)


def as_frame(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    import pandas as pd

    return the_dataset(scenario(reading), pd.DataFrame(as_dict(rows)))


def arrays(rows: Rows) -> dict[str, Any]:
    test, labels = np.array(rows.tested), np.array(rows.labels)
    whole = labels.astype(int) if all(label.isdecimal() for label in rows.labels) else labels
    return {
        "x_train": rows.x[~test],
        "y_train": whole[~test],
        "x_test": rows.x[test],
        "y_test": whole[test],
        "site_train": np.array(rows.holders)[~test],
    }


def as_npz(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    np.savez(folder / "a.npz", **arrays(rows))
    return load(str(folder / "a.npz"), reading=reading)


def as_arrays(rows: Rows, folder: Path, reading: Reading) -> Dataset:
    return the_dataset(scenario(reading), arrays(rows))


def scenario(reading: Reading) -> Scenario:
    return Scenario(training={"partition": "column:site", "normalize": reading.normalize})


FORMATS: list[Callable[[Rows, Path, Reading], Dataset]] = [as_european_csv, as_tsv, as_npz]
FORMATS += [as_arrays, as_frame]
if find_spec("pyarrow") is not None:
    FORMATS.append(as_parquet)


@pytest.mark.parametrize("normalize", [False, True])
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(rows=tables())
def test_every_format_gives_the_same_data_set(normalize: bool, rows: Rows) -> None:
    reading = Reading(holder="site", normalize=normalize)
    with tempfile.TemporaryDirectory() as name:
        expected = as_csv(rows, Path(name), reading)
        for form in FORMATS:
            found = form(rows, Path(name), reading)
            for part in ("x_train", "y_train", "x_test", "y_test"):
                one, other = getattr(found, part), getattr(expected, part)
                np.testing.assert_array_equal(one, other, err_msg=form.__name__)
                assert one.dtype == other.dtype
            assert (found.classes, found.class_names) == (expected.classes, expected.class_names)
            assert found.holders is not None
            assert expected.holders is not None
            mine = [found.holders.names[k] for k in found.holders.of]
            assert mine == [expected.holders.names[k] for k in expected.holders.of]
    test = np.array(rows.tested)
    if not normalize:
        np.testing.assert_array_equal(expected.x_train, rows.x[~test].astype(np.float32))
    names = expected.class_names or tuple(map(str, range(expected.classes)))
    assert [names[k] for k in expected.y_test] == [
        label for label, tested in zip(rows.labels, test, strict=True) if tested
    ]
    assert list(names) == sorted(names)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": [1.0, 2.0], "city": ["x", "y"], "label": ["u", "v"]},
         "column 'city' holds no numbers"),
        ({"a": [1.0, None], "label": ["u", "v"]}, r"missing values in 'a' \(1 of 2, first in row"),
        ({"a": [1.0, 2.0], "label": ["u", None]}, "no value in the column 'label'"),
        ({"a": [1.0, 2.0], "b": [3.0, 4.0]}, "has no column called label"),
        ({"a": [1j, 2j], "label": ["u", "v"]}, "column 'a' holds no numbers|complex"),
    ],
)  # fmt: skip
def test_frames_that_do_not_fit(columns: dict[str, Any], words: str) -> None:
    import pandas as pd

    with pytest.raises(ScenarioError, match=words):
        the_dataset(Scenario(), pd.DataFrame(columns))


def test_frames_of_many_types() -> None:
    import pandas as pd

    frame = pd.DataFrame(
        {
            "small": np.arange(6, dtype=np.int8),
            "flag": [True, False] * 3,
            "nullable": pd.array([1, 2, 3, 4, 5, 6], dtype="Int64"),
            3: np.linspace(0, 1, 6, dtype=np.float32),
            "label": pd.Categorical(["b", "a"] * 3),
        }
    )
    found = the_dataset(Scenario(), frame)
    assert found.feature_names == ("small", "flag", "nullable", "3")
    assert found.class_names == ("a", "b")


def test_parquet_of_many_types(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    from decimal import Decimal

    from pyarrow import parquet

    table = arrow.table(
        {
            "small": arrow.array([1, 2, 3, 4], arrow.uint8()),
            "flag": [True, False, True, False],
            "money": [Decimal("1.50"), Decimal("2.25"), Decimal("3.00"), Decimal("0.75")],
            "label": arrow.array(["b", "a", "b", "a"]).dictionary_encode(),
        }
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    found = load(str(tmp_path / "a.parquet"), reading=Reading(test_fraction=0.5))
    both = np.concatenate([found.x_train, found.x_test])
    assert sorted(both.tolist()) == [[1, 1, 1.5], [2, 0, 2.25], [3, 1, 3], [4, 0, 0.75]]
    assert found.class_names == ("a", "b")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"a": [1.0, 2.0], "when": ["x", "y"], "label": [0, 1]},
         r"column 'when' holds no numbers \(string\[pyarrow\]\)"),
        ({"a": [1.0, None], "label": [0, 1]}, r"'a' \(1 of 2, first in row 2\)"),
        ({"a": [[1.0], [2.0]], "label": [0, 1]}, "column 'a' holds no numbers"),
        ({"a": [1.0, 2.0], "label": [0, None]}, "row 2: no value in the column 'label'"),
        ({"label": [0, 1]}, "has no features"),
    ],
)  # fmt: skip
def test_parquet_that_does_not_fit(tmp_path: Path, columns: dict[str, Any], words: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table(columns), tmp_path / "a.parquet")
    with pytest.raises(ScenarioError, match=words):
        load(str(tmp_path / "a.parquet"))


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"PAR1" + bytes(99) + b"PAR1", b"a,b\n1,2\n"])
def test_damaged_parquet_is_refused(tmp_path: Path, raw: bytes) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(raw)
    with pytest.raises(ScenarioError, match="is not a readable Parquet file") as caught:
        load(str(tmp_path / "a.parquet"))
    assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(ScenarioError, match="does not exist"):
        load(str(tmp_path / "absent.parquet"))


def test_arrays_are_standardised_where_asked_for() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(50.0, 9.0, (40, 3)), np.arange(40) % 2
    plain, scaled = (from_arrays(x, y, x[:8], y[:8], normalize=n) for n in (False, True))
    assert "features are not scaled (feature" in plain.notes[0]
    assert scaled.notes == ()
    np.testing.assert_allclose(scaled.x_train.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.x_train.std(axis=0), 1, atol=1e-6)
    np.testing.assert_allclose(scaled.x_test, (x[:8] - x.mean(0)) / x.std(0), rtol=1e-6)
    pixels = rng.integers(0, 256, (40, 4, 4, 3), dtype=np.uint8)  # bytes always are, as bytes
    both = (from_arrays(pixels, y, pixels, y, normalize=n) for n in (False, True))
    assert {one.x_train.dtype for one in both} == {np.dtype(np.uint8)}


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (
            (["a", "b"], ["c", "a"]),
            r"data: y_test\[0\] = 'c' is not a label of the training samples",
        ),
        ((["a", "b"], [0, 1]), "y_train is <U1"),
        ((["a", "a"], ["a", "a"]), "1 class"),
        ((["0.5", "1"], ["1", "1"]), "data: labels are numbers with fractions"),
    ],
)
def test_text_labels_that_do_not_fit(labels: tuple[list[Any], list[Any]], words: str) -> None:
    x = [[0.0], [1.0]]
    with pytest.raises(ScenarioError, match=words):
        from_arrays(x, labels[0], x, labels[1])


def test_choices_for_tables_are_refused_elsewhere(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x_train=[[0.0], [1.0]], y_train=[0, 1], x_test=[[0.0]], y_test=[0])
    for name in ("digits", str(tmp_path / "a.npz")):
        for choice in ({"label": "y"}, {"test": "b.csv"}, {"ignored": ("a",)}):
            with pytest.raises(ScenarioError, match=r"is for tables .* leave it out"):
                load(name, reading=Reading(**choice))
