"""What trains a model: the engine for models of JAX, the torch learner for PyTorch's."""

from __future__ import annotations

__all__ = ["AnyLearner", "learner_of"]

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from joulemesh.data import Dataset, Partition
from joulemesh.errors import ScenarioError
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.exchange import Exchange
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

if TYPE_CHECKING:
    from joulemesh.training.torch.learner import TorchLearner

AnyLearner: TypeAlias = "Engine | TorchLearner"


def learner_of(
    model: Model | TorchModel,
    dataset: Dataset,
    partitions: Sequence[Partition],
    schedule: Schedule,
    options: Options,
    seeds: Sequence[int],
    *,
    own_exchange: Exchange | None = None,
) -> AnyLearner:
    """Make what trains a model; see `training.jax.engine.Engine` for the arguments.

    Raises:
        ScenarioError: a method's own exchange is to be carried out on a PyTorch module.
    """
    if not isinstance(model, TorchModel):
        return Engine(
            model, dataset, partitions, schedule, options, seeds, own_exchange=own_exchange
        )
    if own_exchange is not None:
        raise ScenarioError(
            f"this method has an exchange of its own, which is written for JAX models, and "
            f"{model.name} is a PyTorch module: leave the method out, or give a JAX or Flax model"
        )
    from joulemesh.training.torch.learner import TorchLearner

    return TorchLearner(model, dataset, partitions, schedule, options, seeds)
