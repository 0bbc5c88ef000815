"""What a device has spent: by a model of its rounds and bytes, or by a sensor where there is one.

A plan's joules are modelled: so many for a local round, so many for a byte to each neighbour. A
`Modelled` meter counts rounds and bytes at those prices. A `Measured` one reads a sensor of the
machine, which sees everything that the machine draws.
"""

from __future__ import annotations

__all__ = ["METERS", "Measured", "Modelled", "RunMeter", "Tariff", "make_meter"]

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Protocol

from joulemesh.deploy.device.sensors import Sensor, battery_sensor, processor_sensor
from joulemesh.deploy.plans import Meter
from joulemesh.errors import ScenarioError
from joulemesh.planning.ground import Ground
from joulemesh.world.links import LinkCosts

METERS = ("auto", "modelled", "battery", "processor")
_SYS = Path("/sys/class")
_READ_EVERY_S = 1.0


@dataclass(frozen=True)
class Tariff:
    """What a plan assumes that things cost one device.

    Attributes:
        round_j: joules of one local round.
        send_j: joules of a byte to a neighbour, in an iteration (from 1).
        receive_j: joules of a byte from one.
        source: where the figures come from.
    """

    round_j: float
    send_j: Callable[[int, int], float]
    receive_j: Callable[[int, int], float]
    source: str = "modelled"

    @classmethod
    def of(cls, ground: Ground, device: int, parameter_bytes: float) -> Tariff:
        """The plan's own prices.

        Args:
            ground: what the plan stands on.
            device: its number.
            parameter_bytes: bytes in which a parameter is sent. The plan prices each as so many
                bits (``network.bits_per_parameter``), whatever it is sent as.

        >>> from joulemesh.scenario import Scenario
        >>> ground = Ground.of(Scenario.preset("adaptive"))
        >>> tariff = Tariff.of(ground, 0, 4)
        >>> bool(tariff.round_j == ground.world.devices.round_energy_j[0])
        True
        """
        scenario, work = ground.scenario, ground.work
        bits = work.model_bits / (work.parameters * parameter_bytes)
        both = scenario.plan.pays == "both-ends"
        ends = {(int(i), int(j)): k for k, (i, j) in enumerate(ground.world.graph.edges)}
        fading = ground.world.channel.fading
        first = None if fading else ground.costs(0)

        def price(sender: int, receiver: int, iteration: int) -> float:
            costs: LinkCosts = ground.costs(iteration - 1) if first is None else first
            forward = (sender, receiver) in ends
            link = ends[(sender, receiver) if forward else (receiver, sender)]
            return bits * float((costs.forward_j if forward else costs.backward_j)[link])

        return cls(
            round_j=float(ground.world.devices.round_energy_j[device]),
            send_j=lambda to, iteration: price(device, to, iteration),
            receive_j=lambda sender, iteration: price(sender, device, iteration) if both else 0.0,
            source=f"modelled: the plan's joules per round and per bit ({scenario.plan.pays} pays)",
        )


class RunMeter(Meter, Protocol):
    """A meter that the runner can carry through a run.

    Attributes:
        iteration: the one in progress (from 1): prices of links may change from one to the next.
        source: where its figures come from, in words.
        measures: whether a sensor counts, rather than a model.
    """

    iteration: int
    source: str
    measures: bool


class Modelled:
    """Counts rounds and bytes at the plan's prices.

    Args:
        battery_j: joules that may be spent in all.
        tariff: the prices.
        spent_j: joules spent before.

    >>> meter = Modelled(10.0, Tariff(2.0, lambda to, t: 0.5, lambda sender, t: 0.0))
    >>> meter.train(3)
    >>> meter.send(1, 4)
    >>> meter.spent_j(), meter.left_j()
    (8.0, 2.0)
    """

    def __init__(self, battery_j: float, tariff: Tariff, spent_j: float = 0.0) -> None:
        self.battery_j, self.tariff, self.iteration = battery_j, tariff, 1
        self.source, self.measures = tariff.source, False
        self._spent_j = spent_j

    def left_j(self) -> float:
        """Joules that may still be spent."""
        return self.battery_j - self.spent_j()

    def train_j(self, rounds: int) -> float:
        """Joules that local rounds take."""
        return rounds * self.tariff.round_j

    def send_j(self, to: int, payload_bytes: int) -> float:
        """Joules that a message to a neighbour takes."""
        return payload_bytes * self.tariff.send_j(to, self.iteration)

    def train(self, rounds: int) -> None:
        """Local rounds are begun."""
        self._spent_j += self.train_j(rounds)

    def send(self, to: int, payload_bytes: int) -> None:
        """A message with parameters is sent to a neighbour, for the first time or again."""
        self._spent_j += self.send_j(to, payload_bytes)

    def receive(self, sender: int, payload_bytes: int) -> None:
        """A message with parameters has come from a neighbour."""
        self._spent_j += payload_bytes * self.tariff.receive_j(sender, self.iteration)

    def spent_j(self) -> float:
        """Joules spent so far."""
        return self._spent_j


