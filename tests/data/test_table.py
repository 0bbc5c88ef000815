"""Tables as data sets: which column is what, the split, labels, and everything that is refused."""

from __future__ import annotations

import gzip
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.data import Dataset, Reading, load, spec

ROWS = "a,b,label\n1,-0.5,cat\n2,0.25,dog\n3,1e-3,cat\n4,.5,dog\n5,7.,cat\n"


def written(folder: Path, text: str | bytes, name: str = "mine.csv") -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def read(folder: Path, text: str | bytes, name: str = "mine.csv", **choices: Any) -> Dataset:
    return load(written(folder, text, name), reading=Reading(**choices))


def refused(
    folder: Path, text: str | bytes, words: str, name: str = "mine.csv", **choices: Any
) -> None:
    with pytest.raises(JoulemeshError, match=words) as caught:
        read(folder, text, name, **choices)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 600


def whole(found: Dataset) -> dict[tuple[float, ...], int]:
    """Every sample with its class, whichever split it is in."""
    x, y = np.concatenate([found.x_train, found.x_test]), [*found.y_train, *found.y_test]
    return {tuple(map(float, row)): int(label) for row, label in zip(x, y, strict=True)}


EXPECTED = {(1, -0.5): 0, (2, 0.25): 1, (3, np.float32(1e-3).item()): 0, (4, 0.5): 1, (5, 7): 0}


# Formats ------------------------------------------------------------------------------------------


