"""Drafts the time line of one iteration from the plan alone: a bar for all that a device does.

An iteration begins with the parameters that are sent to devices that come back, and goes on with
training, the flooding of link costs, the exchange, and what an iteration takes besides. Each phase
begins when the one before it has ended everywhere: so does the plan's own clock. The bars end with
the iteration, and their joules are those of the plan.
"""

from __future__ import annotations

__all__ = ["KINDS", "Bar", "Draft", "Gantt", "Phase", "check_suffix"]

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.air import OnAir
from joulemesh.aggregation.play import Moments, moments
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_whole
from joulemesh.ledger import Ledger
from joulemesh.planning.walk import gift_route
from joulemesh.world.links import LinkCosts

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

FORMAT = "joulemesh timeline 1"
KINDS = ("train", "send", "receive", "besides", "rest")
"""What a bar is: ``besides`` is ``devices.overhead_s``, ``rest`` the power at rest."""

_COLUMNS = (
    *("kind", "phase", "device", "others", "ready_s", "start_s", "end_s", "joules"),
    *("rounds", "messages", "step", "time"),
)

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Bar:
    """Something that one device does without a break."""

    kind: str  # one of `KINDS`
    phase: str  # name of the phase it belongs to (`Phase`); of ``rest``, the whole iteration
    device: int  # who
    start_s: float  # from when on, counted from the beginning of the iteration
    end_s: float  # until when
    joules: float  # what it takes out of the battery; those at rest come on top of the others
    # to whom a message is sent (several of a broadcast), or from whom it is received
    others: tuple[int, ...] = ()
    # from when on the sender holds what it sends; it waits for the medium until ``start_s``
    ready_s: float = 0.0
    rounds: int = 0  # of training
    messages: int = 0  # how many are in it; more than one if they are merged
    step: int = 0  # of the exchange's pattern
    time: int = 0  # which play of the pattern, or which chunk, counted from 0

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in _COLUMNS} | {"others": list(self.others)}


@dataclass(frozen=True)
class Phase:
    """A part of the iteration that all devices begin together."""

    name: str  # ``"gifts"``, ``"training"``, ``"coordination"``, ``"exchange"`` or ``"besides"``
    start_s: float  # when it begins
    end_s: float  # when it has ended everywhere


