"""`--format` and `--width`: what they write, and what is refused before anything is computed."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import pytest
from typer.testing import CliRunner

from joulemesh.base.errors import ScenarioError
from joulemesh.cli.main import app

SMALL = ["--preset", "adaptive", "--set", "devices.count=4", "--set", "plan.iterations=3"]


def refusal(*words: str) -> str:
    """The error of a command that must refuse."""
    done = CliRunner().invoke(app, list(words))
    assert isinstance(done.exception, ScenarioError), done.output
    return str(done.exception)


def test_a_plan_is_drawn_in_every_format_that_is_asked_for(tmp_path: Path) -> None:
    settings = dict(mpl.rcParams)
    stem = str(tmp_path / "plan")
    words = ["plan", *SMALL, "--figure", stem, "--format", "pdf,pgf,svg", "--width", "acm"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    made = sorted(path.name for path in tmp_path.iterdir() if "-img" not in path.name)
    assert made == ["plan.pdf", "plan.pgf", "plan.svg"]
    assert b"/MediaBox [ 0 0 240." in (tmp_path / "plan.pdf").read_bytes()  # 3.34 in
    assert all(f"wrote {tmp_path / name}" in done.output.replace("\n", "") for name in made)
    assert dict(mpl.rcParams) == settings


@pytest.mark.parametrize("command", ["plan", "compare", "tune", "run", "reproduce"])
@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--format", "gif", "format 'gif' is unknown: use some of pdf, svg, pgf, png"),
        ("--width", "nature", "width 'nature' is unknown: use ieee, ieee-wide, acm, acm-wide"),
        ("--width", "0.1", "width 0.1 in is unusable"),
    ],
)
def test_what_cannot_be_drawn_is_refused_first(
    tmp_path: Path, command: str, option: str, value: str, said: str
) -> None:
    out = tmp_path / "new"
    place = ["--figure", f"{out}.png"] if command == "plan" else ["--out", str(out)]
    assert said in refusal(command, *place, option, value)
    assert not list(tmp_path.iterdir())
