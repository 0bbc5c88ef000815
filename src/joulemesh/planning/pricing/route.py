"""One price list for every scheme: joules and seconds of a route, and a plan's account.

Joules go to the transmitter, or to both ends (eq. `ecp`). Seconds are the critical path through
the messages, or eq. `tcp`. Closed forms are used where they are equal and faster; tests keep them
equal to the message-by-message price.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.medium import ORTHOGONAL, Medium
from joulemesh.aggregation.on_air import levelled, on_air
from joulemesh.aggregation.pipeline import paths, turns_s
from joulemesh.aggregation.rooted import half_duplex_s
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.slots import shared_s
from joulemesh.world.links import LinkCosts

__all__ = [
    "edge_colours",
    "exchange_energy_j",
    "exchange_latency_s",
    "exchange_parts_j",
    "follow_messages_s",
    "followed",
    "is_tree",
    "pairwise_latency_s",
    "pairwise_parts_j",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def exchange_energy_j(
    route: Route, costs: LinkCosts, devices: int, pays: str, medium: Medium = ORTHOGONAL
) -> FloatArray:
    """Joules of each device for one exchange.

    A broadcast is paid for once by its sender, for the dearest receiver; where both ends pay, every
    receiver pays for what it listens to.

    Args:
        route: what is sent.
        costs: price of one bit on every link of the graph.
        devices: number of devices N.
        pays: ``"transmitter"``, or ``"both-ends"`` (eq. `ecp`).
        medium: can one transmission serve several receivers?

    Returns:
        float64 [N].
    """
    sent, heard = exchange_parts_j(route, costs, devices, pays, medium)
    return sent + heard


def exchange_parts_j(
    route: Route, costs: LinkCosts, devices: int, pays: str, medium: Medium = ORTHOGONAL
) -> tuple[FloatArray, FloatArray]:
    """Joules of each device for one exchange, to send and to receive; float64 [N].

    Receiving costs what the links say; if both ends pay, what the sender pays.
    """
    air = on_air(route, costs, broadcast=medium.broadcast)
    joules = air.joules * route.repeats
    spent = np.bincount(air.sender, joules, devices).astype(np.float64)
    own = route.receive_joules(costs)
    if pays != "both-ends" and own is None:
        return spent, np.zeros_like(spent)
    paid = joules[air.carrier] if pays == "both-ends" or own is None else own * route.repeats
    heard = np.bincount(route.receiver, paid, devices).astype(np.float64)
    return spent, heard


def exchange_latency_s(
    route: Route, costs: LinkCosts, devices: int, clock: str, medium: Medium, model_bits: float
) -> float:
    """Seconds of one exchange.

    ``clock="paper"`` is eq. `tcp`: K times the slowest link; it knows no order of messages, so that
    a pipelined tree takes what the tree does. ``"critical-path"`` follows the messages: a device
    sends when it holds what it must send, and a link carries one message at a time. A one-step
    pattern then takes exactly ``repeats`` times its slowest transmission, because the slowest link
    is busy in every step. In a shared medium the messages take slots.
    """
    if not len(route.edge):
        return 0.0
    seconds = route.seconds(costs)
    if clock == "paper":
        return float(route.uses * np.max(seconds / route.bits) * model_bits)
    if medium.shared:
        return shared_s(route, costs, devices, medium)
    if medium.turns:
        return _half_duplex_latency_s(route, costs, seconds, devices)
    if route.chunks > 1 and is_tree(route):
        own = levelled(route, costs, broadcast=medium.broadcast)
        along = paths(route.edges, own, devices, route.root)
        return along.seconds(float(route.bits[0]), route.chunks)
    # The chunks of one transmission follow each other without a gap.
    if route.steps == 1:
        return float(route.repeats * seconds.max())
    air = on_air(route, costs, broadcast=medium.broadcast)
    seconds = air.seconds[air.carrier]
    return follow_messages_s(route, seconds / route.chunks, devices)


def follow_messages_s(route: Route, seconds: FloatArray, devices: int) -> float:
    """Play the steps in order; all transmissions of a step start from the state before it.

    ``seconds`` are [M], or [chunks, repeats, M] where they differ from one time to the next. The
    chunks of a pipelined route wait for each other at the links alone, so each is played from
    the beginning to the end before the next.
    """
    return max(
        (float(arrival.max()) for *_, arrival in followed(route, seconds, devices)), default=0
    )


def followed(
    route: Route, seconds: FloatArray, devices: int
) -> Iterator[tuple[int, slice, FloatArray, FloatArray]]:
    """The messages of `follow_messages_s`: play or chunk, rows of the pattern, start, arrival."""
    busy = np.zeros((2, len(route.edges)))  # until when each link carries a message, per direction
    bounds = np.searchsorted(route.step, np.arange(route.steps + 1))
    sender, receiver, way = route.sender, route.receiver, route.forward.astype(np.int64)
    every = np.broadcast_to(seconds, (route.chunks, route.repeats, len(route.edge)))
    for chunk, plays in enumerate(every):
        ready = np.zeros(devices)
        for play, now in enumerate(plays):
            for low, high in pairwise(bounds.tolist()):
                link = (way[low:high], route.edge[low:high])
                start = np.maximum(ready[sender[low:high]], busy[link])
                busy[link] = arrival = start + now[low:high]
                np.maximum.at(ready, receiver[low:high], arrival)
                yield max(chunk, play), slice(low, high), start, arrival


def _half_duplex_latency_s(
    route: Route, costs: LinkCosts, seconds: FloatArray, devices: int
) -> float:
    if route.chunks > 1:
        return turns_s(route, seconds, devices)
    if is_tree(route):
        bits = float(route.bits[0])
        own = costs.take(route.link_index).for_messages(bits)
        return bits * half_duplex_s(route.edges, own, devices, route.root)
    if route.steps == 1:  # links that share a device take turns, colour after colour
        per_link = np.bincount(route.edge, seconds, len(route.edges))
        colour = edge_colours(route.edges, devices)
        slots = np.zeros(colour.max() + 1)
        np.maximum.at(slots, colour, per_link)
        return float(route.repeats * slots.sum())
    ready = [0.0] * devices  # one by one: both ends of a message are taken until it has passed
    sent = list(zip(route.sender.tolist(), route.receiver.tolist(), seconds.tolist(), strict=True))
    for _ in range(route.repeats):
        for sender, receiver, duration in sent:
            ready[sender] = ready[receiver] = max(ready[sender], ready[receiver]) + duration
    return max(ready)


def is_tree(route: Route) -> bool:
    """Does the same vector go once up and once down every link of a tree?"""
    return (
        route.root >= 0
        and route.repeats == 1
        and len(route.edge) == 2 * len(route.edges)
        and bool((route.bits == route.bits[0]).all())
    )


def edge_colours(edges: IntArray, devices: int) -> IntArray:
    """Colours such that links of one colour share no device.

    Each takes the first colour that is free at both ends: 2 colours for a ring in its order, or 3
    if its length is odd.
    """
    colours = np.zeros(len(edges), np.int64)
    taken: list[set[int]] = [set() for _ in range(devices)]
    for k, (i, j) in enumerate(edges.tolist()):
        colour = 0
        while colour in taken[i] or colour in taken[j]:
            colour += 1
        colours[k] = colour
        taken[i].add(colour)
        taken[j].add(colour)
    return colours


def pairwise_parts_j(
    edges: IntArray, pairs: IntArray, costs: LinkCosts, devices: int, bits: float, pays: str
) -> tuple[FloatArray, FloatArray]:
    """`exchange_parts_j` of many pairwise exchanges at once: ``pairs`` int [n, K], −1 for none.

    Returns:
        float64 [n, N]: joules to send and to receive.
    """
    exchanges, costs = len(pairs), costs.for_messages(bits)
    row = np.repeat(np.arange(exchanges), pairs.shape[1])
    link = pairs.ravel()
    row, link = row[link >= 0], link[link >= 0]
    first, second = row * devices + edges[link, 0], row * devices + edges[link, 1]
    size = exchanges * devices

    def ends(at_first: FloatArray, at_second: FloatArray) -> FloatArray:
        each = np.bincount(first, at_first, size) + np.bincount(second, at_second, size)
        return each.reshape(exchanges, devices).astype(np.float64)

    forward, backward = costs.forward_j[link] * bits, costs.backward_j[link] * bits
    if pays == "both-ends":
        return ends(forward, backward), ends(backward, forward)
    if costs.forward_receive_j is None or costs.backward_receive_j is None:
        return ends(forward, backward), np.zeros((exchanges, devices))
    to_second, to_first = (
        costs.forward_receive_j[link] * bits,
        costs.backward_receive_j[link] * bits,
    )
    return ends(forward, backward), ends(to_first, to_second)


def pairwise_latency_s(
    edges: IntArray, pairs: IntArray, costs: LinkCosts, devices: int, bits: float, medium: Medium
) -> FloatArray:
    """Critical paths of many sequences of pairwise exchanges at once; float64 [n].

    Not for a shared medium, where each sequence takes slots of its own.
    """
    exchanges, costs = len(pairs), costs.for_messages(bits)
    every = np.arange(exchanges)
    ready = np.zeros((exchanges, devices))
    busy = np.zeros((2, exchanges, len(edges)))
    for link in pairs.T:
        live = link >= 0
        row, link = every[live], link[live]
        i, j = edges[link, 0], edges[link, 1]
        there, back = costs.forward_s[link] * bits, costs.backward_s[link] * bits
        if medium.turns:
            ready[row, i] = ready[row, j] = np.maximum(ready[row, i], ready[row, j]) + there + back
            continue
        to_j = np.maximum(ready[row, i], busy[0, row, link]) + there
        to_i = np.maximum(ready[row, j], busy[1, row, link]) + back
        busy[0, row, link], busy[1, row, link] = to_j, to_i
        ready[row, j] = np.maximum(ready[row, j], to_j)
        ready[row, i] = np.maximum(ready[row, i], to_i)
    return np.asarray(ready.max(axis=1))
