"""A device's row in a table: added or replaced, and nothing else touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.calibration import write_row
from joulemesh.tables import read_table

ROW = {"name": "south", "step_s": "0.002", "step_s_source": "measured by a, b"}


def test_a_table_is_made(tmp_path: Path) -> None:
    assert write_row(tmp_path / "devices.csv", ROW) is False
    assert read_table(tmp_path / "devices.csv") == {name: [cell] for name, cell in ROW.items()}


def test_rows_are_added_and_replaced(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    table.write_text("energy_j;name\n1,5;north\n2,25;south\n")
    assert write_row(table, ROW) is True
    assert write_row(table, {**ROW, "name": "west"}) is False
    assert write_row(table, {**ROW, "step_s": "0.003"}) is True
    assert read_table(table) == {
        "energy_j": ["1.5", "2.25", ""],
        "name": ["north", "south", "west"],
        "step_s": ["", "0.003", "0.002"],
        "step_s_source": ["", ROW["step_s_source"], ROW["step_s_source"]],
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [("energy_j\n1\n", "no column 'name'"), ("name\na\na\n", "two devices called 'a'")],
)
def test_a_table_without_names_is_refused_and_left(tmp_path: Path, text: str, words: str) -> None:
    table = tmp_path / "devices.csv"
    table.write_text(text)
    with pytest.raises(ScenarioError, match=words):
        write_row(table, ROW)
    assert table.read_text() == text
