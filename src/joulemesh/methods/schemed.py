"""Exchanges of aggregation schemes among those who take part, where that changes."""

from __future__ import annotations

__all__ = ["Schemed"]

from collections.abc import Callable, Hashable
from typing import Any

from joulemesh.aggregation.patterned import Patterned
from joulemesh.aggregation.scheme import Scheme
from joulemesh.ledger import Ledger
from joulemesh.methods.base import IntArray
from joulemesh.methods.moment import Act, Moment
from joulemesh.setup.from_plan import embedded


class Schemed:
    """Exchanges by the scheme that suits those who take part and are connected with each other.

    A scheme is chosen again whenever that changes, by the prices that are forecast then. Link costs
    are flooded before the exchange whenever the plan would flood them: the tree has changed, or who
    is in it.

    Args:
        chosen: the scheme among those who take part, who are connected with each other.
    """

    def __init__(self, chosen: Callable[[Moment], Scheme]) -> None:
        self._chosen = chosen
        self._known: dict[Hashable, Scheme] = {}
        self._priced: dict[Hashable, Ledger] = {}

    def act(self, now: Moment, rounds: Callable[[Moment], IntArray]) -> Act:
        """Rounds of those who are connected with each other, then their exchange.

        Args:
            now: who could take part, where; its memory is the tree whose costs were flooded last.
            rounds: of those who take part, int64 [N].
        """
        now = now.connected()
        train = rounds(now)
        if now.who.sum() < 2:
            return Act(train, now.price(None), who=now.who, memory=now.memory)
        scheme, t = self.scheme(now), now.t
        tree = (now.who.tobytes(), now.snapshot, *now.setting.ground.tree_number(t))
        sent, memory = self._sent(now, scheme), now.memory
        if now.setting.ground.floods(scheme) and tree != memory:
            sent, memory = sent + now.setting.pricer.coordination(scheme, now.costs), tree
        if scheme.exact:
            return Act(train, sent, exact=True, who=now.who, memory=memory)
        devices = now.devices
        return Act(train, sent, lambda: embedded(scheme, t, devices), who=now.who, memory=memory)

    def scheme(self, now: Moment) -> Scheme:
        """The scheme of those who take part."""
        channel = now.setting.world.channel
        key = now.who.tobytes(), now.snapshot, channel.edition(now.t)
        if key not in self._known:
            scheme = self._chosen(now)
            self._known[key] = scheme.average if isinstance(scheme, Patterned) else scheme
        return self._known[key]

    def _sent(self, now: Moment, scheme: Scheme) -> Ledger:
        key: Any = (now.t, now.key) if scheme.random else now.key
        if key not in self._priced:
            self._priced[key] = now.price(scheme.route(now.seen, now.t))
        return self._priced[key]
