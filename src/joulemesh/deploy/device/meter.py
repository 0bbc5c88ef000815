"""What a device has spent: by a model of its rounds and bytes, or by a meter where there is one.

A plan's joules are modelled: so many for a local round, so many for a message to each neighbour, or
to all of them at once where the plan broadcasts, with the headers of its packets, their time on the
air and its handling. A `Modelled` meter counts rounds and messages at those prices. A `Measured`
one reads a meter of `joulemesh.meters`, which sees everything that the machine draws.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Protocol

import numpy as np

from joulemesh import meters
from joulemesh.aggregation.air import on_air
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.effects import Meter
from joulemesh.meters import MeterError, MeterOptions
from joulemesh.planning.ground import Ground
from joulemesh.world.links import LinkCosts


@dataclass(frozen=True)
class Cast:
    """Prices of one device's messages in one exchange."""

    # (step, receiver) -> joules of a bit: those of the broadcast for the first of its receivers, 0
    # for the others
    send_j: Mapping[tuple[int, int], float]
    # (step, sender) -> joules of a bit that the sender of the broadcast pays
    heard_j: Mapping[tuple[int, int], float]


def cast_of(route: Route, costs: LinkCosts, device: int) -> Cast:
    """The prices of a device's messages along a route, as the plan charges them.

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


AUTO, MODELLED = "auto", "modelled"
_READ_EVERY_S = 0.1


@dataclass(frozen=True)
class Tariff:
    """What a plan assumes that things cost one device."""

    round_j: float  # joules of one local round
    # joules of a byte to a neighbour, in an iteration (from 1), in a message of so many bits
    send_j: Callable[[int, int, float], float]
    receive_j: Callable[[int, int, float], float]  # joules of a byte from one, likewise
    source: str = "modelled"  # where the figures come from
    idle_w: float = 0.0  # watts that it draws at rest, through every iteration
    # prices of an exchange along a route, in an iteration (from 1), as joules of a byte; None
    # where every message is paid for by itself
    cast: Callable[[Route, int], Cast] | None = None
    # called when an exchange along a route begins, in an iteration (from 1): its messages go at the
    # powers that the plan has chosen; None where it chooses none
    powers: Callable[[Route, int], None] | None = None
    byte_bits: float = 8.0  # bits that the plan counts for a byte

    @classmethod
    def of(cls, ground: Ground, device: int, parameter_bytes: float) -> Tariff:
        """The plan's own prices.

        >>> from joulemesh.scenario import Scenario
        >>> ground = Ground.of(Scenario.preset("adaptive"))
        >>> tariff = Tariff.of(ground, 0, 4)
        >>> bool(tariff.round_j == ground.world.devices.round_energy_j[0])
        True
        """
        scenario, work, devices = ground.scenario, ground.work, ground.world.devices
        bits = work.model_bits / (work.parameters * parameter_bytes)
        both = scenario.plan.pays == "both-ends"
        ends = {(int(i), int(j)): k for k, (i, j) in enumerate(ground.world.graph.edges)}
        first = None if ground.world.channel.fading else ground.costs(0)

        sent: dict[int, LinkCosts] = {}  # of the iteration whose exchange has begun

        def costs_in(iteration: int) -> LinkCosts:
            whole = ground.costs(iteration - 1) if first is None else first
            return sent.get(iteration, whole)

        def powers(route: Route, iteration: int) -> None:
            sent.clear()
            sent[iteration] = ground.pricer.sent(route, costs_in(iteration))

        def prices(sender: int, receiver: int, iteration: int, size: float) -> tuple[float, float]:
            """Joules of a byte at the sender and at the receiver, in a message of so many bits."""
            forward = (sender, receiver) in ends
            link = ends[(sender, receiver) if forward else (receiver, sender)]
            costs = costs_in(iteration).take(np.array([link])).for_messages(size)
            send = costs.forward_j if forward else costs.backward_j
            receive = costs.forward_receive_j if forward else costs.backward_receive_j
            return bits * float(send[0]), 0.0 if receive is None else bits * float(receive[0])

        def receive_j(sender: int, iteration: int, size: float) -> float:
            sent, received = prices(sender, device, iteration, size)
            return sent if both else received

        def cast(route: Route, iteration: int) -> Cast:
            one = cast_of(route, costs_in(iteration), device)
            heard_j = {key: bits * price for key, price in one.heard_j.items()} if both else {}
            return Cast({key: bits * price for key, price in one.send_j.items()}, heard_j)

        broadcast = ground.pricer.medium.broadcast
        once = "; a broadcast once, though its bytes go to each neighbour by unicast"
        return cls(
            round_j=float(devices.round_energy_j[device]),
            send_j=lambda to, iteration, size: prices(device, to, iteration, size)[0],
            receive_j=receive_j,
            source="modelled: the plan's joules per round and per message "
            f"({scenario.plan.pays} pays)" + (once if broadcast else ""),
            idle_w=0.0 if devices.idle_w is None else float(devices.idle_w[device]),
            cast=cast if broadcast else None,
            powers=None if scenario.plan.power == "full" else powers,
            byte_bits=bits,
        )


class RunMeter(Meter, Protocol):
    """A meter that the runner can carry through a run."""

    iteration: int  # the one in progress (from 1): prices of links may change from one to the next
    source: str  # where its figures come from, in words
    measures: bool  # whether a meter of the machine counts, rather than a model
    # called with the reason when a meter cannot be read, so that the model counts
    when_unread: Callable[[str], None]

    def rest(self, iteration: int, seconds: float) -> None:
        """An iteration is under way that takes so many seconds by the plan."""

    def close(self) -> None: ...


class Modelled:
    """Counts rounds and bytes at the plan's prices.

    >>> meter = Modelled(10.0, Tariff(2.0, lambda to, t, bits: 0.5, lambda sender, t, bits: 0.0))
    >>> meter.train(3)
    >>> meter.send(1, 4)
    >>> meter.spent_j(), meter.left_j()
    (8.0, 2.0)
    """

    def __init__(self, battery_j: float, tariff: Tariff, spent_j: float = 0.0) -> None:
        self.battery_j, self.tariff, self.iteration = battery_j, tariff, 1
        self.source, self.measures = tariff.source, False
        self.when_unread: Callable[[str], None] = lambda reason: None
        self._spent_j, self._rested = spent_j, 0
        self._cast: Cast | None = None
        self._message_bits: float | None = None  # of the exchange, where all are of one size

    def rest(self, iteration: int, seconds: float) -> None:
        """An iteration is under way: what is drawn at rest goes on through all of it."""
        if iteration > self._rested:
            self._rested = iteration
            self._spent_j += self.tariff.idle_w * seconds

    def left_j(self) -> float:
        return self.battery_j - self.spent_j()

    def train_j(self, rounds: int) -> float:
        return rounds * self.tariff.round_j

    def exchange(self, route: Route, iteration: int) -> None:
        self._cast, sizes = None, np.unique(route.message_bits)
        self._message_bits = float(sizes[0]) if len(sizes) == 1 else None
        if self.tariff.powers is not None:
            self.tariff.powers(route, iteration)
        if self.tariff.cast is not None and route.same_to_all:
            self._cast = self.tariff.cast(route, iteration)

    def send_j(self, to: int, payload_bytes: int, step: int | None = None) -> float:
        """Joules that a message to a neighbour takes."""
        each_j = None
        if self._cast is not None and step is not None:
            each_j = self._cast.send_j.get((step, to))
        if each_j is None:
            each_j = self.tariff.send_j(to, self.iteration, self._size(payload_bytes, step))
        return payload_bytes * each_j

    def _size(self, payload_bytes: int, step: int | None) -> float:
        """Bits of a message: those that the plan counts for one of its exchange."""
        if step is not None and self._message_bits is not None:
            return self._message_bits
        return max(payload_bytes, 1) * self.tariff.byte_bits

    def train(self, rounds: int) -> None:
        self._spent_j += self.train_j(rounds)

    def send(self, to: int, payload_bytes: int, step: int | None = None) -> None:
        """A message with parameters is sent to a neighbour, for the first time or again."""
        self._spent_j += self.send_j(to, payload_bytes, step)

    def receive(self, sender: int, payload_bytes: int, step: int | None = None) -> None:
        """A message with parameters has come from a neighbour."""
        each_j = None
        if self._cast is not None and step is not None:
            each_j = self._cast.heard_j.get((step, sender))
        if each_j is None:
            size = self._size(payload_bytes, step)
            each_j = self.tariff.receive_j(sender, self.iteration, size)
        self._spent_j += payload_bytes * each_j

    def spent_j(self) -> float:
        return self._spent_j

    def recall(self, spent_j: float) -> None:
        self._spent_j = max(self._spent_j, spent_j)

    def close(self) -> None: ...


class Measured(Modelled):
    """Counts what a meter says; while it cannot be read, what the plan assumes.

    >>> tariff = Tariff(2.0, lambda to, t, bits: 0.5, lambda sender, t, bits: 0.0)
    >>> seconds = iter([0.0, 0.0, 0.0, 9.0, 9.0]).__next__
    >>> declared = meters.open_meter("declared", MeterOptions(watts=5.0, clock=seconds))
    >>> meter = Measured(100.0, tariff, declared, clock=seconds)
    >>> meter.train(3)  # which the meter sees by itself
    >>> meter.spent_j(), meter.source
    (45.0, 'declared 5 W')
    """

    def __init__(
        self,
        battery_j: float,
        tariff: Tariff,
        meter: meters.Meter,
        spent_j: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(battery_j, tariff, spent_j)
        self.source, self.measures = meter.source, True
        self._meter, self._clock = meter, clock
        self._measured_j, self._modelled_j = spent_j, spent_j  # the latter at the last good reading
        self._reading: float | None = 0.0
        self._reading, self._at = self._read(), clock()

    def spent_j(self) -> float:
        """Joules spent so far, by the meter as far as it could be read."""
        now = self._clock()
        if now - self._at >= _READ_EVERY_S:
            self._at, reading = now, self._read()
            if reading is not None:
                known = self._reading is not None
                # Where the meter was away the model fills in, whatever it has counted by then.
                added = reading - (self._reading or 0.0) if known else 0.0
                self._measured_j += max(0.0, added) if known else self._since_j()
                self._modelled_j = self._spent_j
            elif self._reading is not None:
                self._modelled_j = min(self._modelled_j, self._spent_j)
            self._reading = reading
        return self._measured_j + (0.0 if self._reading is not None else self._since_j())

    def recall(self, spent_j: float) -> None:
        more_j = max(0.0, spent_j - self.spent_j())
        self._spent_j += more_j
        self._measured_j += more_j
        self._modelled_j += more_j

    def close(self) -> None:
        self._meter.close()

    def _read(self) -> float | None:
        try:
            return self._meter.joules()
        except MeterError as error:
            if self._reading is not None:  # once, not with every reading
                self.when_unread(str(error))
            return None

    def _since_j(self) -> float:
        return self._spent_j - self._modelled_j


def make_meter(
    asked: str,
    battery_j: float,
    tariff: Tariff,
    spent_j: float = 0.0,
    options: MeterOptions | None = None,
) -> RunMeter:
    """The meter of a device.

    >>> tariff = Tariff(2.0, lambda to, t, bits: 0.5, lambda sender, t, bits: 0.0)
    >>> make_meter("modelled", 5.0, tariff).left_j()
    5.0
    >>> make_meter("auto", 5.0, tariff, options=MeterOptions(watts=6.5)).source
    'declared 6.5 W'
    """
    options = options or MeterOptions()
    if asked == MODELLED:
        if options.watts is not None:
            raise ScenarioError(
                f"--meter modelled counts by the plan's prices; leave out --watts {options.watts:g}"
            )
        return Modelled(battery_j, tariff, spent_j)
    if asked != AUTO or options.watts is not None:
        return Measured(battery_j, tariff, meters.open_meter(asked, options), spent_j)
    with suppress(MeterError):
        return Measured(battery_j, tariff, meters.open_meter(AUTO, options), spent_j)
    return Modelled(battery_j, tariff, spent_j)


def trains_on_gpu() -> bool:
    """Whether JAX would take an NVIDIA GPU here, found out without loading it.

    Then only what sees the GPU may be chosen as a meter.
    """
    asked = os.environ.get("JAX_PLATFORMS", "")
    able = any(find_spec(f"jax_cuda{version}_plugin") for version in (12, 13))
    wanted = not asked or any(name in asked for name in ("cuda", "gpu"))
    return able and wanted and Path("/dev/nvidiactl").exists()
