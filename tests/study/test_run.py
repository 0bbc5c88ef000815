"""Runs from beginning to end: same ledger as the plan, same bits again, folders that survive."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.study.folder import RunFolder
from joulemesh.study.request import Progress
from joulemesh.study.result import Result
from joulemesh.training import Checkpoints, Engine, State

TINY = {
    "devices.count": 5,
    "plan.iterations": 12,
    "training.hidden": [8],
    "training.chunk_iterations": 3,
    "training.eval_every": 2,
}


@pytest.fixture(scope="module")
def tiny() -> joulemesh.Scenario:
    return joulemesh.Scenario.preset("adaptive").override(TINY)


@pytest.fixture(scope="module")
def finished(
    tiny: joulemesh.Scenario, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Result, Path]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    return joulemesh.run(tiny, out=folder), folder


def test_joules_and_seconds_are_the_plans_ledger(
    tiny: joulemesh.Scenario, finished: tuple[Result, Path]
) -> None:
    result, folder = finished
    plan = joulemesh.plan(tiny)
    assert result.energy_j[-1] == pytest.approx(plan.spent_j.sum(), rel=1e-12)
    assert result.time_s[-1] == pytest.approx(plan.latency_s.sum(), rel=1e-12)
    with open(folder / "ledger.csv") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["spent_j"]) for row in rows] == pytest.approx(plan.spent_j)
    with open(folder / "metrics.csv") as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["energy_j"]) == pytest.approx(plan.spent_j.sum(), rel=1e-12)
    assert float(last["time_s"]) == pytest.approx(plan.latency_s.sum(), rel=1e-12)


def test_the_folder_holds_everything(finished: tuple[Result, Path]) -> None:
    result, folder = finished
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "scenario.toml",
        "plan.npz",
        "versions.json",
        "labels.npz",
        "manifest.jsonl",
        ".lock",
        "metrics.csv",
        "timings.csv",
        "checkpoint",
        "ledger.csv",
        "model.safetensors",
        "result.json",
        "report.html",
    }
    model = load_file(folder / "model.safetensors")
    assert {name: value.shape for name, value in model.items()} == {
        name: value.shape for name, value in result.params.items()
    }
    assert all(np.array_equal(model[name], result.params[name]) for name in model)
    assert joulemesh.Scenario.load(folder / "scenario.toml") == result.plan.scenario.override({})
    assert json.loads((folder / "result.json").read_text()) == result.summary()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits(
    tiny: joulemesh.Scenario, finished: tuple[Result, Path], tmp_path: Path
) -> None:
    again = joulemesh.run(tiny, out=tmp_path / "again")
    _, folder = finished
    for name in ("metrics.csv", "model.safetensors", "ledger.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()
    other = joulemesh.run(tiny, seeds=[7])
    assert not np.array_equal(other.loss, again.loss)


@pytest.mark.slow
def test_several_seeds_equal_single_runs(tiny: joulemesh.Scenario) -> None:
    both = joulemesh.run(tiny, seeds=[0, 7])
    for column, seed in enumerate((0, 7)):
        alone = joulemesh.run(tiny, seeds=[seed])
        np.testing.assert_allclose(both.loss[:, column], alone.loss, rtol=2e-5)
        np.testing.assert_allclose(both.accuracy[:, column], alone.accuracy, atol=0.006)


def test_an_existing_folder_is_never_written_over(
    tiny: joulemesh.Scenario, finished: tuple[Result, Path]
) -> None:
    _, folder = finished
    before = (folder / "metrics.csv").read_bytes()
    with pytest.raises(ScenarioError, match=r"not empty; choose another --out, or add --resume"):
        joulemesh.run(tiny, out=folder)
    assert (folder / "metrics.csv").read_bytes() == before


def test_resume_refuses_another_scenario(
    tiny: joulemesh.Scenario, finished: tuple[Result, Path]
) -> None:
    _, folder = finished
    with pytest.raises(ScenarioError, match=r"training\.learning_rate was 0.1 and is 0.2"):
        joulemesh.run(tiny.override({"training.learning_rate": 0.2}), out=folder, resume=True)


def test_interrupted_and_resumed_runs_end_with_the_same_bits(
    tiny: joulemesh.Scenario, finished: tuple[Result, Path], tmp_path: Path
) -> None:
    _, folder = finished
    target = tmp_path / "stopped"

    def stop(progress: Progress) -> None:
        if progress.completed >= 6:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        joulemesh.run(tiny, out=target, on_progress=stop)
    assert RunFolder(target).started
    assert not RunFolder(target).finished
    joulemesh.run(tiny, out=target, resume=True)
    for name in ("metrics.csv", "model.safetensors"):
        assert (target / name).read_bytes() == (folder / name).read_bytes()


def test_a_place_that_cannot_be_written(tiny: joulemesh.Scenario, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with pytest.raises(ScenarioError, match="choose another --out"):
        joulemesh.run(tiny, out=blocked / "run")
    assert blocked.read_text() == "in the way"


def test_a_disk_that_fills_up_leaves_a_good_run_behind(
    tiny: joulemesh.Scenario,
    finished: tuple[Result, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = tmp_path / "full"
    saved: list[int] = []
    save = Checkpoints.save

    def full_later(self: Checkpoints, engine: Engine, state: State, beside: Any = None) -> None:
        if saved:
            raise ScenarioError("cannot write the checkpoint: No space left on device")
        saved.append(int(state.iteration))
        save(self, engine, state, beside)

    monkeypatch.setattr("joulemesh.study.run.SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(Checkpoints, "save", full_later)
    with pytest.raises(ScenarioError, match="No space left"):
        joulemesh.run(tiny, out=target)
    monkeypatch.undo()
    joulemesh.run(tiny, out=target, resume=True)
    _, folder = finished
    assert (target / "model.safetensors").read_bytes() == (
        folder / "model.safetensors"
    ).read_bytes()


def test_divergence_names_the_iteration_and_keeps_the_last_good_state(
    tiny: joulemesh.Scenario, tmp_path: Path
) -> None:
    wild = tiny.override({"training.learning_rate": 1e30, "training.chunk_iterations": 1})
    with pytest.raises(joulemesh.JoulemeshError, match=r"diverged in iteration \d+"):
        joulemesh.run(wild, out=tmp_path / "wild")
    assert RunFolder(tmp_path / "wild").started
    assert not RunFolder(tmp_path / "wild").finished
