"""What the devices of a fleet did, read from their journals, also while these are written.

`joulemesh.deploy.device.journal` says what the lines are. A power cut may leave half a line, and a
card that fails may leave worse: what cannot be read is counted and left out, and the rest stands.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import JOURNAL, JOURNAL_LINE, open_bounded
from joulemesh.deploy.codec import read_record
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.view import View

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

FIGURES = ("view", "rounds", "train_j", "train_s", "exchange_j", "exchange_s", "spent_j", "at")
"""What is kept of every committed iteration: the columns of `History.committed`."""

# What training took is said again when the iteration is committed: a third of all lines.
_TWICE = (b'"kind": "trained"', b'"kind":"trained"')


@dataclass(frozen=True)
class Event:
    """Something that a device found worth a line, other than its daily work."""

    at: float  # when, in Unix seconds by the device's own clock, as it was set in the end
    device: int
    kind: str  # what it is, in a word
    figures: Mapping[str, Any] = field(default_factory=dict)  # what belongs to it


@dataclass(frozen=True)
class Sent:
    """What went to one neighbour."""

    payload_bytes: float = 0.0
    seconds: float = 0.0  # from the first byte to the acknowledgement, summed
    messages: int = 0

    @property
    def rate_bps(self) -> float | None:
        return 8 * self.payload_bytes / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True, eq=False)
class History:
    """What one device did."""

    device: int
    name: str  # what it calls itself
    iterations: NDArray[np.int64]  # int64 [k], those that it committed, ascending
    # float64 [k, figures]: what each of them was and took, in the order of `FIGURES`
    committed: NDArray[np.float64]
    evaluations: NDArray[np.float64]  # float64 [e, 3]: iteration, accuracy, and when
    sent: Mapping[int, Sent]
    events: tuple[Event, ...]  # everything else, in order
    first_at: float  # the earliest time in its journal; NaN if it is empty
    last_at: float
    damaged: int = 0  # lines that could not be read
    # by iteration, the messages that its exchange went without: (step, sender)
    absent: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    def column(self, figure: str) -> NDArray[np.float64]:
        return self.committed[:, FIGURES.index(figure)]

    @property
    def spent_j(self) -> float:
        """The most joules that its meter had counted in any line; NaN without such a line."""
        # A start and an end also count what was trained or sent and then lost.
        lines = [event.figures.get("spent_j") for event in self.events]
        known = [float(one) for one in lines if isinstance(one, int | float)]
        known += self.column("spent_j").tolist()
        return max((one for one in known if math.isfinite(one)), default=math.nan)

    @property
    def starts(self) -> tuple[Event, ...]:
        return tuple(event for event in self.events if event.kind == "start")

    @property
    def meter(self) -> str:
        said = [str(event.figures["meter"]) for event in self.starts if "meter" in event.figures]
        words = " / ".join(dict.fromkeys(said))
        gaps = sum(event.kind == "meter" for event in self.events)
        return f"{words}, modelled while it could not be read ({gaps}×)" if gaps else words

    @property
    def trained_by(self) -> str:
        """The library that trained, with its version; empty if the journal does not name it."""
        named = [str(event.figures.get("trained_by", "")) for event in self.events
                 if event.kind == "prepared"]  # fmt: skip
        return " / ".join(dict.fromkeys(filter(None, named)))

    @property
    def end(self) -> Event | None:
        """How it ended; None if it has not, or was cut off."""
        ends = [event for event in self.events if event.kind in ("start", "end")]
        return ends[-1] if ends and ends[-1].kind == "end" else None


def read_history(folder: Path, device: int, name: str) -> History:
    paths = journals_in(folder)
    if not paths:
        raise ScenarioError(
            f"{folder} holds no journal of {name}; copy its run folder there, or start its node"
        )
    made = history_of(_lines(paths), device, name)
    for start in made.starts:
        other = start.figures.get("device", device)
        if other != device:
            raise ScenarioError(
                f"{folder} holds the journal of device {other} "
                f"({start.figures.get('name', 'no name')}), not of device {device} ({name}); "
                "copy each device's journal into its own folder"
            )
    return made


def _lines(paths: Iterable[Path]) -> Iterator[bytes]:
    for path in paths:
        with open_bounded(path, JOURNAL.now) as file:
            while line := file.readline(JOURNAL_LINE.now):
                yield line


def history_of(lines: Iterable[bytes], device: int, name: str) -> History:
    reader = HistoryReader(device)
    reader.feed(lines)
    return reader.history(name)


class HistoryReader:
    """Takes up one line after the other; its history can be asked for at any time."""

    def __init__(self, device: int) -> None:
        self.device = device
        self.committed: dict[int, list[float]] = {}
        self.evaluations: list[list[float]] = []
        self.sent: dict[int, list[float]] = {}
        self.events: list[Event] = []
        self.life: list[tuple[float, float | None, str, dict[str, Any]]] = []
        self.ends: list[float] = []
        self.damaged = 0
        self.absent: dict[int, tuple[tuple[int, int], ...]] = {}

    def feed(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            if line.strip() and not any(mark in line for mark in _TWICE):
                self._take(line)

    def _take(self, line: bytes) -> None:
        """Read a line; what was written between two starts is heeded together."""
        try:
            record = json.loads(line)
            at, kind = _finite(record["at"]), str(record["kind"])
            since = _finite(record["t"]) if "t" in record else None
        except (ValueError, TypeError, KeyError, RecursionError):
            self.damaged += 1
            return
        if kind == "start":
            self._heed()
        self.life.append((at, since, kind, record))

    def _heed(self) -> None:
        """Take up what one life of the node wrote, by the clock as it was set at the end of it."""
        # A small machine may begin with a wrong clock that is set while the node runs.
        offsets = [at - since for at, since, _, _ in self.life if since is not None]
        for at, since, kind, record in self.life:
            when = at if since is None else since + offsets[-1]
            try:
                self._line(kind, {**record, "at": when}, when)
            except (ValueError, TypeError, KeyError, AttributeError):
                self.damaged += 1
                continue
            self.ends = [min([when, *self.ends]), max([when, *self.ends])]
        self.life = []

    def _line(self, kind: str, record: Mapping[str, Any], at: float) -> None:
        if kind == "committed":
            self._commit(record)
        elif kind == "evaluated":
            self._evaluate(record, at)
        else:
            figures = {k: v for k, v in record.items() if k not in ("at", "kind", "t")}
            self.events.append(Event(at, self.device, kind, figures))

    def _commit(self, record: Mapping[str, Any]) -> None:
        figures = [_finite(record[name]) for name in FIGURES]
        sent = {int(to): [_finite(one) for one in what] for to, what in record["sent"].items()}
        if any(len(what) != 3 for what in sent.values()):
            raise ValueError("bytes, seconds, messages")
        iteration = _count(record["iteration"])
        gone = tuple((_count(step), _count(sender)) for step, sender in record.get("absent", ()))
        self.committed[iteration] = figures
        if gone:
            self.absent[iteration] = gone
        for to, what in sent.items():
            before = self.sent.get(to, [0.0, 0.0, 0.0])
            self.sent[to] = [a + b for a, b in zip(before, what, strict=True)]

    def _evaluate(self, record: Mapping[str, Any], at: float) -> None:
        if "accuracy" in record:  # a learner of the user's own may measure something else
            self.evaluations.append([_count(record["iteration"]), _finite(record["accuracy"]), at])

    def history(self, name: str) -> History:
        self._heed()
        order = sorted(self.committed)
        first, last = self.ends or (math.nan, math.nan)
        return History(
            self.device,
            name,
            np.array(order, dtype=np.int64),
            np.array([self.committed[t] for t in order]).reshape(-1, len(FIGURES)),
            np.array(self.evaluations).reshape(-1, 3),
            {to: Sent(a, b, int(c)) for to, (a, b, c) in sorted(self.sent.items())},
            tuple(self.events),
            first,
            last,
            self.damaged,
            self.absent,
        )


def _finite(value: Any) -> float:
    figure = float(value)
    if not math.isfinite(figure):
        raise ValueError("not finite")
    return figure


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError("not a count")
    return value


_PIECE = 1 << 16


class JournalTail:
    """What has been read of the journal that a device is writing."""

    def __init__(self, device: int, name: str) -> None:
        self.device, self.name = device, name
        self.restart()

    def restart(self) -> None:
        self.size, self.crc32 = 0, 0
        """How many bytes of the file in use were read, and their check sum."""
        self._rest = b""
        self._reader = HistoryReader(self.device)
        self._history: History | None = None

    def feed(self, data: bytes) -> None:
        """Take up more bytes; half a line waits for the rest of it."""
        self.size, self.crc32 = self.size + len(data), zlib.crc32(data, self.crc32)
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-JOURNAL_LINE.now :]
        if lines:
            self.take(lines)

    def take(self, lines: Iterable[bytes]) -> None:
        self._reader.feed(lines)
        self._history = None

    def history(self) -> History:
        """What all whole lines tell; the same object until there are more of them."""
        if self._history is None:
            self._history = self._reader.history(self.name)
        return self._history


class FileTail(JournalTail):
    """A journal in a folder of this machine, the files that were full before included."""

    def __init__(self, folder: Path, device: int, name: str) -> None:
        super().__init__(device, name)
        self._folder = folder
        self._files: list[int] = []

    def look(self) -> bool:
        paths = journals_in(self._folder)
        if not paths:
            return False
        files = [path.stat().st_ino for path in paths]
        if files != self._files or paths[-1].stat().st_size < self.size:
            self.restart()
            self._files = files
            for path in paths[:-1]:
                self._take(path, 0)
            self.size = 0
        self._take(paths[-1], self.size)
        return True

    def _take(self, path: Path, begin: int) -> None:
        with open_bounded(path, JOURNAL.now) as file:
            file.seek(begin)
            while piece := file.read(_PIECE):
                self.feed(piece)


FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Seen:
    """A view, and who installed it when."""

    view: View  # as the first device that installed it wrote it down
    first_at: float  # when that was, in Unix seconds by that device's clock
    last_at: float  # when the last one did
    devices: tuple[int, ...]


def views_of(histories: Sequence[History]) -> tuple[Seen, ...]:
    found: dict[int, list[tuple[Event, View]]] = {}
    for event, view in _view_events(histories):
        found.setdefault(view.number, []).append((event, view))
    made = []
    for _, seen in sorted(found.items()):
        seen.sort(key=lambda one: one[0].at)
        devices = tuple(sorted({event.device for event, _ in seen}))
        made.append(Seen(seen[0][1], seen[0][0].at, seen[-1][0].at, devices))
    return tuple(made)


def _view_events(histories: Sequence[History]) -> list[tuple[Event, View]]:
    made = []
    for event in (event for one in histories for event in one.events if event.kind == "view"):
        try:
            view = _view(event)
        except (KeyError, TypeError, ValueError):
            continue  # of another version; it stands among the events all the same
        if view.number > 0:
            made.append((event, view))
    return made


def _view(event: Event) -> View:
    figures = event.figures
    return read_record(View, json.dumps({**figures, "start": max(1, figures["start"])}))


def disagreements(histories: Sequence[History]) -> tuple[str, ...]:
    """Views of one number that devices wrote down differently; there must be none."""
    told: dict[int, dict[tuple[int, tuple[int, ...], str], str]] = {}
    names = {one.device: one.name for one in histories}
    for event, view in _view_events(histories):
        content = (view.start, view.members, view.digest)
        told.setdefault(view.number, {}).setdefault(content, names[event.device])
    return tuple(
        f"view {number} is not the same on {' and '.join(versions.values())}"
        for number, versions in sorted(told.items())
        if len(versions) > 1
    )


def presence(history: History) -> list[tuple[float, float]]:
    """When a device's node was running: from each start to the last line before the next one."""
    if np.isnan(history.first_at):
        return []
    written = np.sort(
        np.concatenate(
            [
                history.column("at"),
                history.evaluations[:, 2],
                [event.at for event in history.events],
                [history.first_at, history.last_at],
            ]
        )
    )
    begins = sorted({start.at for start in history.starts} | {history.first_at})
    spans = []
    for k, begin in enumerate(begins):
        end = begins[k + 1] if k + 1 < len(begins) else np.inf
        own = written[(written >= begin) & (written < end)]
        spans.append((begin, float(own[-1])))
    return spans


