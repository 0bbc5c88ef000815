"""What a meter is, and how one is found."""

from __future__ import annotations

__all__ = ["Finding", "Meter", "MeterError", "MeterKind", "MeterOptions"]

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from joulemesh.errors import JoulemeshError


class MeterError(JoulemeshError):
    """A meter cannot be read, or what it says cannot be true; the text says what to do."""


class Meter(Protocol):
    """Counts joules from the moment at which it was opened.

    Whatever samples watts integrates them itself, in a thread of its own or between calls. A meter
    may also have ``mark()``, which gives a function for the joules up to now, to be called later
    (an external logger lags), and ``state()``, figures of what it measures by name: ``clock_hz``,
    ``temperature_c``, and ``throttled``, which is not 0 while that is slowed down.
    """

    @property
    def name(self) -> str:
        """The name of its kind: ``"powercap"``."""

    @property
    def source(self) -> str:
        """Where its figures come from: ``"measured by powercap package-0"``, ``"declared 6.5 W"``.

        Figures from a copy of a machine's sensors begin with ``"recorded"``, never with
        ``"measured"``.
        """

    def joules(self) -> float:
        """Joules since the meter was opened; never fewer than in an earlier call.

        Raises:
            MeterError: the sensor has vanished, may not be read, or gives impossible figures.
        """

    def close(self) -> None:
        """Stop measuring; a second call does nothing."""


@dataclass(frozen=True)
class MeterOptions:
    """What opening a meter may depend on.

    Attributes:
        root: the folder in which the system's ``/sys`` is; another holds a recorded copy.
        watts: what the user declares that the machine draws while it trains.
        file: the CSV file of an external meter.
        accelerator: is training done on an NVIDIA GPU?
        clock: seconds of a clock that nobody sets.
        threads: may a meter that shows watts sample them in a thread of its own?
    """

    root: Path = Path("/")
    watts: float | None = None
    file: Path | None = None
    accelerator: bool = False
    clock: Callable[[], float] = time.monotonic
    threads: bool = True

    @property
    def verb(self) -> str:
        """How a source begins: figures from a copy of the sensors are not measured.

        >>> MeterOptions().verb, MeterOptions(root=Path("tests/meters")).verb
        ('measured by', 'recorded from')
        """
        return "measured by" if self.root == Path("/") else "recorded from"


@dataclass(frozen=True)
class Finding:
    """Whether a kind of meter can be used on a machine.

    Attributes:
        ready: it can be opened and read.
        what: what was found, or what is missing.
        remedy: the line to type, or the change to make, where something found cannot be used.
    """

    ready: bool
    what: str
    remedy: str = ""


@dataclass(frozen=True)
class MeterKind:
    """A kind of meter, as the registry `METERS` holds it.

    Attributes:
        name: by which ``--meter`` asks for it.
        description: one line.
        find: looks whether it can be used; never raises for a machine that has no such sensor.
        open: gives the meter, counting from 0; raises `MeterError` if it cannot.
        sees: whose draw it counts: ``"the processor packages and their memory"``.
        suits: may it be chosen without being asked for? Some do not see what trains.
        least_s: seconds below which a reading says little.
    """

    name: str
    description: str
    find: Callable[[MeterOptions], Finding]
    open: Callable[[MeterOptions], Meter]
    sees: str
    suits: Callable[[MeterOptions], bool] = lambda options: True
    least_s: float = 10.0
