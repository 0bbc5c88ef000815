"""The constants of the bounds for a scenario's own model and data, at its initial parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from joulemesh.models.torch_model import TorchModel
from joulemesh.planning.workload import workload
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import partitions, the_dataset, the_model
from joulemesh.theory.measured.estimate import DeviceLosses, estimate_constants
from joulemesh.training.jax.platform import configure

if TYPE_CHECKING:
    from joulemesh.theory.measured.torch_losses import TorchLosses

__all__ = ["estimate"]


def estimate(scenario: Scenario, *, model: Any = None, data: Any = None) -> dict[str, float]:
    """Measure m, M, σ, G, δ and the initial gap; keys are the fields of `[bounds]`.

    Args:
        scenario: what is asked.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.

    Returns:
        The constants by name.

    >>> from joulemesh.scenario import Scenario
    >>> small = {"training.model": "logistic", "training.l2": 0.1, "devices.count": 2}
    >>> round(estimate(Scenario().override(small))["strong_convexity"], 3)
    0.1
    """
    configure()
    dataset = the_dataset(scenario, data)
    learned = the_model(scenario, model, dataset)
    work = workload(scenario, learned.parameters, dataset)
    held = partitions(scenario, dataset, (scenario.seed,), work.round_samples)[0]
    losses: DeviceLosses | TorchLosses
    if isinstance(learned, TorchModel):
        from joulemesh.theory.measured.torch_losses import TorchLosses

        losses = TorchLosses(learned, dataset, held)
    else:
        losses = DeviceLosses(learned, dataset, held)
    return estimate_constants(losses, losses.start(scenario.seed), scenario.training.batch_size)
