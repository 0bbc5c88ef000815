"""What the messages of an exchange cost a device where the plan's radio serves several at once.

Devices talk over IP, where each message goes to one neighbour. A plan with ``network.broadcast``
charges one transmission for all receivers of a step, and so does a modelled meter: its joules are
those of the plan's radio, not of the network that carries the bytes in its place.
"""

from __future__ import annotations

__all__ = ["Cast", "cast_of"]

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from joulemesh.aggregation.air import on_air
from joulemesh.aggregation.route import Route
from joulemesh.world.links import LinkCosts


@dataclass(frozen=True)
class Cast:
    """Prices of one device's messages in one exchange.

    Attributes:
        send_j: (step, receiver) -> joules of a bit: those of the broadcast for the first of its
            receivers, 0 for the others.
        heard_j: (step, sender) -> joules of a bit that the sender of the broadcast pays.
    """

    send_j: Mapping[tuple[int, int], float]
    heard_j: Mapping[tuple[int, int], float]


def cast_of(route: Route, costs: LinkCosts, device: int) -> Cast:
    """The prices of a device's messages along a route, as the plan charges them.

    Args:
        route: everybody's messages.
        costs: price of one bit on every link of the graph.
        device: whose messages are priced.

    >>> route = Route.build("star", edges=[[0, 1], [0, 2]], edge=[0, 1], forward=True, step=0,
    ...                     bits=8.0, repeats=2, uses=2).for_all()
    >>> dear = LinkCosts(*np.array([[1.0, 2.0]] * 4))
    >>> cast_of(route, dear, 0).send_j
    {(0, 1): 2.0, (0, 2): 0.0, (1, 1): 2.0, (1, 2): 0.0}
    >>> cast_of(route, dear, 1).heard_j
    {(0, 0): 2.0, (1, 0): 2.0}
    """
    air = on_air(route, costs, broadcast=True)
    sender, receiver, carrier = route.sender, route.receiver, air.carrier
    each_j = air.joules / air.bits
    send_j: dict[tuple[int, int], float] = {}
    heard_j: dict[tuple[int, int], float] = {}
    paid: set[tuple[int, int]] = set()
    for step, part, row in _played(
        route, np.flatnonzero((sender == device) | (receiver == device))
    ):
        one = int(carrier[row])
        price = float(each_j[one])
        if sender[row] == device:
            send_j[step, int(receiver[row])] = 0.0 if (one, part) in paid else price
            paid.add((one, part))
        else:
            heard_j[step, int(sender[row])] = price
    return Cast(send_j, heard_j)


def _played(
    route: Route, rows: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Iterator[tuple[int, int, int]]:
    """(step, chunk or play, row) of every message of some rows of the pattern, in order."""
    if route.chunks > 1:
        wanted = set(rows.tolist())
        yield from (one for one in route.chunk_rows() if one[2] in wanted)
        return
    for play in range(route.repeats):
        for row in rows.tolist():
            yield play * route.steps + int(route.step[row]), play, row