WRITTEN: dict[str, tuple[str | bytes, str]] = {
    "commas": (ROWS, "mine.csv"),
    "no last newline": (ROWS.rstrip("\n"), "mine.CSV"),
    "tabs": (ROWS.replace(",", "\t"), "mine.tsv"),
    "semicolons": (ROWS.replace(",", ";"), "mine.csv"),
    "bars": (ROWS.replace(",", "|"), "mine.csv"),
    "decimal commas": (ROWS.replace(",", ";").replace(".", ","), "mine.csv"),
    "tabs and decimal commas": (ROWS.replace(",", "\t").replace(".", ","), "mine.tsv"),
    "byte order mark": (b"\xef\xbb\xbf" + ROWS.encode(), "mine.csv"),
    "Windows": (ROWS.replace("\n", "\r\n"), "mine.csv"),
    "carriage returns": (ROWS.replace("\n", "\r"), "mine.csv"),
    "blank lines": ("\n\n" + ROWS.replace("\n2,", "\n\n \n2,"), "mine.csv"),
    "quotes": (ROWS.replace("cat", '"cat"').replace("a,b", '"a","b"'), "mine.csv"),
    "spaces": (ROWS.replace("cat", " cat ").replace("a,b", " a , b"), "mine.csv"),
    "gzip": (gzip.compress(ROWS.encode()), "mine.csv.gz"),
    "gzip and tabs": (gzip.compress(ROWS.replace(",", "\t").encode()), "mine.tsv.gz"),
    "xz": (lzma.compress(ROWS.encode()), "mine.csv.xz"),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_the_same_table_however_it_is_written(tmp_path: Path, way: str) -> None:
    found = read(tmp_path, *WRITTEN[way])
    assert whole(found) == EXPECTED
    assert found.class_names == ("cat", "dog")
    assert found.feature_names == ("a", "b")
    assert found.x_train.dtype == np.float32


def test_quoted_cells_may_hold_separators_and_lines(tmp_path: Path) -> None:
    text = 'a;label\n1,5;"big, ""fat"" cat"\n2,5;"dog\n of two lines"\n3,5;dog of two lines\n'
    found = read(tmp_path, text)
    assert found.class_names == ('big, "fat" cat', "dog of two lines")
    assert whole(found) == {(1.5,): 0, (2.5,): 1, (3.5,): 1}


@pytest.mark.slow
def test_a_million_rows_take_seconds_and_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        file.write(",".join(f"f{k}" for k in range(20)) + ",label\n")
        for _ in range(100):
            rows = np.round(rng.normal(size=(10_000, 20)), 6).tolist()
            file.writelines(",".join(map(repr, row)) + f",c{len(row) % 7}\n" for row in rows[:-1])
            file.write(",".join(map(repr, rows[-1])) + ",other\n")
    script = (
        "import resource, sys, time; from joulemesh.data import load\n"
        "before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()\n"
        "found = load(sys.argv[1])\n"
        "assert len(found.y_train) + len(found.y_test) == 1_000_000\n"
        "after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "print(time.process_time() - start, (after - before) / 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds < 30  # of one core; 3 on the machine where it was written
    assert megabytes < 800  # the samples themselves are 80


def test_the_damaged_line_is_named_where_rows_take_several_lines(tmp_path: Path) -> None:
    lines = [f'{k},"a{k % 2}\nb"' for k in range(200)]
    lines[150] = "oops,a1"
    refused(tmp_path, "x,label\n" + "\n".join(lines), "line 302, column 'x': 'oops' is not a numb")


def test_decimals_are_commas_though_whole_numbers_come_first(tmp_path: Path) -> None:
    text = "a;label\n" + "".join(f"{k};x\n" for k in range(300)) + "0,5;y\n0,25;y\n"
    found = whole(read(tmp_path, text))
    assert found[(0.5,)] == found[(0.25,)] == 1


def test_parquet_is_refused_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(tmp_path, b"PAR1", r"reading .*mine.parquet needs pyarrow.*pip install pyarrow",
            "mine.parquet")  # fmt: skip


# Columns ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["label", "class", "target", "y", "Label", "TARGET"])
def test_the_usual_names_of_the_label(tmp_path: Path, name: str) -> None:
    assert whole(read(tmp_path, ROWS.replace("label", name))) == EXPECTED


def test_the_label_by_its_name_and_the_first_of_the_usual_ones(tmp_path: Path) -> None:
    text = "y,label,kind\n1,2,u\n3,4,v\n5,2,u\n7,4,v\n"
    usual = read(tmp_path, text, ignored=("kind",))
    assert usual.class_names == ("2", "4")
    assert usual.feature_names == ("y",)
    asked = read(tmp_path, text, label="kind")
    assert asked.class_names == ("u", "v")
    assert asked.feature_names == ("y", "label")


@pytest.mark.parametrize(
    ("text", "choices", "words"),
    [
        ("a,b\n1,2\n", {}, r"no column called label, class, target or y, only a, b: name the col"),
        (ROWS, {"label": "lable"}, r"training.label: .* no column 'lable'; did you mean 'label'"),
        (ROWS, {"ignored": ("c",)}, r"training.ignore_columns: .* no column 'c'; it has a, b, la"),
        (ROWS, {"ignored": ("label",)}, "'label' cannot be two of label, split, holder and ign"),
        (ROWS, {"ignored": ("a", "b")}, "has no features, only a, b, label: add a column"),
        (ROWS, {"holder": "label"}, "'label' cannot be two of"),
        (ROWS, {"holder": "device"}, 'partition = "column:device": .* has no column .device'),
        ("a,city,label\n1,Bonn,x\n2,Rome,y\n", {},
         r"column 'city' holds no numbers \('Bonn' in line 2\): leave it out with "
         r'training.ignore_columns = \["city"\], or write'),
        ("t,a,u,label\n,1,x,0\nz,1,x,1\n", {},
         r"columns 't', 'u' hold no numbers \('z' in line 3\): leave them out with"),
        ("a,site,label\n1,x,0\n", {},
         r"column 'site' .* numbers; if 'site' says .* training.partition = \"column:site\"$"),
        ("a,a,label\n1,2,0\n", {}, "names the column 'a' twice"),
        (",a,label\n0,2,0\n", {}, "column 1 has no name: .*index=False"),
        ("1,2,3\n4,5,6\n", {}, r"the first line holds numbers \('1,2,3'\): write the columns' n"),
    ],
)  # fmt: skip
def test_columns_that_do_not_fit(
    tmp_path: Path, text: str, choices: dict[str, Any], words: str
) -> None:
    refused(tmp_path, text, words, **choices)


def test_a_text_column_can_be_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, "a,city,label\n1,Bonn,x\n2,Rome,y\n3,,x\n", ignored=("city",))
    assert found.feature_names == ("a",)


# Values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "mine.csv is empty"),
        ("\n \n", "mine.csv is empty"),
        ("a,label\n", "has no rows under its header"),
        ("a,label\n\n\n", "has no rows under its header"),
        ("a,label\n1,0\n2\n3,1\n", "line 3: 1 cells under 2 columns"),
        ("a,label\n1,0\n2,1,9\n3,1\n", "line 3: 3 cells under 2 columns"),
        ("a,label\n1,0\n2x,1\n", "line 3, column 'a': '2x' is not a number"),
        ("a,label\n1,0\n1_0,1\n", "line 3, column 'a': '1_0' is not a number"),
        ("a,label\n1,0\n٣,1\n", "line 3, column 'a': '٣' is not a number"),
        ("a;label\n1,5;0\n1.234,5;1\n", "line 3, column 'a': '1.234,5' is not|comma in line 2"),
        ("a;b;label\n1,5;2;0\n2;2.5;1\n", "with a comma in line 2 and with a point in line 3"),
        ("a,label\n1,0\ninf,1\n", "line 3, column 'a': inf is beyond 3.4e"),
        ("a,label\n1,0\n-1e39,1\n", r"line 3, column 'a': -1e\+39 is beyond 3.4e\+38"),
        ("a,b,label\n1,,0\nNA,2,1\n3,nan,1\n",
         r"missing values in 'a' \(1 of 3, first in line 3\), 'b' \(2 of 3, first in line 2\): "
         r'fill .*ignore_columns = \["a", "b"\]'),
        ("a,label\n1,cat\n2,\n", "line 3: no value in the column 'label'"),
        ("a,label\n1,0\n2,nan\n", "line 3: no value in the column 'label'"),
        ("a,label\n1,0.5\n2,1.5\n", "column 'label': labels are numbers with fractions"),
        ("a,label\n1,x\n2,x\n", "column 'label': all 2 labels are equal"),
        ("a,label\n1,x\n2," + "y" * 300 + "\n", "a label of 300 characters"),
        ('a,label\n1,x\n2,"y\n', "line 3: unexpected end of data"),
        (b"a,label\n1,x\n2,M\xfcller\n", "line 3: the column 'label' is not UTF-8 text"),
        (b"a,label\n1,x\n\xfc,y\n", r"line 3, column 'a': '\\udcfc' is not a number"),
        (b"\xff\xfea\0,\0l\0\n\0", "is not UTF-8 text: save it as CSV in UTF-8"),
        (bytes(range(256)) * 20, "is not UTF-8 text"),
    ],
    ids=lambda value: ascii(value)[:30],
)  # fmt: skip
def test_damaged_files(tmp_path: Path, text: str | bytes, words: str) -> None:
    refused(tmp_path, text, words)


