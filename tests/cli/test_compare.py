"""`joulemesh compare`, as a user meets it."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from tests.commands import Command


@pytest.fixture
def command(small: Command) -> Command:
    return partial(small, "compare")


def test_a_comparison_from_file_to_report(command: Command) -> None:
    methods = "adaptive,fixed:1,balanced:tau1=4000,tau2=2"
    terms = ("--methods", methods, "--seeds", 2, "--out", "study")
    code, out, _ = command("small.toml", *terms)
    assert code == 0
    for text in (
        "adaptive",
        "fixed:1",
        "infeasible",
        "cannot pay for one iteration",
        "report.html",
    ):
        assert text in out
    assert Path("study", "report.html").is_file()
    assert len(list(Path("cache", "joulemesh", "compare").rglob("*.run"))) == 4
    code, out, err = command("small.toml", *terms, "--json", "--target", 0.2)
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert (found["computed"], found["target"], found["equal"]) == (0, 0.2, "batteries")
    assert [row["method"] for row in found["methods"]] == [
        "adaptive", "fixed:1", "balanced:tau1=4000,tau2=2",
    ]  # fmt: skip
    assert found["methods"][1]["accuracy_difference_ci95"] is not None


def test_no_method_that_can_run_is_an_error(command: Command) -> None:
    code, out, err = command("small.toml", "--methods", "fixed:4000,fixed:5000", "--seeds", 1)
    assert code == 2
    assert out.count("infeasible") == 2
    assert err.splitlines()[-1] == "error: none of the methods could run; the reasons are above"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--methods", "adaptive,fedsgd"),
            "method 'fedsgd' is unknown: use some of adaptive, spread, fixed",
        ),
        (("--methods", "fixed:tua=3"), "fixed has no parameter 'tua'; known parameters: tau"),
        (("--methods", ""), "no method is given"),
        (
            ("--equal", "joules"),
            "equal = 'joules' is unknown: use one of iterations, batteries",
        ),
        (("--target", "90"), "target = 90.0 is not an accuracy"),
        (("--load", "none.py"), "--load none.py: there is no such file"),
        (("--load", "small.toml"), "--load small.toml: this is not a Python file"),
        (("--load", "bad.py"), "bad.py, line 1: ZeroDivisionError: division by zero"),
        (("--set", "devices.cout=3"), "devices.cout: unknown field"),
    ],
)
def test_refusals_are_one_line(command: Command, arguments: tuple[str, ...], message: str) -> None:
    Path("bad.py").write_text("1 / 0\n")
    code, out, err = command("small.toml", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_ctrl_c_says_how_to_go_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from joulemesh.study import compare

    def interrupted(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(compare, "compare", interrupted)
    code, out, err = command("small.toml")
    assert (code, out) == (130, "")
    assert "stopped; the same command goes on" in err


@pytest.mark.slow
def test_worlds_from_command_to_folder(command: Command) -> None:
    terms = ("--methods", "adaptive,fixed:1", "--seeds", 1, "--worlds", 2, "--out", "study")
    code, out, err = command("small.toml", *terms)
    assert code == 0
    assert "means of 2 worlds of one seed each ± 95 % interval over worlds" in " ".join(out.split())
    assert "paired by world" in " ".join(out.split())
    assert Path("study", "worlds.csv").is_file()
    code, out, err = command("small.toml", *terms, "--json")
    found = json.loads(out)
    assert (code, err, found["computed"]) == (0, "", 0)
    assert found["worlds"] == [0, 1_000_000]
    assert [row["worlds"] for row in found["methods"]] == [2, 2]
    # One world more costs itself only.
    code, out, _ = command("small.toml", *terms[:5], 3, "--json")
    assert json.loads(out)["computed"] == 2
