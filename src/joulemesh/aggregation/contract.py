"""Every device of an exchange in one process, and what every scheme must hold."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.bits import WIDTHS, Width
from joulemesh.aggregation.peer import (
    LossyPeer,
    Peer,
    QuantisedPeer,
    RoundedPeer,
    SummingPeer,
    Vector,
)
from joulemesh.aggregation.route import Route
from joulemesh.aggregation.scheme import Scheme, SchemeBase
from joulemesh.base.errors import ScenarioError
from joulemesh.world.links import LinkCosts

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
    return _carried_out(scheme, route, peers, values, lost)


def execute_quantised(
    scheme: Scheme,
    route: Route,
    values: Vector,
    bits: int,
    agreed: Vector | None = None,
    owed: Vector | None = None,
    *,
    packed: bool = False,
    on_air: Callable[[Vector], None] = lambda payload: None,
) -> tuple[Vector, Vector]:
    """Carry out an exchange whose messages are quantised; see `QuantisedPeer`.

    Args:
        scheme: whose devices exchange.
        route: of the exchange.
        values: [N, P]: each device's parameters.
        bits: of a number in a message.
        agreed: [P]: the last average; nothing if ``values`` are changes since then.
        owed: [N, P]: what each device owes; nothing at first.
        packed: do messages travel as bytes?
        on_air: called with every message.

    Returns:
        [N, P]: what each device holds afterwards, and what it owes.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> values = np.arange(20.0)[:, None]
    >>> after, owed = execute_quantised(plan.scheme_at(1), plan.route(1), values, 8)
    >>> float(after.min()), float(after.max()), float(values.sum() - after.sum() - owed.sum())
    (9.5, 9.5, 0.0)
    """
    peers = {}
    for device in np.unique(route.edges).tolist():
        peer = scheme.peer(device, route)
        if not isinstance(peer, SummingPeer):
            raise ScenarioError(
                f'the devices of plan.aggregation = "{scheme.name}" do not say what their messages '
                "count (summed); give them that method, or set plan.bits = 32",
                field="plan.bits",
            )
        peers[device] = QuantisedPeer(peer, bits, packed=packed)
        peers[device].continues(agreed, None if owed is None else owed[device])
    after = _carried_out(scheme, route, peers, values, frozenset(), on_air)
    still = np.zeros_like(values) if owed is None else owed.copy()
    for device, peer in peers.items():
        still[device] = peer.owed
    return after, still


def _carried_out(
    scheme: Scheme,
    route: Route,
    peers: Mapping[int, Peer],
    values: Vector,
    lost: Lost,
    on_air: Callable[[Vector], None] = lambda payload: None,
) -> Vector:
    """What all devices hold after an exchange."""
    for device, peer in peers.items():
        peer.start(values[device])
    for step in range(route.length):
        sent = [
            (device, receiver, payload)
            for device, peer in peers.items()
            for receiver, payload in peer.send(step)
        ]
        for sender, receiver, payload in sent:
            on_air(payload)
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
    """
    parts = scheme.parts(route)
    after = execute(scheme, route, np.tile(np.eye(devices), parts), lost)
    return np.ascontiguousarray(after.reshape(devices, parts, devices).swapaxes(0, 1))


_CLOSE = 1e-10  # of float64 parameters of about 1
_CLOSE_SINGLE = 1e-4  # of float32


