"""The price of an exchange whose messages are sent more or less often than expected."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.on_air import on_air
from joulemesh.aggregation.route import Route
from joulemesh.ledger import Ledger
from joulemesh.planning.pricing.route import exchange_parts_j, follow_messages_s
from joulemesh.planning.pricing.scheme import Pricer
from joulemesh.world.links import LinkCosts

__all__ = ["cut_off", "drawn_prices", "message_keys"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def drawn_prices(pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray) -> Ledger:
    """Joules and seconds of one exchange in which every message is sent so often.

    Like those of `Pricer.beside`, they are without what an iteration takes besides.

    Joules are those of every message; a broadcast is sent as often as its worst receiver needs.
    Seconds follow the messages one by one in orthogonal channels. Where devices take turns, and in
    a shared medium, plays of the pattern follow each other, and what is sent again is spread evenly
    over the chunks of a pipelined transmission.

    Args:
        pricer: the price list.
        route: what is sent.
        costs: price of one bit on every link, of as many transmissions as are expected.
        often: float64 [repeats or chunks, M]: transmissions of every message over the number that
            is expected of it.

    >>> costs = LinkCosts(*np.ones((4, 1)))
    >>> route = Route.build("pair", edges=[[0, 1]], edge=[0, 0], forward=[True, False], step=0,
    ...                     bits=8.0, repeats=2, uses=2)
    >>> import joulemesh
    >>> pricer = joulemesh.plan(joulemesh.Scenario.preset("adaptive")).ground.pricer
    >>> drawn = drawn_prices(pricer, route, costs, np.array([[1.0, 1.0], [2.0, 1.0]]))
    >>> drawn.exchange_j[0, :2].tolist(), drawn.seconds.tolist()  # 8 s, then 16 s
    ([24.0, 16.0], [24.0])
    """
    prices = _priced(pricer, route, costs, often.mean(axis=0))
    if len(often) == 1:
        return prices
    if pricer.medium.broadcast and route.same_to_all:  # each has a worst receiver of its own
        prices = _of_broadcasts(pricer, route, costs, often, prices)
    if not (pricer.medium.shared or pricer.medium.turns):
        each = np.stack([_seconds(pricer, route, costs, now) for now in often]) / route.chunks
        times = each[:, None] if route.chunks > 1 else each[None]
        latency = follow_messages_s(route, times, pricer.devices)
        return replace(prices, seconds=np.array([latency]))
    if route.repeats > 1:
        once = replace(route, repeats=1)
        plays = [float(_priced(pricer, once, costs, now).seconds[0]) for now in often]
        return replace(prices, seconds=np.array([sum(plays)]))
    return prices


def _priced(pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray) -> Ledger:
    """The price list's own price, with every transmission of the pattern [M] sent so often."""
    return pricer.beside(*_scaled(route, costs, often))


def _of_broadcasts(
    pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray, prices: Ledger
) -> Ledger:
    """Prices with the joules of every play, or every chunk, by itself."""
    once = replace(route, repeats=1)
    parts = [
        exchange_parts_j(*_scaled(once, costs, now), pricer.devices, pricer.pays, pricer.medium)
        for now in often
    ]
    sent, heard = np.sum(parts, axis=0) / route.chunks
    return replace(prices, transmit_j=sent[None], receive_j=heard[None])


def _seconds(pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray) -> FloatArray:
    """float64 [M]: seconds of every transmission of the pattern, sent so often."""
    air = on_air(*_scaled(route, costs, often), broadcast=pricer.medium.broadcast)
    return np.asarray(air.seconds[air.carrier])


def _scaled(route: Route, costs: LinkCosts, often: FloatArray) -> tuple[Route, LinkCosts]:
    """A route and costs under which every transmission of the pattern [M] is sent so often.

    Costs are scaled where each direction of a link is used once, since closed forms look at them.
    """
    if len(np.unique(2 * route.edge + route.forward)) < len(route.edge):
        return replace(route, often=often), costs.scaled(1.0, 1.0)
    ways = np.ones((2, len(costs.forward_s)))
    ways[(~route.forward).astype(np.int64), route.link_index[route.edge]] = often
    return route, costs.scaled(ways[0], ways[1])


def cut_off(
    pricer: Pricer, route: Route, costs: LinkCosts, often: FloatArray, may_j: FloatArray
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Cut off messages, in the order of their steps, that one of their ends cannot pay for.

    Args:
        pricer: the price list.
        route: of the exchange.
        costs: as for `drawn_prices`.
        often: [times, M]: how often every message would be sent, over what is expected.
        may_j: [N] joules that each device may spend.

    Returns:
        How often they are sent then, and bool [times · M]: which messages are cut off.
    """
    step, sender, receiver = (part.tolist() for part in message_keys(route))
    times, wanted = len(often), often.ravel()
    carrier = on_air(route, costs, broadcast=pricer.medium.broadcast).carrier
    group = (np.arange(times)[:, None] * len(carrier) + carrier).ravel()
    send_j = np.tile(route.joules(costs) / route.chunks, times) * wanted
    heard = route.receive_joules(costs)
    hear_j = np.zeros_like(send_j)
    if pricer.pays == "both-ends":  # whoever listens pays for the whole broadcast
        dearest = np.zeros(times * len(carrier))
        np.maximum.at(dearest, group, send_j)
        hear_j = dearest[group]
    elif heard is not None:
        hear_j = np.tile(heard / route.chunks, times) * wanted
    left, part = may_j.tolist(), np.ones(len(wanted))
    paid = np.zeros(times * len(carrier))  # of each broadcast, so far
    for k in np.argsort(step, kind="stable").tolist():
        i, j, so_far = sender[k], receiver[k], float(paid[group[k]])
        share = min(
            1.0 if send_j[k] <= so_far + left[i] else (so_far + left[i]) / send_j[k],
            1.0 if hear_j[k] <= left[j] else left[j] / hear_j[k],
        )
        paid[group[k]] = max(so_far, share * send_j[k])
        left[i] = max(left[i] - (float(paid[group[k]]) - so_far), 0.0)
        left[j] = max(left[j] - share * hear_j[k], 0.0)
        part[k] = share
    return (wanted * part).reshape(often.shape), part < 1.0


def message_keys(route: Route) -> tuple[IntArray, IntArray, IntArray]:
    """Step, sender and receiver of all messages: play after play, or chunk after chunk.

    >>> route = Route.build("tree", edges=[[0, 1]], edge=[0, 0], forward=[True, False],
    ...                     step=[0, 1], bits=8.0, repeats=1, uses=2).in_chunks(2)
    >>> [part.tolist() for part in message_keys(route)]
    [[0, 1, 1, 2], [0, 1, 0, 1], [1, 0, 1, 0]]
    """
    times = route.repeats * route.chunks
    later = 1 if route.chunks > 1 else route.steps
    step = (np.arange(times)[:, None] * later + route.step).ravel()
    return step, np.tile(route.sender, times), np.tile(route.receiver, times)
