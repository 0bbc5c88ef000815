"""Labels and numbers as a data set holds them: cases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data.dataset import (
    canonical,
    check_loss,
    classes_in,
    feature_notes,
    has_fractions,
    in_order,
    in_portions,
    moments,
    number_classes,
    numbers_of,
    standardised,
    targets_of,
    text_labels,
    tokens_of,
)
from joulemesh.data.load import LETTERS, verses
from joulemesh.data.partition import apportion
from joulemesh.data.reading import check_name, is_table
from joulemesh.data.table import held_out


@pytest.mark.parametrize(
    ("given", "clean"),
    [
        ([" cat", "dog  two"], ["cat", "dog two"]),
        (["1.0", "02"], ["1", "2"]),
        (["1.0", "x"], ["1.0", "x"]),
    ],
)
def test_labels_lose_spaces_and_whole_numbers_their_points(
    given: list[str], clean: list[str]
) -> None:
    assert canonical(given) == clean


@pytest.mark.parametrize(
    ("labels", "classes", "names"),
    [
        (["dog", "cat"], [1, 0], ("cat", "dog")),
        (["1", "0", "2.0"], [1, 0, 2], ()),
        (["1", "-1"], [1, 0], ("-1", "1")),
    ],
)
def test_classes_are_numbered_in_sorted_order(
    labels: list[str], classes: list[int], names: tuple[str, ...]
) -> None:
    found = number_classes(labels)
    assert (found[0].tolist(), found[1]) == (classes, names)


def test_names_are_numbered_in_order_of_appearance() -> None:
    codes, names = in_order(["b", "a ", "a"])
    assert (codes.tolist(), names) == ([0, 1, 1], ("b", "a"))
    assert classes_in(["b", "c"], ["a", "b"], np.array([0, 1], np.int32)).tolist() == [1, -1]
    train, test, names = text_labels(np.array(["b", "a"]), np.array(["b"]))
    assert (train.tolist(), test.tolist(), names) == ([1, 0], [1], ("a", "b"))


def test_only_numbers_not_all_of_them_whole_have_fractions() -> None:
    given = (["1", "2.5"], ["1.0", "2"], ["a", "2.5"])
    assert [has_fractions(labels) for labels in given] == [True, False, False]


def test_the_type_of_targets_tells_their_kind() -> None:
    assert targets_of(np.zeros(3), "any") == "numbers"
    assert targets_of(np.zeros((3, 5), int), "any") == "tokens"
    with pytest.raises(ScenarioError, match="is for classes, and diabetes"):
        check_loss("diabetes", "numbers", "cross-entropy", "classes")
    assert tokens_of(([[0, 1]], [[1, -1]], [[1, 0]], [[0, 2]]), "toy", None).outputs == (2, 3)


def test_moments_of_portions_and_what_is_standardised_by_them() -> None:
    found = moments([np.array([[1.0, 5.0], [3.0, 5.0]])])
    assert found.mean.tolist() == [2.0, 5.0]
    assert found.std.tolist() == [1.0, 0.0]
    assert found.divisor.tolist() == [1.0, 1.0]
    x = np.array([[1e9], [1e9 + 2]])
    assert standardised(x, moments(in_portions(x))).ravel().tolist() == [-1.0, 1.0]
    assert numbers_of("toy", [1, 3], [2], normalize=True)[0].ravel().tolist() == [-1.0, 1.0]
    tiny = moments([np.array([[0.0], [1e-110]])])
    assert tiny.standardise(np.array([[1.0]])).item() == np.finfo(np.float32).max


def test_wide_features_are_noted_by_name() -> None:
    wide = moments([np.array([[0.0, 20000.0], [1.0, 90000.0]])])
    (note,) = feature_notes(wide, ["age", "income"])
    assert "'income' runs from 2e+04 to 9e+04" in note


def test_a_name_that_is_nearly_known_is_suggested() -> None:
    with pytest.raises(ScenarioError, match="did you mean 'cifar-10'"):
        check_name("cifar10")
    tables = [is_table(name) for name in ("a.csv", "B.TSV.gz", "c.parquet", "d.npz", "mnist")]
    assert tables == [True, True, True, False, False]


def test_shares_are_dealt_by_largest_remainders_and_rows_held_out_by_class() -> None:
    assert apportion(5, np.array([1.0, 1.0, 2.0])).tolist() == [1, 1, 3]
    held = held_out(np.repeat([0, 1], [10, 5]).astype(np.int32), 0.2, seed=0)
    assert held.nonzero()[0].tolist() == [1, 7, 14]


def test_verses_predict_the_next_letter() -> None:
    data = verses()
    shown = "".join(LETTERS[token] for token in data.x_train[0])
    assert shown == "the patient window measures the "
    assert (data.x_train[0, 1:] == data.y_train[0, :-1]).all()
