"""Transmit powers of an exchange: the least joules for the seconds that it may take.

Most transmissions of an exchange wait for others, and a slower one takes less power: a link of
noise n (the power at which its SNR is 1) that carries r bit/s in a band B takes (2^(r/B) − 1)·n
watts and c for circuits, so a bit takes ((2^(r/B) − 1)·n + c)/r joules (notes:
least-joules-of-a-transmission). How much slower a transmission may be, the order of messages says:
an exchange takes as long as the longest path through them, and if every transmission takes longer
in proportion to the longest path that leads through it, no path grows beyond the time that is
allowed (notes: slack-of-an-exchange).

A transmission is known by its link and direction, or in a broadcast by its sender. The exchange is
priced afterwards like every other: seconds that the clock does not confirm are given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import Medium, half_duplex_order, hang, on_air
from joulemesh.aggregation.play import (
    edge_colours,
    exchange_latency_s,
    exchange_parts_j,
    frame,
    half_duplex_lanes,
    in_slots,
    is_tree,
)
from joulemesh.aggregation.route import FloatArray, IntArray, Route
from joulemesh.world.links import LinkCosts

__all__ = ["Exchange", "least_exchange_j", "lowered"]

_EXACT = 1e-12  # relative: rounding of the same sums in another order
_TIGHT = 1e-6  # relative: slack that is none
_GRID, _COARSE = 64, 16  # slownesses at which joules are looked up; of many transmissions
_STEPS, _PHASES, _FILLS = 14, 5, 4
_MOST_FILLED = 20_000  # transmissions; beyond, slack is shared out in proportion only


@dataclass(frozen=True, eq=False)
class Exchange:
    """A route with the costs at the highest powers, in one medium."""

    route: Route
    costs: LinkCosts
    devices: int
    clock: str
    medium: Medium
    pays: str
    model_bits: float

    def seconds(self, costs: LinkCosts) -> float:
        """Seconds of the exchange at some costs."""
        return exchange_latency_s(
            self.route, costs, self.devices, self.clock, self.medium, self.model_bits
        )

    def device_j(self, costs: LinkCosts) -> FloatArray:
        """float64 [N]: joules of each device at some costs, to send and to receive."""
        parts = exchange_parts_j(self.route, costs, self.devices, self.pays, self.medium)
        return parts[0] + parts[1]

    @cached_property
    def broadcast(self) -> bool:
        """Does one transmission serve several receivers?"""
        return self.medium.broadcast and self.route.same_to_all


def lowered(exchange: Exchange, stretch: float = 1.0) -> LinkCosts:
    """The costs at the powers of least joules with which an exchange takes no longer than allowed.

    Args:
        exchange: what is sent, priced at the highest powers.
        stretch: seconds allowed, over those at the highest powers.

    Returns:
        Costs of all links of the graph; those that the route does not use stay as they are. No
        device pays more than at the highest powers.
    """
    costs, route = exchange.costs, exchange.route
    if costs.radio is None or not len(route.edge):
        return costs.settled
    units = Units.of(exchange)
    whole_s = exchange.seconds(costs)
    allowed_s = stretch * whole_s
    found = _shared_out(exchange, units, allowed_s)
    for share in (1.0, 0.5, 0.0):
        slower = 1.0 + share * (found - 1.0)
        made = units.costs(slower)
        for _ in range(len(units.row_unit) + 1):
            worse = exchange.device_j(made) > exchange.device_j(costs) * (1 + _EXACT)
            if not worse.any():
                break
            slower = np.where(units.heard_by(worse), 1.0, slower)
            made = units.costs(slower)
        if exchange.seconds(made) <= allowed_s * (1 + _EXACT):
            return made
    return costs.settled


# What may be chosen -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Units:
    """The transmissions of a route that have a power each, U of them.

    ``slower`` is, throughout, how many times as long a bit takes as at the highest power, to its
    worst receiver; float64 [U], at least 1.

    Attributes:
        exchange: whose transmissions they are.
        row_unit: int64 [M]: the unit of each message of the pattern.
        unit: int64 [T]: the unit of each transmission on the air.
        worst: int64 [U, 2]: link and direction of each unit's worst receiver.
        fixed_s, bit_s: float64 [T]: seconds of each transmission at the highest power: those that
            do not depend on the power, and those that do.
    """

    exchange: Exchange
    row_unit: IntArray
    unit: IntArray
    worst: IntArray
    fixed_s: FloatArray
    bit_s: FloatArray

    @classmethod
    def of(cls, exchange: Exchange) -> Units:
        """The units of an exchange."""
        route, costs, radio = exchange.route, exchange.costs, exchange.costs.radio
        assert radio is not None
        link, way = route.link_index[route.edge], (~route.forward).astype(np.int64)
        air = on_air(route, costs, broadcast=exchange.medium.broadcast)
        twice = costs.slowed(np.full_like(radio.noise_w, 2.0))
        later_s = on_air(route, twice, broadcast=exchange.medium.broadcast).seconds
        bit_s = later_s - air.seconds
        key = 2 * link + way
        if exchange.broadcast:
            key = air.carrier
            reused = len(np.unique(np.stack([2 * link + way, key]), axis=1).T) > len(
                np.unique(2 * link + way)
            )
            key = route.sender if reused else key  # one power for all that a device sends
        row_unit = np.unique(key, return_inverse=True)[1]
        order = np.lexsort((-radio.noise_w[link, way], row_unit))
        each = order[np.unique(row_unit[order], return_index=True)[1]]
        unit = np.zeros(len(air.sender), np.int64)
        unit[air.carrier] = row_unit
        worst = np.stack([link[each], way[each]], axis=1)
        return cls(exchange, row_unit, unit, worst, np.maximum(air.seconds - bit_s, 0.0), bit_s)

    @property
    def points(self) -> int:
        """Number of slownesses at which joules are looked up."""
        return _GRID if len(self.worst) <= _MOST_FILLED else _COARSE

    def _of(self, values: FloatArray) -> FloatArray:
        """[U]: a figure of links and directions, of the worst receiver."""
        return np.asarray(values[self.worst[:, 0], self.worst[:, 1]])

    @cached_property
    def _radio(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
        """Noise, lowest and highest power, circuits and least seconds of a bit; [U] each."""
        radio = self.exchange.costs.radio
        assert radio is not None
        names = ("noise_w", "lowest_w", "highest_w", "circuit_w", "least_s")
        noise, lowest, highest, circuit, least = (self._of(getattr(radio, name)) for name in names)
        return noise, lowest, highest, circuit, least

    @cached_property
    def levels_w(self) -> FloatArray | None:
        """float64 [U, L, 2]: powers and what is drawn at them; None if any power will do."""
        radio = self.exchange.costs.radio
        assert radio is not None
        if radio.levels_w is None:
            return None
        return np.asarray(radio.levels_w[radio.sender[self.worst[:, 0], self.worst[:, 1]]])

    def slower_at(self, power_w: FloatArray) -> FloatArray:
        """How many times as long a bit takes at some powers, [U] or [U, L]."""
        radio = self.exchange.costs.radio
        assert radio is not None
        noise, _, _, _, least = self._radio
        shape = (-1,) + (1,) * (power_w.ndim - 1)
        shannon = np.log(2.0) / (radio.bandwidth_hz * np.log1p(power_w / noise.reshape(shape)))
        seconds = np.maximum(shannon, 1.0 / radio.max_rate_bps)
        return np.asarray(seconds / least.reshape(shape))

    def power_w(self, slower: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The least power with which bits take no longer, and what is drawn; as ``slower``."""
        radio = self.exchange.costs.radio
        assert radio is not None
        shape = (-1,) + (1,) * (slower.ndim - 1)
        noise, lowest, highest, circuit, least = (one.reshape(shape) for one in self._radio)
        if self.levels_w is not None:
            return self._level_w(slower)
        with np.errstate(over="ignore"):
            wanted = noise * np.expm1(np.log(2.0) / (radio.bandwidth_hz * least * slower))
        # A rounded power must not be too little for its rate; nor a whit less than the highest.
        wanted = np.where(wanted > highest * (1 - _EXACT), highest, wanted * (1 + _EXACT))
        power = np.clip(wanted, lowest, highest)
        return power, power + circuit

    def _level_w(self, slower: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The level of least joules among those with which bits take no longer."""
        levels = self.levels_w
        assert levels is not None
        allowed = slower if slower.ndim == 2 else slower[:, None]
        at, joules = self.slower_at(levels[..., 0]), self._at_levels_j
        index = np.zeros(allowed.shape, np.int64)
        for column in range(allowed.shape[1]):  # the highest is always allowed
            late = at > allowed[:, column, None] * (1 + _EXACT)
            late[:, -1] = False
            index[:, column] = np.where(late, np.inf, joules).argmin(axis=1)
        picked = np.take_along_axis(levels, index[..., None], axis=1)
        picked = picked if slower.ndim == 2 else picked[:, 0]
        return picked[..., 0], picked[..., 1]

    # Joules -------------------------------------------------------------------------------------

    @cached_property
    def _parts_j(self) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        """Joules at the highest power, [U]: to send (fixed, of bits), to receive (the same).

        Those of handling messages are left out: no power changes them.
        """
        one = self.exchange
        bare, route, count = replace(one.costs, message=None), one.route, len(self.worst)
        assert one.costs.radio is not None
        twice = bare.slowed(np.full_like(one.costs.radio.noise_w, 2.0))
        sent, heard = [], []
        for costs in (bare, twice):
            air = on_air(route, costs, broadcast=one.medium.broadcast)
            each = np.bincount(self.unit, air.joules, count).astype(np.float64)
            sent.append(each)
            own = route.receive_joules(costs)
            if one.pays == "both-ends":
                own = air.joules[air.carrier]
            own = np.zeros(len(self.row_unit)) if own is None else own
            heard.append(np.bincount(self.row_unit, own, count).astype(np.float64))
        bits_j, heard_bits_j = sent[1] - sent[0], heard[1] - heard[0]
        return sent[0] - bits_j, bits_j, heard[0] - heard_bits_j, heard_bits_j

    def joules(self, slower: FloatArray, drawn_w: FloatArray, *, sent: bool = False) -> FloatArray:
        """Joules of each unit at both ends, or of the sender; as ``slower``, [U] or [U, L]."""
        shape = (-1,) + (1,) * (slower.ndim - 1)
        _, _, highest, circuit, _ = (one.reshape(shape) for one in self._radio)
        fixed_j, bits_j, heard_fixed_j, heard_j = (one.reshape(shape) for one in self._parts_j)
        share = drawn_w / (highest + circuit)
        sending = share * (fixed_j + bits_j * slower)
        if sent:
            return np.asarray(sending)
        if self.exchange.pays == "both-ends":  # the receiver pays what the sender does
            return np.asarray(sending + share * (heard_fixed_j + heard_j * slower))
        return np.asarray(sending + heard_fixed_j + heard_j * slower)

    @cached_property
    def _at_levels_j(self) -> FloatArray:
        """float64 [U, L]: joules of each unit at each of its levels; infinite at those too low."""
        levels = self.levels_w
        assert levels is not None
        joules = self.joules(self.slower_at(levels[..., 0]), levels[..., 1])
        return np.where(levels[..., 0] < self._radio[1][:, None], np.inf, joules)

    @cached_property
    def grid(self) -> FloatArray:
        """float64 [U, G]: slownesses from 1 to that of the lowest power."""
        slowest = self.slower_at(self._radio[1])
        return np.asarray(slowest[:, None] ** np.linspace(0.0, 1.0, self.points))

    @cached_property
    def grid_j(self) -> FloatArray:
        """float64 [U, G]: joules at these."""
        return self.joules(self.grid, self.power_w(self.grid)[1])

    @cached_property
    def thriftiest(self) -> FloatArray:
        """float64 [U]: the slowness of least joules; slower is dearer, since circuits draw on."""
        if self.levels_w is not None:
            best = self._at_levels_j.argmin(axis=1)[:, None]
            return np.take_along_axis(self.slower_at(self.levels_w[..., 0]), best, axis=1)[:, 0]
        at, last = self.grid_j.argmin(axis=1), self.grid.shape[1] - 1
        every = np.arange(len(at))
        low, high = (
            self.grid[every, np.maximum(at - 1, 0)],
            self.grid[every, np.minimum(at + 1, last)],
        )
        near = low[:, None] * (high / low)[:, None] ** np.linspace(0.0, 1.0, self.points + 1)
        best = self.joules(near, self.power_w(near)[1]).argmin(axis=1)
        return np.asarray(near[every, best])

    # Seconds ------------------------------------------------------------------------------------

    def times(self, slower: FloatArray) -> FloatArray:
        """float64 [T]: seconds of each transmission."""
        return np.asarray(self.fixed_s + self.bit_s * slower[self.unit])

    def within(self, times: FloatArray) -> FloatArray:
        """The slowness of each unit with which no transmission takes longer than some seconds."""
        with np.errstate(divide="ignore", invalid="ignore"):
            each = np.where(self.bit_s > 0, (times - self.fixed_s) / self.bit_s, np.inf)
        most = np.full(len(self.worst), np.inf)
        np.minimum.at(most, self.unit, each)
        return np.asarray(np.maximum(most, 1.0))

    def heard_by(self, devices: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """bool [U]: the units that some of the devices, bool [N], receive."""
        heard = np.zeros(len(self.worst), np.bool_)
        heard[self.row_unit[devices[self.exchange.route.receiver]]] = True
        return heard

    def costs(self, slower: FloatArray) -> LinkCosts:
        """Costs of all links at the powers that some slownesses allow."""
        costs, route = self.exchange.costs, self.exchange.route
        radio = costs.radio
        assert radio is not None
        power_w = radio.highest_w.copy()
        place = route.link_index[route.edge], (~route.forward).astype(np.int64)
        power_w[place] = self.power_w(slower)[0][self.row_unit]
        return costs.at_power(power_w)


# How slack is shared out --------------------------------------------------------------------------


def _shared_out(exchange: Exchange, units: Units, allowed_s: float) -> FloatArray:
    """How slow each unit may be: of some ways to share out the slack, that of least joules."""
    timing = _timing(exchange, units)
    most = np.maximum(units.thriftiest, 1.0)
    if timing is None:  # nothing may take longer, but powers that a rate does not need are saved
        return np.ones(len(most))
    start = np.ones(len(most))
    found = [_filled(units, timing, start, most, allowed_s)]
    if len(units.unit) <= _MOST_FILLED and timing.seconds(units.times(most)) > allowed_s:
        for curve, low, high in (_alike(units, most), _by_price(units)):
            raised = _raised(units, timing, most, allowed_s, curve, low, high)
            found.append(_filled(units, timing, raised, most, allowed_s))
    if len(found) == 1:
        return found[0]
    spent = [units.joules(*_reached(units, one)).sum() for one in found]
    return found[int(np.argmin(spent))]


def _reached(units: Units, slower: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The slowness that the chosen powers have, and what is drawn at them."""
    power, drawn = units.power_w(slower)
    return units.slower_at(power), drawn


def _filled(
    units: Units, timing: _Timing, slower: FloatArray, most: FloatArray, allowed_s: float
) -> FloatArray:
    """Use up slack in proportion, as far as it is of use."""
    for _ in range(_FILLS):
        room = units.within(timing.room(units.times(slower), allowed_s))
        wider = np.clip(room, slower, most)
        if units.levels_w is not None:  # what a level leaves is for others
            wider = np.maximum(_reached(units, wider)[0], 1.0)
            if timing.seconds(units.times(wider)) > allowed_s * (1 + _EXACT):
                return slower
        if (wider <= slower * (1 + _TIGHT)).all():
            return wider
        slower = wider
    return slower


Curve = Callable[[float], FloatArray]


def _alike(units: Units, most: FloatArray) -> tuple[Curve, float, float]:
    """Transmissions that take as many seconds, as in a pipeline, where all wait for the slowest."""
    longest = units.times(most).max()
    shortest = max(float(units.times(np.ones(len(most))).min()), longest * 1e-9)
    return (
        lambda x: units.within(np.full(len(units.unit), np.exp(x))),
        np.log(shortest),
        np.log(longest),
    )


def _by_price(units: Units) -> tuple[Curve, float, float]:
    """Transmissions for which a second is worth as many joules, as along one path."""
    each_s = np.bincount(units.unit, units.bit_s, len(units.worst))
    with np.errstate(divide="ignore", invalid="ignore"):
        gains = -np.diff(units.grid_j, axis=1) / (each_s[:, None] * np.diff(units.grid, axis=1))
    gains = np.where(np.isfinite(gains), np.maximum(gains, 0.0), 0.0)
    gains = np.minimum.accumulate(gains, axis=1)  # descending, rounding apart
    positive = gains[gains > 0]
    if not len(positive):
        return (lambda x: np.ones(len(each_s))), 0.0, 1.0
    every = np.arange(len(each_s))

    def curve(x: float) -> FloatArray:
        return np.asarray(units.grid[every, (gains > np.exp(-x)).sum(axis=1)])

    return curve, -float(np.log(positive.max())), -float(np.log(positive.min())) + 1.0


def _raised(
    units: Units,
    timing: _Timing,
    most: FloatArray,
    allowed_s: float,
    curve: Callable[[float], FloatArray],
    low: float,
    high: float,
) -> FloatArray:
    """Raise all units together along a curve; those without slack stop, and the others go on."""
    slower = np.ones(len(most))
    free = most > 1.0
    for _ in range(_PHASES):
        least, bottom, top = slower, low, high
        for _ in range(_STEPS):
            middle = 0.5 * (bottom + top)
            tried = np.where(free, np.clip(curve(middle), slower, most), slower)
            if timing.seconds(units.times(tried)) <= allowed_s:
                least, bottom = tried, middle
            else:
                top = middle
        slower = least
        room = units.within(timing.room(units.times(slower), allowed_s))
        free &= (np.minimum(room, most) > slower * 1.02) & (slower < most)
        if not free.any():
            break
    return slower


# The clocks ---------------------------------------------------------------------------------------


class _Timing(Protocol):
    """Seconds of an exchange whose messages keep their order."""

    def seconds(self, times: FloatArray) -> float:
        """Of the exchange, from the seconds [T] of its transmissions."""

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        """Seconds [T] that all transmissions may take together, so that none is late."""


def _timing(exchange: Exchange, units: Units) -> _Timing | None:
    """The clock of an exchange; None where no order of messages is known."""
    route, medium = exchange.route, exchange.medium
    if exchange.clock == "paper":
        return _Slowest(route.uses * exchange.model_bits / route.bits)
    if medium.shared:
        return _Slots.of(exchange)
    if medium.turns:
        if route.chunks > 1:
            return _Turns(exchange)
        if route.steps == 1 and not is_tree(route):
            return _Colours(exchange)
        return _Queue.in_turns(exchange)
    if route.chunks > 1 or is_tree(route):
        return _Tree(exchange, units) if is_tree(route) else None
    if route.steps == 1:
        return _Slowest(np.full(len(units.unit), float(route.repeats)))
    return None if exchange.broadcast else _Queue.when_held(exchange)


@dataclass(frozen=True, eq=False)
class _Slowest:
    """All wait for the slowest; [T] seconds of the exchange for each second of a transmission."""

    times: FloatArray

    def seconds(self, times: FloatArray) -> float:
        return float((self.times * times).max())

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        return np.asarray(allowed_s / self.times)


class _Tree:
    """A tree, in one chunk or several, on orthogonal links: see `joulemesh.aggregation.play.Paths`.

    A path leads up from some device and down to another, and passes its slowest link for each
    chunk but one more.
    """

    def __init__(self, exchange: Exchange, units: Units) -> None:
        route = exchange.route
        tree = hang(
            route.edges, exchange.costs.take(route.link_index), exchange.devices, route.root
        )
        self.levels, self.parent = tree.levels[1:], tree.parent
        self.more, self.chunks, self.devices = route.chunks - 1, route.chunks, exchange.devices
        carrier = on_air(route, exchange.costs, broadcast=exchange.medium.broadcast).carrier
        up = route.step < route.steps // 2
        rows = np.arange(len(route.edge))
        self.child = np.concatenate([route.sender[up], route.receiver[~up]])
        self.carrier = np.concatenate([carrier[rows[up]], carrier[rows[~up]]])
        self.half = int(up.sum())
        self.count = len(units.unit)

    def _paths(self, times: FloatArray) -> tuple[FloatArray, FloatArray]:
        """[2, N] each: sums and maxima of the path of each device, up and down."""
        each = np.zeros((2, self.devices))
        per_chunk = times[self.carrier] / self.chunks
        each[0, self.child[: self.half]] = per_chunk[: self.half]
        each[1, self.child[self.half :]] = per_chunk[self.half :]
        total, most = np.zeros((2, self.devices)), np.zeros((2, self.devices))
        for level in self.levels:
            above = self.parent[level]
            total[:, level] = total[:, above] + each[:, level]
            most[:, level] = np.maximum(most[:, above], each[:, level])
        return total, most

    def seconds(self, times: FloatArray) -> float:
        total, most = self._paths(times)
        longest, plain = (total + self.more * most).max(axis=1), total.max(axis=1)
        return float(max(longest[0] + plain[1], longest[1] + plain[0]))

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        total, most = self._paths(times)
        below, plain = total + self.more * most, total.copy()
        ends, sums = below.max(axis=1), total.max(axis=1)
        for level in reversed(self.levels):
            above = self.parent[level]
            for part in (below, plain):
                np.maximum.at(part[0], above, part[0, level])
                np.maximum.at(part[1], above, part[1, level])
        through = np.maximum(below + sums[::-1, None], plain + ends[::-1, None])
        way = np.repeat([0, 1], [self.half, len(self.child) - self.half])
        longest = np.zeros(self.count)  # a broadcast is on the paths of all its receivers
        np.maximum.at(longest, self.carrier, through[way, self.child])
        return np.asarray(times * (allowed_s / longest))


class _Queue:
    """Messages one by one, each after some others; the transmissions of the pattern, played often.

    Every message begins when its two marks are free, and frees two marks when it ends.
    """

    def __init__(self, rows: list[int], before: list[tuple[int, int]], count: int) -> None:
        # ``before[k]``: up to two earlier messages for which message k waits, −1 for none
        self.rows, self.before, self.count = rows, before, count

    @classmethod
    def in_turns(cls, exchange: Exchange) -> _Queue:
        """Half duplex: a device takes part in one message at a time, in the order of the price."""
        route = exchange.route
        if is_tree(route):
            own = exchange.costs.take(route.link_index).for_messages(float(route.bits[0]))
            ends = zip(route.sender.tolist(), route.receiver.tolist(), strict=True)
            place = {pair: row for row, pair in enumerate(ends)}
            order = [
                place[pair]
                for pair in half_duplex_order(route.edges, own, exchange.devices, route.root)
            ]
        else:
            order = list(range(len(route.edge))) * route.repeats
        sender, receiver = route.sender.tolist(), route.receiver.tolist()
        last: dict[int, int] = {}
        before = []
        for number, row in enumerate(order):
            i, j = sender[row], receiver[row]
            before.append((last.get(i, -1), last.get(j, -1)))
            last[i] = last[j] = number
        return cls(order, before, len(route.edge))

    @classmethod
    def when_held(cls, exchange: Exchange) -> _Queue:
        """Orthogonal links: a device sends when it holds what it sends and its link is free.

        What a device holds is complete when the latest message of earlier steps has come, so
        arrivals are gathered in messages of no length, each after the one before it.
        """
        route = exchange.route
        sender, receiver = route.sender.tolist(), route.receiver.tolist()
        link = (2 * route.edge + route.forward).tolist()
        bounds = np.searchsorted(route.step, np.arange(route.steps + 1)).tolist()
        rows: list[int] = []
        before: list[tuple[int, int]] = []
        held: dict[int, int] = {}
        busy: dict[int, int] = {}
        for _ in range(route.repeats):
            for low, high in pairwise(bounds):
                sent = []
                for row in range(low, high):
                    before.append((held.get(sender[row], -1), busy.get(link[row], -1)))
                    busy[link[row]] = len(rows)
                    sent.append((row, len(rows)))
                    rows.append(row)
                for row, number in sent:
                    before.append((held.get(receiver[row], -1), number))
                    held[receiver[row]] = len(rows)
                    rows.append(-1)
        return cls(rows, before, len(route.edge))

    def _ends(self, times: FloatArray) -> tuple[list[float], list[float]]:
        """When each message ends, and its own seconds."""
        own = [*times.tolist(), 0.0]
        each = [own[row] for row in self.rows]  # −1 is the last: a message of no length
        ends: list[float] = []
        for (one, other), seconds in zip(self.before, each, strict=True):
            begins = max(ends[one] if one >= 0 else 0.0, ends[other] if other >= 0 else 0.0)
            ends.append(begins + seconds)
        return ends, each

    def seconds(self, times: FloatArray) -> float:
        return max(self._ends(times)[0], default=0.0)

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        ends, each = self._ends(times)
        after = [0.0] * len(ends)
        longest = [0.0] * (self.count + 1)
        for number in range(len(ends) - 1, -1, -1):
            rest, row = after[number], self.rows[number]
            longest[row] = max(longest[row], ends[number] + rest)
            for earlier in self.before[number]:
                if earlier >= 0:
                    after[earlier] = max(after[earlier], each[number] + rest)
        return np.asarray(times * (allowed_s / np.array(longest[:-1])))


class _Turns:
    """Half duplex in chunks: messages take turns as `joulemesh.aggregation.play.turns_s` says."""

    def __init__(self, exchange: Exchange) -> None:
        route = exchange.route
        self.chunks, self.devices, self.length = route.chunks, exchange.devices, route.length
        self.count = len(route.edge)
        self.lanes = half_duplex_lanes(route)
        last = np.arange(route.length)
        self.windows = [
            np.searchsorted(step, [last - route.chunks + 1, last + 1]).T.tolist()
            for step, _, _ in self.lanes
        ]

    def _played(self, each: FloatArray) -> Iterator[tuple[int, slice, FloatArray]]:
        """Lane, part of it and ends of the messages that take their turn together."""
        ready = np.zeros(self.devices)
        for step in range(self.length):
            for number, ((_, ends, rows), window) in enumerate(
                zip(self.lanes, self.windows, strict=True)
            ):
                part = slice(*window[step])
                if part.start < part.stop:
                    i, j = ends[:, part]
                    until = np.maximum(ready[i], ready[j]) + each[rows[part]]
                    ready[i] = ready[j] = until
                    yield number, part, until

    def seconds(self, times: FloatArray) -> float:
        return max(float(until.max()) for *_, until in self._played(times / self.chunks))

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        each, after = times / self.chunks, np.zeros(self.devices)
        longest = np.zeros(self.count)
        for number, part, until in reversed(list(self._played(each))):
            _, ends, rows = self.lanes[number]
            (i, j), row = ends[:, part], rows[part]
            rest = np.maximum(after[i], after[j])
            longest[row] = np.maximum(longest[row], until + rest)
            after[i] = after[j] = rest + each[row]
        return np.asarray(times * (allowed_s / longest))


class _Colours:
    """Half duplex, one step: links of one colour at once, each both ways, colour after colour."""

    def __init__(self, exchange: Exchange) -> None:
        route = exchange.route
        self.edge, self.links, self.repeats = route.edge, len(route.edges), route.repeats
        self.colour = edge_colours(route.edges, exchange.devices)

    def _lengths(self, times: FloatArray) -> tuple[FloatArray, FloatArray]:
        per_link = np.bincount(self.edge, times, self.links).astype(np.float64)
        lengths = np.zeros(int(self.colour.max()) + 1)
        np.maximum.at(lengths, self.colour, per_link)
        return per_link, lengths

    def seconds(self, times: FloatArray) -> float:
        return float(self.repeats * self._lengths(times)[1].sum())

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        per_link, lengths = self._lengths(times)
        grown = allowed_s / (self.repeats * float(lengths.sum()))
        return np.asarray(times * grown * (lengths[self.colour] / per_link)[self.edge])


class _Slots:
    """A shared medium, in the slots that the highest powers take.

    Attributes:
        slot: int64 [T].
        step: int64 [T]; all 0 unless the route is pipelined.
        chunks, repeats: of the route.
    """

    def __init__(self, slot: IntArray, step: IntArray, chunks: int, repeats: int) -> None:
        self.slot, self.step, self.chunks, self.repeats = slot, step, chunks, repeats
        self.turns = int(step.max(initial=0)) + chunks

    @classmethod
    def of(cls, exchange: Exchange) -> _Slots:
        route, medium = exchange.route, exchange.medium
        air = on_air(route, exchange.costs, broadcast=medium.broadcast)
        if route.chunks > 1:
            slot = frame(air, exchange.devices, medium.reach).slot
            return cls(slot, air.step, route.chunks, 1)
        slot = in_slots(air, exchange.devices, medium.reach).slot
        return cls(slot, np.zeros_like(slot), 1, route.repeats)

    def _lengths(self, times: FloatArray) -> FloatArray:
        """float64 [S, turns]: seconds of each slot in each turn."""
        longest = np.zeros((int(self.slot.max()) + 1, self.turns))
        if self.turns == 1:
            np.maximum.at(longest, (self.slot, self.step), times)
            return longest
        for step in range(self.turns - self.chunks + 1):
            now = self.step == step
            each = np.zeros(len(longest))
            np.maximum.at(each, self.slot[now], times[now])
            part = longest[:, step : step + self.chunks]
            np.maximum(part, each[:, None], out=part)
        return longest

    def seconds(self, times: FloatArray) -> float:
        return float(self._lengths(times).sum() * self.repeats / self.chunks)

    def room(self, times: FloatArray, allowed_s: float) -> FloatArray:
        longest = self._lengths(times)
        grown = allowed_s / (float(longest.sum()) * self.repeats / self.chunks)
        if self.turns == 1:
            return np.asarray(grown * longest[self.slot, 0])
        least = np.zeros_like(times)
        for step in range(self.turns - self.chunks + 1):
            now = self.step == step
            window = longest[:, step : step + self.chunks].min(axis=1)
            least[now] = window[self.slot[now]]
        return np.asarray(grown * least)


# A bound ------------------------------------------------------------------------------------------


def least_exchange_j(exchange: Exchange, seconds: float) -> FloatArray:
    """float64 [N]: joules below which no choice of powers brings a device, within some seconds.

    Every transmission is looked at by itself: it takes no longer than the whole exchange, its
    sender draws the least that this allows, and its receivers listen no longer than they must.
    That holds for this route, whatever the order of its messages.
    """
    route, costs = exchange.route, exchange.costs
    if costs.radio is None or not len(route.edge):
        return exchange.device_j(costs)
    units = Units.of(exchange)
    # Chunks of a transmission and plays of a pattern follow one another.
    most = units.within(np.full(len(units.unit), seconds / route.repeats))
    grid = 1.0 + (np.minimum(most, units.grid[:, -1]) - 1.0)[:, None] * np.linspace(0, 1, _GRID)
    if units.levels_w is not None:
        least = _below_levels_j(units, most)
    else:
        # Joules are a product of a falling power and rising seconds: between two neighbours of the
        # grid they are at least the power of the one at the seconds of the other.
        power, drawn = units.power_w(grid)
        del power
        least = units.joules(grid[:, :-1], drawn[:, 1:], sent=True).min(axis=1)
        least = np.minimum(least, units.joules(grid[:, :1], drawn[:, :1], sent=True)[:, 0])
    whole = units.joules(np.ones(len(most)), _drawn_at_full(units), sent=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(whole > 0, np.minimum(least / whole, 1.0), 1.0)
    sent, heard = exchange_parts_j(route, costs, exchange.devices, exchange.pays, exchange.medium)
    air = on_air(route, replace(costs, message=None), broadcast=exchange.medium.broadcast)
    saved_j = air.joules * route.repeats * (1.0 - share[units.unit])
    sent = sent - np.bincount(air.sender, saved_j, exchange.devices)
    if exchange.pays == "both-ends":
        heard = heard - np.bincount(route.receiver, saved_j[air.carrier], exchange.devices)
    return np.asarray(sent + heard)


def _below_levels_j(units: Units, most: FloatArray) -> FloatArray:
    """[U] joules below which no mixture of levels brings a sender, at so slow at the most.

    Mixtures, so that the bound is convex in the seconds and holds on average over exchanges.
    """
    levels = units.levels_w
    assert levels is not None
    at = units.slower_at(levels[..., 0])
    spent = units.joules(at, levels[..., 1], sent=True)
    fast = at <= most[:, None] * (1 + _EXACT)
    least = np.where(fast, spent, np.inf).min(axis=1)
    for one, other in combinations(range(at.shape[1]), 2):  # the first is the slower
        gap = at[:, one] - at[:, other]
        share = np.divide(most - at[:, other], gap, out=np.zeros_like(gap), where=gap > 0)
        mixed = spent[:, other] + np.clip(share, 0.0, 1.0) * (spent[:, one] - spent[:, other])
        least = np.where(fast[:, other], np.minimum(least, mixed), least)
    return np.asarray(least)


def _drawn_at_full(units: Units) -> FloatArray:
    _, _, highest, circuit, _ = units._radio
    return np.asarray(highest + circuit)