def test_files_that_are_cut_damaged_or_missing(tmp_path: Path) -> None:
    packed = gzip.compress(("a,label\n" + "1,x\n2,y\n" * 5000).encode())
    refused(tmp_path, packed[:-9], "is cut short", "mine.csv.gz")
    refused(tmp_path, b"\x1f\x8b" + b"garbage" * 10, "is corrupt", "mine.csv.gz")
    with pytest.raises(ScenarioError, match=r"absent.csv does not exist: correct its path"):
        load(str(tmp_path / "absent.csv"))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(ScenarioError, match=r"folder.csv.* cannot be read"):
        load(str(tmp_path / "folder.csv"))
    with pytest.raises(ScenarioError, match="cannot be read"):
        load("\0.csv")


def test_a_label_that_numbers_the_rows_is_no_class(tmp_path: Path) -> None:
    text = "a,label\n" + "".join(f"{k % 7},{k}\n" for k in range(3000))
    refused(tmp_path, text, "3,000 different labels among 3,000 samples are too many to be classes")


# Labels -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["0", "1", "2"], ()),
        (["2.0", "0.0", "1.0"], ()),
        (["1", "2", "10"], ("1", "2", "10")),
        (["-1", "1"], ("-1", "1")),
        (["b", "a", "C"], ("C", "a", "b")),
        (["True", "False"], ("False", "True")),
        (["1", "x"], ("1", "x")),
    ],
)
def test_labels_are_numbered_in_sorted_order(
    tmp_path: Path, labels: list[str], names: tuple[str, ...]
) -> None:
    rows = [(k, label) for k, label in enumerate(labels * 4)]
    found = read(tmp_path, "a,label\n" + "".join(f"{k},{label}\n" for k, label in rows))
    assert found.class_names == names
    assert found.classes == len(labels)
    order = list(names) or [str(k) for k in range(len(labels))]
    short = [str(int(float(label))) if not names else label for _, label in rows]
    assert whole(found) == {(k,): order.index(label) for k, label in enumerate(short)}


