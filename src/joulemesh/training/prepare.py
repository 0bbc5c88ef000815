"""What is learned: the scenario's data, model and partitions, or the user's own."""

from __future__ import annotations

__all__ = ["partitions", "the_dataset", "the_model"]

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh import models
from joulemesh.data import Dataset, Partition, from_arrays, load, partition
from joulemesh.errors import ScenarioError
from joulemesh.planning.workload import explicit_sizes
from joulemesh.scenario import Scenario


def the_dataset(scenario: Scenario, data: Any = None) -> Dataset:
    """The scenario's data set, or the user's own in its place."""
    training = scenario.training
    if data is None:
        return load(training.dataset, data_dir=training.data_dir)
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return load(str(data))
    if isinstance(data, Mapping):
        data = tuple(data[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    if not isinstance(data, tuple | list) or len(data) != 4:
        raise ScenarioError(
            "data must be a Dataset, the path of an .npz file, or x_train, y_train, x_test, y_test"
        )
    return from_arrays(*data)


def the_model(scenario: Scenario, model: Any, dataset: Dataset) -> models.Model:
    """The scenario's model, or the user's own in its place, checked against the data."""
    training = scenario.training
    if model is not None:
        return models.coerce(model, dataset.shape, dataset.classes)
    return models.build(
        training.model, dataset.shape, dataset.classes, training.hidden, training.l2
    )


def partitions(
    scenario: Scenario,
    dataset: Dataset,
    seeds: tuple[int, ...],
    round_samples: NDArray[np.float64],
) -> tuple[Partition, ...]:
    """One partition per seed; where a round is an epoch, of the sizes that the plan has priced."""
    training = scenario.training
    sizes = explicit_sizes(scenario)
    if sizes is None and training.local_round == "epoch":
        sizes = round_samples.astype(np.int64)
    return tuple(
        partition(
            dataset.y_train,
            scenario.devices.count,
            kind=training.partition,
            alpha=training.alpha,
            shards_per_device=training.shards_per_device,
            seed=seed,
            sizes=sizes,
        )
        for seed in seeds
    )
