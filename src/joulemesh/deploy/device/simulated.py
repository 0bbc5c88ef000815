"""The scenario's own model on one device, with the draws of the simulator. This loads JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import Vector
from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset
from joulemesh.data.arrays import open_npz
from joulemesh.data.own import own_data as read_own
from joulemesh.data.reading import DATASETS, is_table, reading_of
from joulemesh.data.table import open_table
from joulemesh.deploy.fleet.fleet import Task
from joulemesh.metrics import Metric, loss_named, reported, score_metric
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.ground import Workload
from joulemesh.scenario import Scenario
from joulemesh.training.batches import scale_of
from joulemesh.training.jax.device import DeviceTrainer, held_by
from joulemesh.training.jax.local_sgd import logits_of
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.prepare import partitions, the_dataset, the_model
from joulemesh.training.schedule import Options
from joulemesh.training.software import trained_words
from joulemesh.training.tensors import named_leaves

if TYPE_CHECKING:
    from joulemesh.training.torch.device import TorchTrainer

_BATCH = 500  # test samples that are evaluated at once


class Told(Protocol):
    """What a device has to be told about what it trains; a fleet tells it."""

    @property
    def scenario(self) -> Scenario: ...

    @property
    def work(self) -> Workload: ...

    @property
    def task(self) -> Task:
        """What devices with data of their own share."""


class SimulatedLearner:
    """A `DeviceTrainer` as a learner: what a row of the simulator does, a device does."""

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
        self._trainer.prepare()

    def parameters(self) -> Vector:
        return self._trainer.vector(self._params)

    def load(self, parameters: Vector) -> None:
        self._params = self._trainer.params_of(parameters)

    def named(self, parameters: Vector) -> Mapping[str, NDArray[Any]]:
        """A vector of parameters as the arrays of the model, by their path in its tree."""
        return named_leaves(self._trainer.params_of(parameters))

    def train(self, iteration: int, rounds: int) -> None:
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
    fleet: Told, device: int, data: Path | None = None, *, model: Any = None, name: str = ""
) -> SimulatedLearner | TorchTrainer:
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
        found = own_data(data, scenario, fleet.task, name)
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


def own_data(path: Path, scenario: Scenario, task: Task, name: str = "") -> Dataset:
    """A device's own samples, scaled and labelled as those of all other devices."""
    reading = replace(reading_of(scenario), test=None, normalize=False)
    if reading.holder is not None and not _tells_holders(path, reading.holder):
        reading = replace(reading, holder=None)
    found = _rows_of(read_own(str(path), reading), name)
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
    place = {label: k for k, label in enumerate(task.class_names)}
    strange = [label for label in found.class_names if place and label not in place]
    if strange or found.classes > task.classes:
        what = f"a class {strange[0]!r:.60}" if strange else f"{found.classes} classes"
        raise ScenarioError(f"{path} has {what}, and the fleet learns {task.classes}: correct it")
    labels = [found.y_train, found.y_test]
    if place:
        order = np.array([place[label] for label in found.class_names], np.int32)
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


def _tells_holders(path: Path, holder: str) -> bool:
    """Does a file say who holds each of its samples?"""
    if is_table(str(path)):
        return holder in open_table(str(path)).columns
    if path.suffix != ".npz" or not path.is_file():
        return True  # whoever reads it says what is wrong
    try:
        with open_npz(path) as file:
            return f"{holder}_train" in file
    except ScenarioError:  # damaged
        return True


def _rows_of(found: Dataset, name: str) -> Dataset:
    """The training samples of one holder, where the data say who holds them."""
    holders = found.holders
    if holders is None:
        return found
    if name not in holders.names:
        known = ", ".join(holders.names[:5])
        raise ScenarioError(
            f"{found.name} has no row of {name} in its column {holders.column!r}, only of {known}: "
            "give this device's own samples"
        )
    mine = holders.of == holders.names.index(name)
    return replace(found, x_train=found.x_train[mine], y_train=found.y_train[mine], holders=None)
