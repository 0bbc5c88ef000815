"""The scenario's own model on one device, with the draws of the simulator. This loads JAX."""

from __future__ import annotations

__all__ = ["SimulatedLearner", "Told", "own_data", "simulated_learner"]

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.data import Dataset
from joulemesh.data.catalog import DATASETS
from joulemesh.data.npz import read_npz
from joulemesh.deploy.fleet.task import Task
from joulemesh.errors import ScenarioError
from joulemesh.metrics.losses import loss_named, reported
from joulemesh.metrics.metric import Metric, score_metric
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.workload import Workload
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import partitions, the_dataset, the_model
from joulemesh.training.device import DeviceTrainer, held_by
from joulemesh.training.jax.loss import logits_of, scale_of
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.options import Options
from joulemesh.training.software import trained_words

if TYPE_CHECKING:
    from joulemesh.training.torch.device import TorchTrainer

_BATCH = 500  # test samples that are evaluated at once


class Told(Protocol):
    """What a device has to be told about what it trains; a fleet tells it."""

    @property
    def scenario(self) -> Scenario:
        """With model, data and options."""

    @property
    def work(self) -> Workload:
        """The sizes that the plan was made for."""

    @property
    def task(self) -> Task:
        """What devices with data of their own share."""


class SimulatedLearner:
    """A `DeviceTrainer` as a learner: what a row of the simulator does, a device does.

    Args:
        trainer: of the device.
        data: its test samples are evaluated on.
    """

    def __init__(self, trainer: DeviceTrainer, data: Dataset) -> None:
        self.trained_by = trained_words("jax")
        self._trainer, self._x, self._y = trainer, data.x_test, data.y_test
        self._first, self._params = trainer.save(), trainer.begin()
        options, model = trainer.options, trainer.model
        # Batches are functions of seed, iteration, device and step; an accelerator may still sum
        # in another order each time.
        self.repeatable = options.deterministic or jax.default_backend() == "cpu"
        dtype = np.dtype("float64" if options.precision == "float64" else "float32")
        self._scale = scale_of(data, dtype)

        self._metric = metric = score_metric(reported(options).score, model.loss)

        def score(params: Any, x: Any, y: Any, scale: Any, shift: Any) -> tuple[Any, Any]:
            seen = x if data.seen == "int32" else x.astype(scale.dtype) * scale + shift
            logits = logits_of(model, params, seen, jnp.dtype(options.precision))
            return metric.values(logits, y).sum(axis=0), model.loss.values(logits, y).sum()

        self._score = jax.jit(score)

    def prepare(self) -> None:
        """Compile the training."""
        self._trainer.prepare()

    def parameters(self) -> Vector:
        """[P]: all parameters."""
        return self._trainer.vector(self._params)

    def load(self, parameters: Vector) -> None:
        """Take up other parameters."""
        self._params = self._trainer.params_of(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""
        self._params = self._trainer.train(self._params, iteration, rounds)

    def evaluate(self) -> Mapping[str, float]:
        """Accuracy, or another score, and loss on the test samples."""
        total, loss = np.zeros(()), 0.0
        with precision_scope(self._trainer.options.precision):
            for first in range(0, len(self._y), _BATCH):
                part = slice(first, first + _BATCH)
                found = self._score(self._params, self._x[part], self._y[part], *self._scale)
                total, loss = total + np.asarray(found[0], np.float64), loss + float(found[1])
            figure = _finished(self._metric, total / len(self._y))
        return {self._metric.name: figure, "loss": loss / len(self._y)}

    def save(self) -> Mapping[str, NDArray[Any]]:
        """What the optimiser remembers, as named arrays."""
        return self._trainer.save()

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave; a device that was given parameters only begins afresh."""
        self._trainer.load(memory or self._first)


def _finished(metric: Metric, means: NDArray[np.float64]) -> float:
    """A metric's figure, of the averages of its values."""
    if metric.finish is None:
        return float(means if means.ndim == 0 else means[0])
    return float(metric.finish(jnp.asarray(np.atleast_1d(means))))


def simulated_learner(
    fleet: Told, device: int, data: Path | None = None, *, model: Any = None
) -> SimulatedLearner | TorchTrainer:
    """The learner of one device of a fleet.

    Args:
        fleet: with the scenario; or what else tells as much.
        device: its number.
        data: its own samples (``.npz``) in the place of those that the scenario gives it.
        model: the user's own in the place of the scenario's, as in `joulemesh.run`.

    Raises:
        ScenarioError: the data cannot be read, or do not fit the fleet's.
    """
    scenario = fleet.scenario
    training = scenario.training
    options = Options.from_scenario(training)
    seed = scenario.seed
    if data is None:
        found = the_dataset(scenario)
        held = partitions(scenario, found, (seed,), fleet.work.round_samples)[0]
        found = held_by(found, held, device)
    else:
        kind = loss_named(training.loss).targets
        if kind != "classes":
            raise ScenarioError(
                f"training.loss = {training.loss!r} is for {kind}, and data of a device's own are "
                "read for classes: leave --data out, or give a learner of your own (--learner)"
            )
        found = own_data(data, fleet.task)
        if training.dataset in DATASETS:  # a module sees its images in the published set's way
            found = replace(found, name=training.dataset)
        priced = fleet.work.round_samples[device]
        if training.local_round == "epoch" and len(found.y_train) > priced:
            raise ScenarioError(
                f"{data} has {len(found.y_train):,} training samples, and a local round (an epoch) "
                f"was priced for {priced:,.0f}: give devices.samples that figure and plan again, "
                "or leave some out"
            )
    learned = the_model(scenario, model, found)
    if isinstance(learned, TorchModel):
        from joulemesh.training.torch.device import TorchTrainer

        return TorchTrainer(learned, found, options, seed, device)
    return SimulatedLearner(DeviceTrainer(learned, found, options, seed, device), found)


def own_data(path: Path, task: Task) -> Dataset:
    """A device's own samples, scaled and labelled as those of all other devices.

    Raises:
        ScenarioError: the file cannot be read, or does not fit.
    """
    found = read_npz(path)
    for x in (found.x_train, found.x_test):
        try:
            task.check_samples(x)
        except ScenarioError as error:
            raise ScenarioError(f"{path}: {error}") from None
    if task.class_names and not found.class_names:
        raise ScenarioError(
            f"{path} has numbers for labels, and the fleet names its classes "
            f"({', '.join(task.class_names[:5])}, …): save the names as labels"
        )
    place = {name: k for k, name in enumerate(task.class_names)}
    strange = [name for name in found.class_names if place and name not in place]
    if strange or found.classes > task.classes:
        what = f"a class {strange[0]!r:.60}" if strange else f"{found.classes} classes"
        raise ScenarioError(f"{path} has {what}, and the fleet learns {task.classes}: correct it")
    labels = [found.y_train, found.y_test]
    if place:
        order = np.array([place[name] for name in found.class_names], np.int32)
        labels = [order[y] for y in labels]
    mean, std = (np.array(one, np.float32) for one in (task.mean, task.std))
    return replace(
        found,
        y_train=labels[0],
        y_test=labels[1],
        classes=task.classes,
        class_names=task.class_names,
        mean=float(mean[0]) if len(mean) == 1 else mean,
        std=float(std[0]) if len(std) == 1 else std,
    )
