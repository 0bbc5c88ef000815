"""Data that come as one shard per device: folders of LEAF, FedLab and plain ones, and Flower's."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load, load_for, partition_for, spec_for
from joulemesh.data.federated import from_partitions


def scenario(folder: Path, devices: int, **changes: Any) -> joulemesh.Scenario:
    fields = {
        "devices.count": devices,
        "training.dataset": f"folder:{folder}",
        "training.partition": "natural",
        "training.model": "logistic",
        "training.l2": 0.01,
        "plan.iterations": 2,
        "budget.deadline_s": 1.0,
    }
    return joulemesh.Scenario().override({**fields, **changes})


def held(asked: joulemesh.Scenario, seed: int = 0) -> tuple[Dataset, list[list[float]]]:
    """The data, and the first feature of each device's samples, in ascending order."""
    data = load_for(asked)
    part = partition_for(asked, data, seed)
    return data, [
        sorted(data.x_train[part.indices(k)].reshape(-1, data.shape[0])[:, 0].tolist())
        for k in range(part.devices)
    ]


# One file per device ---------------------------------------------------------------------------


def shards(folder: Path, sizes: tuple[int, ...] = (2, 3, 4)) -> Path:
    """Device k holds the samples 100 k, 100 k + 1, …"""
    folder.mkdir(exist_ok=True)
    for k, size in enumerate(sizes):
        x = np.stack([100.0 * k + np.arange(size), np.ones(size)], axis=1).astype(np.float32)
        np.savez(folder / f"device-{k:03d}.npz", x_train=x, y_train=(np.arange(size) + k) % 2)
    np.savez(folder / "test.npz", x_test=np.ones((4, 2), np.float32), y_test=[0, 1, 0, 1])
    return folder


def test_each_device_has_the_samples_of_its_file(tmp_path: Path) -> None:
    asked = scenario(shards(tmp_path / "farm"), 3)
    data, found = held(asked)
    assert found == [[0, 1], [100, 101, 102], [200, 201, 202, 203]]
    assert len(data.y_test) == 4
    sizes = spec_for(asked)
    assert (sizes.train, sizes.test, sizes.shape, sizes.classes) == (9, 4, (2,), 2)


def test_a_plan_and_a_run_of_a_folder_named_beside_the_scenario(tmp_path: Path) -> None:
    shards(tmp_path / "farm")
    asked = scenario(Path("farm"), 3, **{"training.local_round": "epoch"})
    (tmp_path / "s.toml").write_text(asked.to_toml(), "utf-8")
    read = joulemesh.Scenario.load(tmp_path / "s.toml")
    assert read.training.dataset == f"folder:{tmp_path / 'farm'}"
    plan = joulemesh.plan(read)
    assert plan.work.round_samples.tolist() == [2, 3, 4]
    assert plan.iterations == 2


def test_fewer_devices_than_users_are_drawn_by_the_scenarios_seed(tmp_path: Path) -> None:
    folder = shards(tmp_path / "farm", (1, 1, 1, 1, 1, 1, 1, 1))
    drawn = [tuple(x[0] for x in held(scenario(folder, 3, seed=seed))[1]) for seed in range(12)]
    assert len(set(drawn)) > 3
    assert all(len(set(one)) == 3 for one in drawn)
    asked = scenario(folder, 3)
    assert held(asked, seed=5)[1] == held(asked, seed=0)[1]  # repetitions keep the users
    note = partition_for(asked, load_for(asked), 0).note
    assert note == "each device has the samples of one of the 3 of 8 holders ('user'): 1 to 1 each"


def test_more_devices_than_users_are_refused(tmp_path: Path) -> None:
    asked = scenario(shards(tmp_path / "farm"), 5)
    words = r"has 3 holders \('user'\) for 5 devices: set devices.count = 3 or fewer, or use ano"
    with pytest.raises(ScenarioError, match=words):
        partition_for(asked, load_for(asked), 0)


def test_devices_are_matched_by_name_where_they_have_names(tmp_path: Path) -> None:
    folder = shards(tmp_path / "farm")
    for k, name in enumerate(("barn", "field", "gate")):
        (folder / f"device-{k:03d}.npz").rename(folder / f"device-{name}.npz")
    (tmp_path / "devices.csv").write_text("name,cpu_hz\ngate,1e9\nbarn,1e9\n")
    asked = scenario(folder, 2, **{"devices.table": str(tmp_path / "devices.csv")})
    assert held(asked)[1] == [[200, 201, 202, 203], [0, 1]]


def test_natural_needs_data_that_say_who_holds_them() -> None:
    asked = joulemesh.Scenario().override({"training.partition": "natural"})
    with pytest.raises(ScenarioError, match="digits does not say who holds a sample: use folder:"):
        partition_for(asked, load("digits"), 0)


def test_other_partitions_deal_a_folders_samples_anew(tmp_path: Path) -> None:
    asked = scenario(shards(tmp_path / "farm"), 2, **{"training.partition": "iid"})
    assert sorted(map(len, held(asked)[1])) == [4, 5]


