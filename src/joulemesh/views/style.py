"""Matplotlib's settings while a figure is drawn, and how it is saved."""

from __future__ import annotations

__all__ = ["figure_bytes", "save_figure", "styled", "styled_as"]

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.text import Text

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import write_whole

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.serif": ["STIXGeneral"],
    "font.size": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 7.5,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.6,
    "savefig.dpi": 300.0,
    "pdf.fonttype": 42,  # journals refuse Type 3 fonts
    "svg.hashsalt": "joulemesh",  # the same figure gives the same bytes
}
# In a paper's column: a face that goes with its Times or Libertine, everything in 8 points.
_PRINTED: dict[Any, Any] = {
    "font.family": ["serif", "DejaVu Sans"],  # the second has what the first lacks
    "mathtext.fontset": "stix",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "figure.titlesize": 9.0,
}
_SUFFIXES = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_DRAWING = threading.RLock()


@contextmanager
def styled(changes: Mapping[str, Any] | None = None, *, printed: bool = False) -> Iterator[None]:
    """Draw in the house's style, one thread at a time, and put back the settings that were.

    Matplotlib's settings are the whole process's: two threads that changed them together would
    draw with each other's, and leave them behind.

    Args:
        changes: settings of this figure alone.
        printed: for the column of a paper: a serif face, and no text below 8 points.

    >>> with styled({"axes.titlesize": 7.0}):
    ...     mpl.rcParams["savefig.dpi"], mpl.rcParams["axes.titlesize"]
    (300.0, 7.0)
    >>> with styled({"axes.titlesize": 7.0}, printed=True):
    ...     mpl.rcParams["font.family"], mpl.rcParams["axes.titlesize"]
    (['serif', 'DejaVu Sans'], 8.0)
    """
    paper = _PRINTED if printed else {}
    settings: dict[Any, Any] = {**_STYLE, **dict(changes or {}), **paper}
    with _DRAWING, mpl.rc_context(settings):
        yield


@contextmanager
def styled_as(figure: Figure) -> Iterator[None]:
    """The style that a figure was drawn in, for what is made of it only when it is saved."""
    texts = figure.findobj(Text)
    faces = {text.get_fontfamily()[0] for text in texts if isinstance(text, Text)}
    with styled(printed="serif" in faces):
        yield


def figure_bytes(figure: Figure, suffix: str) -> bytes:
    """A figure as a file's content; the same figure gives the same bytes.

    Args:
        figure: what is drawn.
        suffix: ``".png"``, ``".svg"`` or ``".pdf"``.

    >>> figure_bytes(Figure(), ".pdf")[:5]
    b'%PDF-'
    """
    content = BytesIO()
    with styled_as(figure):
        figure.savefig(content, format=suffix[1:], metadata=_SUFFIXES[suffix])
    return content.getvalue()


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure, whole or not at all; the suffix says how.

    `joulemesh.views.publication.figure` writes several formats at once, at a column's width.

    Args:
        figure: what is drawn.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        ScenarioError: another suffix, or a place that cannot be written.

    >>> save_figure(Figure(), "plan.gif")
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: plan.gif: figures end in .png, .svg or .pdf, not '.gif'
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ScenarioError(f"{path}: figures end in .png, .svg or .pdf, not {path.suffix!r}")
    write_whole(path, lambda draft: draft.write(figure_bytes(figure, suffix)))
