"""What a scenario says of its devices over time: who is there, what they harvest, where they are.

The tables are CSV files with a column ``t`` (iterations, from 1) or ``time_s`` (seconds since
training began) and a column ``device`` (a number or a name); see docs/how-to/traces.md. A row holds
from its time on until the device's next. What is asked for is what holds at a time; nothing here
looks ahead of it.

Where devices move, the graph holds every link that ever exists, so that a link keeps its number;
which of them exist in a snapshot says a mask. A planner sees the present one only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.scenario.sections import FILES
from joulemesh.tables import number_column, read_table
from joulemesh.world.quantities import MOST, require_usable, resolve
from joulemesh.world.topology import Graph, links_at, topology_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Timed:
    """Rows of (time, device, figures), in the order of time.

    Attributes:
        path: of the file, for messages.
        seconds: are times seconds since the start, and not iterations?
        time: float64 [R], ascending.
        device: int64 [R].
        value: float64 [R, K]: K figures of the device from that time on.
        before: float64 [N, K]: what holds before a device's first row.
        end: what follows the last time: ``"hold"``, ``"repeat"`` or ``"refuse"``.
    """

    path: str
    seconds: bool
    time: FloatArray
    device: IntArray
    value: FloatArray
    before: FloatArray
    end: str = "hold"
    _held: dict[tuple[int, bool], FloatArray] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.end == "repeat" and (len(self.changes) < 2 or self.changes[0] < self.start):
            raise ScenarioError(
                f'{self.path}: devices.trace_end = "repeat" needs rows of at least two times, '
                f"none of them before {self.unit}{self.start:g}; add rows, or hold the last"
            )

    @property
    def start(self) -> float:
        """The time at which the first iteration begins."""
        return 0.0 if self.seconds else 1.0

    @property
    def unit(self) -> str:
        """What times are called in a sentence, before their number."""
        return "time_s = " if self.seconds else "t = "

    @cached_property
    def changes(self) -> FloatArray:
        """The different times of rows, ascending."""
        return np.unique(self.time)

    @cached_property
    def period(self) -> float:
        """How long the rows last from the start on: the last as long as the one before it.

        A single one lasts as long as there are iterations.
        """
        if len(self.changes) < 2:
            return np.inf
        last, previous = self.changes[-1], self.changes[-2]
        return float(2 * last - previous - self.start)

    def when(self, iteration: int, elapsed_s: float) -> float:
        """The time at which an iteration (from 0) begins, after so many seconds."""
        return elapsed_s if self.seconds else iteration + 1.0

    def snapshot(self, when: float) -> tuple[int, bool]:
        """How many rows hold or have held by a time, and whether the rows have repeated."""
        over = when - self.start >= self.period
        if self.end == "refuse" and over:
            raise ScenarioError(
                f"{self.path} ends with {self.unit}{self.changes[-1]:g}, and "
                f"{self.unit}{when:g} is wanted; lower plan.iterations, add rows, or set "
                'devices.trace_end to "hold" or "repeat"'
            )
        again = self.end == "repeat" and over
        if again:
            when = (when - self.start) % self.period + self.start
        return int(np.searchsorted(self.time, when, side="right")), again

    def at(self, when: float) -> FloatArray:
        """float64 [N, K]: what holds at a time."""
        return self.held(self.snapshot(when))

    def held(self, snapshot: tuple[int, bool]) -> FloatArray:
        """float64 [N, K]: what holds in a snapshot."""
        if snapshot not in self._held:
            if len(self._held) > 1:
                self._held.clear()  # times come in order: few are asked for again
            self._held[snapshot] = self._latest(*snapshot)
        return self._held[snapshot]

    def _latest(self, rows: int, again: bool) -> FloatArray:
        values = self.before.copy()
        for stop in ([len(self.device)] if again else []) + [rows]:
            latest = np.full(len(values), -1)
            np.maximum.at(latest, self.device[:stop], np.arange(stop))
            known = latest >= 0
            values[known] = self.value[latest[known]]
        return values

    def integral(self, start: float, stop: float) -> FloatArray:
        """float64 [N, K]: the figures summed over the seconds from start to stop."""
        total = np.zeros_like(self.before)
        while start < stop:
            until = min(stop, self.next_change(start))
            total += self.at(start) * (until - start)
            start = until
        return total

    def next_change(self, when: float) -> float:
        """The first time after one at which something may change."""
        if self.end == "refuse" and when < self.start + self.period:
            later = self.changes[self.changes > when]
            return float(later[0]) if len(later) else self.start + self.period
        if self.end != "repeat":
            later = self.changes[self.changes > when]
            return float(later[0]) if len(later) else np.inf
        begun = (when - self.start) // self.period * self.period
        later = self.changes[self.changes + begun > when]
        found = float(later[0]) + begun if len(later) else begun + self.period + self.start
        return found if found > when else float(np.nextafter(when, np.inf))


BoolArray = NDArray[np.bool_]
Columns = dict[str, list[str]]

_NAMES = "name"  # column of the device table
_MOST_TIME = 2**53  # beyond this, float64 skips integers


@dataclass(frozen=True, eq=False)
class Traces:
    """The devices' figures that change over time; None where a scenario does not give them.

    Attributes:
        available: 1 while a device is there, 0 while it is not.
        harvest: watts that each device gathers.
        positions: x and y of each device, in metres.
        steady_w: float64 [N]: watts gathered at all times, where they are given as a figure.
        capacity_j: float64 [N]: what each battery holds at most; infinite unless given.
        leaves: int64 [N]: the first iteration (from 0) without each device; very large for those
            who stay. None if nobody leaves.
    """

    available: Timed | None = None
    harvest: Timed | None = None
    positions: Timed | None = None
    steady_w: FloatArray | None = None
    capacity_j: FloatArray | None = None
    leaves: IntArray | None = None

    @property
    def harvests(self) -> bool:
        """Do batteries gain anything?"""
        return self.harvest is not None or self.steady_w is not None

    @property
    def any(self) -> bool:
        """Does anything change, other than by devices that leave for good?"""
        return self.harvests or self.available is not None or self.positions is not None

    @property
    def given(self) -> bool:
        """Does anything change or does anybody leave, so that who takes part differs?"""
        return self.any or self.leaves is not None

    @property
    def data(self) -> tuple[NDArray[np.float64], ...]:
        """What was read from files, whose contents may change under their names."""
        read = (one for one in (self.available, self.harvest, self.positions) if one is not None)
        return tuple(
            part for one in read for part in (one.time, one.device.astype(np.float64), one.value)
        )

    def present(self, iteration: int, elapsed_s: float) -> BoolArray | None:
        """bool [N]: who is there when an iteration (from 0) begins; None for everybody."""
        if self.available is None:
            return None
        return self.available.at(self.available.when(iteration, elapsed_s))[:, 0] > 0

    def gone(self, iteration: int) -> BoolArray | None:
        """bool [N]: who has left for good when an iteration (from 0) begins; None for nobody."""
        return None if self.leaves is None else self.leaves <= iteration

    def watts(self, iteration: int, elapsed_s: float) -> FloatArray | None:
        """float64 [N]: watts gathered when an iteration begins; None where nobody ever does."""
        if self.harvest is None:
            return self.steady_w
        return self.harvest.at(self.harvest.when(iteration, elapsed_s))[:, 0]

    def harvested_j(self, iteration: int, elapsed_s: float, length_s: float) -> FloatArray | None:
        """float64 [N]: joules that an iteration of some length brings; None without a harvest."""
        if self.harvest is not None and self.harvest.seconds:
            return self.harvest.integral(elapsed_s, elapsed_s + length_s)[:, 0]
        watts = self.watts(iteration, elapsed_s)
        return None if watts is None else np.asarray(watts * length_s)

    def snapshot(self, iteration: int, elapsed_s: float) -> tuple[int, bool]:
        """Which positions hold when an iteration begins; see `Timed.snapshot`."""
        if self.positions is None:
            return 0, False
        return self.positions.snapshot(self.positions.when(iteration, elapsed_s))


def build_traces(scenario: Scenario, battery_j: FloatArray, positions_m: FloatArray) -> Traces:
    """The scenario's traces."""
    devices, reader = scenario.devices, _reader(scenario)
    steady_w, harvest = None, None
    if FILES["devices.harvest_w"].path_in(devices.harvest_w):
        harvest = reader.harvest(str(devices.harvest_w))
    elif devices.harvest_w is not None:
        steady_w = resolve(scenario, "harvest_w", devices.harvest_w, minimum=-1.0)
        _require_watts(steady_w, "devices.harvest_w")
    return Traces(
        None if devices.availability is None else read_availability(scenario),
        harvest,
        None if devices.positions is None else reader.positions(devices.positions, positions_m),
        steady_w,
        _capacity_j(scenario, battery_j),
        _leaves(scenario),
    )


