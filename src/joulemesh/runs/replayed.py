"""The accuracy of a deployment that is played again, with its own views, absences and gifts."""

from __future__ import annotations

__all__ = ["replayed_curve"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.record.chronicle import accuracies
from joulemesh.deploy.record.course import course_of_histories
from joulemesh.deploy.record.history import History
from joulemesh.deploy.record.replay import plans_of, replay
from joulemesh.errors import ScenarioError
from joulemesh.views.deployment.charts import Curve
from joulemesh.views.deployment.fragments import name_list

if TYPE_CHECKING:
    from joulemesh.deploy.plans import Learner


def replayed_curve(fleet: Fleet, histories: Sequence[History]) -> Curve:
    """Train all devices again in this process, as their journals say that they did.

    Args:
        fleet: with the scenario; devices are given the samples that it gives them.
        histories: of all devices.

    Returns:
        The mean accuracy of the members, in the iterations in which devices measured theirs.

    Raises:
        ScenarioError: a journal is missing, or nothing was measured.
    """
    silent = [one.name for one in histories if not len(one.iterations)]
    if silent:
        raise ScenarioError(
            f"without the journal of {name_list(silent)} nobody knows what happened; leave "
            "--replay out, or copy it here"
        )
    wanted = set(accuracies(histories)[0].tolist())
    if not wanted:
        raise ScenarioError("the devices have measured no accuracy yet; leave --replay out")
    from joulemesh.deploy.device.simulated import simulated_learner

    learners = [simulated_learner(fleet, device) for device in range(len(fleet.names))]
    course = course_of_histories(histories, len(fleet.names))
    found: dict[int, float] = {}
    for played in replay(course, plans_of(fleet.ground()), learners):
        if played.iteration > max(wanted):
            break
        if played.iteration in wanted:
            members = list(course.view(played.iteration).members)
            found[played.iteration] = _accuracy(learners[0], played.vectors[members])
    made = np.array(sorted(found), np.int64)
    curve = np.array([[found[t] for t in made.tolist()]])
    return Curve("played again with the same views", made, curve)


def _accuracy(learner: Learner, vectors: NDArray[np.floating]) -> float:
    """Mean over devices; those with the same parameters are evaluated once."""
    each, counts = np.unique(vectors, axis=0, return_counts=True)
    scores = []
    for vector in each:
        learner.load(vector)
        scores.append(learner.evaluate()["accuracy"])
    return float(np.average(scores, weights=counts))
