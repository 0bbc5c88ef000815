"""`joulemesh calibrate`, with a learner that only sleeps and watts that are declared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from joulemesh.base.errors import ScenarioError
from joulemesh.calibration import calibration
from joulemesh.cli.main import app

LEARNER = """
import time
class Sleeps:
    def parameters(self): return [0.0]
    def load(self, parameters): pass
    def evaluate(self): return {}
    def train(self, iteration, rounds): time.sleep(0.001 * rounds)
"""
QUICK = ("--quick", "--samples", "3", "--block", "5 ms", "--rounds", "2")


@pytest.fixture
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """Options that train something cheap, in a folder of our own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibration.Session, "_warm_up", lambda self: None)
    Path("sleeps.py").write_text(LEARNER)
    return ("--learner", "sleeps.py:Sleeps")


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["calibrate", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_figures_are_shown_and_written(learner: tuple[str, ...]) -> None:
    given = ("--watts", "6.5", "--idle-watts", "2", "--name", "shed", "--append", "devices.csv")
    said = call(*learner, *QUICK, *given, "--out", "shed.json")
    assert "seconds of a step" in said
    assert "declared 6.5 W" in said
    assert "the row of shed is added" in said
    assert Path("devices.csv").read_text().startswith("name,step_s,step_s_low,step_s_high,")
    kept = json.loads(Path("shed.json").read_text())
    assert len(kept["blocks"]) == 3
    assert "is replaced" in call(*learner, *QUICK, *given)
    assert len(Path("devices.csv").read_text().splitlines()) == 2


def test_json_is_the_whole_calibration(learner: tuple[str, ...]) -> None:
    found = json.loads(call("device", *learner, *QUICK, "--json"))
    assert found["step_j"] is None
    assert found["step_s"]["mean"] >= 0.001


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--append", "devices.csv", "--quick"), "--quick measures seconds only"),
        (("--out", "there.json", "--quick"), "there.json exists"),
        (("--append", "nameless.csv", "--watts", "5"), "no column 'name'"),
        (("--device", "attic"), "--device attic is not in the scenario"),
        (("--meter", "powrcap"), "did you mean 'powercap'"),
        (("--samples", "1"), "3 or more"),
        (("--block", "5 parsecs"), "5 parsecs"),
        (("--learner", "nothing.py:Thing"), "there is no such file"),
    ],
)
def test_refusals_come_before_anything_is_measured(
    learner: tuple[str, ...], arguments: tuple[str, ...], words: str
) -> None:
    Path("there.json").write_text("{}")
    Path("nameless.csv").write_text("energy_j\n1\n")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    with pytest.raises(ScenarioError, match=words):
        call(*learner, *arguments)
    assert {path: path.read_bytes() for path in Path().iterdir()} == before


def test_a_stop_leaves_nothing_behind(
    learner: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self: calibration.Session, *, rest: bool) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration.Session, "run", stopped)
    before = set(Path().iterdir())
    arguments = ["--watts", "5", "--append", "devices.csv", "--out", "shed.json"]
    done = CliRunner().invoke(app, ["calibrate", *learner, *QUICK, *arguments])
    assert done.exit_code == 130
    assert "nothing was written" in done.output
    assert set(Path().iterdir()) == before


def test_links_and_help_are_not_taken_for_a_scenario() -> None:
    assert "calibrate links" in call("links", "--help")
    said = call("--help")
    assert "device" in said
    assert "links" in said
    assert "--append" in call("device", "--help")
