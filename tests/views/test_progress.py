"""What a command says while it works: whole facts in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

import joulemesh
from joulemesh.views.progress import Display, _Lines, facts, progress_line
from tests.terminal import in_terminal

KNOWN = facts(40, 1000, accuracy=0.95, energy_j=12.5, seconds_left=75.2)
SMALL = (
    "--set=devices.count=4", "--set=training.model=logistic", "--set=training.chunk_iterations=10",
    "--set=plan.iterations=40", "--set=budget.energy_j=100",
)  # fmt: skip


@pytest.mark.parametrize("width", range(12, 140))
def test_facts_are_whole_or_left_out(width: int) -> None:
    line = progress_line("training", 0.5, KNOWN, 3700.0, width).plain
    assert "…" not in line
    assert len(line) <= max(width, len("training 1:01:40"))
    said = re.sub(r"[━─]+ ", "", line.removeprefix("training ").removesuffix("1:01:40")).strip()
    assert said == ", ".join(KNOWN[: len(said.split(", "))] if said else [])
    if width >= 100:
        assert said == ", ".join(KNOWN)
        assert line.count("━") > 3
        assert abs(line.count("━") - line.count("─")) <= 1


# Lines -----------------------------------------------------------------------------------------


def test_a_line_at_most_once_in_a_while() -> None:
    printed: list[tuple[float, str]] = []
    begun = time.monotonic()
    lines = _Lines(0.2, lambda line: printed.append((time.monotonic() - begun, line)))
    while time.monotonic() - begun < 1.0:
        lines.show("", "training", 0.5, [f"at {time.monotonic() - begun:.3f}"])
        time.sleep(0.01)
    lines.show("", "training", 1.0, ["the end"])
    lines.close(well=True)
    assert 3 <= len(printed) <= 7
    gaps = [b[0] - a[0] for a, b in pairwise(printed[:-1])]
    assert min(gaps) > 0.15
    assert printed[0][0] > 0.15  # what ends at once needs no line
    for when, line in printed[:-1]:
        assert when - float(line.rpartition(" ")[2]) < 0.15  # the latest, not an old one
    assert printed[-1][1] == "training: the end"


def test_an_error_has_the_last_word(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with Display() as display:
            display.stage("planning")
            raise joulemesh.ScenarioError("no")

    with pytest.raises(joulemesh.ScenarioError):
        fail()
    assert capsys.readouterr().err == ""
    with Display() as display:
        display.step("training", 1.0, ["iteration 5 of 5"])
    assert capsys.readouterr().err == "training: iteration 5 of 5\n"
    with Display(quiet=True) as display:
        display.stage("planning")
    assert capsys.readouterr().err == ""


# The stages of a run and of a comparison -------------------------------------------------------


@pytest.mark.slow
def test_a_run_says_what_it_begins(tmp_path: Path) -> None:
    changes = dict(one.removeprefix("--set=").split("=") for one in SMALL)
    scenario = joulemesh.Scenario.preset("adaptive").override(
        {k: int(v) if v.isdigit() else v for k, v in changes.items()}
    )
    stages: list[str] = []
    joulemesh.run(scenario, out=tmp_path / "r", on_stage=stages.append)
    assert stages[:4] == ["loading data", "planning", "compiling", "training"]
    assert stages[-1] == "writing"
    assert stages.count("compiling") == 1
    assert 0 < stages.count("evaluating") < stages.count("training")
    stages.clear()
    seen: list[joulemesh.study.compare.Progress] = []
    joulemesh.compare(
        scenario, ["adaptive"], seeds=1, cache=tmp_path,
        on_stage=stages.append, on_progress=seen.append,
    )  # fmt: skip
    assert stages == ["loading data", "planning"]
    spent = [step.energy_j for step in seen]
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(joulemesh.plan(scenario).spent_j.sum())


# In earnest ------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    return {**plain, "TERM": "xterm"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "last"),
    [
        (("run", *SMALL, "--out", "r"), "writing r"),
        (
            (
                "compare",
                *SMALL,
                "--methods",
                "adaptive,fixed:1",
                "--seeds",
                "1",
                "--out",
                "s",
                "--cache",
                "kept",
            ),
            "writing s",
        ),
    ],
    ids=["run", "compare"],
)
def test_redirected_output_is_lines(words: tuple[str, ...], last: str, tmp_path: Path) -> None:
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", *words],
        capture_output=True, text=True, cwd=tmp_path, env=environment(), check=False,
    )  # fmt: skip
    took = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert 0 < len(lines) <= took + 2
    assert lines[-1] == last
    assert "\x1b" not in done.stderr
    assert "━" not in done.stderr
    known = re.compile(
        r"loading data|planning|writing [rs]|\d/2 [a-z:\d]+: compiling|compiling"
        r"|(?:training|evaluating|\d/2 [a-z:\d]+): iteration [\d,]+ of [\d,]+"
        r"(?:, accuracy 0\.\d+)?(?:, (?:\d+ \w+ ?)+ left)?, [\d.]+ m?J spent"
    )
    assert not [line for line in lines if not known.fullmatch(line)]


@pytest.mark.slow
def test_a_narrow_terminal_shows_whole_facts(tmp_path: Path) -> None:
    text = in_terminal(
        "run",
        *SMALL,
        "--set=plan.iterations=400",
        columns=52,
        env=environment(),
        folder=tmp_path,
        progress_only=True,
    )
    assert "…" not in text
    for words in ("compiling", "training"):
        assert words in text
    shown = [line for line in re.split(r"[\r\n]+", text) if line.strip()]
    assert max(map(len, shown)) <= 52
    assert any(re.search(r"iteration \d+ of 400, accuracy 0\.\d{3} 0:\d\d$", x) for x in shown)
