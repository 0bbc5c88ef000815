"""What of a route goes on the air: every message by itself, or one broadcast for several."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import IntArray, Route
from joulemesh.world.links import LinkCosts
from joulemesh.world.loss import expected_tries

__all__ = ["OnAir", "bits_on_air", "levelled", "on_air", "route_j"]

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class OnAir:
    """The transmissions of a pattern, all chunks of each together.

    Attributes:
        step: int64 [T]: the step of the pattern.
        sender: int64 [T].
        bits: float64 [T].
        seconds: float64 [T]: at the rate of the slowest receiver.
        joules: float64 [T]: of the sender, for the dearest receiver.
        carrier: int64 [M]: the transmission that carries each message of the pattern.
        receiver: int64 [M]: of each message.
    """

    step: IntArray
    sender: IntArray
    bits: FloatArray
    seconds: FloatArray
    joules: FloatArray
    carrier: IntArray
    receiver: IntArray

    def receivers(self) -> list[list[int]]:
        """The receivers of each transmission."""
        order = np.argsort(self.carrier, kind="stable")
        cuts = np.searchsorted(self.carrier[order], np.arange(len(self.sender) + 1)).tolist()
        every = self.receiver[order].tolist()
        return [every[low:high] for low, high in pairwise(cuts)]


def on_air(route: Route, costs: LinkCosts, *, broadcast: bool) -> OnAir:
    """The transmissions of a route's pattern.

    Args:
        route: what is sent; its ``same_to_all`` says where a broadcast can serve several.
        costs: price of one bit on every link of the graph.
        broadcast: can one transmission serve several receivers?

    >>> route = Route.build("star", edges=[[0, 1], [0, 2]], edge=[0, 1], forward=True, step=0,
    ...                     bits=8.0, repeats=1, uses=1).for_all()
    >>> costs = LinkCosts(*np.array([[1.0, 2.0]] * 4))
    >>> on_air(route, costs, broadcast=False).seconds.tolist()
    [8.0, 16.0]
    >>> on_air(route, costs, broadcast=True).seconds.tolist()
    [16.0]
    """
    seconds, joules, sender = route.seconds(costs), route.joules(costs), route.sender
    if not (broadcast and route.same_to_all):
        carrier = np.arange(len(sender))
        return OnAir(route.step, sender, route.bits, seconds, joules, carrier, route.receiver)
    wide = int(sender.max(initial=-1)) + 1
    key, first, carrier = np.unique(
        route.step * wide + sender, return_index=True, return_inverse=True
    )
    slowest, dearest = np.zeros(len(key)), np.zeros(len(key))
    lost = _errors(route, costs)
    once = 1.0 if lost is None else expected_tries(lost, costs.tries)
    np.maximum.at(slowest, carrier, seconds / once)
    np.maximum.at(dearest, carrier, joules / once)
    if lost is not None:
        often = _until_all_have_it(lost, carrier, costs.tries)
        slowest, dearest = slowest * often, dearest * often
    return OnAir(
        route.step[first],
        sender[first],
        route.bits[first],
        slowest,
        dearest,
        carrier,
        route.receiver,
    )


def _errors(route: Route, costs: LinkCosts) -> FloatArray | None:
    """float64 [M]: probability that a packet of each message is lost; None if none is."""
    if costs.forward_error is None or costs.backward_error is None:
        return None
    link = route.link_index[route.edge]
    return np.where(route.forward, costs.forward_error[link], costs.backward_error[link])


def _until_all_have_it(lost: FloatArray, carrier: IntArray, tries: int) -> FloatArray:
    """Expected transmissions of every broadcast's packet, float64 [T].

    Receivers lose it independently of each other: try k + 1 is made unless each of them has
    received one of the k before it, with probability 1 − Π(1 − p_j^k).

    >>> _until_all_have_it(np.array([0.1, 0.1]), np.array([0, 0]), 2).round(6).tolist()
    [1.19]
    """
    often: FloatArray = np.ones(int(carrier.max(initial=-1)) + 1)
    for before in range(1, tries):
        served = np.ones_like(often)
        np.multiply.at(served, carrier, 1.0 - lost**before)
        often += 1.0 - served
        if (served == 1.0).all():
            break
    return often


def bits_on_air(route: Route, *, broadcast: bool) -> float:
    """Bits on the air in one exchange; those of a broadcast count once.

    >>> route = Route.build("star", edges=[[0, 1], [0, 2]], edge=[0, 1], forward=True, step=0,
    ...                     bits=8.0, repeats=3, uses=3).for_all()
    >>> bits_on_air(route, broadcast=False), bits_on_air(route, broadcast=True)
    (48.0, 24.0)
    """
    bits, sender = route.bits, route.sender
    if broadcast and route.same_to_all:
        wide = int(sender.max(initial=-1)) + 1
        bits = bits[np.unique(route.step * wide + sender, return_index=True)[1]]
    return float(bits.sum() * route.repeats)


def route_j(route: Route, costs: LinkCosts, devices: int, *, broadcast: bool) -> FloatArray:
    """Joules of each device for one exchange, to send and to receive; float64 [N].

    >>> route = Route.build("star", edges=[[0, 1], [0, 2]], edge=[0, 1], forward=True, step=0,
    ...                     bits=8.0, repeats=1, uses=1).for_all()
    >>> costs = LinkCosts(*np.array([[1.0, 2.0]] * 4))
    >>> [route_j(route, costs, 3, broadcast=one).tolist() for one in (False, True)]
    [[24.0, 0.0, 0.0], [16.0, 0.0, 0.0]]
    """
    air = on_air(route, costs, broadcast=broadcast)
    spent = np.bincount(air.sender, air.joules * route.repeats, devices).astype(np.float64)
    heard = route.receive_joules(costs)
    if heard is None:
        return spent
    return np.asarray(spent + np.bincount(route.receiver, heard * route.repeats, devices))


def levelled(route: Route, costs: LinkCosts, *, broadcast: bool) -> LinkCosts:
    """Costs of the route's own links, on which all receivers of a broadcast wait for the slowest.

    Args:
        route: it uses each direction of a link at most once, and sends messages of one size, as a
            tree does.
        costs: price of one bit on every link of the graph.
        broadcast: can one transmission serve several receivers?

    >>> route = Route.build("star", edges=[[0, 1], [0, 2]], edge=[0, 1], forward=True, step=0,
    ...                     bits=8.0, repeats=1, uses=1).for_all()
    >>> costs = LinkCosts(*np.array([[1.0, 2.0]] * 4))
    >>> levelled(route, costs, broadcast=True).forward_s.tolist()
    [2.0, 2.0]
    """
    own = costs.take(route.link_index)
    if len(route.edge):
        own = own.for_messages(float(route.message_bits[0]))
    if not (broadcast and route.same_to_all):
        return own
    air = on_air(route, costs, broadcast=True)
    each, there = air.seconds[air.carrier] / route.bits, route.forward
    forward_s, backward_s = own.forward_s.copy(), own.backward_s.copy()
    forward_s[route.edge[there]] = each[there]
    backward_s[route.edge[~there]] = each[~there]
    return replace(own, forward_s=forward_s, backward_s=backward_s)
