"""Which figures are asked for: their formats and their width; loads no Matplotlib."""

from __future__ import annotations

__all__ = [
    "FORMATS",
    "ON_SCREEN",
    "TWO_COLUMNS_IN",
    "WIDTHS",
    "Printing",
    "read_formats",
    "width_in",
]

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
    """The inches that a width stands for.

    Args:
        width: one of `WIDTHS`, or inches.

    Raises:
        ScenarioError: it is neither, or no usable number of inches.

    >>> round(width_in("ieee"), 3), width_in("4.5")
    (3.487, 4.5)
    """
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
    """The formats that are asked for, each once.

    Args:
        formats: some of `FORMATS`, in a list or in one text with commas.

    Raises:
        ScenarioError: one is unknown, or there is none.

    >>> read_formats("pdf, .PGF,pdf")
    ('pdf', 'pgf')
    """
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
    """The figures that are asked for.

    Attributes:
        formats: some of `FORMATS`.
        width: inches; None for the size of a screen, in a sans-serif face and with a title.

    >>> Printing.asked("pdf,pgf", "ieee-wide").formats, Printing.asked(None, None)
    (('pdf', 'pgf'), None)
    """

    formats: tuple[str, ...] = ("png", "svg")
    width: float | None = None

    @classmethod
    def asked(
        cls, formats: str | Sequence[str] | None, width: str | float | None
    ) -> Printing | None:
        """What a user asks for; None if it is nothing in particular.

        Args:
            formats: some of `FORMATS`, in a list or in one text with commas; None for PNG and SVG.
            width: one of `WIDTHS`, or inches; None for the size of a screen.
        """
        if formats is None and width is None:
            return None
        return cls(
            cls.formats if formats is None else read_formats(formats),
            None if width is None else width_in(width),
        )


ON_SCREEN = Printing()
"""What is drawn unless something is asked for."""
