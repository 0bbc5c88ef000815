"""What trains a model: the engine for models of JAX, the torch learner for PyTorch's."""

from __future__ import annotations

__all__ = ["AnyLearner", "configured", "learner_of", "one_by_one"]

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from joulemesh.base.optional import explained, in_file, is_in_file
from joulemesh.data import Dataset, Partition
from joulemesh.models.core import Model
from joulemesh.models.torch_model import TorchModel, is_torch
from joulemesh.scenario import Scenario
from joulemesh.training.exchange import Exchange
from joulemesh.training.options import Options
from joulemesh.training.schedule import Schedule

if TYPE_CHECKING:
    from joulemesh.training.jax.engine import Engine
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
    """Make what trains a model; see `training.jax.engine.Engine` for the arguments."""
    if not isinstance(model, TorchModel):
        from joulemesh.training.jax.engine import Engine

        return Engine(
            model, dataset, partitions, schedule, options, seeds, own_exchange=own_exchange
        )
    from joulemesh.training.torch.learner import TorchLearner

    return TorchLearner(
        model, dataset, partitions, schedule, options, seeds, own_exchange=own_exchange
    )


def configured(scenario: Scenario, model: Any, cache_dir: Path | None = None) -> None:
    """Prepare JAX before anything is computed; not where a PyTorch module is to be trained."""
    named = scenario.training.model
    if model is None and is_in_file(named):
        model = in_file(named, "training.model")
    if model is None or not is_torch(model):
        try:
            from joulemesh.training.jax.platform import configure
        except ModuleNotFoundError as error:  # the light installation does not train
            raise explained(error) from None
        configure(cache_dir=cache_dir)


def one_by_one(model: Model | TorchModel) -> bool:
    """Whether devices are trained one after another here (CPU), not all at once (accelerator)."""
    if isinstance(model, TorchModel):
        import torch

        return not torch.cuda.is_available()
    from joulemesh.training.jax.platform import loops_over_rows

    return loops_over_rows()
