"""Pictures of the house in docs/explanation/house.md, drawn from the code: `python -m tools.house`.

One shows the rooms and who imports whom, as the syntax trees tell; the other one run's way through
them, as a profile of a small run tells.
"""

from __future__ import annotations

__all__ = ["FIGURES", "Station", "draw", "drawn", "entries", "rooms_svg", "way", "way_svg"]

import contextlib
import importlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

from joulemesh.views.printing import CURVES, INK
from tools.house import HOME, LINE, ORDER, counted, modules, room_of

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"

_ROWS = tuple(range(len(ORDER) - 1))  # the last is `python -m joulemesh`
_BOTTOM = "base, …"
_ROW, _TOP, _LEFT = 30, 64, 190
_SOFT = "#D5DBE3"
_MOST, _LEAST = 3, 0.1  # entries of a room; of the calls inside its largest
_RUN = ("run", "--out", "run", "--set", "plan.iterations=2", "--set", "devices.count=3")


@dataclass(frozen=True)
class Station:
    """An entry into a room in which much of a run happens.

    Attributes:
        line: of `ORDER`.
        name: of the function by which the room is entered.
    """

    line: int
    name: str


@dataclass
class _Entry:
    """A call under way.

    Attributes:
        line: of its room.
        name: of the function.
        began: how many calls there had been.
        calls: inside it, in its own room and those above: what is done here or ordered from here.
    """

    line: int
    name: str
    began: int
    calls: int = 0


@dataclass
class _Watch:
    """A profile: for each room, the entries from elsewhere, each at its longest."""

    began: int = 0
    stack: list[_Entry] = field(default_factory=list)
    longest: dict[tuple[int, str], _Entry] = field(default_factory=dict)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(str(HOME)):
            return
        if event == "return":
            if self.stack:
                self._leave(self.stack.pop())
            return
        self.began += 1
        line = LINE.get(room_of(Path(frame.f_code.co_filename)), -1)
        for outer in self.stack:
            outer.calls += line <= outer.line
        name = frame.f_code.co_qualname.removesuffix(".__init__")
        self.stack.append(_Entry(line, name, self.began))

    def _leave(self, entry: _Entry) -> None:
        outside = not self.stack or self.stack[-1].line != entry.line
        public = not any(part.startswith(("_", "<")) for part in entry.name.split("."))
        if outside and public and entry.line > 0:
            best = self.longest.setdefault((entry.line, entry.name), entry)
            if entry.calls > best.calls:
                self.longest[entry.line, entry.name] = entry

    def main_entries(self) -> list[_Entry]:
        """A few of each room, those that are not much smaller than its largest, in time's order."""
        chosen: list[_Entry] = []
        for line in _ROWS:
            own = [entry for (at, _), entry in self.longest.items() if at == line]
            own.sort(key=lambda entry: -entry.calls)
            chosen += [entry for entry in own[:_MOST] if entry.calls >= _LEAST * own[0].calls]
        return sorted(chosen, key=lambda entry: entry.began)


def _watched() -> _Watch:
    """The profile of a small run."""
    for path in modules():  # what happens while modules are loaded is no part of it
        parts = path.relative_to(HOME).with_suffix("").parts
        if "__main__" not in parts:
            importlib.import_module(".".join(["joulemesh", *parts]).removesuffix(".__init__"))
    from joulemesh.cli.main import main

    watch, arguments, here = _Watch(), sys.argv, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        try:
            os.chdir(folder)
            sys.argv = ["joulemesh", *_RUN]
            with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
                sys.setprofile(watch)
                main()
        finally:
            sys.setprofile(None)
            os.chdir(here)
            sys.argv = arguments
    return watch


def way() -> list[Station]:
    """One run's way through the house, in the order of time: a few stations for each room."""
    return [Station(entry.line, entry.name) for entry in _watched().main_entries()]


def entries() -> set[Station]:
    """Every public call from one room into another in a small run."""
    return {Station(line, name) for line, name in _watched().longest}


