"""The parts of a Flower app that depend on what is trained: its model, its learner, its start."""

from __future__ import annotations

__all__ = ["ModelPart", "model_part"]

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data import Dataset
from joulemesh.data.catalog import DATASETS
from joulemesh.errors import ScenarioError
from joulemesh.files.bounded import read_bounded
from joulemesh.files.limits import SOURCE
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.own_code import in_file_parts
from joulemesh.registries import MODELS
from joulemesh.scenario import Scenario
from joulemesh.templates import flower_models, flower_template
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.jax.state import initial_params
from joulemesh.training.tensors import named_leaves

_JAX = ("jax>=0.6", "optax>=0.2.4")


@dataclass(frozen=True, eq=False)
class ModelPart:
    """What an app has of a model.

    Attributes:
        files: texts of modules, by name.
        initial: parameters at the start, by name.
        needs: packages.
        channels_first: whether images have their channels first, as modules of PyTorch want.
    """

    files: Mapping[str, str]
    initial: Mapping[str, NDArray[Any]]
    needs: tuple[str, ...]
    channels_first: bool = False

    def seen(self, data: Dataset) -> Dataset:
        """The data set with its axes as the model sees them."""
        if not self.channels_first:
            return data

        def first(x: NDArray[Any]) -> NDArray[Any]:
            return np.ascontiguousarray(np.moveaxis(x, -1, -3))

        scaling = [
            one if np.ndim(one) == 0 else first(np.broadcast_to(one, (1, 1, data.shape[-1])))
            for one in (data.mean, data.std)
        ]
        return replace(
            data,
            x_train=first(data.x_train),
            x_test=first(data.x_test),
            mean=scaling[0],
            std=scaling[1],
        )


def model_part(scenario: Scenario, model: Model | TorchModel, data: Dataset) -> ModelPart:
    """What an app has of a scenario's model.

    Args:
        scenario: names the model, and the seed of its initial parameters.
        model: made of it.
        data: what it learns from.

    Raises:
        ScenarioError: the model cannot be written into an app.
    """
    name = scenario.training.model
    own = in_file_parts(name)
    if isinstance(model, TorchModel):
        return _torch(scenario, model, data)
    if own is None and name not in flower_models():
        known = ", ".join(one for one in MODELS.built_in if one in flower_models())
        raise ScenarioError(
            f"training.model = {name!r} was registered by a file of your own, which an app cannot "
            f"name: write training.model = 'FILE.py:NAME', or use one of {known}"
        )
    with precision_scope(scenario.training.precision):
        dtype = np.dtype("float64" if scenario.training.precision == "float64" else "float32")
        initial = named_leaves(initial_params(model, scenario.seed, dtype))
    learner = {"learner.py": flower_template("learner_jax.py")}
    if own is None:
        return ModelPart(
            {**learner, "model.py": flower_template(f"model_{name}.py")}, initial, _JAX
        )
    text = flower_template("model_own_jax.py").format(shape=repr(data.shape), name=own[1])
    files = {**learner, "model.py": text, "own_model.py": _source(own[0])}
    return ModelPart(files, initial, (*_JAX, "flax>=0.10"))


def _torch(scenario: Scenario, model: TorchModel, data: Dataset) -> ModelPart:
    training = scenario.training
    own = in_file_parts(training.model)
    assert own is not None  # a module is named by its file
    if training.optimizer != "sgd":
        raise ScenarioError(
            f"training.optimizer = {training.optimizer!r} of a PyTorch module is not exported: use "
            "'sgd', or a model of JAX"
        )
    wide = np.float64 if training.precision == "float64" else np.float32
    initial = {n: np.asarray(p).astype(wide) for n, p in model.initial(scenario.seed).items()}
    files = {
        "learner.py": flower_template("learner_torch.py"),
        "model.py": flower_template("model_own_torch.py").format(name=own[1]),
        "own_model.py": _source(own[0]),
    }
    first = data.name in DATASETS and len(data.shape) == 3
    return ModelPart(files, initial, ("torch>=2.2",), channels_first=first)


def _source(path: str) -> str:
    return read_bounded(Path(path), SOURCE.now).decode("utf-8")