def read_availability(scenario: Scenario) -> Timed:
    """The table of who is there when, which the scenario names."""
    return _reader(scenario).availability(str(scenario.devices.availability))


def _leaves(scenario: Scenario) -> IntArray | None:
    """The first iteration without each device, by ``devices.leave``."""
    count = scenario.devices.count
    if not scenario.devices.leave:
        return None
    until = np.full(count, np.iinfo(np.int64).max)
    for device, iteration in scenario.devices.leave:
        if device >= count:
            raise ScenarioError(
                f"devices.leave: device {device} is not one of 0..{count - 1}; correct it",
                field="devices.leave",
            )
        until[device] = iteration - 1
    return until


def _reader(scenario: Scenario) -> _Reader:
    devices = scenario.devices
    names = () if devices.table is None else read_table(devices.table).get(_NAMES, ())
    return _Reader(devices.count, names, devices.trace_end)


def _capacity_j(scenario: Scenario, battery_j: FloatArray) -> FloatArray | None:
    given = scenario.devices.capacity_j
    if given is None:
        return None
    capacity_j = resolve(scenario, "capacity_j", given)
    require_usable(capacity_j, "a battery of {} J", "devices.capacity_j")
    over = battery_j > capacity_j
    if over.any():
        device = int(np.argmax(over))
        raise ScenarioError(
            "{device} begins with {energy_j} (budget.energy_j) in a battery that holds "
            "{capacity_j} (devices.capacity_j); lower the one or raise the other",
            device=device,
            figures={"energy_j": battery_j[device], "capacity_j": capacity_j[device]},
            field="devices.capacity_j",
        )
    return capacity_j