def accuracies(histories: Sequence[History]) -> tuple[NDArray[np.int64], FloatArray]:
    when = [one.evaluations[:, 0].astype(np.int64) for one in histories]
    iterations = np.unique(np.concatenate([*when, np.zeros(0, np.int64)]))
    values = np.full((len(iterations), len(histories)), np.nan)
    for place, one in enumerate(histories):
        values[np.searchsorted(iterations, when[place]), place] = one.evaluations[:, 1]
    return iterations, values


@dataclass(frozen=True)
class LinkRate:
    """One direction of a link: what the plan expects of it, and what it carried."""

    sender: int
    receiver: int
    planned_bps: float | None  # bits per second by the plan; None if the two are not linked in it
    sent: Sent  # what was sent, by the sender's journal

    @property
    def share(self) -> float | None:
        """The measured rate as a share of the planned one; None where either is not known."""
        measured = self.sent.rate_bps
        return measured / self.planned_bps if measured and self.planned_bps else None


def link_rates(plan: Plan, histories: Sequence[History]) -> tuple[LinkRate, ...]:
    """Every direction of a link that carried something, with its planned rate."""
    # Under fading the plan's rate is that of its forecast.
    edges = plan.world.graph.edges
    there_bps, back_bps = plan.ground.forecast_at(0, np.arange(len(edges))).payload_bps()
    planned = {
        (int(i), int(j)): rate
        for pairs, rows in ((edges, there_bps), (edges[:, ::-1], back_bps))
        for (i, j), rate in zip(pairs.tolist(), rows.tolist(), strict=True)
    }
    return tuple(
        LinkRate(one.device, to, planned.get((one.device, to)), sent)
        for one in histories
        for to, sent in one.sent.items()
    )
