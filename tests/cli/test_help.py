"""Help, version, completion, profiles and doctor, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

import joulemesh
from joulemesh.cli import doctor
from joulemesh.cli.main import app
from joulemesh.scenario.profiles import DEVICES, RADIOS
from tests.commands import Command

TOP = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def _flat(commands: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Every command by all of its words: ``deploy init`` too."""
    found: dict[str, Any] = {}
    for name, one in commands.items():
        inside = getattr(one, "commands", None)
        found.update({before + name: one} if inside is None else _flat(inside, f"{before}{name} "))
    return found


COMMANDS = _flat(TOP)


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_name_options_that_exist(name: str) -> None:
    params = COMMANDS[name].params
    known = {option for one in params for option in (*one.opts, *one.secondary_opts)} | {">"}
    epilog = str(COMMANDS[name].epilog)
    lines = [part.strip("- `") for part in epilog.split("\n\n")[1:]]
    assert lines
    for line in lines:
        assert line.startswith(f"joulemesh {name}")
        assert {word for word in line.split() if word.startswith("--")} <= known


# Profiles --------------------------------------------------------------------------------------


def test_profiles_are_listed(command: Command) -> None:
    page = command("profiles").out
    assert all(name in page for name in (*DEVICES, *RADIOS))
    assert "4 nJ" in page
    records = json.loads(command("profiles", "--json").out)
    assert [one["name"] for one in records] == [*DEVICES, *RADIOS]
    assert all(one["sources"] for one in records)


def test_unknown_profiles_are_refused(command: Command) -> None:
    for arguments in (
        ("profiles", "wfi"),
        ("plan", "--set", "devices.profile=wfi"),
        ("plan", "--set", "network.profile=wfi"),
    ):
        refused = command(*arguments)
        assert refused.code == 2
        assert refused.err.startswith("error: ")
        assert refused.err.count("\n") == 1
        assert "'wfi' is unknown" in refused.err


def test_a_figure_that_is_not_used_is_noted(command: Command, tmp_path: Path) -> None:
    """Figures of a profile are comments in a new file: another profile brings its own."""
    fields = ("devices.profile=raspberry-pi-4", "budget.deadline_s=1.0", "budget.energy_j=1000.0")
    changes = [part for field in fields for part in ("--set", field)]
    made = command("init", "s.toml", *changes)
    assert (made.code, made.err) == (0, "")
    text = Path("s.toml").read_text("utf-8")
    other = text.replace('profile = "raspberry-pi-4"', 'profile = "esp32"')
    Path("s.toml").write_text(other, "utf-8")
    planned = command("plan", "s.toml", "--json")
    assert (planned.code, planned.err) == (0, "")
    assert json.loads(planned.out)["scenario"]["devices"]["cpu_hz"] == 240e6
    Path("s.toml").write_text(other.replace("# cpu_hz = ", "cpu_hz = "), "utf-8")
    planned = command("plan", "s.toml", "--json")
    (note,) = planned.err.splitlines()
    assert note.startswith("note: devices.cpu_hz is given as 1.8e+09, so the profile's 2.4e+08")
    assert json.loads(planned.out)["scenario"]["devices"]["cpu_hz"] == 1.8e9


# Doctor ----------------------------------------------------------------------------------------


def test_doctor_finds_all_well(command: Command) -> None:
    seen = command("doctor")
    assert seen.code == 0, seen.out
    assert "all is well" in seen.out
    assert f"joulemesh  {joulemesh.__version__}" in seen.out
    assert "self-test  planned in" in seen.out


def test_doctor_in_json(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOULEMESH_DATA", str(Path.home() / "data"))
    found = json.loads(command("doctor", "--quick", "--json").out)
    assert found["problems"] == []
    assert "self_test" not in found
    assert found["settings"] == {"JOULEMESH_DATA": "~/data"}
    assert found["packages"]["jax"] == found["jax"]["version"]
    assert set(found["optional"]) == set(doctor.OPTIONAL)
    assert str(Path.home()) not in json.dumps(found)


def test_doctor_says_what_is_missing(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError(f"no backend\nin {Path.home()}/lib")

    monkeypatch.setattr(doctor, "_accelerators", broken)
    monkeypatch.setattr(doctor, "_self_test", broken)
    seen = command("doctor")
    assert seen.code == 1
    assert "problem    JAX does not start (RuntimeError: no backend in ~/lib)" in seen.out
    assert "problem    the self-test failed" in seen.out
    assert "all is well" not in seen.out
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "optax" else version(name))
    found = json.loads(command("doctor", "--quick", "--json").out)
    assert "optax is not installed; pip install 'joulemesh[jax]'" in found["problems"]


def test_the_self_test_refuses_a_loss_that_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    lost = SimpleNamespace(loss=np.array([np.nan]), accuracy=np.array([0.1]))
    monkeypatch.setattr("joulemesh.study.run.run", lambda scenario: lost)
    assert "ArithmeticError: loss nan" in doctor.examine()["problems"][0]


# Device tables ---------------------------------------------------------------------------------


def test_a_column_of_figures_that_nobody_takes_is_noted(command: Command, tmp_path: Path) -> None:
    Path("d.csv").write_text(
        "name,battery,clock,energy_j\na,3,1e9,20\nb,4,2e9,20\nc,4,2e9,20\n", "utf-8"
    )
    Path("s.toml").write_text('[devices]\ntable = "d.csv"\ncpu_hz = "clock"\n', "utf-8")
    planned = command("plan", "s.toml", "--set", "plan.iterations=2")
    assert planned.code == 0, planned.err
    (note,) = planned.err.splitlines()  # not of the name, which is text, nor of what is taken
    assert note.startswith("note: column 'battery' of ")
    assert note.endswith("d.csv is not used; no field has or takes this name")