# Splits -------------------------------------------------------------------------------------------


def test_a_column_split_says_what_is_tested(tmp_path: Path) -> None:
    text = "a,split,label\n1,train,x\n2,test,x\n3,Train,y\n4, TEST ,y\n5,train,x\n"
    found = read(tmp_path, text)
    assert found.x_train.ravel().tolist() == [1, 3, 5]
    assert found.x_test.ravel().tolist() == [2, 4]
    assert "2 test samples as the column 'split' says" in found.notes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,split,label\n1,train,x\n2,dev,y\n", "line 3: the column 'split' says 'dev': write tr"),
        ("a,split,label\n1,train,x\n2,train,y\n", "no row of the column 'split' says test"),
        ("a,split,label\n1,train,x\n2,train,y\n3,test,z\n", "line 4: the label 'z' has only test"),
    ],
)
def test_splits_that_do_not_fit(tmp_path: Path, text: str, words: str) -> None:
    refused(tmp_path, text, words)


def test_a_second_file_is_the_test_set(tmp_path: Path) -> None:
    test = written(tmp_path, "b\tlabel\ta\n20\tdog\t10\n40\tcat\t30\n", "test.tsv")
    found = read(tmp_path, ROWS, test=test)
    assert len(found.y_train) == 5
    assert found.x_test.tolist() == [[10, 20], [30, 40]]
    assert found.y_test.tolist() == [1, 0]
    assert f"2 test samples are read from {test}" in found.notes


@pytest.mark.parametrize(
    ("test", "words"),
    [
        ("a,label\n1,cat\n", "test.csv lacks 'b', unlike"),
        ("a,b,c,label\n1,2,3,cat\n", "test.csv has 'c' as well"),
        ("a,b,label\n1,2,cow\n", "test.csv, line 2: 'cow' is not a label of"),
        ("a,b,label\n1,,cat\n", "test.csv has missing values in 'b'"),
    ],
)
def test_second_files_that_do_not_fit(tmp_path: Path, test: str, words: str) -> None:
    refused(tmp_path, ROWS, words, test=written(tmp_path, test, "test.csv"))


def test_one_way_to_say_what_is_tested(tmp_path: Path) -> None:
    text = "a,split,label\n1,train,x\n2,test,y\n"
    other = written(tmp_path, "a,label\n1,x\n", "test.csv")
    refused(tmp_path, text, "has a column 'split', and training.test_dataset", test=other)


def test_the_hold_out_is_said_and_follows_the_seed(tmp_path: Path) -> None:
    text = "a,label\n" + "".join(f"{k},{'xxxy'[k % 4]}\n" for k in range(400))
    first, again, other = (read(tmp_path, text, seed=s) for s in (0, 0, 1))
    assert len(first.y_test) == 80
    assert np.bincount(first.y_test).tolist() == [60, 20]
    np.testing.assert_array_equal(first.x_test, again.x_test)
    assert not np.array_equal(first.x_test, other.x_test)
    assert first.notes[1] == (
        "80 of 400 rows are held out as test samples, by class and at random "
        "(training.test_fraction = 0.2, seed 0)"
    )
    assert len(read(tmp_path, text, test_fraction=0.5).y_test) == 200


# Sizes and notes ----------------------------------------------------------------------------------


def test_sizes_are_known_to_the_planner(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS)
    sizes, found = spec(path), load(path)
    assert (sizes.train, sizes.test) == (len(found.y_train), len(found.y_test)) == (4, 1)
    assert (sizes.shape, sizes.classes) == (found.shape, found.classes) == ((2,), 2)
    written(tmp_path, ROWS + "6,1,cow\n7,1,cow\n")  # a changed file is read again
    assert spec(path).classes == 3


def test_what_is_odd_is_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [
        f"{k},{rng.normal()},7,{rng.uniform(2e4, 9e4)},{k % 3},{'xy'[k % 2]}" for k in range(200)
    ]
    text = "id,ok,same,income,device,label\n" + "\n".join(lines) + "\n"
    notes = " | ".join(read(tmp_path, text).notes)
    assert "200 rows are held out" in notes
    assert "160 training samples with 5 features; 2 classes (x, y) from the column 'label'" in notes
    assert "column 'id' only counts the rows: leave it out with training.ignore_columns" in notes
    assert "'device' is used as a feature" in notes
    assert "constant in all training samples, so nothing is learned from it: 'same'" in notes
    assert "features are not scaled ('income' runs from 2" in notes
    assert "training.normalize = true" in notes
    quiet = read(tmp_path, text, normalize=True, ignored=("id", "device", "same")).notes
    assert len(quiet) == 2