def drawn(svg: str) -> list[Station]:
    """The stations of a picture of a run's way.

    >>> drawn(way_svg([Station(7, "plan")]))
    [Station(line=7, name='plan')]
    """
    found = re.findall(r'<circle cx="[^"]*" cy="([^"]*)".*?>\n<text [^>]*>([^<]*)<', svg)
    return [Station(round((float(y) - _TOP) / _ROW - 0.5), name) for y, name in found]


def _label(line: int) -> str:
    shown = [room for room in ORDER[line] if room != "templates"]
    return _BOTTOM if line == 0 else ", ".join(shown)


def _y(line: int) -> float:
    return _TOP + _ROW * (line + 0.5)


def _text(x: float, y: float, text: str, *, size: int = 13, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {more}>{escape(text)}</text>'


def _svg(width: float, title: str, parts: Sequence[str]) -> str:
    height = _TOP + _ROW * len(_ROWS) + 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" font-family="system-ui, sans-serif" '
        f'fill="{INK}" role="img"><title>{escape(title)}</title>'
    )
    ground = f'<rect width="{width:g}" height="{height:g}" rx="8" fill="#FFFFFF"/>'
    names = [
        f'<line x1="{_LEFT}" x2="{width - 16:g}" y1="{_y(line):g}" y2="{_y(line):g}" '
        f'stroke="{_SOFT}"/>'
        + _text(_LEFT - 14, _y(line) + 4, _label(line), more='text-anchor="end" font-weight="600"')
        for line in _ROWS
    ]
    return "\n".join([head, ground, *names, *parts, "</svg>", ""])


def rooms_svg() -> str:
    """The rooms from top to bottom, and in each column which of them one room imports.

    >>> rooms_svg().count("<circle") > 30
    True
    """
    step, pairs = 34.0, counted()
    parts = [_text(16, 24, "A column is a room: its dots are the rooms that it imports.", size=14)]
    legend = "All lie above its own box. Dots: 1 module, 2 to 7, 8 or more."
    parts.append(_text(16, 44, legend, size=12))
    for own in _ROWS:
        x = _LEFT + 16 + step * own
        parts.append(
            f'<rect x="{x - 8:g}" y="{_y(own) - 8:g}" width="16" height="16" rx="3" '
            f'fill="{INK}"><title>{escape(_label(own))}</title></rect>'
        )
        for other in range(own):
            count = sum(pairs[a, b] for a in ORDER[own] for b in ORDER[other])
            if count:
                radius = 3 if count == 1 else 5.5 if count < 8 else 8
                parts.append(
                    f'<circle cx="{x:g}" cy="{_y(other):g}" r="{radius:g}" fill="{CURVES[0]}">'
                    f"<title>{escape(_label(own))} imports {escape(_label(other))}</title></circle>"
                )
    return _svg(_LEFT + step * len(_ROWS) + 16, "Rooms and what they import", parts)


def way_svg(stations: Sequence[Station]) -> str:
    """One run's way, from left to right.

    >>> way_svg([Station(7, "plan"), Station(8, "Engine.run_chunk")]).count("<circle")
    2
    """
    points, x = [], _LEFT + 24.0
    for station, after in pairwise([*stations, stations[-1]]):
        points.append((x, _y(station.line)))
        x += max(38.0, 7.2 * len(station.name) + 16 if after.line == station.line else 0.0)
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    parts = [
        _text(16, 24, "joulemesh run, from left to right in the order of time", size=14),
        _text(16, 44, "Rooms at the calls from other rooms inside which most happens.", size=12),
        f'<polyline points="{path}" fill="none" stroke="{CURVES[0]}" stroke-width="2"/>',
    ]
    for station, (x, y) in zip(stations, points, strict=True):
        parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{CURVES[1]}"/>')
        halo = 'stroke="#FFFFFF" stroke-width="4" paint-order="stroke"'
        parts.append(_text(x + 9, y - 6, station.name, size=12, more=halo))
    return _svg(x + 16, "One run's way through the rooms", parts)


def draw() -> None:
    """Draw both pictures anew."""
    (FIGURES / "house.svg").write_text(rooms_svg(), "utf-8")
    (FIGURES / "house-run.svg").write_text(way_svg(way()), "utf-8")
