"""Partitions that the data themselves give: which device holds a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Reading, from_arrays, load, load_for, partition_for
from joulemesh.data.partition import held_partition
from joulemesh.scenario import Scenario


def data(holders: list[Any]) -> Any:
    n = len(holders)
    x, y = np.arange(n, dtype=np.float32)[:, None], np.arange(n) % 2
    return from_arrays(x, y, x, y, held_by={"device": holders})


def held(part: Any) -> list[list[int]]:
    return [sorted(part.indices(i).tolist()) for i in range(part.devices)]


@pytest.mark.parametrize(
    ("holders", "names", "expected", "words"),
    [
        (["b", "a", "b", "c"], (), [[0, 2], [1], [3]],
         "in the order of their appearance ('b' is device 0, 'a' is device 1, 'c' is device 2)"),
        (["b", "a", "b", "c"], ("a", "b", "c"), [[1], [0, 2], [3]], "of that name"),
        ([2, 0, 1, 2], (), [[1], [2], [0, 3]], "of that number"),
        (["2", "0", "1", "2"], (), [[1], [2], [0, 3]], "of that number"),
        ([3, 1, 2, 3], (), [[1], [2], [0, 3]], "of that number, counted from 1"),
        ([2, 0, 1, 2], ("a", "b", "c"), [[1], [2], [0, 3]], "of that number"),
        ([17, 4, 99, 4], (), [[0], [1, 3], [2]], "in the order of their appearance"),
        (["1", "0", "2"], ("0", "2", "1"), [[1], [2], [0]], "of that name"),
    ],
)  # fmt: skip
def test_holders_are_matched(
    holders: list[Any], names: tuple[str, ...], expected: list[list[int]], words: str
) -> None:
    part = held_partition(data(holders), 3, names=names)
    assert held(part) == expected
    assert words in part.note
    assert "1 to 2 each" in part.note or "1 to 1 each" in part.note


@pytest.mark.parametrize(
    ("holders", "devices", "names", "words"),
    [
        (["a", "b", "c"], 2, (), "names 3 holders for 2 devices: set devices.count = 3"),
        (["a", "b", "a"], 4, (), "names 2 holders for 4 devices: set devices.count = 2"),
        (["a", "x", "b"], 3, ("a", "b", "c"), "names 'x', which is not a name in the device table"),
        (["x", "y", "z"], 3, ("a", "b", "c"), "names 'x', which is not a name in the device table"),
        (["a", "b", "a"], 3, ("a", "b", "c"),
         "gives no row to the device 'c', and names 2 of 3 devices"),
    ],
)  # fmt: skip
def test_holders_that_do_not_fit(
    holders: list[str], devices: int, names: tuple[str, ...], words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        held_partition(data(holders), devices, names=names)


def test_the_seed_orders_but_never_moves_samples() -> None:
    many = data([f"d{k % 3}" for k in range(90)])
    first, second = (held_partition(many, 3, seed=seed) for seed in (0, 1))
    assert held(first) == held(second)
    assert not np.array_equal(first.order, second.order)


def written(folder: Path, text: str, name: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_a_device_whose_rows_are_all_tested_is_refused(tmp_path: Path) -> None:
    text = "a,device,split,label\n1,p,train,x\n2,p,train,y\n3,q,test,x\n4,q,test,y\n"
    found = load(written(tmp_path, text, "mine.csv"), reading=Reading(holder="device"))
    with pytest.raises(ScenarioError, match=r"device 1 \(q\) has no training sample"):
        held_partition(found, 2)


def test_the_hold_out_is_spread_over_the_holders(tmp_path: Path) -> None:
    rows = "".join(f"{k},{'pq'[k >= 80]},{'xy'[k % 2]}\n" for k in range(100))
    path = written(tmp_path, "a,device,label\n" + rows, "mine.csv")
    for seed in range(5):
        found = load(path, reading=Reading(holder="device", seed=seed))
        assert found.holders is not None
        assert np.bincount(found.holders.of).tolist() == [64, 16]


def test_a_missing_holder_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a,device,label\n1,p,x\n2,,y\n", "mine.csv")
    with pytest.raises(ScenarioError, match="line 3: no value in the column 'device'"):
        load(path, reading=Reading(holder="device"))


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    table = written(tmp_path, "name,cpu_hz\npi,1e9\njetson,2e9\n", "devices.csv")
    rows = "".join(f"{k},{('jetson', 'pi')[k % 3 == 0]},{'xy'[k % 2]}\n" for k in range(30))
    mine = written(tmp_path, "a,device,label\n" + rows, "mine.csv")
    return Scenario(
        devices={"table": table},
        training={"dataset": mine, "partition": "column:device", "test_fraction": 0.4},
    )


def test_devices_of_a_scenario_by_name(scenario: Scenario) -> None:
    found = load_for(scenario)
    part = partition_for(scenario, found, seed=0)
    assert (found.x_train[part.indices(0)] % 3 == 0).all()
    assert part.sizes.tolist() == [6, 12]
    with pytest.raises(ScenarioError, match=r"devices.samples gives device 0 7 samples, and the c"):
        partition_for(scenario, found, seed=0, sizes=np.array([7, 12]))


def test_two_devices_of_one_name_are_refused(scenario: Scenario) -> None:
    Path(str(scenario.devices.table)).write_text("name\npi\npi\n")
    with pytest.raises(ScenarioError, match="has two devices called 'pi'"):
        partition_for(scenario, load_for(scenario), seed=0)


def test_data_that_do_not_say_who_holds_them(tmp_path: Path) -> None:
    asked = Scenario(training={"partition": "column:device"})
    with pytest.raises(ScenarioError, match="'digits' does not: use another partition"):
        load_for(asked)
    np.savez(tmp_path / "a.npz", x_train=[[0.0], [1.0]], y_train=[0, 1], x_test=[[0.0]], y_test=[0])
    with pytest.raises(
        ScenarioError, match=r"has no array 'device_train' .* only x_train, y_train"
    ):
        load(str(tmp_path / "a.npz"), reading=Reading(holder="device"))
    with pytest.raises(ScenarioError, match="does not say which device holds a sample"):
        held_partition(load("digits"), 2)


@pytest.mark.parametrize("word", ["columns", "column:", "column: ", "IID", 3])
def test_partitions_that_do_not_exist(word: Any) -> None:
    with pytest.raises(ScenarioError, match=r"must be (one of iid, .*, |written ')column:NAME"):
        Scenario(training={"partition": word})
