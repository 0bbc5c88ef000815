"""Joules and seconds of one exchange, and when each of its transmissions begins and ends.

Joules go to the transmitter, or to both ends (eq. `ecp`). Seconds are the critical path through
the messages, or eq. `tcp`. Closed forms are used where they are equal and faster; tests keep them
equal to the message-by-message price.

In a shared medium transmissions that conflict are never on the air at once. Each takes the first
slot, after those in which its sender receives what it must hold, in which it conflicts with
nothing; of the transmissions of one step the longest choose first. A slot lasts as long as its
longest transmission, and slots follow one another, so seconds add up. How far that is from the
best: notes: slots-of-a-shared-medium. Slots are bits of whole numbers, one number for each device,
so no conflict graph is ever stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import groupby, pairwise
from operator import or_

import numpy as np

from joulemesh.aggregation.air import (
    ORTHOGONAL,
    Medium,
    OnAir,
    Reach,
    half_duplex_order,
    half_duplex_s,
    hang,
    levelled,
    on_air,
)
from joulemesh.aggregation.route import FloatArray, IntArray, Route
from joulemesh.world.links import LinkCosts


@dataclass(frozen=True, eq=False)
class Slots:
    """The slots of some transmissions.

    Attributes:
        slot: int64 [T]: of each transmission.
        lengths_s: float64 [S]: seconds of each slot.
    """

    slot: IntArray
    lengths_s: FloatArray

    @property
    def seconds(self) -> float:
        """Of all slots, one after another."""
        return float(self.lengths_s.sum())


class _Air:
    """Which slots are taken, seen from each device."""

    def __init__(self, devices: int, reach: Reach | None) -> None:
        self._sends = [0] * devices  # the slots in which each sends
        self._receives = [0] * devices
        self._near = [[]] * devices if reach is None else reach.lists()

    def take(self, sender: int, receivers: Sequence[int], after: int) -> int:
        """Take the first slot that is free for a transmission, not before slot ``after``."""
        sends, receives, near = self._sends, self._receives, self._near
        taken = sends[sender] | receives[sender]
        # It would drown what receivers within its range hear, and be drowned by senders there.
        taken = reduce(or_, map(receives.__getitem__, near[sender]), taken)
        for receiver in receivers:
            taken |= sends[receiver] | receives[receiver]
            taken = reduce(or_, map(sends.__getitem__, near[receiver]), taken)
        free = ~(taken >> after)
        bit = (free & -free) << after
        sends[sender] |= bit
        for receiver in receivers:
            receives[receiver] |= bit
        return bit.bit_length() - 1


def in_slots(air: OnAir, devices: int, reach: Reach | None) -> Slots:
    """Slots of a pattern that is played once, step after step."""
    return _placed(air, _first_the_longest(air, by_step=True), devices, reach)


def frame(air: OnAir, devices: int, reach: Reach | None) -> Slots:
    """Slots in which all transmissions of a pattern are on the air together, each for its chunk."""
    order = _first_the_longest(air, by_step=False)
    return _placed(replace(air, step=np.zeros_like(air.step)), order, devices, reach)


def _first_the_longest(air: OnAir, *, by_step: bool) -> IntArray:
    """The order in which transmissions choose.

    Lengths that differ by rounding only count as equal, so that every device, on whatever machine,
    finds the same order.
    """
    receiver = np.zeros(len(air.sender), np.int64)
    receiver[air.carrier] = air.receiver  # a broadcast is known by its step and sender alone
    with np.errstate(over="ignore"):
        longest = -air.seconds.astype(np.float32)
    ties = (receiver, air.sender)
    return np.lexsort((*ties, longest, air.step) if by_step else (*ties, air.step, longest))


def _placed(air: OnAir, order: IntArray, devices: int, reach: Reach | None) -> Slots:
    if reach is not None and reach.everyone:  # one at a time, whatever the order
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        return Slots(number, air.seconds[order])
    senders, receivers, steps = air.sender.tolist(), air.receivers(), air.step.tolist()
    slots, holds = [0] * len(senders), [0] * devices
    taken = _Air(devices, reach)
    for _, step in groupby(order.tolist(), key=steps.__getitem__):
        arrivals = []
        for one in step:
            sender = senders[one]
            slots[one] = taken.take(sender, receivers[one], holds[sender])
            arrivals.append(one)
        for one in arrivals:  # of use from the next step on
            for receiver in receivers[one]:
                holds[receiver] = max(holds[receiver], slots[one] + 1)
    return _measured(np.array(slots, np.int64), air.seconds)


def _measured(slot: IntArray, seconds: FloatArray) -> Slots:
    lengths = np.zeros(int(slot.max(initial=-1)) + 1)
    np.maximum.at(lengths, slot, seconds)
    return Slots(slot, lengths)


# Pipelined routes ---------------------------------------------------------------------------------


def in_frames_s(air: OnAir, slots: Slots) -> Callable[[int], float]:
    """Seconds of a pipelined pattern as a function of its number of chunks.

    While chunk c is at a step, the chunk after it is one step behind, so each turn plays one frame:
    the slots of the transmissions that have a chunk to send, each as long as the longest of them.
    """
    steps = int(air.step.max(initial=-1)) + 1
    longest = np.zeros((len(slots.lengths_s), steps))
    np.maximum.at(longest, (slots.slot, air.step), air.seconds)
    first = np.cumsum(np.maximum.accumulate(longest, axis=1).sum(axis=0))
    last = np.cumsum(np.maximum.accumulate(longest[:, ::-1], axis=1).sum(axis=0))

    def seconds(chunks: int) -> float:
        if chunks >= steps:  # it fills, runs full, and empties
            ends = first[-1] + last[-1] - 2 * slots.seconds if steps else 0.0
            return float((ends + (chunks - steps + 1) * slots.seconds) / chunks)
        filled = _window_max(longest, chunks).sum()
        ramps = first[chunks - 2] + last[chunks - 2] if chunks > 1 else 0.0
        return float((filled + ramps) / chunks)

    return seconds


def _window_max(rows: FloatArray, size: int) -> FloatArray:
    """Maxima over windows of ``size`` columns, by doubling."""
    reached = 1
    while 2 * reached <= size:
        rows = np.maximum(rows[:, :-reached], rows[:, reached:])
        reached *= 2
    rest = size - reached
    return np.maximum(rows[:, : rows.shape[1] - rest], rows[:, rest:])


# Seconds of a route, and the least that slots can take --------------------------------------------


def shared_s(route: Route, costs: LinkCosts, devices: int, medium: Medium) -> float:
    """Seconds of one exchange in a shared medium.

    Each play of a pattern begins when the one before it has ended.
    """
    air = on_air(route, costs, broadcast=medium.broadcast)
    if route.chunks > 1:
        return in_frames_s(air, frame(air, devices, medium.reach))(route.chunks)
    return route.repeats * in_slots(air, devices, medium.reach).seconds


def least_slots_s(air: OnAir, devices: int) -> float:
    """Seconds below which no slots of these transmissions go, if all are of one step.

    At any length t, the transmissions longer than t need as many slots longer than t as there are
    at the device that has the most of them: the integral over t.
    """
    order = np.argsort(-air.seconds, kind="stable")
    receivers = air.receivers()
    load, most, total = [0] * devices, 0, 0.0
    for one in order.tolist():
        for device in (int(air.sender[one]), *receivers[one]):
            load[device] += 1
            if load[device] > most:  # from here down to zero, one slot more
                most, total = most + 1, total + float(air.seconds[one])
    return total


# Orthogonal links -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Paths:
    """Sum and maximum of the seconds per bit on the path between the root and every device.

    Attributes:
        up_sum: float64 [A]: of the links towards the root.
        up_max: float64 [A].
        down_sum: float64 [A]: of the links from the root.
        down_max: float64 [A].
    """

    up_sum: FloatArray
    up_max: FloatArray
    down_sum: FloatArray
    down_max: FloatArray

    def seconds(self, bits: float, chunks: int) -> float:
        """Critical path of reduce plus broadcast in chunks, where links work at the same time.

        A chain of links that each take a constant time per chunk is done with C chunks after the
        sum of those times and C − 1 times the largest (a flow line). The last chunk is waited for
        along one chain, from some device up to the root and down to some other. Since the maximum
        of a chain is that of its way up or of its way down, two passes find the longest.
        """
        more = chunks - 1
        up = np.max(self.up_sum + more * self.up_max) + np.max(self.down_sum)
        down = np.max(self.down_sum + more * self.down_max) + np.max(self.up_sum)
        return float(max(up, down) * (bits / chunks))


def paths(edges: IntArray, costs: LinkCosts, devices: int, root: int) -> Paths:
    """The paths of a tree, from its links, their costs and its root."""
    tree = hang(edges, costs, devices, root)
    total, most = np.zeros((2, devices)), np.zeros((2, devices))
    each = np.stack([tree.up, tree.down])
    for level in tree.levels[1:]:
        above = tree.parent[level]
        total[:, level] = total[:, above] + each[:, level]
        most[:, level] = np.maximum(most[:, above], each[:, level])
    return Paths(total[0], most[0], total[1], most[1])


# Half duplex ------------------------------------------------------------------------------------


def turns_s(route: Route, seconds: FloatArray, devices: int) -> float:
    """Critical path of a pipelined route where a device serves one link at a time.

    Messages take both of their ends, one after another in the order of `Route.messages`. Those on
    links that share no device do not meet, and are played at once: the order is the same.
    """
    lanes = _lanes(route, seconds / route.chunks)
    ready, last = np.zeros(devices), np.arange(route.length)
    windows = [
        np.searchsorted(lane.step, [last - route.chunks + 1, last + 1]).T.tolist() for lane in lanes
    ]
    for step in range(route.length):
        for lane, window in zip(lanes, windows, strict=True):
            low, high = window[step]
            if low < high:
                i, j = lane.ends[0, low:high], lane.ends[1, low:high]
                ready[i] = ready[j] = np.maximum(ready[i], ready[j]) + lane.seconds[low:high]
    return float(ready.max())


@dataclass(frozen=True, eq=False)
class _Lane:
    """Transmissions of the pattern on links that share no device, sorted by step."""

    step: IntArray
    ends: IntArray  # [2, m]
    seconds: FloatArray


def _lanes(route: Route, seconds: FloatArray) -> list[_Lane]:
    """The pattern in lanes, in the order in which they take turns within a step."""
    group = _disjoint_runs(route.edges)[route.edge]
    first = np.zeros(len(route.edge), np.bool_)
    first[np.unique(route.edge, return_index=True)[1]] = True
    # Both directions of a link have the same ends: the later one of the pattern comes second.
    order = np.lexsort((route.step, ~first, group))
    key = 2 * group[order] + ~first[order]
    cuts = np.flatnonzero(np.diff(key)) + 1
    sender, receiver = route.sender, route.receiver
    return [
        _Lane(route.step[rows], np.stack([sender[rows], receiver[rows]]), seconds[rows])
        for rows in np.split(order, cuts)
    ]


def half_duplex_lanes(route: Route) -> list[tuple[IntArray, IntArray, IntArray]]:
    """The lanes of `turns_s`: steps, ends [2, m] and rows of the pattern, in turn."""
    lanes = _lanes(route, np.arange(float(len(route.edge))))
    return [(lane.step, lane.ends, lane.seconds.astype(np.int64)) for lane in lanes]


def _disjoint_runs(edges: IntArray) -> IntArray:
    """int [E']: number of the run of each link; the links of a run share no device."""
    runs = np.zeros(len(edges), np.int64)
    seen: dict[int, int] = {}
    run = 0
    for k, (i, j) in enumerate(edges.tolist()):
        if run in (seen.get(i), seen.get(j)):
            run += 1
        seen[i] = seen[j] = runs[k] = run
    return runs


# Joules and seconds of a route --------------------------------------------------------------------


def exchange_energy_j(
    route: Route, costs: LinkCosts, devices: int, pays: str, medium: Medium = ORTHOGONAL
) -> FloatArray:
    """Joules of each device for one exchange.

    A broadcast is paid for once by its sender, for the dearest receiver; where both ends pay, every
    receiver pays for what it listens to.
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
    """`exchange_parts_j` of many pairwise exchanges at once: ``pairs`` int [n, K], −1 for none."""
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


@dataclass(frozen=True, eq=False)
class Moments:
    """When the transmissions of a route are on the air, from the beginning of the exchange.

    The T transmissions of the pattern are sent P times: once in every play, or once for every
    chunk.

    Attributes:
        air: the transmissions of the pattern.
        ready_s: float64 [P, T]: from when on the sender holds what it sends.
        start_s: float64 [P, T].
        end_s: float64 [P, T].
        ordered: does the clock say when messages are sent? If not, the steps of the exchange share
            its time equally.
    """

    air: OnAir
    ready_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray
    ordered: bool = True

    @property
    def seconds(self) -> float:
        """When the last transmission ends."""
        return float(self.end_s.max(initial=0.0))


def moments(
    route: Route, costs: LinkCosts, devices: int, clock: str, medium: Medium, latency_s: float
) -> Moments:
    """When the transmissions of an exchange begin and end."""
    air = on_air(route, costs, broadcast=medium.broadcast)
    if not len(route.edge):
        nothing = np.zeros((1, 0))
        return Moments(air, nothing, nothing, nothing)
    if clock == "paper":
        start_s, end_s = _in_equal_steps(route, latency_s)
    elif medium.shared:
        start_s, end_s = _in_slots(route, air, devices, medium)
    elif medium.turns:
        start_s, end_s = _in_turns(route, costs, air.seconds, devices)
    else:
        start_s, end_s = _when_held(route, air, devices)
    ready_s = np.minimum(_held(route, air, end_s, devices), start_s)
    return Moments(air, ready_s, start_s, end_s, clock != "paper")


def _held(route: Route, air: OnAir, end_s: FloatArray, devices: int) -> FloatArray:
    """When senders hold what they send: what they receive in earlier steps, of the same chunk."""
    ready_s, held = np.zeros_like(end_s), np.zeros(devices)
    sent = np.searchsorted(air.step, np.arange(route.steps + 1)).tolist()
    heard = np.searchsorted(route.step, np.arange(route.steps + 1)).tolist()
    for time, ends in enumerate(end_s):
        if route.chunks > 1:
            held = np.zeros(devices)
        for (low, high), (first, last) in zip(pairwise(sent), pairwise(heard), strict=True):
            ready_s[time, low:high] = held[air.sender[low:high]]
            arrivals = ends[air.carrier[first:last]]
            np.maximum.at(held, air.receiver[first:last], arrivals)
    return ready_s


def _when_held(route: Route, air: OnAir, devices: int) -> tuple[FloatArray, FloatArray]:
    """Orthogonal links: a device sends when it holds what it must send, and the link is free."""
    seconds = air.seconds[air.carrier] / route.chunks
    start_s, end_s = np.zeros((2, route.repeats * route.chunks, len(route.edge)))
    for time, rows, start, arrival in followed(route, seconds, devices):
        start_s[time, rows], end_s[time, rows] = start, arrival
    # The messages of one broadcast begin together and take equally long.
    first = np.unique(air.carrier, return_index=True)[1]
    return start_s[:, first], end_s[:, first]


def _in_equal_steps(route: Route, latency_s: float) -> tuple[FloatArray, FloatArray]:
    later = 1 if route.chunks > 1 else route.steps
    times = np.arange(route.repeats * route.chunks)
    step = times[:, None] * later + route.step
    begins: FloatArray = step.astype(np.float64) * (latency_s / route.length)
    return begins, np.asarray(begins + latency_s / route.length)


# A shared medium ----------------------------------------------------------------------------------


def _in_slots(
    route: Route, air: OnAir, devices: int, medium: Medium
) -> tuple[FloatArray, FloatArray]:
    """Slots follow one another, play after play; those of a pipelined route, frame after frame."""
    if route.chunks > 1:
        return _in_frames(route, air, frame(air, devices, medium.reach).slot)
    slots = in_slots(air, devices, medium.reach)
    begins = np.cumsum(slots.lengths_s) - slots.lengths_s
    plays = np.arange(route.repeats)[:, None] * slots.seconds
    start_s = plays + begins[slots.slot]
    return start_s, start_s + air.seconds


def _in_frames(route: Route, air: OnAir, slot: IntArray) -> tuple[FloatArray, FloatArray]:
    """Each turn plays the slots of those that have a chunk to send, as long as the longest."""
    each_s, chunks = air.seconds / route.chunks, route.chunks
    start_s, now_s = np.zeros((chunks, len(slot))), 0.0
    for turn in range(route.length):
        low, high = np.searchsorted(air.step, [turn - chunks + 1, turn + 1]).tolist()
        lengths = np.zeros(int(slot.max()) + 1)
        np.maximum.at(lengths, slot[low:high], each_s[low:high])
        begins = now_s + np.cumsum(lengths) - lengths
        start_s[turn - air.step[low:high], np.arange(low, high)] = begins[slot[low:high]]
        now_s += float(lengths.sum())
    return start_s, start_s + each_s


# Half duplex --------------------------------------------------------------------------------------


def _in_turns(
    route: Route, costs: LinkCosts, seconds: FloatArray, devices: int
) -> tuple[FloatArray, FloatArray]:
    """Both ends of a message are taken until it has passed; whose turn it is, the price says."""
    times = route.repeats * route.chunks
    if route.chunks > 1:
        order: Iterable[tuple[int, int]] = ((chunk, row) for _, chunk, row in route.chunk_rows())
    elif is_tree(route):
        order = _tree_order(route, costs, devices)
    elif route.steps == 1:
        return _colour_by_colour(route, seconds, devices)
    else:
        order = ((play, row) for play in range(times) for row in range(len(route.edge)))
    each_s = (seconds / route.chunks).tolist()
    sender, receiver = route.sender.tolist(), route.receiver.tolist()
    free, start_s = [0.0] * devices, np.zeros((times, len(each_s)))
    for time, row in order:
        i, j = sender[row], receiver[row]
        begins = max(free[i], free[j])
        start_s[time, row] = begins
        free[i] = free[j] = begins + each_s[row]
    return start_s, start_s + each_s


def _tree_order(route: Route, costs: LinkCosts, devices: int) -> Iterator[tuple[int, int]]:
    own = costs.take(route.link_index).for_messages(float(route.bits[0]))
    rows = {ends: row for row, ends in enumerate(zip(route.sender, route.receiver, strict=True))}
    for ends in half_duplex_order(route.edges, own, devices, route.root):
        yield 0, rows[ends]


def _colour_by_colour(
    route: Route, seconds: FloatArray, devices: int
) -> tuple[FloatArray, FloatArray]:
    """Links that share no device at once; of a link, one message after the other."""
    per_link = np.bincount(route.edge, seconds, len(route.edges))
    colour = edge_colours(route.edges, devices)
    lengths = np.zeros(int(colour.max()) + 1)
    np.maximum.at(lengths, colour, per_link)
    begins = np.cumsum(lengths) - lengths
    start = begins[colour[route.edge]]
    taken = np.zeros(len(route.edges))
    for row, link in enumerate(route.edge.tolist()):
        start[row] += taken[link]
        taken[link] += seconds[row]
    start_s = np.arange(route.repeats)[:, None] * float(lengths.sum()) + start
    return start_s, start_s + seconds
