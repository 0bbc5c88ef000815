"""What is learned: the scenario's data, model and partitions, or the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh import models
from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import is_in_file
from joulemesh.data import Dataset, Partition, from_arrays, load_for, partition_for
from joulemesh.data.dataset import check_loss
from joulemesh.data.federated import from_partitions, is_partitioned
from joulemesh.data.reading import check_only_tables, reading_of
from joulemesh.data.table import Frame, from_table, is_frame
from joulemesh.metrics import AUTO, CROSS_ENTROPY, loss_named, name_of
from joulemesh.models.core import of_jax, with_loss
from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.ground import explicit_sizes
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario

_ARRAYS = ("x_train", "y_train", "x_test", "y_test")
OWN_DATA = "./inputs/data.npz"  # what data in memory are called, and kept as in a run's folder


def the_dataset(scenario: Scenario, data: Any = None) -> Dataset:
    """The scenario's data set, or the user's own in its place."""
    if data is None:
        return load_for(scenario)
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | Path):
        return load_for(scenario.override({"training.dataset": str(data)}))
    reading = reading_of(scenario)
    if is_partitioned(data):
        return from_partitions(data, reading)
    if is_frame(data):
        return from_table(Frame(data), reading)
    held_by = {}
    if isinstance(data, Mapping):
        _check_named(data, reading.holder)
        if reading.holder is not None:
            held_by[reading.holder] = data[f"{reading.holder}_train"]
        data = tuple(data[name] for name in _ARRAYS)
    if not isinstance(data, tuple | list) or len(data) != 4:
        raise ScenarioError(
            "data must be a Dataset, the path of a file, a pandas data frame, or x_train, y_train, "
            "x_test, y_test"
        )
    check_only_tables("data", reading)
    wanted: Any = {"normalize": reading.normalize, "targets": reading.targets}
    return from_arrays(*data, held_by=held_by, **wanted)


def said_loss(scenario: Scenario, loss: Any) -> Scenario:
    """The scenario that says what is minimised, where the user gives a loss in Python."""
    if loss is None:
        return scenario
    name = name_of(loss)
    changes = {"training.loss": name}
    if scenario.training.score == AUTO:  # so that it is known where the loss is not
        changes["training.score"] = loss_named(name).score
    return scenario.override(changes)


def with_data(scenario: Scenario, data: Any) -> Scenario:
    """The scenario that says what is learned from, where the user gives data in its place.

    Data in memory are called by the name of the file that a run's folder keeps them in; how they
    were read is done with.
    """
    if data is None:
        return scenario
    if isinstance(data, str | Path):
        return scenario.override({"training.dataset": str(data)})
    done = {"label": None, "test_dataset": None, "ignore_columns": (), "normalize": False}
    changes = {f"training.{field}": value for field, value in done.items()}
    return scenario.override({"training.dataset": OWN_DATA, **changes})


def _check_named(data: Mapping[str, Any], holder: str | None) -> None:
    wanted = _ARRAYS if holder is None else (*_ARRAYS, f"{holder}_train")
    missing = [name for name in wanted if name not in data]
    if missing:
        raise ScenarioError(
            f"data lacks {', '.join(missing)} (it has {', '.join(map(str, data))}): add them"
        )


def the_model(scenario: Scenario, model: Any, dataset: Dataset) -> models.Model | TorchModel:
    """The scenario's model, or the user's own in its place, checked against the data."""
    training = scenario.training
    minimised = loss_named(training.loss)
    check_loss(dataset.name, dataset.targets, training.loss, minimised.targets)
    shapes: dict[str, Any] = {"outputs": dataset.outputs, "seen": dataset.seen}
    if model is not None:
        made = models.coerce(model, dataset.shape, dataset.classes, **shapes)
        named = training.loss != CROSS_ENTROPY.name  # otherwise a model may bring its own
        return with_loss(made, minimised) if named else made
    given = (training.model, dataset.shape, dataset.classes)
    if is_in_file(training.model):
        return models.from_file(*given, training.l2, loss=training.loss, **shapes)
    return models.build(*given, **dict(training))


def the_jax_model(scenario: Scenario, model: Any, dataset: Dataset) -> models.Model:
    """`the_model`, which must be one of JAX."""
    return of_jax(the_model(scenario, model, dataset))


def partitions(
    scenario: Scenario,
    dataset: Dataset,
    seeds: tuple[int, ...],
    round_samples: NDArray[np.float64],
) -> tuple[Partition, ...]:
    """One partition per seed; where a round is an epoch, of the sizes that the plan has priced."""
    sizes = explicit_sizes(scenario)
    if sizes is None and scenario.training.local_round == "epoch":
        sizes = round_samples.astype(np.int64)
    return tuple(partition_for(scenario, dataset, seed, sizes) for seed in seeds)


_LOOKED_AT = 16  # samples
_NEAR = 1e-3  # of a sum of probabilities in 16 bits


def with_outputs_noted(scenario: Scenario, model: Any, given: Any, dataset: Dataset) -> Dataset:
    """The data set, with a note if the model's outputs are probabilities where logits are meant."""
    own = given is not None or scenario.training.model not in MODELS.built_in
    if not own or scenario.training.loss != CROSS_ENTROPY.name or dataset.classes < 2:
        return dataset
    found = _outputs(model, dataset)
    if not probabilities(found):
        return dataset
    note = (
        f"the outputs of {model.name} are probabilities (between 0 and 1, of sum 1 for each of "
        f"{len(found)} test samples), and the cross-entropy takes logits: it would apply softmax "
        "twice, and training would be slow; remove the last Softmax of the model"
    )
    return replace(dataset, notes=(*dataset.notes, note))


def probabilities(outputs: NDArray[Any]) -> bool:
    """Are outputs [..., classes] all within [0, 1], and of sum 1?"""
    within = bool((outputs >= 0).all() and (outputs <= 1).all())
    return within and bool((np.abs(outputs.sum(axis=-1) - 1) < _NEAR).all())


def _outputs(model: Any, dataset: Dataset) -> NDArray[np.float64]:
    x = np.asarray(dataset.x_test[:_LOOKED_AT])
    if dataset.seen != "int32":
        from joulemesh.training.batches import scale_of

        scale, shift = scale_of(dataset, "float32")
        x = (x.astype(np.float32) * scale + shift).astype(np.float32)
    if isinstance(model, TorchModel):
        import torch

        was = model.module.training
        with torch.no_grad():
            seen = torch.as_tensor(x.astype(np.int64) if dataset.seen == "int32" else x)
            made = model.module.eval()(seen).double().numpy()
        model.module.train(was)
        return np.asarray(made)
    import jax

    params = model.init(jax.random.key(0))
    return np.asarray(model.apply(params, x), np.float64)