def _require_watts(watts: FloatArray, where: str) -> None:
    wrong = ~((watts >= 0) & (watts <= MOST))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ScenarioError(f"{where}: {watts[row]:g} W must be at least 0 and at most {MOST:g}")


@dataclass(frozen=True)
class _Reader:
    """Reads tables of one scenario's devices."""

    count: int
    names: Sequence[str]
    end: str | None

    def availability(self, path: str) -> Timed:
        """Columns ``available`` (0 or 1), or ``from`` and ``to`` (``from_s`` and ``to_s``)."""
        columns = read_table(path)
        before = np.ones((self.count, 1))
        device = self._devices(columns, path)
        if "available" in columns:
            value = number_column(columns, "available", path)
            wrong = (value != 0) & (value != 1)
            if wrong.any():
                row = int(np.argmax(wrong))
                raise ScenarioError(
                    f"{path}, row {row + 2}: available = {value[row]:g} must be 0 or 1"
                )
            times = _times(columns, path)
            _require_agreement(path, times[1], device, value[:, None])
            return self._timed(path, times, device, value[:, None], before, "hold")
        seconds, start, stop = _intervals(columns, path, device)
        before[device] = 0.0  # who has intervals is away outside of them
        # At one time the end of an interval comes before the beginning of the next.
        times = seconds, np.concatenate([stop, start])
        value = np.repeat([0.0, 1.0], len(start))[:, None]
        return self._timed(path, times, np.tile(device, 2), value, before, "hold")

    def harvest(self, path: str) -> Timed:
        """Columns ``watts`` and, unless all devices gather alike, ``device``."""
        columns = read_table(path)
        seconds, time = _times(columns, path)
        watts = number_column(columns, "watts", path, "W")
        _require_watts(watts, path)
        if "device" in columns:
            device = self._devices(columns, path)
        else:
            device = np.tile(np.arange(self.count), len(time))
            time, watts = np.repeat(time, self.count), np.repeat(watts, self.count)
        _require_agreement(path, time, device, watts[:, None])
        before = np.zeros((self.count, 1))
        return self._timed(path, (seconds, time), device, watts[:, None], before)

    def positions(self, path: str, first_m: FloatArray) -> Timed:
        """Columns ``device``, ``x_m`` and ``y_m``."""
        columns = read_table(path)
        times, device = _times(columns, path), self._devices(columns, path)
        metres = np.stack(
            [number_column(columns, one, path, "m") for one in ("x_m", "y_m")], axis=1
        )
        wrong = (np.abs(metres) > MOST).any(axis=1)
        if wrong.any():
            raise ScenarioError(
                f"{path}, row {int(np.argmax(wrong)) + 2}: a place beyond {MOST:g} m; correct it"
            )
        _require_agreement(path, times[1], device, metres)
        return self._timed(path, times, device, metres, first_m)

    def _devices(self, columns: Columns, path: str) -> IntArray:
        """int64 [R]: the devices of the rows, by their numbers or names."""
        if "device" not in columns:
            raise ScenarioError(
                f"{path} has no column 'device'; it has {', '.join(columns)}: add it, with the "
                "number or the name of a device in each row"
            )
        known = {str(number): number for number in range(self.count)}
        known |= {name: number for number, name in enumerate(self.names)}
        found = [known.get(cell, -1) for cell in columns["device"]]
        if -1 in found:
            row = found.index(-1)
            or_name = " or a name in devices.table" if self.names else ""
            raise ScenarioError(
                f"{path}, row {row + 2}: device {columns['device'][row]!r:.60} is not one of "
                f"0..{self.count - 1}{or_name}"
            )
        return np.array(found, np.int64)

    def _timed(
        self,
        path: str,
        times: tuple[bool, FloatArray],
        device: IntArray,
        value: FloatArray,
        before: FloatArray,
        end: str = "refuse",
    ) -> Timed:
        """Rows in the order of time; a short file of figures makes no constants unless told so."""
        seconds, time = times
        order = np.argsort(time, kind="stable")
        return Timed(
            path, seconds, time[order], device[order], value[order], before, self.end or end
        )


