"""What learning asks of the devices: the bits of the model, the samples of one round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset, load_for, partition_for, spec_for
from joulemesh.data.catalog import DATASETS, DataSpec
from joulemesh.errors import ScenarioError
from joulemesh.models.kinds import multiply_adds, parameter_count
from joulemesh.scenario import Scenario, Training
from joulemesh.world.limits import require_room
from joulemesh.world.quantities import resolve

__all__ = ["TRAINING_OPERATIONS", "Workload", "explicit_sizes", "workload"]

TRAINING_OPERATIONS = 6.0
"""Floating-point operations of training for each multiply-add of the forward pass: 2 in it, and
twice as many in the backward pass."""


@dataclass(frozen=True, eq=False)
class Workload:
    """Sizes that the planner needs, without any of training's libraries.

    Attributes:
        parameters: length k of the parameter vector.
        model_bits: size s of what is sent.
        round_samples: float64 [N]: samples that one round processes on each device.
        operations: floating-point operations to train on one sample once, or None where only the
            number of parameters is known: then at least 6 for each of them.
    """

    parameters: int
    model_bits: float
    round_samples: NDArray[np.float64]
    operations: float | None = None


def explicit_sizes(scenario: Scenario) -> NDArray[np.int64] | None:
    """D_i as the scenario gives them, or None when the partition decides."""
    if scenario.devices.samples == "partition":
        return None
    samples = resolve(scenario, "samples", scenario.devices.samples)
    return np.maximum(np.rint(samples), 1).astype(np.int64)


def workload(
    scenario: Scenario, parameters: int | None = None, data: Dataset | None = None
) -> Workload:
    """The sizes of a scenario, or of the user's own model and data in their place.

    >>> work = workload(Scenario())
    >>> work.parameters, work.model_bits, float(work.round_samples[0])
    (4810, 153920.0, 32.0)
    """
    require_room(scenario)
    training = scenario.training
    sizes: Dataset | DataSpec | None = data
    if parameters is None:
        sizes = spec_for(scenario)
        model = (training.model, sizes.shape, sizes.classes)
        parameters = parameter_count(*model, outputs=sizes.outputs, **dict(training))
    elif data is None and training.dataset in DATASETS:
        sizes = spec_for(scenario)
    return Workload(
        parameters=parameters,
        model_bits=float(parameters * scenario.network.bits_per_parameter),
        round_samples=_round_samples(scenario, data),
        operations=None if sizes is None else _operations(training, sizes, parameters),
    )


def _operations(training: Training, sizes: Dataset | DataSpec, parameters: int) -> float | None:
    """Operations to train on one sample, if the model is the scenario's own, as its size tells."""
    model = (training.model, sizes.shape, sizes.classes)
    try:
        products = multiply_adds(*model, **dict(training))
        if products is None or parameter_count(*model, **dict(training)) != parameters:
            return None
    except ScenarioError:  # the scenario's model need not fit data of the user's own
        return None
    return TRAINING_OPERATIONS * products


def _round_samples(scenario: Scenario, data: Dataset | None) -> NDArray[np.float64]:
    training, count = scenario.training, scenario.devices.count
    if training.local_round == "step":
        return np.broadcast_to(np.float64(training.batch_size), count)
    sizes = explicit_sizes(scenario)
    if sizes is None:
        sizes = partition_for(scenario, data or load_for(scenario), scenario.seed).sizes
    return sizes.astype(np.float64)
