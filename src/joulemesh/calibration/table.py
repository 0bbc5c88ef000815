"""The row of a device in a table of devices."""

from __future__ import annotations

__all__ = ["check_table", "write_row"]

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from joulemesh.errors import ScenarioError
from joulemesh.files import write_text
from joulemesh.tables import read_table

_NAME = "name"


def check_table(path: Path) -> dict[str, list[str]]:
    """The columns of a table that a row can be written to; none if it does not exist yet.

    Raises:
        ScenarioError: it cannot be read, or does not name its devices.
    """
    if not path.exists():
        return {}
    columns = read_table(path)
    names = columns.get(_NAME)
    if names is None:
        raise ScenarioError(
            f"{path} has no column {_NAME!r}, so nobody knows whose row is whose; add one"
        )
    twice = next((name for k, name in enumerate(names) if name in names[:k]), None)
    if twice is not None:
        raise ScenarioError(f"{path} has two devices called {twice!r:.60}: rename one")
    return columns


def write_row(path: str | Path, row: Mapping[str, str]) -> bool:
    """Add a device's row to a table, or put its figures into the row that it has.

    Other rows and other columns stay as they are; the file is written whole or not at all.

    Args:
        path: of the table; made if it does not exist.
        row: cells by column, with the device's ``name``.

    Returns:
        Whether the device had a row.

    Raises:
        ScenarioError: the table cannot be read or written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "devices.csv")
    ...     _ = table.write_text("name,energy_j\\nnorth,9\\nsouth,8\\n")
    ...     write_row(table, {"name": "south", "step_s": "0.002"})
    ...     print(table.read_text().strip())
    True
    name,energy_j,step_s
    north,9,
    south,8,0.002
    """
    path = Path(path)
    columns = check_table(path)
    names = columns.get(_NAME, [])
    header = list(dict.fromkeys([*columns, *row]))
    had = row[_NAME] in names
    rows = [{column: cells[k] for column, cells in columns.items()} for k in range(len(names))]
    if had:
        rows[names.index(row[_NAME])].update(row)
    else:
        rows.append(dict(row))
    text = io.StringIO()
    writer = csv.DictWriter(text, header, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
    return had
