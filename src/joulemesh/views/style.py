"""Matplotlib's settings while a figure is drawn, and how it is saved."""

from __future__ import annotations

__all__ = ["save_figure", "styled"]

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import matplotlib as mpl
from matplotlib.figure import Figure

from joulemesh.errors import ScenarioError
from joulemesh.files import write_whole

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
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
_SUFFIXES = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_DRAWING = threading.RLock()


@contextmanager
def styled(changes: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Draw in the house's style, one thread at a time, and put back the settings that were.

    Matplotlib's settings are the whole process's: two threads that changed them together would
    draw with each other's, and leave them behind.

    Args:
        changes: settings of this figure alone.

    >>> with styled({"axes.titlesize": 7.0}):
    ...     mpl.rcParams["savefig.dpi"], mpl.rcParams["axes.titlesize"]
    (300.0, 7.0)
    """
    settings: dict[Any, Any] = {**_STYLE, **dict(changes or {})}
    with _DRAWING, mpl.rc_context(settings):
        yield


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure, whole or not at all; the suffix says how.

    Args:
        figure: what is drawn.
        path: ends in ``.png``, ``.svg`` or ``.pdf``.

    Raises:
        ScenarioError: another suffix, or a place that cannot be written.

    >>> save_figure(Figure(), "plan.gif")
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: plan.gif: figures end in .png, .svg or .pdf, not '.gif'
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise ScenarioError(f"{path}: figures end in .png, .svg or .pdf, not {path.suffix!r}")

    def write(draft: IO[bytes]) -> None:
        with styled():
            figure.savefig(draft, format=suffix[1:], metadata=_SUFFIXES[suffix])

    write_whole(path, write)
