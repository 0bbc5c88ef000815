"""The data that a scenario asks for: its samples, their sizes, and who holds them."""

from __future__ import annotations

__all__ = ["device_names", "load_for", "partition_for", "spec_for"]

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.catalog import DataSpec, spec
from joulemesh.data.dataset import Dataset
from joulemesh.data.holders import held_partition, natural_partition
from joulemesh.data.load import load
from joulemesh.data.partition import Partition, partition
from joulemesh.data.reading import COLUMN, NATURAL, reading_of
from joulemesh.errors import ScenarioError
from joulemesh.registries import PARTITIONS
from joulemesh.scenario import Scenario
from joulemesh.tables import read_table

_NAMES = "name"  # column of the device table


def load_for(scenario: Scenario) -> Dataset:
    """Load the scenario's data set.

    >>> load_for(Scenario()).name
    'digits'
    """
    training = scenario.training
    return load(training.dataset, data_dir=training.data_dir, reading=reading_of(scenario))


def spec_for(scenario: Scenario) -> DataSpec:
    """Give the sizes of the scenario's data set, for the planner.

    >>> spec_for(Scenario()).classes
    10
    """
    return spec(scenario.training.dataset, reading_of(scenario))


def partition_for(
    scenario: Scenario,
    dataset: Dataset,
    seed: int,
    sizes: Sequence[int] | NDArray[np.int64] | None = None,
) -> Partition:
    """Deal the training samples out as the scenario says, or as the data themselves do.

    Args:
        scenario: with the devices and ``training.partition``.
        dataset: the samples.
        seed: of the partition.
        sizes: samples of each device, if they are given.

    >>> from joulemesh.data import load
    >>> partition_for(Scenario(), load("digits"), seed=0).devices
    20
    """
    training, devices = scenario.training, scenario.devices.count
    if training.partition == NATURAL:
        found = natural_partition(
            dataset, devices, names=device_names(scenario), seed=seed, world=scenario.seed
        )
        return _of_sizes(found, sizes, training.partition)
    if not training.partition.startswith(COLUMN):
        _check_labelled(dataset, training.partition)
        return partition(
            dataset.strata(),
            devices,
            kind=training.partition,
            seed=seed,
            sizes=sizes,
            **dict(training),
        )
    found = held_partition(dataset, devices, names=device_names(scenario), seed=seed)
    return _of_sizes(found, sizes, training.partition)


def _of_sizes(
    found: Partition, sizes: Sequence[int] | NDArray[np.int64] | None, kind: str
) -> Partition:
    """The partition that the data themselves say, unless other sizes were asked for."""
    if sizes is not None and not np.array_equal(sizes, found.sizes):
        wrong = int((np.asarray(sizes) != found.sizes).argmax())
        raise ScenarioError(
            f"devices.samples gives device {wrong} {sizes[wrong]} samples, and the "
            f"{kind} gives it {found.sizes[wrong]}: leave devices.samples out"
        )
    return found


def _check_labelled(dataset: Dataset, kind: str) -> None:
    if dataset.targets == "tokens" and PARTITIONS[kind].by_label:
        even = [name for name in PARTITIONS.built_in if not PARTITIONS[name].by_label]
        raise ScenarioError(
            f"training.partition = {kind!r} deals samples out by their labels, and the sequences "
            f"of {dataset.name} have none: use {', '.join(even)} or column:NAME"
        )


def device_names(scenario: Scenario) -> tuple[str, ...]:
    """Names of the devices in the device table's column ``name``; empty without it."""
    table = scenario.devices.table
    columns: dict[str, Any] = {} if table is None else read_table(table)
    names = tuple(columns.get(_NAMES, ()))
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise ScenarioError(f"{table} has two devices called {twice!r:.60}: rename one")
    return names
