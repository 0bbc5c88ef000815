"""Exchanges carried out: every message is carried from its sender to its receiver, one by one.

Slow and obvious. It shows that a scheme's devices do what its mixing matrix says, and the devices
are those that would run in the field. Where messages are lost, it says what the exchange does.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.peer import LossyPeer, Peer, Vector
from joulemesh.aggregation.rounded import RoundedPeer
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme
from joulemesh.errors import ScenarioError

__all__ = ["Lost", "execute", "lossy_mixing"]

Lost = AbstractSet[tuple[int, int, int]]
"""(step, sender, receiver) of messages that are lost on the air."""


def execute(
    scheme: Scheme,
    route: Route,
    values: Vector,
    lost: Lost = frozenset(),
    wire: np.dtype[Any] | None = None,
) -> Vector:
    """Carry out an exchange: all devices of a scheme in one process.

    Args:
        scheme: whose devices exchange.
        route: of the exchange, as the scheme or the plan gives it.
        values: float [N, P]: each device's parameters; devices that are not on the route keep
            theirs.
        lost: messages that do not arrive; their receivers go on with what came.
        wire: the type in which numbers travel, if it has fewer digits than ``values``.

    Returns:
        float [N, P]: what each device holds afterwards.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> values = np.arange(20.0)[:, None]
    >>> after = execute(plan.scheme_at(1), plan.route(1), values)
    >>> float(after.min()), float(after.max())
    (9.5, 9.5)
    """
    peers: dict[int, Peer] = {
        device: scheme.peer(device, route) for device in np.unique(route.edges).tolist()
    }
    if wire is not None:
        peers = {device: RoundedPeer(peer, wire) for device, peer in peers.items()}
    for device, peer in peers.items():
        peer.start(values[device])
    for step in range(route.length):
        sent = [
            (device, receiver, payload)
            for device, peer in peers.items()
            for receiver, payload in peer.send(step)
        ]
        for sender, receiver, payload in sent:
            if (step, sender, receiver) in lost:
                _lossy(scheme, peers[receiver]).lose(step, sender)
            else:
                peers[receiver].receive(step, sender, payload)
    after = values.copy()
    for device, peer in peers.items():
        after[device] = peer.finish()
    return after


def _lossy(scheme: Scheme, peer: Peer) -> LossyPeer:
    if not isinstance(peer, LossyPeer):
        raise ScenarioError(
            f'the devices of plan.aggregation = "{scheme.name}" cannot go on without a lost '
            "message; give them the method lose, or set network.packet_error = 0"
        )
    return peer


def lossy_mixing(scheme: Scheme, route: Route, devices: int, lost: Lost) -> NDArray[np.float64]:
    """What an exchange does to the parameters of all devices if some messages are lost.

    Found by carrying out the exchange of the unit vectors. Every row is a convex combination.

    Args:
        scheme: whose devices exchange.
        route: of the exchange.
        devices: number N of devices of the whole graph.
        lost: the messages that do not arrive.

    Returns:
        float64 [C, N, N]: for each of the C parts into which the devices cut the parameters (one
        where they do not), parameters after are the matrix times those before.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario(devices={"count": 3}, plan={"aggregation": "ring"})
    >>> plan = joulemesh.plan(scenario)
    >>> first = next(plan.route(1).messages())
    >>> lossy_mixing(plan.scheme_at(1), plan.route(1), 3, {first[:3]}).round(2).tolist()
    [[[0.33, 0.33, 0.33], [0.0, 0.67, 0.33], [0.0, 0.67, 0.33]]]
    """
    parts = scheme.parts(route)
    after = execute(scheme, route, np.tile(np.eye(devices), parts), lost)
    return np.ascontiguousarray(after.reshape(devices, parts, devices).swapaxes(0, 1))