def test_without_a_test_set_a_share_of_each_shard_is_held_out(tmp_path: Path) -> None:
    folder = shards(tmp_path / "farm", (10, 20, 5))
    (folder / "test.npz").unlink()
    data, found = held(scenario(folder, 3))
    assert [len(one) for one in found] == [8, 16, 4]
    assert len(data.y_test) == 7
    assert not {*data.x_test[:, 0].tolist()} & {value for one in found for value in one}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"x": np.ones((2, 3)), "y": [0, 1]}, r"samples of '001' have shape \(3,\) and those of"),
        ({"x": np.ones((2, 2)), "y": [0]}, r"'001' has 2 training samples and 1 labels: make th"),
        ({"x": np.ones((0, 2)), "y": np.zeros(0, int)}, r"'001' holds no training sample"),
        ({"pixels": np.ones(2)}, r"device-001.npz has no x_train, only pixels: save x_train and"),
    ],
)
def test_shards_that_do_not_fit_are_named(tmp_path: Path, wrong: Any, words: str) -> None:
    folder = shards(tmp_path / "farm")
    np.savez(folder / "device-001.npz", **wrong)
    with pytest.raises(ScenarioError, match=words):
        load(f"folder:{folder}")


def test_a_damaged_file_is_one_line(tmp_path: Path) -> None:
    folder = shards(tmp_path / "farm")
    (folder / "device-001.npz").write_bytes(b"no zip")
    with pytest.raises(ScenarioError, match=r"device-001.npz is not a readable .npz file"):
        load(f"folder:{folder}")


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"has neither device-\*.npz, nor train/\*.json"):
        load(f"folder:{tmp_path}")
    with pytest.raises(ScenarioError, match="there is no folder"):
        load(f"folder:{tmp_path / 'none'}")


# LEAF ------------------------------------------------------------------------------------------


def leaf(path: Path, users: dict[str, tuple[list[Any], list[Any]]], /, **changes: Any) -> None:
    record = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
        **changes,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record))


ANN = ([[0.0, 1.0], [1.0, 1.0]], [0, 1])
BOB = ([[5.0, 1.0], [6.0, 1.0], [7.0, 1.0]], [1, 0, 1])


def test_leafs_users_are_the_devices(tmp_path: Path) -> None:
    leaf(tmp_path / "train" / "a_0.json", {"ann": ANN})
    leaf(tmp_path / "train" / "a_1.json", {"bob": BOB})
    leaf(tmp_path / "test" / "a_0.json", {"ann": ([[9.0, 9.0]], [1]), "zoe": ([[8.0, 8.0]], [0])})
    data, found = held(scenario(tmp_path, 2))
    assert found == [[0, 1], [5, 6, 7]]
    assert sorted(data.x_test[:, 0].tolist()) == [8, 9]  # those of a user who never trains, too
    assert data.holders is not None
    assert data.holders.names == ("ann", "bob")


def test_leafs_undivided_data_are_split_user_by_user(tmp_path: Path) -> None:
    many = ([[float(k), 0.0] for k in range(10)], [0, 1] * 5)
    leaf(tmp_path / "all_data" / "all.json", {"ann": many, "bob": BOB})
    data, found = held(scenario(tmp_path, 2))
    assert [len(one) for one in found] == [8, 2]
    assert len(data.y_test) == 3


@pytest.mark.parametrize(
    ("users", "changes", "words"),
    [
        ({"ann": ANN}, {"num_samples": [5]}, r"'ann' has 2 labels, and num_samples says 5"),
        ({"ann": ANN}, {"num_samples": [2, 1]}, r"has 1 users and 2 entries of num_samples"),
        ({"ann": ANN}, {"users": ["eve"]}, r"user_data has no x and y of 'eve': add them"),
        ({"ann": (["to be", "or not"], [0, 1])}, {}, r"'ann' are not lists of numbers .*Shakesp"),
        ({"ann": ([[1.0], [1.0, 2.0]], [0, 1])}, {}, r"'ann' are not lists of numbers of one len"),
    ],
)
def test_files_that_are_not_leafs_are_refused(
    tmp_path: Path, users: Any, changes: Any, words: str
) -> None:
    leaf(tmp_path / "train" / "a.json", users, **changes)
    with pytest.raises(ScenarioError, match=words):
        load(f"folder:{tmp_path}")


def test_users_named_twice_and_other_json_are_refused(tmp_path: Path) -> None:
    leaf(tmp_path / "train" / "a.json", {"ann": ANN})
    leaf(tmp_path / "train" / "b.json", {"ann": ANN})
    with pytest.raises(ScenarioError, match=r"b.json: the user 'ann' is there twice"):
        load(f"folder:{tmp_path}")
    (tmp_path / "train" / "b.json").write_text('{"users": []}')
    with pytest.raises(ScenarioError, match=r"b.json has no 'num_samples'"):
        load(f"folder:{tmp_path}")
    (tmp_path / "train" / "b.json").write_text("{")
    with pytest.raises(ScenarioError, match=r"b.json is not JSON"):
        load(f"folder:{tmp_path}")