def check(scheme: Scheme, costs: LinkCosts, iteration: int = 0, *, seed: int = 0) -> None:
    """Carry out one exchange of random parameters, and check what every scheme promises.

    Args:
        scheme: made ready.
        costs: price of a bit on every link of the whole graph.
        iteration: whose exchange it is, counted from 0.
        seed: of the parameters, and of the order in which messages of one step arrive.

    Raises:
        AssertionError: which promise is broken, and by which figure.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> check(plan.scheme_at(1), plan.world.costs(plan.world.channel.gain(0)))
    """
    rng = np.random.default_rng(seed)
    route, members = scheme.route(costs, iteration), scheme.graph.members
    size = 3 * math.lcm(len(members), route.chunks)  # whole numbers of parameters in every chunk
    values = rng.normal(size=(int(members.max()) + 1, size))
    before = values.copy()
    played = _play(scheme, route, values, rng)
    _require(np.array_equal(values, before), "a device changes parameters in place")
    _check_links(scheme, route)
    _check_messages(played.sent, route)
    _check_bits(played.sent, route, scheme.bits / size)
    _check_same(played.sent, route)
    _check_mixing(scheme, iteration, values[members], played.after[members])
    others = np.delete(np.arange(len(values)), members)
    _require(
        np.array_equal(played.after[others], values[others]),
        "a device that does not take part ends with other parameters",
    )
    again = execute(scheme, scheme.route(costs, iteration), values)
    _require(
        np.array_equal(again, played.after),
        "the result depends on the order in which messages of one step arrive, or on chance",
    )
    single = values.astype(np.float32)
    after = _play(scheme, route, single, rng).after[members]
    _require(
        after.dtype == np.float32 and np.allclose(after, played.after[members], atol=_CLOSE_SINGLE),
        "parameters of 32 bits end as others than those of 64",
    )
    if isinstance(scheme, SchemeBase) and scheme.kind.quantises and scheme.exact:
        for bits in WIDTHS:
            _check_quantised(scheme, costs, iteration, values, bits)


def _check_quantised(
    scheme: SchemeBase, costs: LinkCosts, iteration: int, values: Vector, bits: int
) -> None:
    """Quantised, nothing is lost from the sum; all hold the same; what is sent is paid for."""
    width = Width(values.shape[1], bits)
    narrow = replace(scheme, width=width, bits=width.vector_bits())
    route, members = narrow.route(costs, iteration), scheme.graph.members
    sent = list[int]()
    after, owed = execute_quantised(
        narrow, route, values, bits, packed=True, on_air=lambda one: sent.append(8 * one.nbytes)
    )
    _require((after[members] == after[members[0]]).all(), f"in {bits} bits they do not end alike")
    found = (after[members] + owed[members]).sum(axis=0)
    lost = float(np.abs(found - values[members].sum(axis=0)).max())
    _require(lost < _CLOSE * len(members), f"of the sum {lost:.3g} is lost in {bits} bits")
    paid = float(route.bits.sum() * route.repeats)
    _require(
        np.isclose(sum(sent), paid, rtol=1e-9, atol=0.0),
        f"{sum(sent):g} bits are sent in messages of {bits} bits, of which {paid:g} are paid for",
    )
    plain, same = execute_quantised(narrow, route, values, bits)
    _require(
        np.array_equal(plain, after) and np.array_equal(same, owed),
        f"bytes carry other numbers of {bits} bits than devices count with",
    )


@dataclass(frozen=True)
class _Played:
    sent: list[tuple[int, int, int, Vector]]  # step, sender, receiver, what was sent
    after: Vector  # [N, P]


def _play(scheme: Scheme, route: Route, values: Vector, rng: np.random.Generator) -> _Played:
    """`execute`, with a record, and with messages of one step delivered in any order."""
    peers = {device: scheme.peer(device, route) for device in np.unique(route.edges).tolist()}
    for device, peer in peers.items():
        peer.start(values[device])
    sent = []
    for step in range(route.length):
        now = [
            (step, device, receiver, payload)
            for device, peer in peers.items()
            for receiver, payload in peer.send(step)
        ]
        for _, sender, receiver, payload in (now[k] for k in rng.permutation(len(now))):
            _require(receiver in peers, f"device {sender} sends to {receiver}, not on the route")
            peers[receiver].receive(step, sender, payload)
        sent += now
    ends = {device: peer.finish() for device, peer in peers.items()}
    for device, end in ends.items():
        _require(
            np.shape(end) == values[device].shape,
            f"device {device} ends with parameters of shape {np.shape(end)}",
        )
    rows = [ends.get(device, values[device]) for device in range(len(values))]
    return _Played(sent, np.stack(rows))


