"""The measured gap under the corrected bound, iteration by iteration, on the logistic model.

D_t = (1/N) Σ_i F_i(w_t) − F_i* is measured exactly: F_i of all of a device's samples, F_i* by
L-BFGS. The bound is Theorem 1 as corrected, with m = l2 and M from the data's covariance, and with
σ, G and δ the largest that were met along this very run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh import models
from joulemesh.errors import ScenarioError
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Scenario
from joulemesh.setup.from_plan import schedule_of
from joulemesh.setup.prepare import partitions, the_dataset, the_jax_model
from joulemesh.theory.bounds import Constants, theorem1_corrected
from joulemesh.theory.measured.estimate import DeviceLosses
from joulemesh.training.driver import TrainedChunk, train
from joulemesh.training.jax.engine import Engine, State
from joulemesh.training.jax.platform import configure
from joulemesh.training.options import Options

__all__ = ["GapStudy", "gap_under_bound"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GapStudy:
    """What was measured.

    Attributes:
        iteration: int64 [E].
        gap: float64 [E]: D_t.
        bound: float64 [E]: the corrected Theorem 1 after as many iterations.
        constants: of the bound.
        learning_rate: η; at most 1/M.
    """

    iteration: NDArray[np.int64]
    gap: FloatArray
    bound: FloatArray
    constants: Constants
    learning_rate: float

    @property
    def holds(self) -> bool:
        """Is every measured gap under its bound?"""
        return bool((self.gap <= self.bound).all())


def gap_under_bound(scenario: Scenario, *, every: int = 5) -> GapStudy:
    """Train the scenario's logistic model and hold its gap against the bound.

    Args:
        scenario: with ``training.model = "logistic"`` and ``training.l2`` above 0; the learning
            rate is lowered to 1/M where it is larger.
        every: iterations between measurements.

    Raises:
        ScenarioError: another model, or no regulariser.
    """
    training = scenario.training
    if training.model != "logistic" or training.l2 <= 0:
        raise ScenarioError(
            'the bound needs a strongly convex model: set training.model = "logistic" and '
            f"training.l2 above 0 (now {training.model}, {training.l2:g})"
        )
    configure()
    dataset = the_dataset(scenario)
    model = the_jax_model(scenario, None, dataset)
    plan = make_plan(scenario, parameters=model.parameters, data=dataset)
    held = partitions(scenario, dataset, (scenario.seed,), plan.work.round_samples)[0]
    samples = [dataset.normalise(dataset.x_train[held.indices(i)]) for i in range(held.devices)]
    steepest = max(models.curvature(x.reshape(len(x), -1), training.l2)[1] for x in samples)
    rate = min(training.learning_rate, 1.0 / steepest)
    options = Options.from_scenario(
        training, learning_rate=rate, precision="float64", chunk_iterations=every
    )
    engine = Engine(model, dataset, [held], schedule_of(plan), options, (scenario.seed,))
    losses = DeviceLosses(model, dataset, held)
    points = [losses.flat(engine.initial(scenario.seed))]
    done = [0]

    def measure(chunk: TrainedChunk[State]) -> None:
        points.append(losses.flat(engine.mean_params(chunk.state)))
        done.append(chunk.completed)

    train(engine, [measure])
    lowest = losses.minima(points[-1])
    gap = np.array([np.mean(losses.value(w) - lowest) for w in points])
    met = [losses.moments(w, training.batch_size) for w in points]
    constants = Constants(
        strong_convexity=training.l2,
        smoothness=steepest,
        gradient_variance=float(max(m.variance.max() for m in met)),
        gradient_bound=float(max(m.second.max() for m in met)),
        divergence=float(np.sqrt(max(m.apart.mean() for m in met))),
        initial_gap=float(gap[0]),
    )
    bound = [theorem1_corrected(plan.rounds[:t], constants, rate) for t in done[1:]]
    return GapStudy(np.array(done), gap, np.array([gap[0], *bound]), constants, rate)
