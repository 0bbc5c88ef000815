"""Targets that are not classes: how they are read, dealt out and refused."""

from __future__ import annotations

import io
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data import from_arrays, load, load_for, partition_for, spec_for
from joulemesh.data.arrays import read_npz, write_npz
from joulemesh.data.load import LETTERS, verses
from joulemesh.data.reading import Reading
from joulemesh.scenario import Scenario

X = np.random.default_rng(0).normal(size=(20, 3))
Y = np.arange(20.0) ** 2
TEXT = np.arange(20 * 6).reshape(20, 6) % 7


def scenario(path: Path | str, loss: str, **training: Any) -> Scenario:
    asked = {"dataset": str(path), "loss": loss, "learning_rate": 0.01, **training}
    return Scenario(training=asked, devices={"count": 4})


def saved(folder: Path, x: Any, y: Any) -> Path:
    path = folder / "mine.npz"
    np.savez(path, x_train=x[:15], y_train=y[:15], x_test=x[15:], y_test=y[15:])
    return path


def test_numbers_are_read_from_a_file_and_planned_for(tmp_path: Path) -> None:
    asked = scenario(saved(tmp_path, X, Y), "mse")
    data, sizes = load_for(asked), spec_for(asked)
    assert data.targets == sizes.targets == "numbers"
    assert data.outputs == sizes.outputs == (1,)
    np.testing.assert_array_equal(data.y_train[:, 0], Y[:15].astype(np.float32))
    assert any("targets are not scaled" in note for note in data.notes)


def test_whole_numbers_are_numbers_to_a_loss_that_takes_them(tmp_path: Path) -> None:
    path = saved(tmp_path, X, np.arange(20) % 3)
    assert load_for(scenario(path, "mse")).targets == "numbers"
    assert load_for(scenario(path, "cross-entropy")).targets == "classes"


def test_standardised_targets_say_what_one_is() -> None:
    data = from_arrays(X[:15], Y[:15], X[15:], Y[15:], normalize=True, targets="numbers")
    assert data.y_train.mean() == pytest.approx(0, abs=1e-6)
    assert data.y_train.std() == pytest.approx(1, abs=1e-6)
    shift = (Y[15:] - Y[:15].mean()) / Y[:15].std()
    np.testing.assert_allclose(data.y_test[:, 0], shift, rtol=1e-6)
    assert f"{Y[:15].std():.4g} in their own units" in data.notes[0]


def test_tokens_are_read_from_a_file_and_planned_for(tmp_path: Path) -> None:
    y = np.where(TEXT == 3, -100, TEXT)
    asked = scenario(saved(tmp_path, TEXT, y), "token-cross-entropy", model="token-mlp")
    data, sizes = load_for(asked), spec_for(asked)
    assert data.targets == sizes.targets == "tokens"
    assert data.outputs == sizes.outputs == (6, 7)
    assert data.seen == sizes.seen == "int32"
    np.testing.assert_array_equal(data.y_train, y[:15])


@pytest.mark.parametrize("name", ["diabetes", "verses"])
def test_embedded_data_have_the_sizes_that_are_planned_with(name: str) -> None:
    loss = {"diabetes": "mse", "verses": "token-cross-entropy"}[name]
    data, sizes = load_for(scenario(name, loss)), spec_for(scenario(name, loss))
    assert (len(data.y_train), len(data.y_test)) == (sizes.train, sizes.test)
    assert (data.shape, data.classes, data.outputs) == (sizes.shape, sizes.classes, sizes.outputs)
    assert (data.targets, data.seen) == (sizes.targets, sizes.seen)


def test_diabetes_is_what_the_features_and_targets_of_the_paper_are() -> None:
    data = load("diabetes", reading=Reading(targets="numbers", loss="mse"))
    assert data.feature_names[:4] == ("age", "sex", "bmi", "bp")
    seen = data.normalise(data.x_train)
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-4)
    both = np.concatenate([data.y_train, data.y_test])[:, 0]
    x = np.concatenate([data.x_train, data.x_test])
    assert np.corrcoef(x[:, 2], both)[0, 1] == pytest.approx(0.5865, abs=1e-3)  # bmi, published


