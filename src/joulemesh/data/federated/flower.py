"""Flower Datasets' partitions as a data set whose natural partition they are."""

from __future__ import annotations

__all__ = ["from_partitions", "is_partitioned"]

from typing import Any

from joulemesh.data.dataset import Dataset
from joulemesh.data.federated.shard import Arrays, Shard, joined
from joulemesh.data.hub import columns_of
from joulemesh.data.reading import Reading
from joulemesh.errors import ScenarioError

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
        Shard(str(k), _arrays(partitioner.load_partition(k), f"partition {k}", reading))
        for k in range(partitioner.num_partitions)
    ]
    return joined(_NAME, shards, reading, None if test is None else _arrays(test, "test", reading))


def _test(data: Any, train: str) -> Any:
    for name in ("test", "validation", "valid", "val"):
        if name == train:
            continue
        try:
            return data.load_split(name)
        except (KeyError, ValueError):  # there is none of that name
            continue
    return None


def _arrays(part: Any, where: str, reading: Reading) -> Arrays:
    return columns_of(part, f"{_NAME}: {where}", reading.label)
