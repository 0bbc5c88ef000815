"""The plans of the views that a device works by."""

from __future__ import annotations

__all__ = ["Planbook"]

import math
from dataclasses import replace

from joulemesh.deploy.effects import Plan, Planned
from joulemesh.deploy.node.context import NodeContext
from joulemesh.deploy.plans import ViewPlan
from joulemesh.deploy.view import FINISHED, UNHELD, View, governing

_PATTERN = 1000  # iterations within which everything has come once


class Planbook:
    """Asks for the plan of each view once, and checks that it is the one that was agreed on."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._plans: dict[int, ViewPlan] = {}
        self._asked: set[int] = set()
        self._longest_s: dict[int, float] = {}
        self._checking: set[View] = set()
        self.checked: dict[View, ViewPlan | None] = {}  # of views that are proposed, undigested

    def get(self, number: int) -> ViewPlan | None:
        """The plan of a view, if it is there."""
        return self._plans.get(number)

    def of(self, iteration: int) -> ViewPlan | None:
        """The plan that an iteration follows; it is asked for if it is not there."""
        view = governing(self._context.state.views, iteration)
        plan = self._plans.get(view.number)
        checked = self.checked.get(replace(view, digest=""))
        if plan is None and checked is not None and checked.view == view:
            plan = self._plans[view.number] = checked
        ends = view.digest in (FINISHED, UNHELD)
        if plan is None and not ends and view.number not in self._asked:
            self._asked.add(view.number)
            self._context.emit(Plan(view))
        return plan

    def take(self, event: Planned) -> bool:
        """The plan of a view that is installed; False if the node cannot go on by it."""
        number, agreed = event.view.number, event.view.digest
        self._asked.discard(number)
        if event.plan is None:
            self._context.refuse_to_go_on(
                f"view {number} has no plan here, though others have one: {event.refusal}"
            )
            return False
        own = event.plan.view.digest
        if own != agreed:
            self._context.note("digest", view=number, own=own, agreed=agreed)
            self._context.refuse_to_go_on(
                f"the plan of view {number} has digest {own[:12]} here and {agreed[:12]} on the "
                "others; give all devices the same version of Joulemesh and the same fleet folder"
            )
            return False
        self._plans[number] = event.plan
        return True

    def agrees(self, view: View) -> bool | None:
        """Does this device make the same plan of a proposed view? None: it is being made."""
        undigested = replace(view, digest="", proof=None)
        if view.digest in (FINISHED, UNHELD):
            return True
        if undigested in self.checked:
            plan = self.checked[undigested]
            return plan is not None and view.digest == plan.view.digest
        self._make(undigested)
        return None

    def refuses(self, view: View) -> bool | None:
        """Is there really no plan for a view? None: that is being found out."""
        if view in self.checked:
            return self.checked[view] is None
        self._make(view)
        return None

    def _make(self, undigested: View) -> None:
        if undigested not in self._checking:
            self._checking.add(undigested)
            self._context.emit(Plan(undigested))

    def check(self, event: Planned) -> None:
        """The plan of a view that is proposed."""
        self._checking.discard(event.view)
        self.checked[event.view] = event.plan

    def last(self) -> int | None:
        """The last iteration, if it is known yet."""
        view = self._context.view
        if view.digest == FINISHED:
            return view.start - 1
        plan = self._plans.get(view.number) or self.of(view.start)
        return None if plan is None else plan.last

    def done(self, iteration: int) -> bool:
        """Is an iteration beyond the last?"""
        view = governing(self._context.state.views, iteration)
        plan = self._plans.get(view.number)
        if plan is None:
            return view.digest == FINISHED and iteration >= view.start
        return iteration > plan.last

    def aside(self, iteration: int) -> bool:
        """Has the newest plan no part for this device from an iteration on?

        It cannot pay, or is cut off. Such a device stays where it is, since what it has committed
        says how far the others are, and takes up the last average when there is one.
        """
        view = governing(self._context.state.views, iteration)
        plan = self._plans.get(view.number)
        if plan is None or iteration > plan.last or view is not self._context.view:
            return False
        return self._context.device not in plan.active(iteration)

    def iteration_s(self, iteration: int) -> float:
        """Planned seconds of an iteration on the slowest device; 0 if they are not known."""
        plan = self._plans.get(governing(self._context.state.views, iteration).number)
        known = plan is not None and 1 <= iteration <= plan.last
        return plan.price(iteration).iteration_s if plan is not None and known else 0.0

    def longest_s(self) -> float:
        """Planned seconds of the longest iteration of the known plans; infinite without one.

        Their patterns repeat, so that the first iterations of a long plan are enough.
        """
        for number, plan in self._plans.items():
            if number not in self._longest_s:
                first = range(plan.view.start, min(plan.last, plan.view.start + _PATTERN) + 1)
                longest_s = max((plan.price(t).iteration_s for t in first), default=0.0)
                self._longest_s[number] = longest_s
        return max((self._longest_s[number] for number in self._plans), default=math.inf)

    def forget(self, iteration: int) -> None:
        """Drop the plans of views that govern nothing from an iteration on."""
        oldest = governing(self._context.state.views, iteration).number
        self._plans = {number: plan for number, plan in self._plans.items() if number >= oldest}
        number = self._context.view.number
        self.checked = {view: plan for view, plan in self.checked.items() if view.number >= number}
