"""Figures for a paper: in the formats that are asked for, at the width of a journal's column."""

from __future__ import annotations

__all__ = ["FORMATS", "WIDTHS", "save_figure", "width_in"]

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib.figure import Figure

from joulemesh.files import write_bytes
from joulemesh.views.publication.pgf import pgf_files
from joulemesh.views.publication.printing import FORMATS, WIDTHS, read_formats, width_in
from joulemesh.views.style import figure_bytes

_FLATTEST = 0.62  # height by width of a figure that is made narrower


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
    asked, path = read_formats(formats), Path(stem)
    inches = None if width is None else width_in(width)
    made: dict[str, bytes] = {}
    with _at_width(figure, inches):
        for one in asked:
            if one == "pgf":
                made |= pgf_files(figure, path.name)
            else:
                made[f"{path.name}.{one}"] = figure_bytes(figure, f".{one}")
    for name, content in made.items():
        write_bytes(path.with_name(name), content)
    return [path.with_name(name) for name in made]


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
