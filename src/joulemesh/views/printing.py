"""Formats, widths and colours of figures; loads no Matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from joulemesh.base.errors import ScenarioError

FORMATS = ("pdf", "svg", "pgf", "png")
"""What figures can be written as."""

_POINT = 1 / 72.27  # of TeX, in inches
WIDTHS = {
    "ieee": 252.0 * _POINT,
    "ieee-wide": 516.0 * _POINT,
    "acm": 241.14749 * _POINT,
    "acm-wide": 506.295 * _POINT,
}
"""Inches: a column and both, of IEEEtran (``journal``, ``conference``) and acmart (``sigconf``)."""

TWO_COLUMNS_IN = 5.0
"""What is wider stands over both columns of a page."""

_NARROWEST, _WIDEST = 1.0, 40.0


def width_in(width: str | float) -> float:
    """The inches that a width stands for."""
    known = ", ".join(WIDTHS)
    if isinstance(width, str) and width.strip().lower() in WIDTHS:
        return WIDTHS[width.strip().lower()]
    try:
        inches = float(width)
    except ValueError:
        raise ScenarioError(
            f"width {str(width)[:40]!r} is unknown: use {known}, or inches such as 3.5"
        ) from None
    if not (math.isfinite(inches) and _NARROWEST <= inches <= _WIDEST):
        raise ScenarioError(
            f"width {inches:g} in is unusable: use {known}, or {_NARROWEST:g} to {_WIDEST:g} inches"
        )
    return inches


def read_formats(formats: str | Sequence[str]) -> tuple[str, ...]:
    """The formats that are asked for, each once."""
    asked = formats.split(",") if isinstance(formats, str) else formats
    named = [one.strip().lower().removeprefix(".") for one in asked]
    unknown = next((one for one in named if one not in FORMATS), None)
    if unknown is not None or not named:
        raise ScenarioError(
            f"format {(unknown or '')[:40]!r} is unknown: use some of {', '.join(FORMATS)}"
        )
    return tuple(dict.fromkeys(named))


@dataclass(frozen=True)
class Printing:
    """The figures that are asked for."""

    formats: tuple[str, ...] = ("png", "svg")  # some of `FORMATS`
    # inches; None for the size of a screen, in a sans-serif face and with a title
    width: float | None = None

    @classmethod
    def asked(
        cls, formats: str | Sequence[str] | None, width: str | float | None
    ) -> Printing | None:
        """What a user asks for; None if it is nothing in particular."""
        if formats is None and width is None:
            return None
        return cls(
            cls.formats if formats is None else read_formats(formats),
            None if width is None else width_in(width),
        )


ON_SCREEN = Printing()
"""What is drawn unless something is asked for."""


# Okabe and Ito's colours, told apart by colour-blind readers too. Their yellow is too pale for a
# curve on white: an eighth curve is ochre.
_BLUE, _VERMILLION, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_ORANGE, _SKY, _BLACK, _YELLOW = "#E69F00", "#56B4E9", "#000000", "#F0E442"

CURVES = (_BLUE, _VERMILLION, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK, "#8A6D00")
"""Of curves in one figure, in this order."""

PRINTED = (
    "#255BA0",
    "#EE550E",
    "#51174E",
    "#6CA7DC",
    "#A15D79",
    "#000000",
    "#862505",
    "#AAC07B",
)
"""Of curves on paper, in this order: apart by lightness alone, so that a grey print shows them."""

BINDING = {
    "energy": _VERMILLION,
    "deadline": _BLUE,
    "time": _PURPLE,
    "idle": _ORANGE,
    "policy": _GREEN,
    "left": "#7F7F7F",
}
"""Of devices, by what limits their rounds."""

BINDING_ON_ANY = {
    "energy": "#e0701a",
    "deadline": "#2a8fd0",
    "time": "#c2699a",
    "idle": "#b98200",
    "policy": "#12a67c",
    "left": "#8a8f98",
}
"""The same, brightened or darkened until they stand on white and on black."""

CURVES_ON_ANY = ("#2a8fd0", "#e0701a", "#12a67c", "#c2699a", "#b98200", "#8a8f98")
"""Of curves, on white and on black."""

BINDING_PRINTED = {
    "energy": "#EE550E",
    "deadline": "#255BA0",
    "time": "#51174E",
    "idle": "#6CA7DC",
    "policy": "#AAC07B",
    "left": "#D2D2D2",
}
"""The same on paper, apart by lightness alone."""

HUB = _YELLOW
"""Of the star that marks the root of a tree."""

SKIPPED = _VERMILLION
"""Of iterations that go without an exchange."""

INK = "#18212D"
"""Of a route's edge, so that it is the boldest line whatever its links cost."""
