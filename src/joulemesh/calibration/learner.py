"""What is trained during a calibration: the scenario's own model, or the user's learner."""

from __future__ import annotations

__all__ = ["Told", "learner_of", "work_of"]

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from joulemesh.calibration.calibration import Work
from joulemesh.deploy.device.learner import OwnLearner, load_learner
from joulemesh.deploy.fleet.task import Task, task_of
from joulemesh.deploy.plans import Learner
from joulemesh.errors import ScenarioError
from joulemesh.models.torch_model import is_torch
from joulemesh.planning.workload import Workload, workload
from joulemesh.scenario import Scenario


@dataclass(frozen=True)
class Told:
    """What a device of a fleet is told about what it trains, without a fleet."""

    scenario: Scenario

    @cached_property
    def work(self) -> Workload:
        """Sizes."""
        return workload(self.scenario)

    @cached_property
    def task(self) -> Task:
        """What devices with data of their own share."""
        return task_of(self.scenario)


def learner_of(scenario: Scenario, device: int, learner: Any, data: Path | None) -> Learner:
    """The learner of one device.

    Args:
        scenario: with model, data and batch.
        device: its number.
        learner: ``FILE.py:NAME``, an object that trains, a PyTorch module to be trained in the
            place of the scenario's model, or None for that.
        data: the device's own samples (``.npz``).

    Raises:
        ScenarioError: the learner or the data cannot be used.
    """
    if not 0 <= device < scenario.devices.count:
        raise ScenarioError(
            f"device {device} is not among the {scenario.devices.count} of the scenario: use 0 to "
            f"{scenario.devices.count - 1}"
        )
    if isinstance(learner, str):
        given = {"device": device, "name": str(device), "seed": scenario.seed, "data": data}
        return load_learner(learner, given)
    if learner is not None and not is_torch(learner):
        return OwnLearner(learner, type(learner).__name__)
    from joulemesh.deploy.device.simulated import simulated_learner

    return simulated_learner(Told(scenario), device, data, model=learner)


def work_of(scenario: Scenario, device: int, learner: Any, data: Path | None) -> Work:
    """What is trained, in words and figures."""
    training = scenario.training
    steps = 1
    if training.local_round == "epoch":
        samples = int(workload(scenario).round_samples[device])
        steps = -(-samples // training.batch_size)
    kind = learner if isinstance(learner, type) else type(learner)
    own = learner if isinstance(learner, str) else kind.__name__
    return Work(
        model=str(training.model) if learner is None else own,
        dataset=str(training.dataset if data is None else data.name),
        batch_size=training.batch_size,
        steps_per_round=steps,
        precision=training.precision if learner is None or is_torch(learner) else "",
    )
