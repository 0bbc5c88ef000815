"""What a meter is, and how one is found."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Protocol

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.registry import Registry


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


# In the order in which they are chosen; those of the user's own come first.
METERS: Registry[MeterKind] = Registry(
    "meter",
    {
        "jetson": "joulemesh.meters.sysfs",
        "nvml": "joulemesh.meters.sysfs",
        "pi5": "joulemesh.meters.sysfs",
        "powercap": "joulemesh.meters.sysfs",
        "psys": "joulemesh.meters.sysfs",
        "battery": "joulemesh.meters.sysfs",
        "declared": "joulemesh.meters.meter",
        "csv": "joulemesh.meters.external",
    },
)

AUTO = "auto"


@dataclass(frozen=True)
class Choice:
    """What was chosen for a machine.

    Attributes:
        kind: of the meter; None if there is none.
        reason: why this one, or what to do if there is none, in a sentence.
    """

    kind: MeterKind | None
    reason: str


def findings(options: MeterOptions | None = None) -> dict[MeterKind, Finding]:
    """What each kind of meter finds on this machine.

    >>> [kind.name for kind in findings() if kind.name == "declared"]
    ['declared']
    """
    options = options or MeterOptions()
    return {kind: kind.find(options) for kind in METERS}


def choose(options: MeterOptions | None = None) -> Choice:
    """The meter that suits this machine, and why.

    Watts or a file that the user gives win. Otherwise the user's own kinds come first, then the
    built-in ones in the order of `METERS`; the first that can be read is taken. Where training is
    done on an NVIDIA GPU, only what sees the GPU will do.

    >>> choose(MeterOptions(watts=6.5)).reason
    '6.5 W are declared'
    """
    options = options or MeterOptions()
    if options.watts is not None:
        return Choice(METERS["declared"], f"{options.watts:g} W are declared")
    if options.file is not None:
        return Choice(METERS["csv"], f"{options.file} is given")
    own = [name for name in METERS.names() if name not in METERS.built_in]
    remedies = []
    for name in (*own, *METERS.built_in):
        kind = METERS[name]
        if not kind.suits(options):
            continue
        found = kind.find(options)
        if found.ready:
            return Choice(kind, f"{found.what}, which sees {kind.sees}")
        if found.remedy:
            remedies.append(f"{kind.name}: {found.what} ({_one_line(found.remedy)})")
    advice = "give --watts W, or --meter FILE.csv of an external meter"
    return Choice(None, "; ".join(["no meter can be read on this machine", *remedies, advice]))


def _one_line(remedy: str) -> str:
    return remedy.splitlines()[0]


def open_meter(asked: str = AUTO, options: MeterOptions | None = None) -> Meter:
    """Open the meter that is asked for.

    Args:
        asked: a name in `METERS`, a file that ends in ``.csv``, or ``"auto"``.
        options: what opening depends on.

    Raises:
        MeterError: the meter cannot be used here; the text says what to do.
        ScenarioError: there is no such meter.

    >>> open_meter("auto", MeterOptions(watts=6.5)).source
    'declared 6.5 W'
    """
    options = options or MeterOptions()
    if asked.lower().endswith(".csv"):
        asked, options = "csv", replace(options, file=Path(asked))
    if asked != AUTO:
        return METERS[asked].open(options)
    choice = choose(options)
    if choice.kind is None:
        raise MeterError(choice.reason)
    return choice.kind.open(options)


_MOST_CHARACTERS = 4096


def open_file(path: Path) -> IO[str]:
    """Open a sensor's file; tests put a system without permission in its place."""
    return path.open(encoding="utf-8")