def _check_links(scheme: Scheme, route: Route) -> None:
    """Every link of the route is one of the subgraph's, in the whole graph's numbers."""
    graph = scheme.graph
    links = {
        link: tuple(ends)
        for link, ends in zip(
            graph.links.tolist(), graph.members[graph.edges].tolist(), strict=True
        )
    }
    for link, ends in zip(route.link_index.tolist(), route.edges.tolist(), strict=True):
        _require(
            links.get(link) == tuple(ends),
            f"link {link} of the route joins {tuple(ends)}; in the graph, {links.get(link)}",
        )


def _check_messages(sent: list[tuple[int, int, int, Vector]], route: Route) -> None:
    """The devices send what the route has, in its steps, each message once."""
    by_devices = Counter((step, sender, receiver) for step, sender, receiver, _ in sent)
    by_route = Counter((step, sender, receiver) for step, sender, receiver, _ in route.messages())
    for message in by_devices - by_route:
        _require(False, "device {1} sends to {2} in step {0}; the route does not".format(*message))
    for message in by_route - by_devices:
        _require(False, "device {1} does not send to {2} in step {0} of the route".format(*message))


def _check_bits(sent: list[tuple[int, int, int, Vector]], route: Route, bits_each: float) -> None:
    """What is sent has the size that is paid for."""
    priced = {(step, sender, to): bits for step, sender, to, bits in route.messages()}
    for step, sender, receiver, payload in sent:
        bits, paid = np.size(payload) * bits_each, priced[step, sender, receiver]
        _require(
            np.isclose(bits, paid, rtol=1e-9, atol=0.0),
            f"device {sender} sends {bits:g} bits in step {step}, of which {paid:g} are paid for",
        )


def _check_same(sent: list[tuple[int, int, int, Vector]], route: Route) -> None:
    """Where the route says so, a device sends the same to all of its receivers of a step."""
    if not route.same_to_all:
        return
    chunks = route.chunk_messages() if route.chunks > 1 else ()
    chunk = {(step, sender, to): number for step, number, sender, to, _ in chunks}
    first: dict[tuple[int, int, int], Vector] = {}
    for step, sender, receiver, payload in sent:
        one = first.setdefault((step, sender, chunk.get((step, sender, receiver), 0)), payload)
        _require(
            np.array_equal(one, payload),
            f"device {sender} does not send the same to all in step {step}; the route says so",
        )


def _check_mixing(
    scheme: Scheme, iteration: int, before: NDArray[np.float64], after: NDArray[np.float64]
) -> None:
    """The exchange is the mixing matrix, which keeps the mean; an exact one is the mean."""
    mixing = scheme.mixing(iteration, iteration + 1)[0]
    shape = (scheme.graph.devices, scheme.graph.devices)
    _require(mixing.shape == shape, f"the mixing matrix is {mixing.shape}, not {shape}")
    for axis, what in enumerate(("columns", "rows")):
        worst = float(np.abs(mixing.sum(axis=axis) - 1.0).max())
        _require(worst < _CLOSE, f"{what} of the mixing matrix do not sum to 1, by {worst:.3g}")
    worst = float(np.abs(mixing @ before - after).max())
    _require(worst < _CLOSE, f"the devices end {worst:.3g} from the mixing matrix")
    if scheme.exact:
        worst = float(np.abs(before.mean(axis=0) - after).max())
        _require(worst < _CLOSE and scheme.error == 0, f"the devices end {worst:.3g} from the mean")
        worst = float(np.abs(after - after[0]).max())
        _require(worst == 0.0, f"the devices end with means that differ by {worst:.3g}")


def _require(holds: bool | np.bool_, broken: str) -> None:
    if not holds:
        raise AssertionError(broken)
