"""Exchanges carried out: every message is carried from its sender to its receiver, one by one.

Slow and obvious. It shows that a scheme's devices do what its mixing matrix says, and the devices
are those that would run in the field.
"""

from __future__ import annotations

import numpy as np

from joulemesh.aggregation.peer import Vector
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme

__all__ = ["execute"]


def execute(scheme: Scheme, route: Route, values: Vector) -> Vector:
    """Carry out an exchange: all devices of a scheme in one process.

    Args:
        scheme: whose devices exchange.
        route: of the exchange, as the scheme or the plan gives it.
        values: float [N, P]: each device's parameters; devices that are not on the route keep
            theirs.

    Returns:
        float [N, P]: what each device holds afterwards.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> values = np.arange(20.0)[:, None]
    >>> after = execute(plan.scheme_at(1), plan.route(1), values)
    >>> float(after.min()), float(after.max())
    (9.5, 9.5)
    """
    peers = {device: scheme.peer(device, route) for device in np.unique(route.edges).tolist()}
    for device, peer in peers.items():
        peer.start(values[device])
    for step in range(route.length):
        sent = [
            (device, receiver, payload)
            for device, peer in peers.items()
            for receiver, payload in peer.send(step)
        ]
        for sender, receiver, payload in sent:
            peers[receiver].receive(step, sender, payload)
    after = values.copy()
    for device, peer in peers.items():
        after[device] = peer.finish()
    return after
