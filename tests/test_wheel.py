"""The built wheel, installed light into an empty environment: it plans, and says what it lacks.

`make dist` tries wheel and sdist on every Python that is found; this is the part of it that fits
into a test. Packages come from pip's index; where none can be reached the test is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from joulemesh.scenario import PRESETS
from tests.light import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="the build tools are not installed")
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(folder), str(ROOT)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_has_its_data_and_asks_for_no_training(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        lines = archive.read(about).decode().splitlines()
    source = ROOT / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for path in (source / "joulemesh").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {"joulemesh/py.typed", "joulemesh/data/digits.csv.gz"} <= wanted
    assert {f"joulemesh/scenario/presets/{name}.toml" for name in PRESETS} <= wanted
    assert {Path(name).suffix for name in wanted} >= {".css", ".html", ".js", ".tmpl"}
    assert {name for name in names if ".dist-info/" not in name} == wanted
    needs = [line.split(": ")[1] for line in lines if line.startswith("Requires-Dist: ")]
    base = {one.split("<")[0].split(">")[0] for one in needs if "extra ==" not in one}
    light = {"numpy", "platformdirs", "pydantic", "rich", "safetensors", "scipy", "typer"}
    assert base == light


def test_the_light_wheel_plans(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True, timeout=300)
    python = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(python), "-m", *words], cwd=tmp_path, env=clean,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    constraints = str(ROOT / "constraints.txt")
    got = call("pip", "install", "--quiet", "--no-compile", "-c", constraints, str(wheel))
    if got.returncode and ("No matching distribution" in got.stderr or "Connection" in got.stderr):
        pytest.skip(f"no packages to be had: {got.stderr.strip().splitlines()[-1]}")
    assert got.returncode == 0, got.stderr
    there = {one["name"] for one in json.loads(call("pip", "list", "--format", "json").stdout)}
    assert not there & {"jax", "pandas", "matplotlib", "scikit-learn", "pooch"}
    planned = call("joulemesh", "plan", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["scheme"]
    asked = call("joulemesh", "studio", "--help")
    assert asked.returncode == 0, asked.stderr
    for command, fix in (("run", "jax"), ("compare", "jax"), ("studio", "studio")):
        refused = call("joulemesh", command)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1
        assert refused.stderr.endswith(f"pip install 'joulemesh[{fix}]'\n")
