"""Figures for a paper: in the formats that are asked for, at the width of a journal's column."""

from __future__ import annotations

__all__ = ["FORMATS", "WIDTHS", "read_formats", "save_figure", "width_in"]

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure

from joulemesh.errors import ScenarioError
from joulemesh.files import write_bytes
from joulemesh.views.publication.pgf import pgf_files
from joulemesh.views.style import figure_bytes

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

_NARROWEST, _WIDEST = 1.0, 40.0
_FLATTEST = 0.62  # height by width of a figure that is made narrower


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


def save_figure(
    figure: Figure,
    stem: str | Path,
    formats: str | Sequence[str],
    *,
    width: str | float | None = "ieee",
) -> list[Path]:
    """Write a figure in several formats; all are drawn before the first is written.

    Fonts are embedded as TrueType, nothing depends on the day or the machine, and the figure
    itself stays as it was. A figure that is drawn within ``styled(printed=True)`` (see
    `joulemesh.views.style`) has a serif face and no text below 8 points. Draw it at ``width_in``
    inches, so that it is laid out for its column; otherwise it is laid out again at that width,
    with a height in proportion, but not flatter than the golden section.

    Args:
        figure: what is drawn.
        stem: path without a suffix; each format adds its own.
        formats: some of `FORMATS`, in a list or in one text with commas.
        width: one of `WIDTHS`, inches, or None for that of the figure.

    Returns:
        The files that were written, in the order of the formats. A PGF figure with raster images
        brings these along as ``STEM-img0.png`` and so on.

    Raises:
        ScenarioError: an unknown format or width, or a place that cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = save_figure(Figure(), Path(folder, "curves"), "pdf,pgf", width="acm")
    >>> [path.name for path in made]
    ['curves.pdf', 'curves.pgf']
    """
    asked, place = read_formats(formats), Path(stem)
    inches = None if width is None else width_in(width)
    made: dict[str, bytes] = {}
    with _at_width(figure, inches):
        for one in asked:
            if one == "pgf":
                made |= pgf_files(figure, place.name)
            else:
                made[f"{place.name}.{one}"] = figure_bytes(figure, f".{one}")
    for name, content in made.items():
        write_bytes(place.with_name(name), content)
    return [place.with_name(name) for name in made]


@contextmanager
def _at_width(figure: Figure, inches: float | None) -> Iterator[None]:
    """Lay the figure out at a width, and put back the size that it had."""
    width, height = (float(side) for side in figure.get_size_inches())
    if inches is None or math.isclose(inches, width, rel_tol=1e-6):
        yield
        return
    in_proportion = height * inches / width
    try:
        figure.set_size_inches(inches, max(in_proportion, min(height, _FLATTEST * inches)))
        yield
    finally:
        figure.set_size_inches(width, height)