# FedLab ----------------------------------------------------------------------------------------


def fedlab(folder: Path) -> Path:
    x = np.stack([np.arange(6.0), np.ones(6)], axis=1).astype(np.float32)
    y = np.arange(6) % 2
    np.savez(folder / "data.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    return folder


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_fedlabs_clients_are_the_devices(tmp_path: Path, suffix: str) -> None:
    clients = {"0": [5, 0], "1": [1, 2, 3]}  # sample 4 belongs to nobody
    path = fedlab(tmp_path) / f"partition.{suffix}"
    if suffix == "npz":
        np.savez(path, **{k: np.array(v) for k, v in clients.items()})  # type: ignore[arg-type]
    else:
        path.write_text(json.dumps(clients))
    assert held(scenario(tmp_path, 2))[1] == [[0, 5], [1, 2, 3]]


@pytest.mark.parametrize(
    ("clients", "words"),
    [
        ({"0": [0, 9]}, r"client '0' has the sample 9, and samples are 0..5"),
        ({"0": [0, 1], "1": [1]}, r"the sample 1 belongs to client 0 and to client 1"),
        ({"0": [0, 0]}, r"client '0' has a sample twice"),
        ({"0": []}, r"the indices of client '0' are float64 of shape \(0,\): give whole"),
    ],
)
def test_indices_that_cannot_be_are_refused(tmp_path: Path, clients: Any, words: str) -> None:
    (fedlab(tmp_path) / "partition.json").write_text(json.dumps(clients))
    with pytest.raises(ScenarioError, match=words):
        load(f"folder:{tmp_path}")


def test_a_pickle_is_refused_and_never_opened(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "sprung",))

    (fedlab(tmp_path) / "client_dict.pkl").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ScenarioError, match=r"is a pickle, which may run any code .*np.savez\("):
        load(f"folder:{tmp_path}")
    assert not (tmp_path / "sprung").exists()


# Flower Datasets -------------------------------------------------------------------------------


class Split:
    """The part of ``datasets.Dataset`` that is read."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]


class Partitioner:
    """The part of a partitioner of Flower Datasets that is used."""

    def __init__(self, parts: list[Split]) -> None:
        self._parts, self.num_partitions = parts, len(parts)

    def load_partition(self, number: int) -> Split:
        return self._parts[number]


def test_a_partitioners_parts_are_the_devices() -> None:
    parts = [
        Split(x=[[float(k), 1.0] for k in range(5)], label=[0, 1, 0, 1, 0]),
        Split(x=[[9.0, 1.0]] * 5, label=[1, 0, 1, 0, 1]),
    ]
    data = from_partitions(Partitioner(parts))
    asked = scenario(Path("unused"), 2)
    part = partition_for(asked, data, 0)
    assert part.sizes.tolist() == [4, 4]
    assert data.x_train[part.indices(1)][:, 0].tolist() == [9.0] * 4
    with pytest.raises(ScenarioError, match=r"partition 0 has no column called .*only a: rename"):
        from_partitions(Partitioner([Split(a=[1])]))


@pytest.mark.slow
def test_flower_datasets_itself(tmp_path: Path) -> None:
    """A partitioner of the real package, by the scenario's own fields, run and kept."""
    pytest.importorskip("flwr_datasets", reason="flwr-datasets is not installed")
    from datasets import Dataset as Table
    from flwr_datasets.partitioner import NaturalIdPartitioner

    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3)).astype(np.float32)
    writer = np.repeat(["ann", "bob", "eve", "zoe"], [4, 8, 12, 16])
    table = Table.from_dict(
        {"x": x.tolist(), "label": (x[:, 0] > 0).astype(int).tolist(), "writer": writer.tolist()}
    )
    partitioner = NaturalIdPartitioner(partition_by="writer")
    partitioner.dataset = table
    asked = scenario(Path("unused"), 4).override({"training.dataset": "digits"})
    result = joulemesh.run(asked, data=partitioner, out=tmp_path / "run")
    assert sorted(result.partitions[0].sizes.tolist()) == [3, 6, 10, 13]
    # The run's folder holds the data with their holders: it is read again as it was.
    again = joulemesh.Scenario.load(tmp_path / "run" / "scenario.toml")
    kept = partition_for(again, load_for(again), 0)
    assert kept.sizes.tolist() == result.partitions[0].sizes.tolist()


@pytest.mark.slow
def test_the_shards_of_an_exported_flower_app_are_read_as_they_are(tmp_path: Path) -> None:
    from joulemesh.study.flower import export_flower

    first = joulemesh.Scenario.preset("adaptive").override({"devices.count": 3})
    app = export_flower(first, tmp_path / "app")
    asked = scenario(app / "data", 3)
    data, digits = load_for(asked), load("digits")
    assert sorted(data.y_train.tolist()) == sorted(digits.y_train.tolist())
    assert len(data.y_test) == 360