def test_standardised_by_the_training_samples(tmp_path: Path) -> None:
    text = "t,same,split,label\n1700000000,3,train,x\n1700000002,3,train,y\n1700000004,3,test,x\n"
    found = read(tmp_path, text, normalize=True)
    # float32 alone would hold all three times as the same number
    assert found.x_train.tolist() == [[-1, 0], [1, 0]]
    assert found.x_test.tolist() == [[3, 0]]
    assert (found.mean, found.std) == (0.0, 1.0)


# Numbers to be predicted --------------------------------------------------------------------------


SCORED = "a,b,y\n" + "".join(f"{k},{k * k % 7},{k / 4 - 3}\n" for k in range(40))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SCORED, "mine.csv"),
        (SCORED.replace(",", ";").replace(".", ","), "mine.csv"),
        (SCORED.replace(",", "\t"), "mine.tsv"),
    ],
    ids=["commas", "decimal commas", "tabs"],
)
def test_numbers_of_the_label_column_are_predicted(tmp_path: Path, text: str, name: str) -> None:
    found = read(tmp_path, text, name, targets="numbers")
    assert (found.targets, found.outputs, len(found.y_test)) == ("numbers", (1,), 8)
    x = np.concatenate([found.x_train, found.x_test])
    y = np.concatenate([found.y_train, found.y_test])
    assert y.dtype == np.float32
    np.testing.assert_allclose(y[:, 0], x[:, 0] / 4 - 3)
    assert "numbers from -3 to 6.75 from the column 'y'" in found.notes[0]
    assert "held out as test samples, at random" in found.notes[1]


def test_numbers_are_standardised_by_the_training_targets(tmp_path: Path) -> None:
    found = read(tmp_path, SCORED, targets="numbers", normalize=True)
    assert abs(float(found.y_train.mean())) < 1e-6
    assert abs(float(found.y_train.std()) - 1) < 1e-6
    assert any("targets are standardised" in note for note in found.notes)


def test_numbers_of_a_second_table_are_tested_on(tmp_path: Path) -> None:
    other = written(tmp_path, "y,b,a\n99.5,1,2\n", "other.csv")
    found = read(tmp_path, SCORED, targets="numbers", test=other)
    assert (len(found.y_train), found.y_test.tolist()) == (40, [[99.5]])


def test_a_loss_of_the_users_own_takes_what_the_column_holds(tmp_path: Path) -> None:
    assert read(tmp_path, SCORED, targets="any").targets == "numbers"
    assert read(tmp_path, ROWS, targets="any").targets == "classes"


@pytest.mark.parametrize(
    ("text", "targets", "words"),
    [
        ("a,y\n1,0.5\n2,x\n", "numbers", "line 3, column 'y': 'x' is not a number"),
        ("a,y\n1,0.5\n2,\n", "numbers", r"missing values in 'y' \(1 of 2, first in line 3\)"),
        (SCORED, "tokens", "is for tokens, of which a table has no column: give an .npz"),
        (SCORED, "classes", 'to predict numbers, set training.loss = "mse"'),
    ],
)
def test_labels_that_are_no_numbers_are_refused(
    tmp_path: Path, text: str, targets: str, words: str
) -> None:
    refused(tmp_path, text, words, targets=targets)


def test_a_scenario_learns_the_numbers_of_a_table(tmp_path: Path) -> None:
    path = written(tmp_path, SCORED)
    sizes = spec(path, Reading(targets="numbers"))
    assert (sizes.targets, sizes.classes, sizes.train, sizes.test) == ("numbers", 1, 32, 8)
    asked = joulemesh.Scenario(
        training={"dataset": path, "loss": "mse", "normalize": True, "learning_rate": 0.02},
        devices={"count": 4}, plan={"iterations": 3},
    )  # fmt: skip
    result = joulemesh.run(asked)
    assert result.metric.name == "r2"
    assert np.isfinite(result.score).all()