def test_every_letter_is_followed_by_its_target() -> None:
    data = verses()
    text = "".join(LETTERS[token] for token in data.x_train[7])
    assert set(text) <= set(LETTERS)
    np.testing.assert_array_equal(data.x_test[:, 1:], data.y_test[:, :-1])


@pytest.mark.parametrize("kind", ["numbers", "tokens"])
def test_what_is_written_is_read_again(kind: Any) -> None:
    x, y = (X, Y) if kind == "numbers" else (TEXT, np.where(TEXT == 2, -1, TEXT))
    data = from_arrays(x[:15], y[:15], x[15:], y[15:], targets=kind)
    file = io.BytesIO()
    write_npz(data, file)
    again = np.load(io.BytesIO(file.getvalue()))
    made = from_arrays(
        *(again[k] for k in ("x_train", "y_train", "x_test", "y_test")), targets=kind
    )
    np.testing.assert_array_equal(made.y_train, data.y_train)
    np.testing.assert_array_equal(made.x_test, data.x_test)
    assert made.classes == data.classes


def test_numbers_are_dealt_out_by_their_quantiles(tmp_path: Path) -> None:
    asked = scenario(saved(tmp_path, X, Y), "mse", partition="shards", shards_per_device=1)
    data = load_for(asked)
    groups = data.strata()
    assert groups[data.y_train[:, 0].argmin()] == 0
    assert groups[data.y_train[:, 0].argmax()] == groups.max() == 9
    held = partition_for(asked, data, seed=0)
    spans = sorted(
        (data.y_train[held.indices(i), 0].min(), data.y_train[held.indices(i), 0].max())
        for i in range(4)
    )
    assert all(one[1] <= after[1] for one, after in pairwise(spans))
    assert spans[0][1] < spans[-1][0]


@pytest.mark.parametrize("kind", ["dirichlet", "shards"])
def test_sequences_have_no_labels_to_be_dealt_out_by(kind: str) -> None:
    asked = scenario("verses", "token-cross-entropy", partition=kind)
    with pytest.raises(ScenarioError, match=f"{kind!r} deals samples out by their labels"):
        partition_for(asked, load_for(asked), seed=0)
    even = asked.override({"training.partition": "quantity"})
    assert partition_for(even, load_for(even), seed=0).devices == 4


@pytest.mark.parametrize(
    ("x", "y", "loss", "said"),
    [
        (X, Y, "cross-entropy", 'set training.loss = "mse"'),
        (TEXT, TEXT, "cross-entropy", 'set training.loss = "token-cross-entropy"'),
        (X, np.where(Y > 99, np.nan, Y), "mse", r"y_train\[10\] holds NaN or infinity"),
        (X, Y.astype(str), "mse", "use numbers of shape"),
        (X, TEXT, "token-cross-entropy", "x_train is float64"),
        (TEXT - 1, TEXT, "token-cross-entropy", r"x_train\[0, 0\] = -1 is outside the classes"),
    ],
)
def test_targets_that_do_not_fit_the_loss_are_refused(
    x: Any, y: Any, loss: str, said: str, tmp_path: Path
) -> None:
    path = saved(tmp_path, x, y)
    with pytest.raises(ScenarioError, match=said):
        load_for(scenario(path, loss))


def test_a_loss_for_other_targets_than_embedded_data_hold_is_refused() -> None:
    with pytest.raises(ScenarioError, match="is for numbers, and digits holds classes"):
        load_for(scenario("digits", "mse"))
    with pytest.raises(ScenarioError, match="is for numbers, and digits holds classes"):
        spec_for(scenario("digits", "mse"))


def test_files_without_a_scenario_hold_classes(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no classes"):
        read_npz(saved(tmp_path, X, Y))
