"""All links of a fleet, as its operator has them measured: one by one, then all at once."""

from __future__ import annotations

__all__ = ["LinkFigures", "measure_fleet"]

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from pydantic import TypeAdapter

from joulemesh.deploy.links.figures import Rate, Rule, Timed
from joulemesh.deploy.links.service import DONE, MEASURE, Order
from joulemesh.deploy.operator.operator import Operator
from joulemesh.deploy.transport import TransportError

_TIMED = TypeAdapter(list[Timed])
_START_S = 1.0  # in which every device has heard of what is to be measured at once
_ANSWER_S = 1200.0


@dataclass(frozen=True)
class LinkFigures:
    """One direction of a link, as it was measured.

    Attributes:
        i: number of the sender.
        j: number of the receiver.
        alone: transfers while no other link was in use; None if they were not made.
        together: transfers while all links were in use.
    """

    i: int
    j: int
    alone: Timed | None = None
    together: Timed | None = None

    @property
    def trouble(self) -> str:
        """Why there is no figure; empty if there is one."""
        both = [one for one in (self.alone, self.together) if one is not None]
        if any(one.seconds for one in both):
            return ""
        return next((one.trouble for one in both if one.trouble), "nothing was measured")

    def chosen(self, use: str = "lower") -> Timed:
        """The transfers whose rate a plan is to take.

        Args:
            use: ``"alone"``, ``"together"``, or the ``"lower"`` of both rates.

        >>> fast, slow = (Timed("a", "b", 125, (s, s)) for s in (0.1, 0.2))
        >>> link = LinkFigures(0, 1, fast, slow)
        >>> link.chosen().rate.bps, link.chosen("alone").rate.bps
        (5000.0, 10000.0)
        """
        named = {"alone": self.alone, "together": self.together}.get(use)
        if named is not None and named.seconds:
            return named
        there = [one for one in (self.alone, self.together) if one is not None and one.seconds]
        return min(there, key=lambda one: one.rate.bps)

    def rate(self, use: str = "lower") -> Rate:
        """The rate that a plan is to take."""
        return self.chosen(use).rate


async def measure_fleet(
    operator: Operator,
    links: Iterable[tuple[int, int]],
    rule: Rule,
    *,
    planned: Iterable[tuple[int, int]] | None = None,
    modes: Sequence[str] = ("alone", "together"),
    done: Callable[[str], None] = lambda words: None,
) -> list[LinkFigures]:
    """Have the devices of a fleet measure links between them.

    Args:
        operator: of the fleet.
        links: pairs of devices; both directions are measured, one by one.
        rule: how each direction is measured.
        planned: the links that are measured all at once; all of them unless given.
        modes: ``"alone"``, ``"together"`` or both.
        done: told of each step.

    Returns:
        One record for each direction, in their order; those of silent devices say why.
    """
    pairs = _both_ways(links)
    busy = pairs if planned is None else _both_ways(planned)
    alone, together = dict[tuple[int, int], Timed](), dict[tuple[int, int], Timed]()
    if "alone" in modes:
        for i, near in _by_sender(pairs).items():  # in turn, so that no two share the air
            alone.update(await _ordered(operator, i, near, rule))
            done(f"{operator.fleet.names[i]} has measured its links one by one")
    if "together" in modes:
        all_rule = replace(rule, together=True)
        turns = _by_sender(busy).items()
        waits = (_ordered(operator, i, near, all_rule, _START_S) for i, near in turns)
        for one in await asyncio.gather(*waits):
            together.update(one)
        done(f"{len(busy):,} directions of links were measured all at once")
    wanted = sorted(alone.keys() | together.keys())
    return [LinkFigures(*pair, alone.get(pair), together.get(pair)) for pair in wanted]


def _both_ways(links: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Every direction of links, once.

    >>> _both_ways([(1, 0), (0, 1), (1, 2)])
    [(0, 1), (1, 0), (1, 2), (2, 1)]
    """
    return sorted({one for i, j in links for one in ((i, j), (j, i))})


def _by_sender(pairs: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for i, j in pairs:
        found[i].append(j)
    return found


async def _ordered(
    operator: Operator, device: int, near: Sequence[int], rule: Rule, wait_s: float = 0.0
) -> dict[tuple[int, int], Timed]:
    """What one device finds on its links."""
    names = operator.fleet.names
    host = operator.places[names[device]]
    order = Order(rule, tuple(names[one] for one in near), wait_s)
    try:
        async with operator.channel(host) as channel:
            request = json.dumps(asdict(order)).encode()
            answer = await channel.unary_unary(MEASURE)(request, timeout=_ANSWER_S)
            seen = {one.there: one for one in _TIMED.validate_json(answer)}
    except TransportError as error:
        seen = {}
        lost = Timed(names[device], "", trouble=f"{error}; is it listening?")
    else:
        lost = Timed(names[device], "", trouble=f"{names[device]} does not say")
    return {
        (device, one): replace(seen.get(names[one], lost), here=names[device], there=names[one])
        for one in near
    }


async def tell_done(operator: Operator) -> None:
    """Tell all devices that nothing more will be measured: those that only listened end."""

    async def tell(name: str) -> None:
        with suppress(TransportError):
            async with operator.channel(operator.places[name]) as channel:
                await channel.unary_unary(DONE)(b"", timeout=5.0)

    await asyncio.gather(*(tell(name) for name in operator.fleet.names))