class Measured(Modelled):
    """Counts what a sensor says; while the sensor cannot be read, what the plan assumes.

    Args:
        battery_j: joules that may be spent in all.
        tariff: the prices, for when the sensor fails.
        sensor: what is read, once a second at most.
        spent_j: joules spent before.
        clock: seconds of a clock that nobody sets.

    >>> tariff = Tariff(2.0, lambda to, t: 0.5, lambda sender, t: 0.0)
    >>> readings = iter([5.0, 6.5])
    >>> meter = Measured(10.0, tariff, Sensor("toy", lambda: next(readings)), clock=iter([0, 9]).__next__)
    >>> meter.train(3)
    >>> meter.spent_j()
    1.5
    """  # noqa: E501

    def __init__(
        self,
        battery_j: float,
        tariff: Tariff,
        sensor: Sensor,
        spent_j: float = 0.0,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(battery_j, tariff, spent_j)
        self.source, self.measures = f"measured: {sensor.name}", True
        self._sensor, self._clock = sensor, clock
        self._measured_j, self._modelled_j = spent_j, spent_j  # the latter at the last good reading
        self._reading, self._at = sensor.joules(), clock()

    def spent_j(self) -> float:
        """Joules spent so far, by the sensor as far as it could be read."""
        now = self._clock()
        if now - self._at >= _READ_EVERY_S:
            self._at, reading = now, self._sensor.joules()
            if reading is not None:
                known = self._reading is not None
                # Where the sensor was away, the model fills in; a battery that charges gives none.
                added = reading - (self._reading or 0.0) if known else 0.0
                self._measured_j += max(0.0, added) if known else self._since_j()
                self._modelled_j = self._spent_j
            elif self._reading is not None:
                self._modelled_j = min(self._modelled_j, self._spent_j)
            self._reading = reading
        return self._measured_j + (0.0 if self._reading is not None else self._since_j())

    def _since_j(self) -> float:
        return self._spent_j - self._modelled_j


def make_meter(
    kind: str, battery_j: float, tariff: Tariff, spent_j: float = 0.0, system: Path = _SYS
) -> RunMeter:
    """The meter of a device.

    Args:
        kind: ``"modelled"``; ``"battery"`` (Linux's ``power_supply``) or ``"processor"``
            (``powercap``: what its processors and memory draw, whoever uses them); ``"auto"`` takes
            a battery that the machine is running on, or else the model.
        battery_j: joules that may be spent in all.
        tariff: the plan's prices.
        spent_j: joules spent before.
        system: where the system shows its sensors.

    Raises:
        ScenarioError: the sensor that is asked for is not there or cannot be read.

    >>> tariff = Tariff(2.0, lambda to, t: 0.5, lambda sender, t: 0.0)
    >>> make_meter("modelled", 5.0, tariff).left_j()
    5.0
    """
    if kind not in METERS:
        raise ScenarioError(f"--meter {kind} is unknown: use {', '.join(METERS)}")
    finders = {
        "auto": partial(battery_sensor, system / "power_supply", discharging=True),
        "battery": partial(battery_sensor, system / "power_supply"),
        "processor": partial(processor_sensor, system / "powercap"),
    }
    sensor = finders[kind]() if kind in finders else None
    if sensor is None and kind not in ("auto", "modelled"):
        place = {"battery": "power_supply", "processor": "powercap"}[kind]
        raise ScenarioError(
            f"--meter {kind}: {system / place} has no such sensor that this user can read; run "
            "as a user who can, or use --meter modelled"
        )
    if sensor is None:
        return Modelled(battery_j, tariff, spent_j)
    return Measured(battery_j, tariff, sensor, spent_j)
