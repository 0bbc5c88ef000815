"""Data sets whose clients hold their own samples: folders of LEAF and FedLab, and Flower's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import ArrayFile
from joulemesh.data.arrays import columns_of, from_arrays, listed, open_npz, read_npz
from joulemesh.data.dataset import Dataset, Holders
from joulemesh.data.reading import FOLDER, HOLDER, Reading

_PURPOSE = 0x75736572  # "user": keeps these draws apart from every other use of the seed

Arrays = tuple[NDArray[Any], NDArray[Any]]


@dataclass(frozen=True)
class Shard:
    """What one device, or user, holds.

    Attributes:
        name: of its holder.
        train: samples and labels to train on.
        test: samples and labels to test on; empty arrays or None where there are none.
    """

    name: str
    train: Arrays
    test: Arrays | None = None


def split(shard: Shard, reading: Reading, number: int) -> Shard:
    """The shard with a share of its samples held out to test on; one at least is trained on."""
    x, y = shard.train
    order = np.random.default_rng([reading.seed, _PURPOSE, number]).permutation(len(y))
    held_out = min(round(reading.test_fraction * len(y)), len(y) - 1)
    test, train = np.sort(order[:held_out]), np.sort(order[held_out:])
    return Shard(shard.name, (x[train], y[train]), (x[test], y[test]))


def joined(
    name: str, shards: Sequence[Shard], reading: Reading, test: Arrays | None = None
) -> Dataset:
    """All shards as one data set, which says who holds each training sample."""
    if not shards:
        raise ScenarioError(f"{name} has no shards: give it one for each device")
    for shard in shards:
        _check(name, shard)
    tested = [shard.test for shard in shards if shard.test is not None and len(shard.test[1])]
    if test is not None:
        tested.append(test)
    if not tested:
        shards = [split(shard, reading, number) for number, shard in enumerate(shards)]
        tested = [shard.test for shard in shards if shard.test is not None and len(shard.test[1])]
    if not tested:
        raise ScenarioError(
            f"{name} leaves nothing to test on: its {len(shards)} shards hold one sample each; add "
            "a test set, or raise training.test_fraction"
        )
    sizes = [len(shard.train[1]) for shard in shards]
    holders = np.repeat(np.array([shard.name for shard in shards]), sizes)
    return from_arrays(
        _stacked(name, [(shard.name, shard.train[0]) for shard in shards]),
        np.concatenate([shard.train[1] for shard in shards]),
        _stacked(name, [("the test samples", x) for x, _ in tested]),
        np.concatenate([y for _, y in tested]),
        name=name,
        normalize=reading.normalize,
        held_by={HOLDER: holders},
        targets=reading.targets,
    )


def _check(name: str, shard: Shard) -> None:
    for part, arrays in (("training", shard.train), ("test", shard.test)):
        if arrays is not None and len(arrays[0]) != len(arrays[1]):
            raise ScenarioError(
                f"{name}: {shard.name!r:.60} has {len(arrays[0])} {part} samples and "
                f"{len(arrays[1])} labels: make them equal"
            )
    if not len(shard.train[1]):
        raise ScenarioError(
            f"{name}: {shard.name!r:.60} holds no training sample: give it one, or leave it out"
        )


def _stacked(name: str, parts: Sequence[tuple[str, NDArray[Any]]]) -> NDArray[Any]:
    first_name, first = parts[0]
    for holder, x in parts:
        if x.shape[1:] != first.shape[1:]:
            raise ScenarioError(
                f"{name}: samples of {holder!r:.60} have shape {x.shape[1:]} and those of "
                f"{first_name!r:.60} {first.shape[1:]}: give all one shape"
            )
    return np.concatenate([x for _, x in parts])


_KEYS = ("users", "num_samples", "user_data")


def is_leaf(folder: Path) -> bool:
    """Does a folder look like one of LEAF's: ``train/`` and ``test/``, or ``all_data/``?"""
    return any(_files(folder / part) for part in ("train", "all_data"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def read_leaf(folder: Path, name: str, reading: Reading) -> Dataset:
    """Read the folder of a data set: that with ``train`` and ``test``, or ``all_data``, in it."""
    train = _users(folder / ("train" if _files(folder / "train") else "all_data"))
    test = _users(folder / "test") if _files(folder / "test") else {}
    shards = [Shard(user, arrays, test.get(user)) for user, arrays in train.items()]
    strangers = [arrays for user, arrays in test.items() if user not in train]
    others = None
    if strangers:  # LEAF also splits by user: then those of the test set never train
        x, y = zip(*strangers, strict=True)
        others = np.concatenate(x), np.concatenate(y)
    return joined(name, shards, reading, others)


def _users(folder: Path) -> dict[str, Arrays]:
    found: dict[str, Arrays] = {}
    for path in _files(folder):
        record = _record(path)
        for user, count in zip(record["users"], record["num_samples"], strict=True):
            if user in found:
                raise ScenarioError(f"{path}: the user {user!r:.60} is there twice: keep one")
            found[user] = _samples(path, str(user), count, record["user_data"].get(user))
    return found


def _record(path: Path) -> dict[str, Any]:
    record: Any
    try:
        record = json.loads(path.read_bytes())
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error.strerror}): check the file") from None
    except ValueError as error:
        reason = " ".join(str(error).split())[:120]
        raise ScenarioError(f"{path} is not JSON ({reason}): write it again") from None
    lacking = [key for key in _KEYS if not isinstance(record, dict) or key not in record]
    if lacking:
        raise ScenarioError(f"{path} has no {lacking[0]!r}, which files of LEAF have: name others")
    users, counts = record["users"], record["num_samples"]
    if len(users) != len(counts) or not isinstance(record["user_data"], dict):
        raise ScenarioError(
            f"{path} has {len(users)} users and {len(counts)} entries of num_samples: make them "
            "equal"
        )
    return dict(record)


