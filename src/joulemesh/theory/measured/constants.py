"""The constants of the bounds for a scenario's own model and data, at its initial parameters."""

from __future__ import annotations

from typing import Any

from joulemesh.planning.workload import workload
from joulemesh.scenario import Scenario
from joulemesh.setup.prepare import partitions, the_dataset, the_jax_model
from joulemesh.theory.measured.estimate import DeviceLosses, estimate_constants
from joulemesh.training.jax.platform import configure

__all__ = ["estimate_bounds"]


def estimate_bounds(scenario: Scenario, *, model: Any = None, data: Any = None) -> dict[str, float]:
    """Measure m, M, σ, G, δ and the initial gap; keys are the fields of `[bounds]`.

    Args:
        scenario: what is asked.
        model: the user's own, as in `joulemesh.run`.
        data: the user's own, as in `joulemesh.run`.
    """
    configure()
    dataset = the_dataset(scenario, data)
    learner = the_jax_model(scenario, model, dataset)
    work = workload(scenario, learner.parameters, dataset)
    held = partitions(scenario, dataset, (scenario.seed,), work.round_samples)[0]
    losses = DeviceLosses(learner, dataset, held)
    return estimate_constants(losses, losses.start(scenario.seed), scenario.training.batch_size)
