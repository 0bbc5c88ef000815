"""`joulemesh tune`, as a user meets it."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from tests import commands
from tests.commands import Command

SMALL = commands.SMALL.replace("iterations = 4", "iterations = 12", 1)
SPACE = """
[plan]
rounds = ["uniform", "theorem4"]
iterations = [12, 100000]
[training]
learning_rate = [0.05, 0.2]
"""
FEW = ("--seeds", 2, "--search-seeds", 1, "--space", "space.toml")


@pytest.fixture
def command(small: Command) -> Command:
    """In a folder with a small scenario and a small space."""
    Path("small.toml").write_text(SMALL)
    Path("space.toml").write_text(SPACE)
    return partial(small, "tune")


def test_from_file_to_report(command: Command) -> None:
    code, out, _ = command("small.toml", *FEW, "--out", "tuned")
    assert code == 0
    for text in ("winner", "as given", "share of the budget", "refused (4)", "tuned/best.toml"):
        assert text in out
    assert Path("tuned", "report.html").is_file()
    with Path("tuned", "candidates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    code, out, err = command("small.toml", *FEW, "--out", "tuned", "--resume", "--json")
    found = json.loads(out)
    assert (code, err, found["computed"]) == (0, "", 0)
    assert found["winner"]["accuracy"]["ci95"] is not None
    reasons = {row["reason"] for row in found["candidates"] if row["status"] == "refused"}
    assert reasons
    assert all("100000 iterations" in reason or "plan.iterations" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--objective", "loss"), "objective 'loss' is unknown: use accuracy, energy-to:0.8"),
        (("--objective", "time-to:80"), "objective time-to:80: the target is an accuracy"),
        (("--try", "plan.rounds"), "--try plan.rounds: write --try section.field=value"),
        (("--try", "budget.energy_j=[1, 2]"), "budget.energy_j is part of the task"),
        (("--try", "network.bits_per_parameter=8"), "messages have 16 bits or 32"),
        (("--space", "none.toml"), "cannot read none.toml"),
        (("--space", "bad.toml"), "bad.toml is not a TOML file"),
        (("--search", "random"), "--search 'random' is unknown: use halving or optuna"),
        (("--resume",), "--resume needs --out"),
        (("--set", "devices.cout=3"), "devices.cout: unknown field"),
        pytest.param(
            ("--try", "plan.iterations=100000", "--set", "plan.iterations=99999"),
            "none of",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_refusals_are_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    Path("bad.toml").write_text("[plan\n")
    code, out, err = command("small.toml", *arguments)
    assert (code, out) == (2, "")
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1
    assert message in said[0]


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_from_outside_it_goes_on_to_the_same_bits(how: int, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "space.toml").write_text(SPACE)
    words = ["-m", "joulemesh", "tune", "small.toml", *map(str, FEW)]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def start(*more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *words, *more],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    whole = start("--cache", "other", "--json")
    wanted = json.loads(whole.communicate(timeout=300)[0])
    first = start("--out", "tuned")
    runs = tmp_path / "cache" / "joulemesh" / "tune"
    limit = time.monotonic() + 300
    while first.poll() is None and time.monotonic() < limit and not list(runs.rglob("*.run")):
        time.sleep(0.02)
    first.send_signal(how)
    first.communicate(timeout=300)
    assert first.returncode != 0
    assert not (tmp_path / "tuned" / "report.html").exists()
    again = start("--out", "tuned", "--resume", "--json")
    found = json.loads(again.communicate(timeout=300)[0])
    assert again.returncode == 0
    assert found["computed"] < wanted["computed"]
    assert {**found, "computed": 0} == {**wanted, "computed": 0}
