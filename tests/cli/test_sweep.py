"""`joulemesh sweep`, as a user meets it."""

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

from joulemesh.base.files import verified
from tests.commands import SMALL, Command

TERMS = ("--vary", "training.alpha=0.1,1", "--methods", "adaptive,fixed:1", "--seeds", "2")


@pytest.fixture
def command(small: Command) -> Command:
    return partial(small, "sweep")


def test_a_sweep_from_file_to_report(command: Command) -> None:
    code, out, _ = command("small.toml", *TERMS, "--dry-run", "--json")
    ahead = json.loads(out)
    assert (code, ahead["runs"], ahead["to_train"]) == (0, 8, 8)
    assert ahead["seconds"] > 0
    assert not Path("sweeps").exists()
    code, out, _ = command("small.toml", *TERMS)
    assert code == 0
    assert "kept in sweeps/small" in out
    place = Path("sweeps", "small")
    assert verified(place).intact
    rows = list(csv.DictReader((place / "table.csv").read_text().splitlines()))
    assert [(row["training.alpha"], row["method"], row["seed"]) for row in rows] == [
        (alpha, method, seed)
        for alpha in ("0.1", "1.0")
        for method in ("adaptive", "fixed:1")
        for seed in ("0", "1")
    ]
    for name in ("summary.csv", "figure.png", "figure.svg", "report.html", "scenario.toml"):
        assert (place / name).is_file()
    code, out, err = command("small.toml", *TERMS, "--json")
    assert (code, err, json.loads(out)["computed"]) == (0, "", 0)
    code, out, _ = command("small.toml", *TERMS, "--dry-run")
    assert code == 0
    assert "2 combinations × 2 methods × 2 seeds: 8 runs, 0 to train" in out
    # The command that the folder keeps makes the same table there.
    kept = json.loads((place / "sweep.json").read_text())["command"]
    assert kept == (
        "joulemesh sweep scenario.toml --vary training.alpha=0.1,1.0 "
        "--methods 'adaptive;fixed:1' --equal batteries --seeds 2"
    )


def test_what_cannot_run_is_a_row_and_alone_an_error(command: Command) -> None:
    poor = ("--vary", "budget.energy_j=1e-9,2e-9", "--methods", "adaptive", "--seeds", 1)
    code, out, err = command("small.toml", *poor)
    assert code == 2
    assert out.count("infeasible") == 2
    assert err.splitlines()[-1] == "error: none of the methods could run in any combination"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing is varied: give --vary section.field=value,value"),
        (("--vary", "devices.count"), "write --vary section.field=value,value"),
        (("--vary", "devices.cout=3"), "did you mean 'devices.count'?"),
        (("--vary", "alpha=3"), "did you mean 'training.alpha'?"),
        (("--vary", "devices.count=3,x"), "devices.count"),
        (("--vary", "devices.count=3", "--vary", "devices.count=4"), "is given twice"),
        (("--vary", "budget.energy_j=3 min"), "this is a time"),
        (("--vary", "devices.count=1:9999:1"), "more than 1,000 values"),
        (
            ("--vary", "seed=1:900:1", "--vary", "devices.count=2:20:1"),
            "17,100 combinations, more than 10,000",
        ),
        (("--vary", "seed=1:900:1", "--seeds", 200), "the sweep has 360,000 runs"),
        (("--vary", "seed=1,2", "--methods", "fedsgd"), "method 'fedsgd' is unknown"),
        (("--vary", "seed=1,2", "--methods", "fixed:tua=3"), "fixed has no parameter 'tua'"),
        (("--vary", "seed=1,2", "--equal", "joules"), "equal = 'joules' is unknown"),
        (("--vary", "seed=1,2", "--target", "90"), "target = 90.0 is not an accuracy"),
        (("--vary", "training.dataset=a.npz,b.npz"), "a.npz"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(
    command: Command, arguments: tuple[str, ...], message: str
) -> None:
    methods = () if "--methods" in arguments else ("--methods", "adaptive,fixed:1")
    code, out, err = command("small.toml", *methods, *arguments)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert err.startswith("error: ")
    assert message in err
    assert not Path("sweeps").exists()


def test_ctrl_c_says_how_to_go_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from joulemesh.study import sweep

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "sweep", interrupted)
    code, out, err = command("small.toml", *TERMS)
    assert (code, out) == (130, "")
    assert "stopped; the same command goes on" in err


LONG = (
    "--vary", "training.alpha=0.1,0.5,1", "--vary", "budget.deadline_s=0.04,0.05",
    "--methods", "adaptive,fixed:1", "--seeds", "2", "--json",
)  # fmt: skip


def asked(name: str) -> list[str]:
    """A sweep of 24 runs, with a cache and a folder of its own."""
    program = [sys.executable, "-m", "joulemesh", "sweep", "small.toml", *LONG]
    return [*program, "--cache", f"kept-{name}", "--out", name]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the sweep that nobody stopped."""
    place = tmp_path_factory.mktemp("whole")
    (place / "small.toml").write_text(SMALL)
    done = subprocess.run(asked("whole"), cwd=place, capture_output=True, check=True)
    assert json.loads(done.stdout)["computed"] == 24
    return place / "whole"


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_stopped_and_started_again_it_computes_what_is_missing(
    tmp_path: Path, uninterrupted: Path, how: signal.Signals
) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    child = subprocess.Popen(asked("part"), cwd=tmp_path, stdout=subprocess.PIPE)
    until = time.monotonic() + 120
    while len(list(tmp_path.glob("kept-part/*/*.run"))) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(child.pid, how)
    child.communicate(timeout=120)
    assert child.returncode == (130 if how == signal.SIGINT else -9)
    kept = len(list(tmp_path.glob("kept-part/*/*.run")))
    assert 0 < kept < 24
    again = subprocess.run(asked("part"), cwd=tmp_path, capture_output=True, check=True)
    assert json.loads(again.stdout)["computed"] == 24 - kept
    for name in ("table.csv", "summary.csv", "table.parquet", "figure.png", "figure.svg"):
        assert (tmp_path / "part" / name).read_bytes() == (uninterrupted / name).read_bytes()
    assert verified(tmp_path / "part").intact


def test_what_cannot_run_is_known_before_anything_is_trained(command: Command) -> None:
    vary = ("--vary", "budget.energy_j=0.02,1", "--vary", "devices.count=4,5")
    terms = (*vary, "--methods", "adaptive,d-psgd", "--seeds", "2", "--dry-run")
    code, out, _ = command("small.toml", *terms)
    assert code == 0
    said = " ".join(out.split())
    assert "adaptive cannot run in 2 of 4 combinations:" in said
    for count in (4, 5):
        assert f"budget.energy_j 20 mJ, devices.count {count}: device" in said
    assert said.count("from its battery of 20 mJ") == 2
    _, out, _ = command("small.toml", *terms, "--json")
    each = json.loads(out)["combinations"]
    poor = [one["fields"]["budget.energy_j"] == 0.02 for one in each]
    assert [list(one["infeasible"]) for one in each] == [["adaptive"] * one for one in poor]
    assert [one["runs"] for one in each] == [2 if one else 4 for one in poor]