def _samples(path: Path, user: str, count: Any, data: Any) -> Arrays:
    if not isinstance(data, dict) or "x" not in data or "y" not in data:
        raise ScenarioError(f"{path}: user_data has no x and y of {user!r:.60}: add them")
    x, y = _numbers(path, user, data["x"]), np.asarray(data["y"])
    if len(y) != count:
        raise ScenarioError(
            f"{path}: {user!r:.60} has {len(y)} labels, and num_samples says {count}: correct one"
        )
    return x, y


def _numbers(path: Path, user: str, values: Any) -> NDArray[Any]:
    try:
        x = np.asarray(values)
    except ValueError:
        x = np.empty(0, object)
    if x.dtype.kind not in "biuf" or (len(x) and x.ndim < 2):
        raise ScenarioError(
            f"{path}: samples of {user!r:.60} are not lists of numbers of one length (texts of "
            "Shakespeare and Sent140 must be encoded first): save numbers"
        )
    return x.astype(np.float32) if x.dtype.kind == "f" else x


DATA_FILE = "data.npz"
INDICES = ("partition.npz", "partition.json")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")


def is_fedlab(folder: Path) -> bool:
    """Does a folder hold data and indices of clients, or FedLab's pickles of them?"""
    if any((folder / name).is_file() for name in INDICES):
        return True
    return any(path.suffix in _PICKLES for path in folder.iterdir())


def read_fedlab(folder: Path, name: str, reading: Reading) -> Dataset:
    """Read ``data.npz``, and the indices of each client in ``partition.npz`` or ``.json``."""
    _refuse_pickles(folder)
    data = read_npz(folder / DATA_FILE, replace(reading, holder=None))
    clients = _clients(folder)
    owner = np.full(len(data.y_train), -1, np.int32)
    for number, (client, indices) in enumerate(clients.items()):
        where = _checked(folder, client, indices, len(owner))
        twice = where[owner[where] >= 0]
        if len(twice):
            first = list(clients)[owner[twice[0]]]
            raise ScenarioError(
                f"{folder}: the sample {int(twice[0])} belongs to client {first} and to client "
                f"{client}: give it to one"
            )
        owner[where] = number
    held = np.flatnonzero(owner >= 0)
    return replace(
        data,
        name=name,
        x_train=data.x_train[held],
        y_train=data.y_train[held],
        holders=Holders(HOLDER, tuple(clients), owner[held]),
    )


def _refuse_pickles(folder: Path) -> None:
    pickled = sorted(path for path in folder.iterdir() if path.suffix in _PICKLES)
    if pickled and not any((folder / name).is_file() for name in INDICES):
        raise ScenarioError(
            f"{pickled[0]} is a pickle, which may run any code when it is read: where you trust "
            'it, save arrays instead: np.savez("partition.npz", **{str(k): v for k, v in '
            "client_dict.items()}), and the samples as data.npz"
        )


def _clients(folder: Path) -> dict[str, Any]:
    path = next(folder / name for name in INDICES if (folder / name).is_file())
    try:
        if path.suffix == ".npz":
            with open_npz(path) as file:
                return dict(file)
        record = json.loads(path.read_bytes())
    except ScenarioError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:120]
        raise ScenarioError(f"{path} cannot be read ({reason}): write it again") from None
    if not isinstance(record, dict):
        raise ScenarioError(f'{path} is no object of clients: write {{"0": [3, 17, …], …}}')
    return record


def _checked(folder: Path, client: str, indices: Any, samples: int) -> NDArray[np.int64]:
    where = np.asarray(indices)
    if where.ndim != 1 or where.dtype.kind not in "iu" or not len(where):
        raise ScenarioError(
            f"{folder}: the indices of client {client!r:.60} are {where.dtype} of shape "
            f"{where.shape}: give whole numbers, one at least"
        )
    if where.min() < 0 or where.max() >= samples:
        worst = int(where.min() if where.min() < 0 else where.max())
        raise ScenarioError(
            f"{folder}: client {client!r:.60} has the sample {worst}, and samples are "
            f"0..{samples - 1}: correct it"
        )
    if len(np.unique(where)) != len(where):
        raise ScenarioError(f"{folder}: client {client!r:.60} has a sample twice: keep it once")
    return where.astype(np.int64)


