"""The time line of one iteration as plain data: who trains, sends and receives when."""

from __future__ import annotations

__all__ = ["KINDS", "Bar", "Gantt", "Phase", "check_suffix"]

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.files import write_whole

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
    """Something that one device does without a break.

    Attributes:
        kind: one of `KINDS`.
        phase: name of the phase it belongs to (`Phase`); of ``rest``, the whole iteration.
        device: who.
        start_s: from when on, counted from the beginning of the iteration.
        end_s: until when.
        joules: what it takes out of the battery; those at rest come on top of the others.
        others: to whom a message is sent (several of a broadcast), or from whom it is received.
        ready_s: from when on the sender holds what it sends; it waits for the medium until
            ``start_s``.
        rounds: of training.
        messages: how many are in it; more than one if they are merged.
        step: of the exchange's pattern.
        time: which play of the pattern, or which chunk, counted from 0.
    """

    kind: str
    phase: str
    device: int
    start_s: float
    end_s: float
    joules: float
    others: tuple[int, ...] = ()
    ready_s: float = 0.0
    rounds: int = 0
    messages: int = 0
    step: int = 0
    time: int = 0

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {name: getattr(self, name) for name in _COLUMNS} | {"others": list(self.others)}


@dataclass(frozen=True)
class Phase:
    """A part of the iteration that all devices begin together.

    Attributes:
        name: ``"gifts"``, ``"training"``, ``"coordination"``, ``"exchange"`` or ``"besides"``.
        start_s: when it begins.
        end_s: when it has ended everywhere.
    """

    name: str
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Gantt:
    """Who trains, sends and receives when in one iteration.

    Attributes:
        iteration: counted from 1.
        devices: number N of devices.
        seconds: of the iteration.
        scheme: name of the aggregation scheme.
        medium: ``"orthogonal"``, ``"half"`` (one link at a time) or ``"shared"`` (slots).
        ordered: does the plan's clock know the order of messages? If not (``plan.clock =
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
    """What writes a time line to such a file.

    >>> check_suffix("iteration.png")
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: iteration.png: time lines end in .csv or .json, not '.png'
    """
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
