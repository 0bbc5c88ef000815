"""Keep what was found in a folder: a result as a run folder, a comparison with its figures."""

from __future__ import annotations

__all__ = ["save_comparison", "save_result"]

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from joulemesh.files import make_folder, write_text
from joulemesh.files.lock import FolderLock
from joulemesh.files.verify import commit_all
from joulemesh.files.whole import sweep
from joulemesh.results.comparison import AXES, Comparison
from joulemesh.results.comparison_worlds import WorldsComparison
from joulemesh.results.result import Result
from joulemesh.runs.again import keep_study
from joulemesh.runs.folder import RunFolder
from joulemesh.runs.formats import flat
from joulemesh.runs.paper import write_comparison_paper
from joulemesh.training.software import software
from joulemesh.views.comparison.page import render_comparison
from joulemesh.views.publication.printing import ON_SCREEN, Printing


def save_result(result: Result, folder: str | Path) -> None:
    """Write the run folder of a result (all but the checkpoint) to a new place."""
    RunFolder(folder).save(result)


def save_comparison(
    found: Comparison,
    folder: str | Path,
    code: Sequence[str | Path] = (),
    *,
    formats: str | Sequence[str] | None = None,
    width: str | float | None = None,
    baseline: str | None = None,
) -> None:
    """Write the folder of a comparison; see `Comparison.save`.

    Args:
        found: the comparison.
        folder: made if need be; files of the same names in it are replaced.
        code: Python files of the user's own that register methods, to be kept too.
        formats: of the figures; PNG and SVG unless given.
        width: of the figures; that of a screen unless given.
        baseline: the method that significance in the LaTeX table is against.
    """
    printing = Printing.asked(formats, width) or ON_SCREEN
    if baseline is not None:
        found[baseline]  # refused before anything is written
    place = make_folder(folder)
    with FolderLock(place):
        sweep(place)
        _write(found, place, [Path(path) for path in code])
        _write_figures(found, place, printing)
        write_comparison_paper(found, place, printing, baseline)
        commit_all(place, stage="study")


def _write(found: Comparison, place: Path, code: list[Path]) -> None:
    keep_study(found, place, found.own_data, own_model=found.own_model, code=code)
    found.to_csv(place / "comparison.csv")
    write_text(place / "table.csv", found.table_csv())
    if found.rates:
        write_text(place / "rates.csv", found.rates_csv())
    now = datetime.now(UTC).isoformat(timespec="seconds")
    page = render_comparison(found, versions=flat(software(found.library)), when=now)
    write_text(place / "report.html", page)
    if isinstance(found, WorldsComparison):
        write_text(place / "worlds.csv", found.worlds_csv())


def _write_figures(found: Comparison, place: Path, printing: Printing) -> None:
    from joulemesh.views.publication.figure import save_figure  # loads Matplotlib

    for name, axes in (("figure", AXES), *((axis, (axis,)) for axis in AXES)):
        drawn = found.figure(axes, width=printing.width)
        save_figure(drawn, place / name, printing.formats, width=None)
