"""Names and paths that hold control codes or markup are shown, not obeyed."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from joulemesh.base.errors import printable
from joulemesh.cli.main import main
from tests.commands import Command

RED = "\x1b[31m"
SCENARIO = """
[devices]
count = 3
table = "{table}"
[plan]
iterations = 2
"""
TABLE = f"""name,energy_j,spare{RED}
{RED}hot,1,1
[/],1.1,2
[red]plain,1.2,3
"""


def answer(command: Command, *arguments: object) -> tuple[int, str]:
    """The exit code of a command, and all that it prints, in which no control code is left."""
    code, out, err = command(*arguments)
    assert printable(out + err, lines=True) == out + err
    return code, out + err


@pytest.mark.parametrize("name", [f"{RED}x", "a\rb", "a\nb", "\x9b31m", "\u202eb", "\udcff"])
def test_a_path_is_shown_in_one_line(command: Command, name: str) -> None:
    code, said = answer(command, "plan", "--out", f"{name}/plan.json")
    assert code == 2
    assert said.startswith("error: cannot write")
    assert len(said.splitlines()) == 1
    assert printable(name) in said


def test_cells_and_paths_of_a_scenario_are_shown(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / f"{RED}folder"
    folder.mkdir()
    (folder / "devices.csv").write_text(TABLE)
    (folder / "s.toml").write_text(SCENARIO.format(table="devices.csv"))
    code, said = answer(command, "plan", folder / "s.toml", "--out", folder / "p.json")
    assert code == 0, said
    for shown in (r"\x1b[31mhot", "[/]", "[red]plain", r"wrote ", r"\x1b[31mfolder"):
        assert shown in said
    assert r"column 'spare\x1b[31m'" in said  # the note about a column that nobody takes


def test_signs_that_a_code_page_lacks_are_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As `joulemesh plan > plan.txt` is on Windows, where a file is written in cp1252."""
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding="cp1252"))
    monkeypatch.setattr(sys, "argv", ["joulemesh", "plan"])
    with pytest.raises(SystemExit, match="0"):
        main()
    sys.stdout.flush()
    assert b"Feasible" in printed.getvalue()
    assert b"local rounds ????" in printed.getvalue()