@dataclass(frozen=True)
class Gantt:
    """Who trains, sends and receives when in one iteration.

    Attributes:
        iteration: counted from 1.
        devices: number N of devices.
        seconds: of the iteration.
        scheme: name of the aggregation scheme.
        medium: ``"orthogonal"``, ``"half"`` (one link at a time) or ``"shared"`` (slots).
        ordered: does the plan's clock know the order of messages? If not (``plan.timing =
            "paper"``), the steps of the exchange share its time equally.
        phases: in order; those that take no time are left out.
        bars: by phase, then by time.
        deadline_s: seconds allowed to the iteration; None without a deadline.
        names: of the devices; empty if they have none.

    >>> import joulemesh
    >>> plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    >>> chart = plan.gantt(1)
    >>> [phase.name for phase in chart.phases], chart.bars[0].kind
    (['training', 'exchange'], 'train')
    >>> bool(max(bar.end_s for bar in chart.bars) <= plan.latency_s[0] * (1 + 1e-12))
    True
    """

    iteration: int
    devices: int
    seconds: float
    scheme: str
    medium: str
    ordered: bool
    phases: tuple[Phase, ...]
    bars: tuple[Bar, ...]
    deadline_s: float | None = None
    names: tuple[str, ...] = ()

    def joules(self, *kinds: str) -> FloatArray:
        """float64 [N]: joules of each device for some kinds of bars, or for all."""
        spent = np.zeros(self.devices)
        for bar in self.bars:
            if not kinds or bar.kind in kinds:
                spent[bar.device] += bar.joules
        return spent

    def to_dict(self) -> dict[str, Any]:
        """As plain values, which a page draws."""
        return {
            "format": FORMAT,
            "iteration": self.iteration,
            "devices": self.devices,
            "names": list(self.names),
            "seconds": self.seconds,
            "deadline_s": self.deadline_s,
            "scheme": self.scheme,
            "medium": self.medium,
            "ordered": self.ordered,
            "phases": [vars(phase) for phase in self.phases],
            "bars": [bar.to_dict() for bar in self.bars],
        }

    def to_json(self) -> str:
        """As one JSON object."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def save(self, path: str | Path) -> None:
        """Write the time line to a file that ends in ``.csv`` (a row for each bar) or ``.json``.

        Raises:
            ScenarioError: another suffix, or a file that cannot be written.
        """
        write_whole(path, partial(check_suffix(path), self))


def check_suffix(path: str | Path) -> Callable[[Gantt, IO[bytes]], None]:
    """What writes a time line to such a file."""
    suffix = Path(path).suffix
    if suffix.lower() not in _FORMATS:
        raise ScenarioError(f"{path}: time lines end in .csv or .json, not {suffix!r}")
    return _FORMATS[suffix.lower()]


def _write_csv(chart: Gantt, draft: IO[bytes]) -> None:
    text = io.TextIOWrapper(draft, "utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_COLUMNS, *(["name"] if chart.names else [])])
    for bar in chart.bars:
        row = bar.to_dict() | {"others": " ".join(map(str, bar.others))}
        writer.writerow([*row.values(), *chart.names[bar.device : bar.device + 1]])
    text.detach()  # flushes, and leaves the draft open


def _write_json(chart: Gantt, draft: IO[bytes]) -> None:
    draft.write(f"{chart.to_json()}\n".encode())


_FORMATS = {".csv": _write_csv, ".json": _write_json}


_MOST_MESSAGES = 200_000  # listed one by one
_MOST_MERGED = 5_000_000  # looked at to be merged

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Draft:
    """The time line of one iteration, of which those bars are made that are asked for."""

    # Where packets are lost, it is the one that is expected, before anything is drawn.
    # until_s: float64 [N]: when each device has done the last thing; 0 if it does nothing.
    # counts: int64 [N]: bars of each device, without those at rest.
    # resting: int64 [R]: devices that have a bar at rest.

    def __init__(self, plan: Plan, iteration: int, *, merged: bool = False) -> None:
        plan = plan.planned
        self.plan, self.row, self.merged = plan, plan._place(iteration), merged
        self.timeline, self.pricer = plan.timeline, plan.ground.pricer
        self.t, stand = plan.timeline.first + self.row, plan.timeline.snapshot(self.row)
        self.costs = plan.ground.costs(self.t, stand)
        self.now_s, self.ordered = 0.0, True
        self.parts: list[_Alone | _Sent] = []
        self.phases: list[Phase] = []
        count = plan.rounds.shape[1]
        self.until_s, self.counts = np.zeros(count), np.zeros(count, np.int64)
        self._fill()

    def gantt(self, devices: Sequence[int] | None = None) -> Gantt:
        """The time line with the bars of some devices, or of all."""
        plan, medium, count = self.plan, self.pricer.medium, len(self.counts)
        wanted = np.full(count, devices is None)
        wanted[list(devices or ())] = True
        return Gantt(
            iteration=self.row + 1,
            devices=count,
            seconds=float(plan.latency_s[self.row]),
            scheme=plan.scheme_at(self.row + 1).name,
            medium="shared" if medium.shared else medium.duplex,
            ordered=self.ordered,
            phases=tuple(self.phases),
            bars=tuple(bar for part in self.parts for bar in part.bars(wanted)),
            deadline_s=plan.deadline_s,
            names=plan.names,
        )

    def _fill(self) -> None:
        route = self.plan.route(self.row + 1)
        self._gifts()
        self._training()
        if self.timeline.flooded[self.row]:
            self._flooding()
        if route is not None:
            self._messages("exchange", route, self.pricer.sent(route, self.costs))
            self._besides()
        self._rest()

    def _phase(self, name: str, seconds: float, part: _Alone | _Sent) -> None:
        """A phase from now on; the next begins when it has ended."""
        self.parts.append(part)
        for devices, until_s in part.ends():
            np.maximum.at(self.until_s, devices, until_s)
            self.counts += np.bincount(devices, minlength=len(self.counts))
        if seconds > 0:
            self.phases.append(Phase(name, self.now_s, self.now_s + seconds))
        self.now_s += seconds

    def _training(self) -> None:
        devices, rounds = self.plan.world.devices, self.plan.rounds[self.row]
        seconds, joules = self.timeline.trained(devices, self.row)
        own = np.flatnonzero(rounds)
        until_s = self.now_s + seconds[own]
        trained = _Alone("train", "training", own, self.now_s, until_s, joules[own], rounds[own])
        window_s = self.timeline.window_s
        length_s = seconds.max() if window_s is None else window_s[self.row]
        self._phase("training", float(length_s), trained)

    def _gifts(self) -> None:
        given = [(new, by) for t, new, by in self.timeline.handed if t == self.t]
        if given:
            edges, bits = self.plan.world.graph.edges, self.plan.work.model_bits
            route = gift_route(given, edges, bits)
            self._messages("gifts", route, self.costs.settled)

    def _flooding(self) -> None:
        scheme = self.plan.scheme_at(self.row + 1)
        route, prices = self.pricer.flood(scheme), self.pricer.coordination(scheme, self.costs)
        self._messages("coordination", route, self.costs.settled, prices, clock="critical-path")

    def _messages(
        self,
        phase: str,
        route: Route,
        costs: LinkCosts,
        prices: Ledger | None = None,
        clock: str = "",
    ) -> None:
        self._check_size(route)
        pricer = self.pricer
        prices = pricer.beside(route, costs) if prices is None else prices
        seconds = float(prices.seconds[0])
        found = moments(route, costs, pricer.devices, clock or pricer.clock, pricer.medium, seconds)
        self.ordered = self.ordered and found.ordered
        times_s = (self.now_s + part for part in (found.ready_s, found.start_s, found.end_s))
        ready_s, start_s, end_s = times_s
        sent_j = found.air.joules / route.chunks
        heard_j = _heard_j(route, found, costs, pricer.pays)
        sent = _Sent(phase, found.air, ready_s, start_s, end_s, sent_j, heard_j)
        self._phase(phase, seconds, sent.merged() if self.merged else sent)

    def _check_size(self, route: Route) -> None:
        most = _MOST_MERGED if self.merged else _MOST_MESSAGES
        if route.count > most:
            other = "" if self.merged else "; merge the plays of the pattern (merged=True)"
            raise ScenarioError(
                f"iteration {self.row + 1} sends {route.count:,} messages, more than {most:,}: too "
                f"many for a time line{other}"
            )

    def _besides(self) -> None:
        """What an iteration takes besides; nobody goes on before the slowest."""
        besides = self.plan.world.devices.overhead_s
        if besides is None:
            return
        own = np.flatnonzero(self.plan.active[self.row])
        until_s, none = self.now_s + besides[own], np.zeros(len(own))
        part = _Alone("besides", "besides", own, self.now_s, until_s, none)
        self._phase("besides", self.pricer.overhead_s, part)

    def _rest(self) -> None:
        """Power at rest is drawn all the time, whatever a device does besides."""
        joules, seconds = self.plan.idle_j(self.row), float(self.plan.latency_s[self.row])
        self.resting = np.flatnonzero(joules)
        until_s = np.full(len(self.resting), seconds)
        self.parts.append(_Alone("rest", "", self.resting, 0.0, until_s, joules[self.resting]))


def _heard_j(route: Route, found: Moments, costs: LinkCosts, pays: str) -> FloatArray:
    """float64 [M]: joules of receiving each message of the pattern once."""
    own = route.receive_joules(costs)
    if pays == "both-ends":
        return found.air.joules[found.air.carrier] / route.chunks
    return np.zeros(len(route.edge)) if own is None else own / route.chunks


@dataclass(frozen=True, eq=False)
class _Alone:
    """What devices do each by itself from one moment on, a bar each."""

    kind: str  # of the bars
    phase: str  # of the bars
    devices: IntArray  # int64 [B]
    start_s: float  # of all of them
    end_s: FloatArray  # float64 [B]
    joules: FloatArray  # float64 [B]
    rounds: IntArray | None = None  # int64 [B]; None for none

    def ends(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Devices and when their bars end."""
        yield self.devices, self.end_s

    def bars(self, wanted: BoolArray) -> Iterator[Bar]:
        """The bars of the devices that are wanted."""
        for one in np.flatnonzero(wanted[self.devices]).tolist():
            yield Bar(
                self.kind,
                self.phase,
                int(self.devices[one]),
                self.start_s,
                float(self.end_s[one]),
                float(self.joules[one]),
                rounds=0 if self.rounds is None else int(self.rounds[one]),
            )