def _require_agreement(path: str, time: FloatArray, device: IntArray, value: FloatArray) -> None:
    """Refuse rows that say different things of one device at one time."""
    order = np.lexsort((device, time))
    same = (np.diff(time[order]) == 0) & (np.diff(device[order]) == 0)
    unlike = same & (np.diff(value[order], axis=0) != 0).any(axis=1)
    if unlike.any():
        k = order[int(np.argmax(unlike))]
        raise ScenarioError(
            "{path} says two things of {device} at {time}; keep one row",
            device=int(device[k]),
            figures={"path": path, "time": time[k]},
        )


def _times(columns: Columns, path: str) -> tuple[bool, FloatArray]:
    """Whether times are seconds, and the time of each row."""
    return _time_of(columns, path, "t", "time_s")


def _time_of(columns: Columns, path: str, name: str, name_s: str) -> tuple[bool, FloatArray]:
    given = [one for one in (name, name_s) if one in columns]
    if len(given) != 1:
        raise ScenarioError(
            f"{path} has {'both' if given else 'neither'} of the columns {name!r} (iterations, "
            f"from 1) and {name_s!r} (seconds since the start); give one of them"
        )
    seconds = given[0] == name_s
    time = number_column(columns, given[0], path, "s" if seconds else None)
    wrong = np.abs(time) > _MOST_TIME
    if not seconds:
        wrong |= time != np.floor(time)
    if wrong.any():
        row = int(np.argmax(wrong))
        what = f"at most {_MOST_TIME:g} s" if seconds else "a whole number of iterations"
        raise ScenarioError(f"{path}, row {row + 2}: {given[0]} = {time[row]:g} must be {what}")
    return seconds, time


