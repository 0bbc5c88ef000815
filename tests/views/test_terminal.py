"""What is printed fits the terminal, and no figure is ever cut."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from joulemesh.scenario.profiles import profiles
from joulemesh.views.table import Column, Table
from joulemesh.views.terminal import open_console, show_table, show_whole
from tests.terminal import in_terminal
from yan_li_2024.verdicts import show_claims

CLAIMS = Path(__file__).parents[2] / "docs" / "reproduction" / "claims.csv"
COLUMNS = [
    Column("device"),
    Column("battery"),
    Column("training", rank=2),
    Column("left over"),
    Column("per iteration", rank=3),
    Column("what binds", figures=False),
    Column("what it is", rank=1, prose=12),
]
ROW = ["0", "12.5 J", "11.2 mJ", "0.1 %", "3–5", "deadline", "a [bold] board with four busy cores"]


def printed(width: int, columns: list[Column], rows: list[list[str]]) -> str:
    console = Console(width=width, file=io.StringIO())
    show_table(console, Table(columns, rows))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("width", range(14, 130))
def test_no_figure_is_cut_at_any_width(width: int) -> None:
    page = printed(width, COLUMNS, [ROW, ROW])
    assert "…" not in page
    left_out = re.search(r"not shown: ((?:.|\n)*)", page)
    gone = " ".join(left_out[1].split()).split(", ") if left_out else []
    for column, cell in zip(COLUMNS, ROW, strict=True):
        shown = column.name not in gone
        if column.prose is None:
            whole = re.findall(rf"[│ ]{re.escape(cell)}[│ ]", page)
            assert len(whole) == 2 * shown, (column.name, page)
        else:
            assert ("[bold]" in page) == shown  # text, not a command to the console
        assert shown or column.rank > 0
    if width >= 38:  # what the columns that are always shown take
        assert max(map(len, page.splitlines())) <= width


def test_columns_are_left_out_by_rank() -> None:
    gone = []
    for width in range(120, 40, -1):
        page = " ".join(printed(width, COLUMNS, [ROW]).split())
        gone.append(page.partition("not shown: ")[2])
    assert list(dict.fromkeys(gone)) == [
        "",
        "per iteration",
        "training, per iteration",
        "training, per iteration, what it is",
    ]


def test_prose_is_broken_and_figures_are_not() -> None:
    columns = [Column("name", figures=False), Column("what", prose=10)]
    page = printed(30, columns, [["raspberry-pi-4", "four busy cores at the wall"]])
    assert "raspberry-pi-4" in page
    assert max(map(len, page.splitlines())) <= 30
    assert show_whole(Table(columns, [["a", "b"]]), Console(width=80, file=io.StringIO()))


@pytest.mark.parametrize("width", [70, 80, 120])
def test_the_claims_fit(width: int) -> None:
    rows = list(csv.DictReader(CLAIMS.open(encoding="utf-8")))
    console = Console(width=width, file=io.StringIO())
    show_claims(rows, console)
    assert isinstance(console.file, io.StringIO)
    page = console.file.getvalue()
    assert "…" not in page
    assert max(map(len, page.splitlines())) <= width


def test_a_pipe_has_no_edge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert open_console().width > 1000
    monkeypatch.setenv("COLUMNS", "60")
    assert open_console().width == 60


def command(*words: str, columns: str | None = None) -> str:
    """What a command prints into a pipe."""
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    environment |= {} if columns is None else {"COLUMNS": columns}
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", *words],
        capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    return done.stdout


def test_commands_into_a_pipe_are_whole() -> None:
    page = command("profiles")
    assert "…" not in page
    assert "not shown" not in page
    for profile in profiles():
        assert profile.name in page
        assert all(word in page for word in profile.summary.split())
    plan = command("plan", "--preset", "adaptive")
    assert "…" not in plan
    (why,) = [line for line in plan.splitlines() if line.startswith("why")]
    assert why.endswith("the least energy (Theorem 3, case 1)")  # one line, for grep
    assert "per iteration ┃ what binds" in plan


@pytest.mark.parametrize("columns", ["50", "80"])
def test_commands_in_few_columns_fit_them(columns: str) -> None:
    plan = command("plan", columns=columns)
    assert "…" not in plan
    assert max(map(len, plan.splitlines())) <= int(columns)


def test_a_terminal_decides_by_its_size() -> None:
    """In earnest: a pseudo-terminal of 60 columns."""
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    text = in_terminal("plan", columns=60, env={**kept, "TERM": "xterm"})
    assert "…" not in text
    assert "not shown: " in text
    assert max(len(line) for line in text.splitlines()) <= 60