_SHARDS, _TEST = "device-*.npz", "test.npz"


def read_folder(dataset: str, reading: Reading) -> Dataset:
    """Read a folder in which each device or user has its own samples.

    A folder of ``device-000.npz``, ``device-001.npz``, … (x_train and y_train, or x and y; x_test
    and y_test there or in ``test.npz``); one of LEAF (``train/`` and ``test/``, or ``all_data/``,
    of JSON files); or ``data.npz`` with the indices of each client in ``partition.npz`` or
    ``partition.json``, as FedLab keeps them.
    """
    folder = Path(dataset.removeprefix(FOLDER)).expanduser()
    if not folder.is_dir():
        raise ScenarioError(f"dataset = {dataset!r}: there is no folder {folder}; name one")
    shards = sorted(folder.glob(_SHARDS))
    if shards:
        return _of_shards(dataset, folder, shards, reading)
    if is_leaf(folder):
        return read_leaf(folder, dataset, reading)
    if is_fedlab(folder):
        return read_fedlab(folder, dataset, reading)
    raise ScenarioError(
        f"dataset = {dataset!r}: {folder} has neither {_SHARDS}, nor train/*.json or "
        "all_data/*.json (LEAF), nor partition.npz or partition.json (FedLab): name another"
    )


def stamp_of(dataset: str) -> tuple[tuple[int, int], ...]:
    """Sizes and times of change of a folder's files, by which it is known to be the same."""
    folder = Path(dataset.removeprefix(FOLDER)).expanduser()
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple((path.stat().st_size, path.stat().st_mtime_ns) for path in found)


def _of_shards(dataset: str, folder: Path, paths: list[Path], reading: Reading) -> Dataset:
    shards = [_shard(path) for path in paths]
    test = folder / _TEST
    if not test.is_file():
        return joined(dataset, shards, reading)
    with open_npz(test) as file:
        return joined(dataset, shards, reading, _arrays_folder(test, file, "test"))


def _shard(path: Path) -> Shard:
    name = path.stem.removeprefix("device-")
    with open_npz(path) as file:
        own = "x_test" in file and "y_test" in file
        test = _arrays_folder(path, file, "test") if own else None
        return Shard(name, _arrays_folder(path, file, "train"), test)


def _arrays_folder(path: Path, file: ArrayFile, part: str) -> Arrays:
    def find(letter: str) -> NDArray[Any]:
        for name in (f"{letter}_{part}", letter):
            if name in file:
                return file[name]
        raise ScenarioError(
            f"{path} has no {letter}_{part}, only {listed(file)}: save x_{part} and y_{part}"
        )

    return find("x"), find("y")


_NAME = "flwr-datasets"


def is_partitioned(data: Any) -> bool:
    """Is it a ``FederatedDataset`` or a partitioner of Flower Datasets? It is not imported."""
    return callable(getattr(data, "load_partition", None))


def from_partitions(data: Any, reading: Reading | None = None) -> Dataset:
    """The partitions of Flower Datasets, one for each device.

    Args:
        data: a ``FederatedDataset`` with one partitioner, whose other splits are looked through for
            test samples, or a partitioner with its ``dataset``.
        reading: which share of each partition is held out where there is no test split, the column
            of labels, and the scaling.

    Returns:
        The data set; ``training.partition = "natural"`` gives each device its partition.

    Raises:
        ScenarioError: several partitioners, or columns that hold neither pictures nor numbers.
    """
    reading = reading or Reading()
    split, partitioner, test = "train", data, None
    partitioners = getattr(data, "partitioners", None)
    if partitioners is not None:
        if len(partitioners) != 1:
            raise ScenarioError(
                f"the FederatedDataset has {len(partitioners)} partitioners: give it one, for the "
                "split to train on"
            )
        ((split, _),) = partitioners.items()
        first = data.load_partition(0, split)  # the partitioner has its data from then on
        partitioner = partitioners[split]
        test = _test(data, split)
        del first
    shards = [
        Shard(str(k), _arrays_flower(partitioner.load_partition(k), f"partition {k}", reading))
        for k in range(partitioner.num_partitions)
    ]
    return joined(
        _NAME, shards, reading, None if test is None else _arrays_flower(test, "test", reading)
    )


def _test(data: Any, train: str) -> Any:
    for name in ("test", "validation", "valid", "val"):
        if name == train:
            continue
        try:
            return data.load_split(name)
        except (KeyError, ValueError):  # there is none of that name
            continue
    return None


def _arrays_flower(part: Any, where: str, reading: Reading) -> Arrays:
    return columns_of(part, f"{_NAME}: {where}", reading.label)
