"""The CSV file of an external meter: a wall plug, a USB meter, a laboratory supply.

One row per reading, with a column of times and one of watts. Times are seconds since 1970 or ISO
8601 with a zone; the file may grow meanwhile. Clocks of logger and machine must agree to well
within a block (NTP).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.meters.meter import METERS, Finding, MeterError, MeterKind, MeterOptions
from joulemesh.tables import number_column, table_of

_TIMES = ("time", "timestamp", "t", "time_s")
_WATTS = ("watts", "power_w", "power", "w")
_WIDEST_GAP_S = 5.0
_PATIENCE_S = 60.0  # loggers write in batches
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class _Wall:
    """Time as the logger has it, and how to wait for its next rows."""

    now: Callable[[], float] = time.time
    wait: Callable[[float], None] = time.sleep


class External:
    """Integrates the watts of a file from the moment at which it was opened."""

    # A call waits, for a minute at most, until the file has a row for the present: by then it knows
    # what was drawn up to the moment of the call.

    name = "csv"

    def __init__(self, options: MeterOptions, wall: _Wall | None = None) -> None:
        if options.file is None:
            raise ScenarioError("--meter csv needs a file: write --meter plug.csv")
        self._file, self._wall = options.file, wall or _Wall()
        self.source = f"measured by an external meter ({options.file.name})"
        read_watts(self._file)  # refuses at once what it never could read
        self._begun = self._wall.now()

    def joules(self) -> float:
        return self.mark()()

    def mark(self) -> Callable[[], float]:
        """Joules up to this moment, to be asked for later, when the logger has caught up."""
        now = self._wall.now()
        return lambda: self._until(now)

    def _until(self, until: float) -> float:
        times, watts = self._rows(until)
        _require_cover(self._file, times, self._begun, until)
        return integral(times, watts, self._begun, until)

    def _rows(self, until: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        waited = 0.0
        while True:
            times, watts = read_watts(self._file)
            if times[-1] >= until:
                return times, watts
            if waited >= _PATIENCE_S:
                raise MeterError(
                    f"{self._file} has no row later than {until - times[-1]:.0f} s before it was "
                    f"needed, and {_PATIENCE_S:.0f} s have passed since; keep the logger running, "
                    "and set both clocks by NTP"
                )
            self._wall.wait(_LOOK_EVERY_S)
            waited += _LOOK_EVERY_S

    def close(self) -> None:
        """Do nothing: the file belongs to the logger."""


def read_watts(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Times and watts of a logger's file; a last line that is being written is left out."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path} is not a CSV file; save it as CSV in UTF-8") from None
    columns = table_of(text[: text.rfind("\n") + 1], path)
    moments, power = (_column(columns, names, path) for names in (_TIMES, _WATTS))
    watts = number_column(columns, power, path, "W")
    if (watts < 0).any():
        row = int(np.argmax(watts < 0))
        raise ScenarioError(
            f"{path}, row {row + 2}: {watts[row]:g} W is negative; a meter of what the machine "
            "draws is wanted, the right way round"
        )
    times = np.array([_moment(cell, path, row) for row, cell in enumerate(columns[moments])])
    back = np.flatnonzero(np.diff(times) <= 0)
    if back.size:
        raise ScenarioError(
            f"{path}, row {back[0] + 3}: its time is not after the one before; sort the rows by "
            "time and leave out what is there twice"
        )
    return times, watts


def _column(columns: dict[str, list[str]], names: Sequence[str], path: Path) -> str:
    for column in columns:
        if column.strip().lower() in names:
            return column
    raise ScenarioError(
        f"{path} has no column {names[0]!r} (it has {', '.join(columns)}): name it so, or "
        f"{', '.join(names[1:])}"
    )


def _moment(cell: str, path: Path, row: int) -> float:
    try:
        seconds = float(cell)
    except ValueError:
        try:
            moment = datetime.fromisoformat(cell)
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise ScenarioError(
                f"{path}, row {row + 2}: {cell[:40]!r} is no time: write seconds since 1970, or "
                "2026-01-31T12:00:00.5+00:00 with its zone"
            ) from None
        return moment.timestamp()
    if not math.isfinite(seconds):
        raise ScenarioError(f"{path}, row {row + 2}: {cell[:40]!r} is no time; write a number")
    return seconds


def _require_cover(path: Path, times: NDArray[np.float64], since: float, until: float) -> None:
    if times[0] > since:
        raise MeterError(
            f"{path} begins {times[0] - since:.1f} s after the measurement; start the logger "
            "first, and set both clocks by NTP"
        )
    first, last = np.searchsorted(times, since, "right") - 1, np.searchsorted(times, until)
    inside = times[first : last + 1]
    widest = float(np.diff(inside).max(initial=0.0))
    if widest > _WIDEST_GAP_S:
        raise MeterError(
            f"{path} has no row for {widest:.1f} s; let the meter log at least every "
            f"{_WIDEST_GAP_S:.0f} s"
        )


def integral(
    times: NDArray[np.float64], watts: NDArray[np.float64], since: float, until: float
) -> float:
    """Joules between two moments, by the trapezoidal rule; watts between rows are interpolated."""
    inside = (times > since) & (times < until)
    moments = np.concatenate([[since], times[inside], [until]])
    return float(np.trapezoid(np.interp(moments, times, watts), moments))


def _find(options: MeterOptions) -> Finding:
    if options.file is None:
        return Finding(False, "no file is given", "add --meter plug.csv")
    return Finding(True, str(options.file))


METERS.register(
    MeterKind(
        name="csv",
        description="The CSV file of an external meter: times and watts.",
        find=_find,
        open=External,
        sees="everything behind the external meter",
        suits=lambda options: False,
    )
)
