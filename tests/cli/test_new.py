"""`joulemesh new`: a project that runs as it stands, laid out whole or not at all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.templates import PROJECT, lay_out


def shell(folder: Path, *arguments: str) -> str:
    """Run a command in a folder, which must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_project_runs_as_it_stands(tmp_path: Path) -> None:
    """In reduced size: fewer samples, fewer iterations."""
    made = shell(tmp_path, "-m", "joulemesh", "new", "my fleet")
    assert "cd 'my fleet' && python data.py && joulemesh plan scenario.toml" in made
    project = tmp_path / "my fleet"
    assert sorted(path.name for path in project.iterdir()) == sorted(PROJECT)

    assert "400 samples on 6 devices" in shell(project, "data.py", "--samples", "400")
    planned = shell(project, "-m", "joulemesh", "plan", "scenario.toml")
    assert "Feasible" in planned
    assert "cellar" in planned

    less = ("--set", "plan.iterations=4", "--set", "training.eval_every=2", "--json")
    ran = json.loads(shell(project, "-m", "joulemesh", "run", "scenario.toml", *less))
    assert 0.25 < ran["accuracy"] <= 1
    assert (project / "runs" / "scenario-001" / "report.html").is_file()

    named = ("--set", "training.model=model.py:Tones")
    ran = json.loads(shell(project, "-m", "joulemesh", "run", "scenario.toml", *named, *less))
    assert ran["accuracy"] > 0.25

    own = shell(project, "model.py", "--iterations", "4", "--out", "runs/own")
    assert own.startswith("612 parameters, accuracy 0.")
    assert (project / "runs" / "own" / "report.html").is_file()


def test_both_budgets_bind_somebody(tmp_path: Path) -> None:
    """A plan of the whole project shows what the planner does."""
    import joulemesh

    lay_out(tmp_path / "fleet")
    shell(tmp_path / "fleet", "data.py")
    plan = joulemesh.plan(joulemesh.Scenario.load(tmp_path / "fleet" / "scenario.toml"))
    assert set(plan.binding) == {"energy", "time"}


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ScenarioError, match=r"is not empty \(it has notes\.txt\); name a new"):
        lay_out(tmp_path)
    with pytest.raises(ScenarioError, match="is a file; name a new folder"):
        lay_out(tmp_path / "notes.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
