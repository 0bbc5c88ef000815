"""What the shell offers when the user presses Tab, asked for as the shells do."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from joulemesh.cli import completion, node
from joulemesh.cli.main import main
from joulemesh.methods import EQUAL, names
from joulemesh.scenario import PRESETS
from joulemesh.scenario.given import absolute_paths
from joulemesh.scenario.profiles import DEVICES, RADIOS
from joulemesh.scenario.sections import FILES
from yan_li_2024 import FIGURES


def joulemesh(*arguments: str, folder: Path | None = None, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, **variables},
    )
    assert done.stderr == ""
    return done.stdout


def offered_for(line: str) -> dict[str, str]:
    """Candidates with explanations, in the form of fish, which is the plainest."""
    asked = {
        "_JOULEMESH_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": line,
    }
    text = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(text):
        for name, value in asked.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["joulemesh"])
        with contextlib.suppress(SystemExit):
            main()
    pairs = (row.partition("\t") for row in text.getvalue().splitlines() if row)
    return {value: words for value, _, words in pairs}


def bash(*words: str, folder: Path | None = None) -> list[str]:
    """Candidates for the last of the words, as bash cuts them."""
    return joulemesh(
        folder=folder,
        _JOULEMESH_COMPLETE="complete_bash",
        COMP_WORDS="\n".join(("joulemesh", *words)),
        COMP_CWORD=str(len(words)),
    ).split()


# What is offered -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("joulemesh plan --preset ", PRESETS),
        ("joulemesh profiles ", (*DEVICES, *RADIOS)),
        ("joulemesh methods ", names()),
        ("joulemesh compare --methods ", names()),
        ("joulemesh compare --equal ", EQUAL),
        ("joulemesh reproduce ", (*FIGURES, "all")),
        ("joulemesh node ", [command.__name__ for command in node.COMMANDS]),
        ("joulemesh run --set network.profile=", [f"network.profile={name}" for name in RADIOS]),
    ],
)
def test_names_are_offered(line: str, offered: tuple[str, ...]) -> None:
    assert tuple(offered_for(line)) == tuple(offered)


@pytest.mark.parametrize("name", FILES)
def test_files_are_offered_for_every_field_that_is_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = FILES[name]
    for end in file.ends or ("/",):
        path = tmp_path / f"mine{end}"
        path.mkdir() if end == "/" else path.touch()
        value = f"{file.heads[-1]}mine{end}"
        assert f"{name}={value}" in dict(completion.settings(f"{name}={file.heads[-1]}mi"))
        given = f"{value}:Net" if end == ".py" else value
        section, _, field = name.partition(".")
        resolved = absolute_paths({section: {field: given}}, tmp_path)[section][field]
        assert file.path_in(resolved) == str(path)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("plan.aggregation=r", ["plan.aggregation=ring", "plan.aggregation=ring-chunked"]),
        ("plan.coordination=", ["plan.coordination=true", "plan.coordination=false"]),
        ("plan.iterations=l", ["plan.iterations=longest"]),
        (
            "devices.profile=jet",
            ["devices.profile=jetson-nano", "devices.profile=jetson-orin-nano"],
        ),
        ("network.topology=g", ["network.topology=grid", "network.topology=geometric"]),
        ("training.dataset=d", ["training.dataset=digits", "training.dataset=diabetes"]),
        ("bounds.smoothness=", ["bounds.smoothness=estimate"]),
        ("network.bandwidth", ["network.bandwidth_hz=2e+07", "network.bandwidth_hz=20MHz"]),
        ("nothing.", []),
        ("nothing.here=", []),
    ],
)
def test_values_of_fields_are_offered(
    typed: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # no files
    assert [name for name, _ in completion.settings(typed)] == offered


NEEDS: dict[str, dict[str, Any]] = {
    "network.interference_m=": {"network.medium": "shared"},
    "plan.power=": {"devices.power_range_w": [0.1, 1.0]},
    "devices.step_s=": {"devices.step_j": 0.1},
    "devices.step_j=": {"devices.step_s": 0.1},
    "plan.clock=": {"devices.clock_range": [0.5, 1.0]},
}


@pytest.mark.parametrize("name", [name for name, _ in completion.settings("")])
def test_what_is_offered_is_valid(name: str) -> None:
    """Every value that is offered can be set."""
    from joulemesh.cli.common import field_and_value
    from joulemesh.scenario import Scenario

    for text, words in completion.settings(name):
        if words != "file":
            Scenario().override({**NEEDS.get(name, {}), **dict([field_and_value(text)])})


def test_files_are_offered_where_a_field_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.csv", "b.txt", "c.npz", ".hidden.csv", "sub/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    head = "joulemesh plan --set devices.table="
    assert list(offered_for(head)) == [
        f"devices.table={name}" for name in ("a.csv", "b.txt", "sub/")
    ]
    assert list(offered_for(f"{head}sub/")) == ["devices.table=sub/d.csv"]
    assert offered_for(f"{head}none/") == {}
    data = offered_for("joulemesh plan --set training.dataset=c")
    assert "training.dataset=c.npz" in data


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("adaptive,bal", ["adaptive,balanced"]),
        ("balanced:tau1=3,tau", ["balanced:tau1=3,tau2="]),
        ("adaptive:rounds=b", ["adaptive:rounds=backfill"]),
        ("fixed:", ["fixed:tau="]),
        ("pens:top=2,sam", ["pens:top=2,sampled="]),
        ("gossip-learning:form=", [f"gossip-learning:form={x}" for x in ("random", "partitioned")]),
        ("adaptive:back", ["adaptive:backfill"]),
        ("nothing:", []),
    ],
)
def test_methods_with_parameters_are_offered(typed: str, offered: list[str]) -> None:
    assert [name for name, _ in completion.compared_methods(typed)] == offered


def test_after_a_parameter_comes_another_or_a_method() -> None:
    offered = [name for name, _ in completion.compared_methods("fixed:3,")]
    assert offered == [*(f"fixed:3,{name}" for name in names()), "fixed:3,tau="]


# The shells ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_bash_cuts_words_at_equals_signs_and_colons() -> None:
    """What it replaces is only what follows the last of them."""
    assert bash("plan", "--set", "devices.profile", "=", "jet") == [
        "jetson-nano",
        "jetson-orin-nano",
    ]
    assert bash("plan", "--set", "network.duplex", "=") == ["orthogonal", "half"]
    assert bash("plan", "--set", "network.dup") == [
        "network.duplex=orthogonal",
        "network.duplex=half",
    ]
    assert bash("compare", "--methods", "adaptive,balanced", ":", "tau1", "=", "3,tau") == [
        "3,tau2="
    ]
    assert bash("compare", "--equal", "=", "ti") == ["time"]
    assert bash("prof") == ["profiles"]
    assert bash("plan", "--set", "seed", "=", "3", "--pres") == ["--preset"]


def with_command(folder: Path) -> dict[str, str]:
    """An environment in which `joulemesh` is this one, and the home folder is empty."""
    command = folder / "joulemesh"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m joulemesh "$@"\n')
    command.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(folder)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_in_a_real_bash(tmp_path: Path) -> None:
    """The function that is installed, called as bash calls it."""
    environment = with_command(tmp_path)
    script = joulemesh(_JOULEMESH_COMPLETE="source_bash")
    asked = (
        f"{script}\n"
        "COMP_WORDS=(joulemesh run --set devices.profile = jetson-o); COMP_CWORD=5\n"
        "_joulemesh_completion joulemesh\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout == "jetson-orin-nano\n"


def test_words_of_bash_are_joined() -> None:
    line = "joulemesh\nplan\n--set\ndevices.profile\n=\nras"
    words = ["joulemesh", "plan", "--set", "devices.profile=ras"]
    assert completion.joined(line, 5) == (words, 3, "devices.profile=")
