"""The paper's figures, redone with Joulemesh. In: the name of a table or figure, full or quick, and
seeds. Out: an Outcome (rows, curves, findings on the paper's sentences), its pictures, claims and
page; runs are kept by content.
"""

from __future__ import annotations

__all__ = ["FIGURES", "LEARNED", "redo", "redraw"]

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yan_li_2024.outcome import Outcome, Picture, Row
    from yan_li_2024.runner import Runner

FIGURES = ("table1", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9")
LEARNED = ("fig4", "fig5", "fig6", "fig8", "fig9")  # the others train nothing and load no JAX


def redo(name: str, *, quick: bool = False, runner: Runner | None = None) -> Outcome:
    """Redo a table or figure.

    Args:
        name: one of `FIGURES`.
        quick: digits and few devices in place of the paper's data sets.
        runner: trains; needed by the figures that learn (`LEARNED`).

    Returns:
        The outcome.

    >>> redo("table1").rows[0]["objective"] < redo("table1").rows[1]["objective"]
    True
    """
    study: Any = import_module(f"{__name__}.{name}")
    config = study.QUICK if quick else study.CONFIG
    outcome: Outcome = study.run(config, runner) if name in LEARNED else study.run(config)
    return outcome


def redraw(
    name: str, rows: Sequence[Row], *, quick: bool = False
) -> tuple[tuple[Picture, ...], str]:
    """What a table or figure shows, from its rows alone; nothing is computed.

    Args:
        name: one of `FIGURES`.
        rows: of its CSV file.
        quick: were digits used, and few devices?

    Returns:
        Its pictures, and what was run in words.

    >>> pictures, words = redraw("table1", [])
    >>> [picture.name for picture in pictures]
    ['table1']
    """
    study: Any = import_module(f"{__name__}.{name}")
    config = study.QUICK if quick else study.CONFIG
    return study.pictures(config, rows), study.setup(config)