def _intervals(
    columns: Columns, path: str, device: IntArray
) -> tuple[bool, FloatArray, FloatArray]:
    """Whether times are seconds; when each interval begins, and when it is over."""
    seconds, start = _time_of(columns, path, "from", "from_s")
    ends, stop = _time_of(columns, path, "to", "to_s")
    if seconds != ends:
        raise ScenarioError(
            f"{path} counts one end of its intervals in iterations and the other in seconds; "
            "give from and to, or from_s and to_s"
        )
    stop = stop if seconds else stop + 1.0  # the last iteration belongs to the interval
    if not (start < stop).all():
        row = int(np.argmin(start < stop))
        raise ScenarioError(
            f"{path}, row {row + 2}: the interval from {start[row]:g} ends before it begins"
        )
    order = np.lexsort((start, device))
    overlap = (np.diff(device[order]) == 0) & (start[order][1:] < stop[order][:-1])
    if overlap.any():
        row = int(order[1:][int(np.argmax(overlap))])
        raise ScenarioError(
            "{path}, row {row}: the interval of {device} from {start} begins before another of its "
            "intervals is over; join them",
            device=int(device[row]),
            figures={"path": path, "row": row + 2, "start": start[row]},
        )
    return seconds, start, stop


Snapshot: TypeAlias = tuple[int, bool]
"""Which rows of the trace of positions hold; see `Timed.snapshot`."""

_MOST = 50_000_000  # links of all snapshots together


@dataclass(frozen=True, eq=False)
class Motion:
    """Where devices are, and which links exist there.

    Attributes:
        positions: the trace.
        edges: int64 [E, 2]: every link that exists in some snapshot.
        links: bool [E] of each snapshot; empty if the links are the same in all of them.
    """

    positions: Timed
    edges: IntArray
    links: dict[Snapshot, BoolArray] = field(default_factory=dict, repr=False)

    @property
    def rewires(self) -> bool:
        """Do the links themselves change?"""
        return bool(self.links)

    @property
    def first(self) -> Snapshot:
        """With which training begins."""
        return self.positions.snapshot(self.positions.start)

    def exists(self, snapshot: Snapshot) -> BoolArray:
        """bool [E]: the links that exist."""
        return self.links[snapshot] if self.links else np.ones(len(self.edges), np.bool_)

    def distance_m(self, snapshot: Snapshot) -> FloatArray:
        """float64 [E]: how long the links are; where there is none, as long as the shortest."""
        ends = self.positions.held(snapshot)[self.edges]
        with np.errstate(all="ignore"):
            length_m = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
        exists = self.exists(snapshot)
        return np.asarray(np.where(exists, length_m, length_m[exists].min(initial=np.inf)))


def build_motion(scenario: Scenario, graph: Graph, positions: Timed) -> tuple[Motion, Graph]:
    """The motion of a scenario's devices, and the graph of all links that ever exist."""
    _require_places(scenario)
    first = positions.snapshot(positions.start)
    if not topology_of(scenario.network).by_place:
        stands = Graph(graph.devices, graph.edges, positions.held(first), graph.ring)
        return Motion(positions, graph.edges), stands
    keys: dict[Snapshot, IntArray] = {}
    count = 0
    for snapshot in _snapshots(positions):
        edges = links_at(scenario, positions.held(snapshot))
        keys[snapshot] = edges[:, 0] * graph.devices + edges[:, 1]
        count += len(keys[snapshot])
        if count > _MOST:
            raise ScenarioError(
                f"{positions.path} gives {len(keys)} snapshots and more than {_MOST:,} links in "
                "all; write fewer times"
            )
    union = np.unique(np.concatenate(list(keys.values())))
    edges = np.stack(np.divmod(union, graph.devices), axis=1)
    links = {snapshot: np.isin(union, key) for snapshot, key in keys.items()}
    return Motion(positions, edges, links), Graph(graph.devices, edges, positions.held(first))


def _snapshots(positions: Timed) -> Iterator[Snapshot]:
    """Every one that an iteration may find, each once."""
    times = np.concatenate([[positions.start], positions.changes])
    times = times[times >= positions.start]
    if positions.end == "repeat":
        times = np.concatenate([times, times + positions.period])
    seen: set[Snapshot] = set()
    for time in times.tolist():
        snapshot = positions.snapshot(time)
        if snapshot not in seen:
            seen.add(snapshot)
            yield snapshot


def _require_places(scenario: Scenario) -> None:
    network = scenario.network
    for name, given in (
        ("network.gains", network.gains is not None),
        ("network.fading", network.fading.startswith("trace:")),
        ("network.links", network.links is not None),
        ("network.interference_m", network.interference_m is not None),
    ):
        if given:
            raise ScenarioError(
                f"{name} is worked out for devices that stay where they are, and devices.positions "
                "moves them; leave one of the two out"
            )
