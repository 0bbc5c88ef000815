"""The plans of views, made again from what the journals say of them: what devices were to do."""

from __future__ import annotations

__all__ = ["planned_again"]

from collections.abc import Sequence

from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.device.continuation import Replanner
from joulemesh.deploy.record.chronicle import Seen
from joulemesh.deploy.record.costs import Costs, continued, simulated
from joulemesh.deploy.view import FINISHED, UNHELD
from joulemesh.planning.plan import Plan

_UNPLANNED = (FINISHED, UNHELD)  # digests of views that have no plan


def planned_again(
    plan: Plan, before: Costs, views: Sequence[Seen], reserve: float
) -> tuple[Costs, list[str]]:
    """The costs of what was to be done, with the plan of every view made again.

    Args:
        plan: of the fleet.
        before: its costs.
        views: those that were installed.
        reserve: share of each battery that their plans leave alone; see `Settings`.

    Returns:
        The costs, and what a reader should know of them, a line each.
    """
    made, notes = [], []
    replanner = Replanner(plan.ground, 0, reserve)
    for view in (seen.view for seen in views):
        if view.digest in _UNPLANNED or view.start > plan.iterations:
            continue
        try:
            rest = replanner.plan(view)
        except JoulemeshError as refusal:
            notes.append(f"View {view.number} could not be planned again here: {refusal}")
            continue
        if rest.view.digest != view.digest:
            notes.append(
                f"View {view.number} gives another plan here ({rest.view.digest[:12]}) than on the "
                f"devices ({view.digest[:12]}): its simulated figures are those of this machine."
            )
        made.append((view, continued(rest.rest, plan.iterations)))
    return simulated(before, made), notes
