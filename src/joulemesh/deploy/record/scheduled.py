"""The simulated run with the views that a deployment had: what the engine plays."""

from __future__ import annotations

__all__ = ["schedule_of_course"]

import numpy as np

from joulemesh.deploy.record.course import Course
from joulemesh.deploy.record.replay import Plans
from joulemesh.errors import ScenarioError
from joulemesh.planning.gifts import origins
from joulemesh.training.schedule import Schedule


def schedule_of_course(course: Course, plans: Plans, devices: int) -> Schedule:
    """Rounds, presence and gifts of a deployment whose exchanges are exact averages.

    A member that was lost in an iteration before it could commit counts as one that took part: the
    others have what it sent, and it begins again with a gift.

    Args:
        course: what happened.
        plans: makes the plans of its views.
        devices: number of devices of the fleet.

    Raises:
        ScenarioError: an exchange is no exact average; `replay` carries its messages one by one.

    >>> import joulemesh
    >>> from joulemesh.deploy.device.continuation import first_view
    >>> from joulemesh.deploy.record.replay import plans_of
    >>> from joulemesh.planning.ground import Ground
    >>> ground = Ground.of(joulemesh.Scenario.preset("adaptive"))
    >>> schedule_of_course(Course((first_view(20),)), plans_of(ground), 20).iterations
    100
    """
    rounds, active, exchanged, gifts = [], [], [], []
    iteration = 1
    while True:
        view = course.view(iteration)
        plan = plans(view, view.members[0])
        if iteration > plan.last:
            break
        there, each = np.zeros(devices, np.bool_), np.zeros(devices, np.int64)
        for device in plan.active(iteration):
            planned = plans(view, device).rounds(iteration)
            there[device] = True
            each[device] = course.rounds.get((iteration, device), planned)
        route = plan.route(iteration)
        if route is not None and not plan.exact(iteration):
            raise ScenarioError(
                f"the exchange of iteration {iteration} is no exact average; replay it instead"
            )
        rounds.append(each)
        active.append(there)
        exchanged.append(route is not None)
        given = origins(course.gifts(iteration))
        gifts += [(iteration - 1, newcomer, giver) for newcomer, giver in sorted(given.items())]
        iteration += 1
    return Schedule(np.stack(rounds), np.stack(active), np.array(exchanged), gifts=tuple(gifts))
