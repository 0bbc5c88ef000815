"""What learning asks of the devices: the bits of the model, the samples of one round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.catalog import spec
from joulemesh.models.sizes import parameter_count
from joulemesh.scenario import Scenario
from joulemesh.world.devices import resolve
from joulemesh.world.limits import require_room

__all__ = ["Workload", "explicit_sizes", "workload"]


@dataclass(frozen=True)
class Workload:
    """Sizes that the planner needs, without any of training's libraries.

    Attributes:
        parameters: length k of the parameter vector.
        model_bits: size s of what is sent.
        round_samples: float64 [N]: samples that one round processes on each device.
    """

    parameters: int
    model_bits: float
    round_samples: NDArray[np.float64]


def explicit_sizes(scenario: Scenario) -> NDArray[np.int64] | None:
    """D_i as the scenario gives them, or None when the partition decides."""
    if scenario.devices.samples == "partition":
        return None
    samples = resolve(scenario, "samples", scenario.devices.samples)
    return np.maximum(np.rint(samples), 1).astype(np.int64)


def workload(
    scenario: Scenario, parameters: int | None = None, labels: NDArray[np.int32] | None = None
) -> Workload:
    """The sizes of a scenario, or of the user's own model and labels in their place.

    >>> work = workload(Scenario())
    >>> work.parameters, work.model_bits, float(work.round_samples[0])
    (4810, 153920.0, 32.0)
    """
    require_room(scenario)
    training = scenario.training
    if parameters is None:
        data = spec(training.dataset)
        parameters = parameter_count(training.model, data.shape, data.classes, training.hidden)
    return Workload(
        parameters=parameters,
        model_bits=float(parameters * scenario.network.bits_per_parameter),
        round_samples=_round_samples(scenario, labels),
    )


def _round_samples(scenario: Scenario, labels: NDArray[np.int32] | None) -> NDArray[np.float64]:
    training, count = scenario.training, scenario.devices.count
    if training.local_round == "step":
        return np.broadcast_to(np.float64(training.batch_size), count)
    sizes = explicit_sizes(scenario)
    if sizes is None:
        from joulemesh.data.load import load
        from joulemesh.data.partition import partition

        if labels is None:
            labels = load(training.dataset, data_dir=training.data_dir).y_train
        sizes = partition(
            labels,
            count,
            kind=training.partition,
            alpha=training.alpha,
            shards_per_device=training.shards_per_device,
            seed=scenario.seed,
        ).sizes
    return sizes.astype(np.float64)
