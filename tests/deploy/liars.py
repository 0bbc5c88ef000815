"""Fleets of which one member lies: what it sends beside, or in the place of, what its node sends.

A liar has its own key and nobody else's. What it sends passes the audit by, which knows honest
devices only; what the others make of it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from joulemesh.deploy.effects import Effect, Event, Note, Send
from joulemesh.deploy.messages import Body, Flood, Message, Part, signed_text
from joulemesh.testing.fleets.audit import InvariantError
from joulemesh.testing.fleets.cases import Case
from joulemesh.testing.fleets.fleet import VirtualFleet, make_node
from joulemesh.testing.fleets.hardware import VirtualSigner
from joulemesh.testing.fleets.network import Weather
from joulemesh.testing.fleets.setup import Links, Setup

LIAR = 1
COMPLETE: Links = tuple((a, b) for a in range(5) for b in range(a + 1, 5))
RING: Links = ((0, 1), (0, 4), (1, 2), (2, 3), (3, 4))


@dataclass
class Lies:
    """What a liar is about to do in a fleet.

    Attributes:
        fleet: that it is a member of.
        sent: number of its lies.
    """

    fleet: VirtualFleet
    sent: int = 0
    notes: list[tuple[int, Note]] = field(default_factory=list)

    def tell(self, message: Message, *, to: int = 0) -> None:
        """Send a message to one neighbour."""
        self.sent += 1
        self.fleet.network.send(LIAR, to, message, 1.0, lambda reason: None)

    def flood(self, origin: int, body: Body, *, to: int = 0) -> None:
        """Send a flood to one neighbour, signed as well as the liar can."""
        flood = Flood(origin, 7, self.sent + 1, body)
        signature = VirtualSigner(LIAR).sign(signed_text(flood))
        self.tell(replace(flood, signature=signature), to=to)

    def noted(self, kind: str, *devices: int) -> list[Note]:
        """The notes of a kind in the journals of some devices, or of all honest ones."""
        return [
            note
            for device, note in self.notes
            if note.kind == kind and device in (devices or {0, 2, 3, 4})
        ]


Lie = Callable[[Lies], None]


def fleet_with(
    lie: Lie,
    *,
    links: Links = COMPLETE,
    scheme: str = "tree",
    iterations: int = 8,
    at_s: float = 0.6,
    seed: int = 0,
    spoil: Callable[[Part], Part] | None = None,
    ends: bool = True,
    total_s: float | None = None,
) -> Lies:
    """Run a fleet of five of which device 1 lies; the audit sees no broken invariant.

    Args:
        lie: what the liar does, at ``at_s``.
        spoil: what it makes of the parts that it sends from then on.
        ends: must the fleet reach its end all the same?
        total_s: time allowed to all iterations.
    """
    setup = Setup(5, links, scheme, iterations=iterations, total_s=total_s)
    case = Case(
        seed, setup, (1e4,) * 5, 1.5, "go-on", Weather(), (), (), at_s, odd=-1 if ends else 99
    )
    lies: Any = None

    def watch(now: float, device: int, event: Event, effects: Sequence[Effect]) -> None:
        lies.notes += [(device, one) for one in effects if isinstance(one, Note)]

    def make(machine: Any, of: Case) -> Any:
        node = make_node(machine, of)
        return Spoiler(node, spoil, fleet, at_s) if machine.device == LIAR and spoil else node

    fleet = VirtualFleet(case, make, watch)
    lies = Lies(fleet)
    fleet.clock.after(at_s, lie, lies)
    try:
        fleet.run()
    except InvariantError as broken:
        if ends or broken.invariant != "the run ends":
            raise
    return lies  # type: ignore[no-any-return]


class Spoiler:
    """A node whose parts are spoilt on their way out."""

    def __init__(
        self, node: Any, spoil: Callable[[Part], Part], fleet: VirtualFleet, at_s: float
    ) -> None:
        self.node, self.spoil, self.fleet, self.at_s = node, spoil, fleet, at_s

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        effects = self.node.handle(event, now)
        if self.fleet.clock.now < self.at_s:
            return effects  # type: ignore[no-any-return]
        return [
            replace(one, message=self.spoil(one.message))
            if isinstance(one, Send) and isinstance(one.message, Part)
            else one
            for one in effects
        ]
