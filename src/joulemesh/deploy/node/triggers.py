"""Why another view is wanted: who is suspected, who leaves, who asks to be taken in."""

from __future__ import annotations

__all__ = ["Triggers"]

from joulemesh.deploy.messages import Join, Leave, Replan, Suspect
from joulemesh.deploy.node.context import NodeContext


class Triggers:
    """What was said about the present view; all of it is over with the next one."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._joins: dict[int, tuple[float, Join]] = {}
        self.forget()

    def forget(self) -> None:
        """Another view is installed."""
        self.suspected: dict[int, str] = {}
        self.hung: set[int] = set()  # of these, those whose training does not end
        self.leaving: dict[int, str] = {}
        self._short: dict[int, str] = {}
        self._turned_away: set[int] = set()

    def suspect(self, said: Suspect) -> bool:
        """A neighbour of a device does not hear it; True if this is news."""
        view = self._context.view
        if said.view != view.number or said.device not in view.members:
            return False
        if said.hung:
            self.hung.add(said.device)
        elif said.device == self._context.device:
            return False
        if said.device in self.suspected:
            return False
        self.suspected[said.device] = said.reason
        return True

    def leave(self, origin: int, said: Leave) -> None:
        """A member goes."""
        if said.view == self._context.view.number and origin in self._context.view.members:
            self.leaving[origin] = said.reason

    def replan(self, origin: int, said: Replan) -> None:
        """A member cannot follow the plan."""
        if said.view == self._context.view.number and origin in self._context.view.members:
            self._short[origin] = said.reason

    def join(self, origin: int, said: Join) -> None:
        """A device asks to be taken in."""
        self._joins[origin] = (self._context.now, said)

    def joining(self) -> dict[int, Join]:
        """Those that ask now, and would not have to go back behind what they have done.

        A member that asks has lost its folder.
        """
        context, view = self._context, self._context.view
        return {
            device: join
            for device, (heard, join) in self._joins.items()
            if context.may_join(device)
            and device not in self._turned_away
            and join.view == view.number
            and join.iteration <= context.state.commit.iteration
            and context.now - heard < 2.0 * context.settings.patience_s
        }

    def turn_away(self) -> bool:
        """Without whom there may be a plan: newcomers first, then those short of joules.

        Returns:
            Was there anybody?
        """
        joining = self.joining()
        if joining:
            self._turned_away |= joining.keys()
            return True
        if self._short.keys() - self.leaving.keys():
            self.leaving |= self._short
            return True
        return False

    def going(self) -> set[int]:
        """Members that leave, and those that the roster has retired."""
        retired = set(self._context.roster.retired).intersection(self._context.view.members)
        return self.leaving.keys() | retired

    def any(self) -> bool:
        """Is there any?"""
        return bool(self.suspected or self.going() or self._short or self.joining())
