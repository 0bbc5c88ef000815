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
from joulemesh.runs.identity import versions
from joulemesh.views.comparison.page import render_comparison


def save_result(result: Result, folder: str | Path) -> None:
    """Write the run folder of a result (all but the checkpoint) to a new place."""
    RunFolder(folder).save(result)


def save_comparison(found: Comparison, folder: str | Path, code: Sequence[str | Path] = ()) -> None:
    """Write the folder of a comparison; see `Comparison.save`.

    Args:
        found: the comparison.
        folder: made if need be; files of the same names in it are replaced.
        code: Python files of the user's own that register methods, to be kept too.
    """
    place = make_folder(folder)
    with FolderLock(place):
        sweep(place)
        _write(found, place, [Path(path) for path in code])
        commit_all(place, stage="study")


def _write(found: Comparison, place: Path, code: list[Path]) -> None:
    from joulemesh.views.style import save_figure  # loads Matplotlib

    keep_study(found, place, found.own_data, own_model=found.own_model, code=code)
    found.to_csv(place / "comparison.csv")
    write_text(place / "table.csv", found.table_csv())
    if found.rates:
        write_text(place / "rates.csv", found.rates_csv())
    for name, axes in (("figure", AXES), *((axis, (axis,)) for axis in AXES)):
        drawn = found.figure(axes)
        for suffix in (".png", ".svg"):
            save_figure(drawn, place / f"{name}{suffix}")
    now = datetime.now(UTC).isoformat(timespec="seconds")
    page = render_comparison(found, versions=flat(versions()), when=now)
    write_text(place / "report.html", page)
    if isinstance(found, WorldsComparison):
        write_text(place / "worlds.csv", found.worlds_csv())
