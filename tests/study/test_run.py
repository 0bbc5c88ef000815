"""Runs from beginning to end: same ledger as the plan, same bits again, folders that survive."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.study.folder import RunFolder
from joulemesh.study.paper import report_of_folder
from joulemesh.study.request import Progress
from joulemesh.study.result import Result
from joulemesh.training import Checkpoints, Engine, State
from tests.samples import sample

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


def test_the_folder_remembers_where_the_figures_came_from(
    finished: tuple[Result, Path], tmp_path: Path
) -> None:
    result, folder = finished
    kept = RunFolder(folder).scenario()
    assert kept == result.plan.scenario
    assert kept.origins() == result.plan.scenario.origins()
    assert {str(figure.origin) for figure in result.plan.figures} > {"preset adaptive"}
    report_of_folder(folder, tmp_path / "again.html")
    assert "<td >preset adaptive</td>" in (tmp_path / "again.html").read_text("utf-8")


def test_joules_and_seconds_to_a_target_are_reported(
    finished: tuple[Result, Path], tmp_path: Path
) -> None:
    result, folder = finished
    found = result.summary()
    assert found["target"] == pytest.approx(0.95 * float(result.accuracy[-1]))
    assert "95 % of the final accuracy" in found["target_words"]
    first = int(np.flatnonzero(result.accuracy >= found["target"])[0])
    assert found["energy_to_target_j"] <= result.energy_j[first]
    assert found["energy_to_target_j"] + found["energy_to_target_j_error"] >= result.energy_j[first]
    assert found["time_to_target_s"] <= result.time_s[first]
    low = float(result.accuracy[0])
    assert result.to_target(low)["energy_to_target_j"] == result.energy_j[0]
    never = dataclasses.replace(result, target=1.0).summary()
    assert (never["reached"], never["energy_to_target_j"], never["target_asked"]) == (0, None, True)
    assert "energy to " in (folder / "report.html").read_text("utf-8")
    dataclasses.replace(result, target=1.0).save(tmp_path / "asked")
    report_of_folder(tmp_path / "asked", tmp_path / "again.html")
    again = (tmp_path / "again.html").read_text("utf-8")
    assert "energy to 100.0&nbsp;% accuracy</span><strong>not reached</strong>" in again


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


@pytest.mark.slow
def test_resume_on_a_missing_folder_starts(tiny: joulemesh.Scenario, tmp_path: Path) -> None:
    result = joulemesh.run(tiny, out=tmp_path / "new", resume=True)
    assert RunFolder(tmp_path / "new").finished
    assert result.iteration[-1] == 12


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


def _command(folder: Path, *more: str) -> list[str]:
    """The same run by another process, on as many processors as JAX has here.

    Bits depend on how rows are shared between them.
    """
    start = (
        f"import os, runpy; os.environ['JAX_NUM_CPU_DEVICES'] = '{jax.local_device_count()}';"
        "runpy.run_module('joulemesh', run_name='__main__', alter_sys=True)"
    )
    changes = [f"--set={name}={value}" for name, value in TINY.items()]
    return [
        sys.executable,
        "-c",
        start,
        "run",
        "--preset",
        "adaptive",
        *changes,
        "--out",
        str(folder),
        *more,
    ]


def _kill_and_resume(folder: Path, wait_s: float) -> None:
    process = subprocess.Popen(_command(folder, "--resume", "--json"), stdout=subprocess.DEVNULL)
    time.sleep(wait_s)
    process.kill()
    process.wait()
    for _ in range(3):
        done = subprocess.run(
            _command(folder, "--resume", "--json"), capture_output=True, text=True
        )
        if done.returncode == 0:
            return
    raise AssertionError(done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("moment", sample(range(20), 3))
def test_killed_at_a_random_moment_and_resumed(
    finished: tuple[Result, Path], tmp_path: Path, moment: int
) -> None:
    _, folder = finished
    wait = random.Random(moment).uniform(0.5, 8.0)
    _kill_and_resume(tmp_path / "killed", wait)
    for name in ("metrics.csv", "model.safetensors", "ledger.csv"):
        assert (tmp_path / "killed" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.slow
def test_a_finished_run_is_left_alone(
    finished: tuple[Result, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = finished
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    done = subprocess.run(_command(folder, "--resume"), capture_output=True, text=True)
    assert done.returncode == 0
    assert "is finished; nothing to do" in done.stdout
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


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


def test_own_model_and_data_of_wrong_shape(tiny: joulemesh.Scenario) -> None:
    import jax.numpy as jnp

    x, y = np.zeros((20, 3), np.float32), np.arange(20) % 2
    wrong = (lambda key: {"w": jnp.zeros((4, 2))}, lambda params, x: x @ params["w"])
    with pytest.raises(ScenarioError):
        joulemesh.run(tiny, model=wrong, data=(x, y, x, y))


@pytest.mark.slow
def test_more_devices_than_samples(tiny: joulemesh.Scenario) -> None:
    x, y = np.zeros((3, 2), np.float32), np.array([0, 1, 0])
    with pytest.raises(ScenarioError, match="resample"):
        joulemesh.run(tiny, data=(x, y, x, y))
    resampled = tiny.override({"training.partition": "resample", "training.model": "logistic"})
    many = joulemesh.run(resampled, data=(x, y, x, y))
    assert many.accuracy.shape == (6,)


@pytest.mark.slow
def test_the_reports_own_command(finished: tuple[Result, Path], tmp_path: Path) -> None:
    _, folder = finished
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", "report", str(folder), "--out", str(page)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert page.read_text().startswith("<!doctype html>")
    bad = subprocess.run(
        [sys.executable, "-m", "joulemesh", "report", str(tmp_path)], capture_output=True, text=True
    )
    assert bad.returncode == 2
    assert "is not a run folder" in bad.stderr
