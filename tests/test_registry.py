"""Registries: what is known by name, and what a user's file or an installed plug-in adds."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from joulemesh.errors import ScenarioError
from joulemesh.registries import CHANNELS
from joulemesh.registry import Registry

HALVES = """
import numpy as np
from joulemesh.fading import distribution
from joulemesh.registries import CHANNELS

CHANNELS.register(distribution(
    "halves", "half or one and a half",
    draw=lambda rng, count: np.where(rng.random(count) < 0.5, 0.5, 1.5),
    quantile=lambda q: 1.5 if q < 0.5 else 0.5,
))
"""


@dataclass(frozen=True)
class Colour:
    name: str
    description: str = ""


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a,b", "a=b", "a\x1b[31m", " a", "a\n"])
def test_a_name_can_be_written_and_printed(name: str) -> None:
    with pytest.raises(ScenarioError, match="use letters, digits"):
        Registry[Colour]("colour").register(Colour(name))


def test_what_is_registered_in_a_scope_is_forgotten_and_what_was_replaced_returns() -> None:
    colours = Registry[Colour]("colour")
    first = colours.register(Colour("red"))
    with colours.scoped():
        colours.register(Colour("red", "another"))
        colours.register(Colour("blue"))
        assert colours.names() == ("red", "blue")
    assert colours["red"] is first
    assert colours.names() == ("red",)


def test_every_built_in_entry_is_registered_by_its_home() -> None:
    for name in CHANNELS.built_in:
        assert CHANNELS[name].name == name
        assert CHANNELS[name].description


def joulemesh(
    *arguments: str, folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    import os

    command = [sys.executable, "-m", "joulemesh", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env={**os.environ, **environment}
    )


ASKED = ("--set", "network.fading=halves", "--set", "plan.iterations=4", "--json")


def test_a_users_file_adds_an_entry_to_every_command_that_reads_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text(HALVES)
    without = joulemesh("plan", *ASKED, folder=tmp_path)
    assert without.returncode == 2
    assert "--load FILE.py adds your own" in without.stderr
    assert without.stderr.count("\n") == 1
    planned = joulemesh("plan", "--load", "halves.py", *ASKED, folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["iterations"] == 4
    run = joulemesh("run", "--load", "halves.py", *ASKED, "--out", "r", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "r/inputs/halves.py").read_text() == HALVES
    again = joulemesh("report", "r", folder=tmp_path)
    assert again.returncode == 2
    assert "halves" in again.stderr
    report = joulemesh("report", "r", "--load", "halves.py", folder=tmp_path)
    assert report.returncode == 0, report.stderr


def test_an_installed_plug_in_adds_an_entry(tmp_path: Path) -> None:
    (tmp_path / "halves_plugin.py").write_text(HALVES)
    about = tmp_path / "halves-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[joulemesh.plugins]\nhalves = halves_plugin\n")
    import os

    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    planned = joulemesh("plan", *ASKED, folder=tmp_path, PYTHONPATH=path)
    assert planned.returncode == 0, planned.stderr
    (tmp_path / "halves_plugin.py").write_text("raise OSError('no driver')\n")
    broken = joulemesh("plan", *ASKED, folder=tmp_path, PYTHONPATH=path)
    assert broken.returncode == 2
    assert "plug-in 'halves'" in broken.stderr
    assert "no driver" in broken.stderr
