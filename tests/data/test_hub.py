"""Data sets of the hub, with a stand-in for the package that fetches them: no network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import MissingPackageError
from joulemesh.data import load, spec
from joulemesh.data.arrays import hub_file
from joulemesh.scenario import Scenario


class Split:
    """Some columns, as ``datasets.Dataset`` gives them."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = columns
        self.column_names = list(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]


def pictures(count: int, mode: str = "L", side: int = 6) -> list[Image.Image]:
    rng = np.random.default_rng(count)
    shape = (side, side) if mode == "L" else (side, side, 3)
    return [Image.fromarray(rng.integers(0, 256, shape, np.uint8)) for _ in range(count)]


class Hub:
    """Stands for the module ``datasets``; remembers what was asked of it."""

    def __init__(self, sets: dict[str, Any]) -> None:
        self.sets = sets
        self.asked: list[tuple[str, str | None, dict[str, Any]]] = []

    def load_dataset(self, name: str, config: str | None = None, **more: Any) -> Any:
        self.asked.append((name, config, more))
        if name not in self.sets:
            raise FileNotFoundError(f"Dataset '{name}' doesn't exist\non the Hub")
        return self.sets[name]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    labels = [k % 3 for k in range(12)]
    made = Hub(
        {
            "o/grey": {
                "train": Split(image=pictures(12), label=labels),
                "test": Split(image=pictures(5), label=labels[:5]),
            },
            "o/colour": {
                "train": Split(img=pictures(12, "RGB"), fine_label=labels, coarse=labels[::-1]),
                "validation": Split(
                    img=pictures(5, "RGB"), fine_label=labels[:5], coarse=labels[:5]
                ),
            },
            "o/table": {
                "train": Split(features=[[0.5 * k, 1.0] for k in range(12)], target=labels),
                "test": Split(features=[[0.0, 1.0]] * 4, target=labels[:4]),
            },
            "o/odd": {
                "train": Split(image=[*pictures(2), *pictures(1, side=9)], label=[0, 1, 0]),
                "test": Split(image=pictures(2), label=[0, 1]),
            },
            "o/words": {
                "train": Split(image=pictures(2), label=["cat", "dog"]),
                "test": Split(image=pictures(2), label=["cat", "dog"]),
            },
            "o/hidden": {
                "train": Split(image=pictures(2), label=[0, 1]),
                "test": Split(image=pictures(2), label=[-1, -1]),
            },
            "o/half": {"train": Split(image=pictures(2), label=[0, 1])},
            "o/none": SimpleNamespace(),
        }
    )
    monkeypatch.setitem(sys.modules, "datasets", made)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: str(tmp_path / "cache"))
    return made


def test_grey_pictures_become_a_data_set(hub: Hub) -> None:
    data = load("hf:o/grey")
    assert (data.name, data.classes) == ("hf:o/grey", 3)
    assert data.x_train.shape == (12, 6, 6, 1)
    assert data.x_train.dtype == np.uint8
    first = np.asarray(hub.sets["o/grey"]["train"]["image"][0])
    np.testing.assert_array_equal(data.x_train[0, ..., 0], first)
    assert data.y_test.tolist() == [0, 1, 2, 0, 1]
    assert abs(data.normalise(data.x_train).mean()) < 1e-5


def test_columns_and_splits_are_found_or_chosen(hub: Hub) -> None:
    assert load("hf:o/colour").x_test.shape == (5, 6, 6, 3)
    other = load("hf:o/colour?label=coarse&config=big&revision=abc")
    assert other.y_train[0] == 2
    assert hub.asked[-1] == ("o/colour", "big", {"revision": "abc"})
    table = load("hf:o/table")
    assert table.shape == (2,)
    assert table.x_train.dtype == np.float32


def test_it_is_fetched_once_and_then_needs_neither_package_nor_network(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load("hf:o/grey")
    monkeypatch.setitem(sys.modules, "datasets", None)
    again, sizes = load("hf:o/grey"), spec("hf:o/grey")
    assert len(hub.asked) == 1
    np.testing.assert_array_equal(first.x_train, again.x_train)
    assert (sizes.train, sizes.test, sizes.shape, sizes.classes) == (12, 5, (6, 6, 1), 3)
    with pytest.raises(MissingPackageError, match=r"needs datasets, .*pip install datasets") as no:
        load("hf:o/colour")
    assert isinstance(no.value, joulemesh.JoulemeshError)
    assert isinstance(no.value, ImportError)


def test_a_scenario_is_planned_on_it(hub: Hub) -> None:
    scenario = Scenario.preset("adaptive").override(
        {"training.dataset": "hf:o/grey", "training.model": "logistic", "plan.iterations": 3}
    )
    assert joulemesh.plan(scenario).work.parameters == 36 * 3 + 3


BAD = {
    "hf:o/unknown": "cannot be loaded .FileNotFoundError: Dataset 'o/unknown' doesn't exist on the",
    "hf:o/half": "has no test split of a usual name, only train; write hf:o/half.test=NAME",
    "hf:o/grey?image=pixels": "has no column 'pixels', only image, label; write hf:o/grey.image=",
    "hf:o/grey?train=all": "has no split 'all', only train, test",
    "hf:o/odd": r"train.image holds the shapes \[\(6, 6, 1\), \(9, 9, 1\)\]",
    "hf:o/words": "train.label holds <U3 .*labels must be whole numbers",
    "hf:o/hidden": r"y_test\[0\] = -1 is not a class",
    "hf:o/none": "has no splits",
    "hf:": "write hf:OWNER/NAME",
    "hf:../secret": "write hf:OWNER/NAME",
    "hf:o/grey?image": "write options as",
    "hf:o/grey?colour=red": "the option 'colour' is unknown; known options: config, image",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line(hub: Hub, name: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=BAD[name]) as refusal:
        hub_file(name, tmp_path / "other")
    assert "\n" not in str(refusal.value)
    assert not list(tmp_path.glob("other/hub/*"))  # nothing bad is kept