@dataclass(frozen=True, eq=False)
class _Sent:
    """A bar for each transmission at its sender, and for each message at its receiver."""

    phase: str  # of the bars
    air: OnAir  # the T transmissions and M messages of the pattern
    ready_s: FloatArray  # float64 [P, T], of every play or chunk
    start_s: FloatArray  # float64 [P, T]
    end_s: FloatArray  # float64 [P, T]
    sent_j: FloatArray  # float64 [T]: joules of the sender, once
    heard_j: FloatArray  # float64 [M]: joules of the receiver, once
    messages: int = 1  # in one bar

    def merged(self) -> _Sent:
        """One bar for all plays or chunks of a transmission."""
        times = len(self.start_s)
        return _Sent(
            self.phase,
            self.air,
            self.ready_s[:1],
            self.start_s[:1],
            self.end_s[-1:],
            self.sent_j * times,
            self.heard_j * times,
            times,
        )

    def ends(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Devices and when their bars end."""
        for end_s in self.end_s:
            yield self.air.sender, end_s
            yield self.air.receiver, end_s[self.air.carrier]

    def bars(self, wanted: BoolArray) -> Iterator[Bar]:
        """The bars of the devices that are wanted, by their beginnings."""
        air = self.air
        touched = wanted[air.sender]
        np.logical_or.at(touched, air.carrier, wanted[air.receiver])
        carried = np.argsort(air.carrier, kind="stable")
        cuts = np.searchsorted(air.carrier[carried], np.arange(len(air.sender) + 1))
        order = np.argsort(self.start_s, axis=None, kind="stable")
        for number in order[touched[order % len(air.sender)]].tolist():
            time, one = divmod(number, len(air.sender))
            messages = carried[cuts[one] : cuts[one + 1]]
            receivers = air.receiver[messages].tolist()
            sender, begins = int(air.sender[one]), float(self.start_s[time, one])
            sent = Bar(
                "send",
                self.phase,
                sender,
                begins,
                float(self.end_s[time, one]),
                float(self.sent_j[one]),
                others=tuple(receivers),
                ready_s=float(self.ready_s[time, one]),
                messages=self.messages,
                step=int(air.step[one]),
                time=time,
            )
            if wanted[sender]:
                yield sent
            for receiver, joules in zip(receivers, self.heard_j[messages].tolist(), strict=True):
                if wanted[receiver]:
                    yield replace(
                        sent,
                        kind="receive",
                        device=receiver,
                        others=(sender,),
                        ready_s=begins,
                        joules=joules,
                    )
