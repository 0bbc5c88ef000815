"""Folders that travel: moved elsewhere, without the files that they were made from."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.cli.main import main
from joulemesh.study import identity as inputs_module

SAME = ("metrics.csv", "model.safetensors", "ledger.csv")


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object, code: int = 0) -> None:
    monkeypatch.setattr(sys, "argv", ["joulemesh", *map(str, arguments)])
    try:
        main()
        found: Any = 0
    except SystemExit as end:
        found = end.code or 0
    assert found == code


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as a user has it, with files beside the scenario; and the place to stand in."""
    place = tmp_path / "project"
    place.mkdir()
    monkeypatch.chdir(place)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(90, 4)).astype(np.float32), np.arange(90) % 3
    np.savez("mine.npz", x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    (place / "fleet.csv").write_text("cpu_hz\n" + "1e9\n1.5e9\n2e9\n1.2e9\n")
    (place / "links.csv").write_text("i,j\n0,1\n1,2\n2,3\n3,0\n0,2\n")
    (place / "scenario.toml").write_text(
        '[devices]\ntable = "fleet.csv"\n[network]\ntopology = "links.csv"\n'
        "[budget]\nenergy_j = 20.0\ndeadline_s = 0.1\n[plan]\niterations = 6\n"
        '[training]\ndataset = "mine.npz"\nmodel = "logistic"\neval_every = 3\nbatch_size = 8\n'
    )
    return place


@pytest.mark.slow
def test_a_run_goes_on_elsewhere_without_its_originals(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(monkeypatch, "run", "scenario.toml", "--out", "runs/x")
    moved = tmp_path / "elsewhere" / "y"
    moved.parent.mkdir()
    shutil.move(project / "runs" / "x", moved)
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(project)
    assert str(project) not in (moved / "scenario.toml").read_text()
    before = {name: (moved / name).read_bytes() for name in SAME}
    command(monkeypatch, "run", moved / "scenario.toml", "--out", "again")
    assert {name: (tmp_path / "again" / name).read_bytes() for name in SAME} == before
    command(monkeypatch, "report", moved, "--out", "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    command(monkeypatch, "run", "--out", moved, "--resume")  # finished: nothing to do
    again = json.loads((tmp_path / "again" / "versions.json").read_text())
    assert again["identity"] == json.loads((moved / "versions.json").read_text())["identity"]


@pytest.mark.slow
def test_what_is_too_large_is_named_with_its_digest(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(inputs_module, "_MOST_BYTES", 500)  # between the tables and the data
    command(monkeypatch, "run", "scenario.toml", "--out", "runs/x")
    data = json.loads(Path("runs/x/inputs/inputs.json").read_text())["files"]["training.dataset"]
    assert (data["name"], data["kept"]) == ("mine.npz", None)
    assert sorted(path.name for path in Path("runs/x/inputs").iterdir()) == [
        "devices-table.csv",
        "inputs.json",
        "network-topology.csv",
    ]
    moved = tmp_path / "moved"
    shutil.move("runs/x", moved)
    mine = (project / "mine.npz").read_bytes()
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(project)
    capsys.readouterr()
    command(monkeypatch, "run", moved / "scenario.toml", "--out", "again", code=2)
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"training.dataset: mine.npz ({len(mine):,} bytes, SHA-256 {data['sha256']})" in said
    assert f"put it into {moved / 'inputs'}, or name it with --set training.dataset=FILE" in said
    assert not (tmp_path / "again").exists()
    command(monkeypatch, "report", moved, "--out", "page.html")  # needs none of it
    (moved / "inputs" / "mine.npz").write_bytes(mine)
    command(monkeypatch, "run", moved / "scenario.toml", "--out", "again")
    for name in SAME:
        assert (tmp_path / "again" / name).read_bytes() == (moved / name).read_bytes()
    (tmp_path / "other.npz").write_bytes(mine)
    command(monkeypatch, "plan", moved / "scenario.toml", "--set", "training.dataset=other.npz")


def frame() -> Any:
    import pandas as pd

    rng = np.random.default_rng(1)
    names = [("b", "a", "c")[k % 3] for k in range(60)]
    return pd.DataFrame(
        {
            "depth": rng.normal(500.0, 90.0, 60),
            "light": rng.normal(size=60),
            "site": names,
            "kind": [("kelp", "sand")[k % 2] for k in range(60)],
        }
    )


TINY: dict[str, Any] = {
    "devices.count": 3,
    "plan.iterations": 6,
    "training.model": "logistic",
    "training.eval_every": 3,
    "training.chunk_iterations": 3,
}
READ: dict[str, Any] = {
    "training.label": "kind",
    "training.partition": "column:site",
    "training.normalize": True,
}


@pytest.mark.slow
def test_data_in_memory_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scenario = joulemesh.Scenario.preset("adaptive").override({**TINY, **READ})
    result = joulemesh.run(scenario, data=frame(), out="x")
    assert result.plan.scenario.training.dataset == "./inputs/data.npz"
    Path("far").mkdir()
    shutil.move("x", "far/x")
    command(monkeypatch, "run", "far/x/scenario.toml", "--out", "again")
    for name in SAME:
        assert Path("again", name).read_bytes() == Path("far/x", name).read_bytes()
    page = Path("again/report.html").read_text()
    assert '["kelp","sand"]' in page
    # The same run, as Python and as the command would go on with it.
    joulemesh.run(scenario, data=frame(), out="far/x", resume=True)
    command(monkeypatch, "run", "--out", "far/x", "--resume")
    other = frame().assign(light=0.5)
    with pytest.raises(ScenarioError, match="the data is not the same"):
        joulemesh.run(scenario, data=other, out="far/x", resume=True)


@pytest.mark.slow
def test_a_model_that_is_not_kept_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import jax.numpy as jnp

    monkeypatch.chdir(tmp_path)
    model = (
        lambda key: {"w": jnp.zeros((64, 10))},
        lambda params, x: x.reshape(len(x), -1) @ params["w"],
    )
    result = joulemesh.run(joulemesh.Scenario.preset("adaptive").override(TINY), model=model)
    result.save("x")
    command(monkeypatch, "plan", "x/scenario.toml")
    assert "a model of the user's own, which is not kept" in capsys.readouterr().err


@pytest.mark.slow
def test_a_comparison_is_made_again_elsewhere(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    order = ["compare", "scenario.toml", "--methods", "adaptive;balanced:tau1=2,tau2=1"]
    command(monkeypatch, *order, "--seeds", "2", "--target", "0.4", "--out", "found")
    moved = tmp_path / "moved"
    shutil.move("found", moved)
    monkeypatch.chdir(moved)
    shutil.rmtree(project)
    study = json.loads((moved / "study.json").read_text())
    assert study["methods"] == ["adaptive", "balanced:tau1=2,tau2=1"]
    assert (study["seeds"], study["target"]) == ([0, 1], 0.4)
    assert study["versions"]["joulemesh"] == joulemesh.__version__
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    command(monkeypatch, *shlex.split(study["command"])[1:], "--out", "again")
    for name in ("comparison.csv", "table.csv"):
        assert Path("again", name).read_bytes() == Path(name).read_bytes()
