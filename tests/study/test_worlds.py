"""A scenario in several worlds: each is the single run with its seed; intervals are over worlds."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.study.result import WorldRun, WorldsResult

TINY = {
    "devices.count": 4,
    "plan.iterations": 6,
    "training.model": "logistic",
    "training.chunk_iterations": 3,
    "training.eval_every": 3,
}


@pytest.fixture(scope="module")
def tiny() -> Scenario:
    return Scenario.preset("adaptive").override(TINY)


@pytest.fixture(scope="module")
def both(tiny: Scenario, tmp_path_factory: pytest.TempPathFactory) -> tuple[WorldsResult, Path]:
    folder = tmp_path_factory.mktemp("worlds") / "both"
    return joulemesh.run(tiny, out=folder, seeds=2, worlds=2), folder


def bits(folder: Path) -> dict[str, bytes]:
    """What must not change, file by file."""
    names = ("metrics.csv", "ledger.csv", "model.safetensors", "scenario.toml")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.name in names or path.name.startswith("summary")
    }


@pytest.mark.slow
def test_each_world_is_the_run_with_its_seed(
    tiny: Scenario, both: tuple[WorldsResult, Path]
) -> None:
    result, _ = both
    assert [world.seed for world in result.worlds] == [0, 1_000_000]
    for world in result.worlds:
        alone = joulemesh.run(tiny.override({"seed": world.seed}), seeds=2)
        assert world.result is not None
        assert world.result.seeds == alone.seeds == (world.seed, world.seed + 1)
        np.testing.assert_array_equal(world.result.accuracy, alone.accuracy)
        np.testing.assert_array_equal(world.result.energy_j, alone.energy_j)
    budgets = {world.result.plan.energy_budget_j.tobytes() for world in result.worlds if world.result}  # fmt: skip # noqa: E501
    assert len(budgets) == 2


def test_the_folder_has_a_run_for_each_world_and_a_summary(
    both: tuple[WorldsResult, Path],
) -> None:
    result, folder = both
    assert {path.name for path in folder.iterdir()} == {
        "scenario.toml", "worlds.json", "world-0", "world-1",
        "summary.csv", "summary.json", ".lock",
    }  # fmt: skip
    found = json.loads((folder / "summary.json").read_text())
    assert found == json.loads(json.dumps(result.summary()))
    rows = list(csv.DictReader(io.StringIO((folder / "summary.csv").read_text())))
    for k, row in enumerate(rows):
        own = json.loads((folder / f"world-{k}" / "result.json").read_text())
        assert (row["world"], row["status"]) == (str(k), "ran")
        assert [float(row[name]) for name in ("accuracy", "energy_j", "time_s", "loss")] == [
            own[name] for name in ("accuracy", "energy_j", "time_s", "loss")
        ]
    assert "placement" in found["redrawn"]
    assert found["missing"] == ""


class Fake:
    """A run of which only the figures matter."""

    def __init__(self, accuracy: float) -> None:
        self.seeds = (0, 1)
        self.accuracy = accuracy
        self.library = "jax"
        self.notes = ()

    def summary(self) -> dict[str, Any]:
        names = ("device_accuracy", "device_accuracy_min", "loss", "energy_j", "time_s")
        return {**dict.fromkeys(names, 1.0), "accuracy": self.accuracy, "iterations": 5}


def fakes(*accuracies: float | None) -> WorldsResult:
    worlds = [
        WorldRun(k, None, "infeasible", f"why {k}") if one is None else WorldRun(k, Fake(one))  # type: ignore[arg-type]
        for k, one in enumerate(accuracies)
    ]
    return WorldsResult(Scenario(), tuple(worlds))


def test_the_interval_by_hand() -> None:
    found = fakes(0.1, 0.2, 0.3).summary()
    # Student's t with 2 degrees of freedom: 4.3027; s = 0.1; 4.3027 x 0.1 / sqrt(3).
    assert found["accuracy"] == pytest.approx(0.2)
    assert found["accuracy_ci95"] == pytest.approx(4.302653 * 0.1 / math.sqrt(3), rel=1e-6)
    assert found["energy_j_ci95"] == 0.0
    assert fakes(0.4).summary()["accuracy_ci95"] is None


def test_a_world_that_cannot_run_is_counted_and_named() -> None:
    result = fakes(0.1, None, 0.3, None)
    found = result.summary()
    assert (found["worlds"], found["worlds_run"]) == (4, 2)
    assert found["accuracy"] == pytest.approx(0.2)
    assert found["accuracy_ci95"] == pytest.approx(12.7062 * 0.2 / math.sqrt(2) / math.sqrt(2), rel=1e-4)  # fmt: skip # noqa: E501
    assert found["missing"] == (
        "2 of 4 worlds are infeasible (world 1, 3), and figures are of the others; world 1: why 1"
    )
    assert [row["status"] for row in found["each"]] == ["ran", "infeasible", "ran", "infeasible"]
    assert "2 of 4 worlds" in repr(result)
    none = fakes(None)
    assert "there are no figures" in none.missing
    assert "none of 1 worlds ran" in repr(none)


# Stopping and going on -------------------------------------------------------------------------


@pytest.mark.slow
def test_stopped_and_resumed_worlds_end_with_the_same_bits(
    tiny: Scenario, both: tuple[WorldsResult, Path], tmp_path: Path
) -> None:
    _, whole = both

    class StopError(Exception):
        pass

    def stop(step: Any) -> None:
        if step.world == 1:
            raise StopError

    with pytest.raises(StopError):
        joulemesh.run(tiny, out=tmp_path / "w", seeds=2, worlds=2, on_progress=stop)
    assert not (tmp_path / "w" / "summary.csv").exists()
    joulemesh.run(tiny, out=tmp_path / "w", seeds=2, worlds=2, resume=True)
    assert bits(tmp_path / "w") == bits(whole)


@pytest.mark.slow
def test_more_worlds_are_added_to_those_there_are(
    tiny: Scenario, both: tuple[WorldsResult, Path], tmp_path: Path
) -> None:
    _, whole = both
    folder = tmp_path / "w"
    first = joulemesh.run(tiny, out=folder, seeds=2, worlds=1)
    assert len(first.worlds) == 1
    before = (folder / "world-0" / "manifest.jsonl").read_bytes()
    joulemesh.run(tiny, out=folder, seeds=2, worlds=2, resume=True)
    assert (folder / "world-0" / "manifest.jsonl").read_bytes() == before
    assert bits(folder) == bits(whole)


# Refusals --------------------------------------------------------------------------------------


def test_worlds_draw_their_own_seeds(tiny: Scenario) -> None:
    with pytest.raises(ScenarioError, match=r"seeds = \[0, 1\] with 2 worlds: give the number"):
        joulemesh.run(tiny, seeds=[0, 1], worlds=2)
    with pytest.raises(ScenarioError, match="room for 1000000"):
        joulemesh.run(tiny, seeds=1_000_001, worlds=2)
    with pytest.raises(ScenarioError, match="worlds = 0 is too few"):
        joulemesh.run(tiny, worlds=0)


@pytest.mark.slow
def test_folders_are_not_mistaken_for_each_other(
    tiny: Scenario, both: tuple[WorldsResult, Path], tmp_path: Path
) -> None:
    _, worlds = both
    with pytest.raises(
        ScenarioError, match=r"exists and is not empty.*--resume to go on with the w"
    ):
        joulemesh.run(tiny, out=worlds, seeds=2, worlds=2)
    with pytest.raises(ScenarioError, match=r"worlds in .* are others: seeds was 2 and is 1"):
        joulemesh.run(tiny, out=worlds, seeds=1, worlds=2, resume=True)
    other = tiny.override({"plan.iterations": 7})
    with pytest.raises(ScenarioError, match=r"are others: plan.iterations was 6 and is 7"):
        joulemesh.run(other, out=worlds, seeds=2, worlds=2, resume=True)
    with pytest.raises(ScenarioError, match="the run cannot be resumed"):
        joulemesh.run(tiny, out=worlds, seeds=2, resume=True)
    joulemesh.run(tiny, out=tmp_path / "single")
    with pytest.raises(ScenarioError, match="holds a single run, not worlds; leave --worlds out"):
        joulemesh.run(tiny, out=tmp_path / "single", worlds=2, resume=True)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(ScenarioError, match=r"exists and is not empty; choose another --out$"):
        joulemesh.run(tiny, out=tmp_path / "mine", worlds=2, resume=True)


def test_what_is_left_of_a_start_is_taken_and_a_damaged_mark_refused(
    tiny: Scenario, tmp_path: Path
) -> None:
    folder = tmp_path / "w"
    folder.mkdir()
    (folder / "scenario.toml").write_text("half")
    joulemesh.run(tiny, out=folder, worlds=1, resume=True)
    assert Scenario.load(folder / "scenario.toml").plan.iterations == 6
    (folder / "worlds.json").write_text('{"worlds": 3')
    with pytest.raises(ScenarioError, match=r"worlds.json is damaged \(JSONDecodeError\); restore"):
        joulemesh.run(tiny, out=folder, worlds=1, resume=True)


# The command -----------------------------------------------------------------------------------


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    import sys

    from joulemesh.cli.main import main

    monkeypatch.setattr(sys, "argv", ["joulemesh", "run", *map(str, arguments)])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


@pytest.mark.slow
def test_the_command_runs_shows_resumes_and_adds_worlds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = [f"--set={name}={value}" for name, value in TINY.items()]
    assert command(monkeypatch, *changes, "--seeds", 2, "--worlds", 2, "--out", "w") == 0
    shown = capsys.readouterr()
    assert "means of 2 worlds of 2 seeds each ± 95 % interval over worlds" in shown.out
    assert "summary.csv" in shown.out
    assert "world 2 of 2 (seed 1000000)" in shown.err
    # Neither scenario nor seeds nor worlds need be said again.
    assert command(monkeypatch, "--out", "w", "--resume", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["worlds"], found["seeds"]) == (2, 2)
    assert command(monkeypatch, "--out", "w", "--resume", "--worlds", 3, "--json") == 0
    more = json.loads(capsys.readouterr().out)
    assert more["worlds"] == 3
    assert more["each"][:2] == found["each"]