def text_of(path: Path) -> str:
    try:
        with open_file(path) as file:
            return file.read(_MOST_CHARACTERS).strip()
    except FileNotFoundError:
        raise MeterError(
            f"{path} is not there (any more); is the sensor's driver loaded?"
        ) from None
    except PermissionError:
        raise MeterError(
            f"{path} may not be read by this user; `joulemesh doctor` has the line that allows it"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise MeterError(f"{path} cannot be read ({reason}); try again, or another meter") from None


def number_of(path: Path) -> float:
    text = text_of(path)
    number = math.nan
    with suppress(ValueError):
        number = float(text)
    if not math.isfinite(number):
        raise MeterError(f"{path} says {text[:40]!r}, which is no number; use another meter")
    return number


def flag(path: Path) -> str:
    try:
        return text_of(path)
    except MeterError:
        return ""


def model_of_board(root: Path) -> str:
    """The board's name, where the system has a device tree; empty elsewhere."""
    return flag(root / "proc" / "device-tree" / "model").replace("\0", "").strip()


_MOST_W_COUNTER = 2e4  # no part of a machine that has such a counter draws more
_SLACK_S = 1.0  # what was counted between two moments may have been drawn a little earlier


class Counter:
    """Joules since the first reading, by a counter that wraps."""

    # Between two readings it may start again once: a counter of 65 kJ at 200 W has to be read every
    # five minutes.

    def __init__(
        self,
        what: str,
        read_j: Callable[[], float],
        clock: Callable[[], float],
        range_j: float | None = None,
    ) -> None:
        self._what, self._read_j, self._clock, self._range_j = what, read_j, clock, range_j
        self._total_j = 0.0
        self._last_j, self._at = self._reading(), clock()

    def joules(self) -> float:
        now_j, at = self._reading(), self._clock()
        step = now_j - self._last_j
        if step < 0 and self._range_j is not None:
            step += self._range_j
        most = _MOST_W_COUNTER * (at - self._at + _SLACK_S)
        if not 0 <= step <= most:
            raise MeterError(
                f"{self._what} jumped from {self._last_j:.6g} J to {now_j:.6g} J in "
                f"{at - self._at:.1f} s; it was reset (did the machine sleep?): measure again"
            )
        self._total_j += step
        self._last_j, self._at = now_j, at
        return self._total_j

    def _reading(self) -> float:
        found = self._read_j()
        if found < 0:
            raise MeterError(f"{self._what} says {found:.6g} J, which is negative; use another")
        return found


_MOST_W = 2e4
_MOST_BAD = 3  # readings in a row that may fail, as a busy bus makes them


class Sampled:
    """Integrates watts by the trapezoidal rule, in a thread of its own and at every call."""

    def __init__(
        self,
        name: str,
        source: str,
        watts: Callable[[], float],
        options: MeterOptions,
        period_s: float = 0.1,
        state: Callable[[], dict[str, float]] = dict,
    ) -> None:
        self.name, self.source, self.state = name, source, state
        self._read_w, self._clock, self._period_s = watts, options.clock, period_s
        self._lock, self._over = threading.Lock(), threading.Event()
        self._total_j, self._bad = 0.0, 0
        self._error: MeterError | None = None
        self._watts, self._at = self._reading(), self._clock()
        self._thread: threading.Thread | None = None
        if options.threads:
            self._thread = threading.Thread(target=self._sample_on, name=name, daemon=True)
            self._thread.start()

    def joules(self) -> float:
        self.sample()
        with self._lock:
            if self._error is not None:
                raise self._error
            return self._total_j

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def sample(self) -> None:
        """Read the sensor once; what failed readings have missed, the next good one bridges."""
        with self._lock:
            try:
                watts = self._reading()
            except MeterError as error:
                self._bad += 1
                if self._bad > _MOST_BAD:
                    self._error = error
                return
            now = self._clock()
            self._total_j += (now - self._at) * (watts + self._watts) / 2
            self._watts, self._at, self._bad = watts, now, 0

    def _sample_on(self) -> None:
        while not self._over.wait(self._period_s) and self._error is None:
            self.sample()

    def _reading(self) -> float:
        watts = self._read_w()
        if not (math.isfinite(watts) and 0 <= watts <= _MOST_W):
            raise MeterError(f"{self.source}: {watts:g} W cannot be; use another meter")
        return watts


_MOST_W_DECLARED = 1e5


class Declared:
    """Counts the seconds since it was opened, at so many watts."""

    name = "declared"

    def __init__(self, options: MeterOptions) -> None:
        watts = options.watts
        if watts is None:
            raise ScenarioError("--meter declared needs the watts: add --watts 6.5")
        if not (math.isfinite(watts) and 0 < watts <= _MOST_W_DECLARED):
            raise ScenarioError(
                f"--watts {watts:g} is no power that a device draws: write more than 0 and at most "
                f"{_MOST_W_DECLARED:,.0f}"
            )
        self.watts, self._clock = watts, options.clock
        self.source = f"declared {watts:g} W"
        self._begun = self._clock()

    def joules(self) -> float:
        return self.watts * (self._clock() - self._begun)

    def close(self) -> None:
        """Do nothing: there is no sensor."""


def _find(options: MeterOptions) -> Finding:
    if options.watts is None:
        return Finding(False, "no watts are declared", "add --watts 6.5")
    return Finding(True, f"{options.watts:g} W")


METERS.register(
    MeterKind(
        name="declared",
        description="Watts that you declare, times seconds.",
        find=_find,
        open=Declared,
        sees="what you say",
        suits=lambda options: False,
        least_s=0.0,
    )
)
