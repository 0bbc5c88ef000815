"""How curves look on paper: told apart by colour, by lightness, by dashes and by markers."""

from __future__ import annotations

__all__ = ["DASHES", "MARKERS", "curve_look", "legend_columns"]

from collections.abc import Sequence
from typing import Any

from joulemesh.views.palette import PRINTED

DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 1.5)),
    (0, (1.5, 1)),
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (9, 2)),
    (0, (5, 1.2, 1.2, 1.2, 1.2, 1.2)),
    (0, (3, 3)),
    (0, (1, 2.5)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def curve_look(index: int, *, marked: bool = True) -> dict[str, Any]:
    """The options of Matplotlib's ``plot`` for one of several curves.

    Args:
        index: of the curve; the first seven differ in colour, dashes and marker, the first 56 in
            one of them.
        marked: whether points have markers.

    >>> curve_look(1)["marker"], curve_look(1, marked=False)["marker"]
    ('s', '')
    """
    return {
        "color": PRINTED[index % len(PRINTED)],
        "linestyle": DASHES[index % len(DASHES)],
        "marker": MARKERS[index % len(MARKERS)] if marked else "",
        "markersize": 3.2,
        "linewidth": 1.2,
    }


def legend_columns(names: Sequence[str], inches: float) -> int:
    """How many names stand side by side below the panels, in rows of about the same length.

    >>> legend_columns(["spread", "adaptive", "fixed:3", "d-psgd"], 3.5)  # two rows of two
    2
    """
    longest = max(map(len, names), default=1)
    most = max(1, min(len(names), int(inches / (0.6 + 0.07 * longest))))
    rows = -(-len(names) // most)
    return max(1, -(-len(names) // max(1, rows)))
