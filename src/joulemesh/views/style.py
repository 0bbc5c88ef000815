"""Matplotlib's settings while a figure is drawn."""

from __future__ import annotations

__all__ = ["styled"]

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

_DRAWING = threading.RLock()


@contextmanager
def styled(settings: dict[Any, Any]) -> Iterator[None]:
    """Draw with these settings, one thread at a time, and put back those that were.

    Matplotlib's settings are the whole process's: two threads that changed them together would
    draw with each other's, and leave them behind.

    >>> with styled({"savefig.dpi": 300.0}):
    ...     mpl.rcParams["savefig.dpi"]
    300.0
    """
    with _DRAWING, mpl.rc_context(settings):
        yield
