"""Writing the scenario as the TOML file that every command takes."""

from __future__ import annotations

__all__ = ["ExistsError", "save_scenario"]

from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files import write_text
from joulemesh.files.bounded import read_bounded
from joulemesh.files.limits import SCENARIO, TABLE
from joulemesh.scenario import Scenario
from joulemesh.scenario.rewrite import rewritten


class ExistsError(ScenarioError):
    """There is such a file, and nobody has said that it may be replaced."""


def save_scenario(
    scenario: Scenario, path: str | Path, *, tables: Path, replace: bool = False
) -> list[Path]:
    """Write a scenario, and beside it the device table where that was pasted or edited.

    A file that is replaced keeps its own comments and its order as far as its lines are still
    true. What is written is read again before anything is replaced: it gives the same scenario.

    Args:
        scenario: to be written.
        path: ends in ``.toml``.
        tables: the folder of tables that only the studio knows; one of them is copied.
        replace: a file that exists may be replaced.

    Returns:
        The files that were written.

    Raises:
        ExistsError: there is one of them already.
        ScenarioError: the path is of another kind, or cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     place, one = Path(folder), Scenario.preset("adaptive")
    ...     _ = save_scenario(one, place / "fleet.toml", tables=place)
    ...     Scenario.load(place / "fleet.toml") == one
    True
    """
    place = Path(path).expanduser()
    if place.suffix != ".toml":
        raise ScenarioError(f"{place.name or place} is not the name of a scenario; write NAME.toml")
    table = scenario.devices.table
    own = table is not None and Path(table).parent == tables
    beside = place.with_name(f"{place.stem}-devices.csv")
    written = [place, beside] if own else [place]
    there = [one for one in written if one.exists()]
    if there and not replace:
        names = " and ".join(str(one) for one in there)
        raise ExistsError(f"{names} exists; say that it may be replaced, or choose another name")
    before = _text_of(place) if place.exists() else ""
    if not own:
        write_text(place, rewritten(before, scenario, place.parent))
        return written
    text = read_bounded(Path(str(table)), TABLE.now).decode()
    write_text(beside, text)
    kept = scenario.override({"devices.table": str(beside.resolve())})
    write_text(place, rewritten(before, kept, place.parent))
    return written


def _text_of(path: Path) -> str:
    """The text of a file that is to be replaced."""
    try:
        return read_bounded(path, SCENARIO.now).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ScenarioError(f"{path} cannot be replaced: {why}; choose another name") from None
