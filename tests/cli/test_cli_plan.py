"""`joulemesh plan`, `init` and `schema`, as a user meets them; refusals: one line, exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.cli.common import read_scenario
from tests.commands import Command, Outcome


def refused(outcome: Outcome, *wanted: str) -> None:
    """Exit code 2, nothing printed, and one line that holds what is wanted; notes may follow."""
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert all(line.startswith("note: ") for line in outcome.err.splitlines()[1:])
    assert outcome.err.endswith("\n")
    assert "Traceback" not in outcome.err
    for text in wanted:
        assert text in outcome.err


# What is printed -------------------------------------------------------------------------------


def test_plan_shows_scheme_reason_iterations_totals_devices_and_rounds(command: Command) -> None:
    done = command("plan", "--preset", "adaptive")
    plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive"))
    assert done.code == 0
    assert done.err == ""
    words = " ".join(done.out.split())
    assert "scheme tree, root at device" in words
    assert "Theorem 3, case 1" in words
    assert "iterations 100 (communication rounds), 20 devices" in words
    assert f"{int(plan.rounds.sum()):,} local rounds" in words
    assert "training" in words
    assert "exchange" in words
    assert "deadline" in words
    assert "energy" in words
    assert any(bar in done.out for bar in "▁▂▃▄▅▆▇█")
    rows = [line for line in done.out.splitlines() if line.strip()[:1].isdigit() or "│" in line]
    assert len(rows) >= 20


def test_a_target_that_is_no_accuracy_is_refused_before_anything_is_made(
    command: Command, tmp_path: Path
) -> None:
    refused(command("run", "--target", "90"), "target = 90.0 is not an accuracy", "at most 1")
    assert list(tmp_path.iterdir()) == []


def test_json_prints_one_object_with_the_public_names(command: Command) -> None:
    done = command("plan", "--json", "--preset", "adaptive", "--set", "devices.count=50")
    record = json.loads(done.out)
    plan = joulemesh.plan(joulemesh.Scenario.preset("adaptive").override({"devices.count": 50}))
    assert np.shape(record["rounds"]) == (100, 50)
    assert record["scheme"] == plan.scheme
    assert record["rounds"] == plan.rounds.tolist()
    assert record["latency_s"] == plan.latency_s.tolist()
    for name in ("edges", "compute_j", "exchange_j", "energy_budget_j", "deadline_s", "reason"):
        assert name in record


def test_out_writes_what_the_suffix_says(command: Command, tmp_path: Path) -> None:
    for name, first in (("p.csv", "iteration,device,rounds,"), ("p.json", '{"scheme": "tree-')):
        done = command("plan", "--out", name, "--set", "plan.iterations=7")
        assert (done.code, done.err) == (0, "")
        assert (tmp_path / name).read_text("utf-8").startswith(first)
    refused(command("plan", "--out", "p.xlsx"), "p.xlsx: plans end in .npz, .json or .csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.json"]


def test_init_writes_a_commented_file_that_means_the_same(command: Command, tmp_path: Path) -> None:
    done = command("init", "fleet.toml", "--preset", "paper", "--set", "devices.count=8")
    assert done.code == 0
    assert "joulemesh plan fleet.toml" in done.out
    wanted = joulemesh.Scenario.preset("paper").override({"devices.count": 8})
    assert joulemesh.Scenario.load(tmp_path / "fleet.toml") == wanted
    assert "# number of devices N" in (tmp_path / "fleet.toml").read_text("utf-8")
    shown = command("plan", "fleet.toml", "--json")
    assert json.loads(shown.out)["rounds"] == joulemesh.plan(wanted).rounds.tolist()


def test_init_does_not_overwrite_unless_told(command: Command, tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("mine")
    refused(command("init", "fleet.toml"), "fleet.toml exists", "--force")
    assert (tmp_path / "fleet.toml").read_text() == "mine"
    assert command("init", "fleet.toml", "--force").code == 0
    assert joulemesh.Scenario.load(tmp_path / "fleet.toml") == joulemesh.Scenario.preset("default")


def test_json_of_a_refusal_is_its_data(command: Command) -> None:
    done = command("plan", "--json", "--preset", "adaptive", "--set", "plan.iterations=5000")
    error = json.loads(done.out)["error"]
    assert done.code == 2
    assert done.err == f"error: {error['text']}\n"
    assert (error["code"], error["field"]) == ("energy", "budget.energy_j")
    assert error["device"] in range(20)
    assert error["figures"]["iterations"] == 5000
    assert error["figures"]["needs_j"] > error["figures"]["has_j"]
    way = error["remedies"][0]["edits"][0]
    raised = f"budget.energy_j={way['value']}"
    again = ("--preset", "adaptive", "--set", "plan.iterations=5000", "--set", raised)
    assert way["how"] == "raise"
    assert command("plan", *again).code == 0


# --set -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "section", "field", "value"),
    [
        ("devices.count=50", "devices", "count", 50),
        (" devices.count = 50 ", "devices", "count", 50),
        ("network.topology=grid", "network", "topology", "grid"),
        ('network.topology="grid"', "network", "topology", "grid"),
        ("plan.iterations=longest", "plan", "iterations", "longest"),
        ("devices.cpu_hz=[1e9, 2e9]", "devices", "cpu_hz", (1e9, 2e9)),
        ("devices.cpu_hz={values=[1e9,2e9]}", "devices", "cpu_hz", {"values": (1e9, 2e9)}),
        ("network.channel_known=false", "network", "channel_known", False),
        ("training.hidden=[5,6]", "training", "hidden", (5, 6)),
        ("training.optimizer=a=b", "training", "optimizer", "a=b"),
        ("budget.energy_j=100 Wh", "budget", "energy_j", 360_000.0),
        ('budget.energy_j="100 Wh"', "budget", "energy_j", 360_000.0),
        ("budget.energy_j=[6 J, 30]", "budget", "energy_j", (6.0, 30.0)),
        ('budget.energy_j=["6 J", 0.01 Wh]', "budget", "energy_j", (6.0, 36.0)),
        ("budget.deadline_s=1 h 56 min", "budget", "deadline_s", 6960.0),
    ],
)
def test_set_reads_toml_values_and_bare_words(
    text: str, section: str, field: str, value: Any
) -> None:
    scenario = read_scenario(None, "default", [text])
    assert getattr(getattr(scenario, section), field) == value


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("devices.count", "write --set section.field=value"),
        ("devices.cout=3", "did you mean 'count'?"),
        ("device.count=3", "did you mean 'devices'?"),
        ("devices.count=many", "devices.count: input should be a valid integer"),
        ("devices.count=", "devices.count: input should be a valid integer"),
        ("devices=3", "devices: input should be a valid dictionary"),
        ("seed.x=3", "seed"),
        ("budget.energy_j=5 min", "budget.energy_j = '5 min': this is a time; give an energy"),
        ("=3", "unknown field"),
    ],
)
def test_bad_sets_are_refused(text: str, wanted: str, command: Command) -> None:
    refused(command("plan", "--set", text), wanted)


# Bad input -------------------------------------------------------------------------------------

# The scenario's text, further files, and what the message must hold: the field and the fix.
BAD: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "unknown key": ("[budget]\nenergy = 3\n", {}, ("budget.energy", "did you mean 'energy_j'?")),
    "wrong unit in the value": (
        '[devices]\ncpu_hz = "2 GB"\n',
        {},
        ("devices.cpu_hz = '2 GB'", "this is an amount of data; give a frequency such as '20 MHz'"),
    ),
    "wrong unit in the name": (
        "[budget]\ndeadline_ms = 12\n",
        {},
        ("budget.deadline_ms", "did you mean 'deadline_s'?"),
    ),
    "wrong sign": ("[budget]\nenergy_j = -3.0\n", {}, ("budget.energy_j", "greater than 0")),
    "nan": ("[network]\nbandwidth_hz = nan\n", {}, ("network.bandwidth_hz", "finite number")),
    "nan in a list": ("[devices]\ncpu_hz = [1e9, nan]\n", {}, ("devices.cpu_hz", "finite number")),
    "disconnected": (
        '[devices]\ncount = 4\n[network]\ntopology = "links.csv"\n',
        {"links.csv": "i,j\n0,1\n2,3\n"},
        ("network.topology", "2 parts", "add a link"),
    ),
    "odd grid": (
        '[devices]\ncount = 7\n[network]\ntopology = "grid"\n',
        {},
        ("devices.count is 7", "use 6 or 8"),
    ),
    "zeta too small": (
        '[plan]\nzeta = 50.0\nrounds = "theorem4"\niterations = 100\n',
        {},
        ("plan.zeta = 50", "set plan.zeta above 99"),
    ),
    "zero deadline": ("[budget]\ndeadline_s = 0\n", {}, ("budget.deadline_s", "greater than 0")),
    "no exchange can be paid": (
        "[budget]\nenergy_j = 1e-6\n",
        {},
        ("device ", "battery of 1 µJ", "raise budget.energy_j to at least "),
    ),
    "no exchange is in time": (
        '[budget]\ndeadline_s = 1e-6\n[plan]\nrounds = "theorem4"\n',
        {},
        ("device ", "deadline of 1 µs", "raise budget.deadline_s to at least "),
    ),
    "missing column": (
        '[devices]\ntable = "d.csv"\ncpu_hz = "speed"\n',
        {"d.csv": "capacitance\n1e-27\n1e-27\n1e-27\n"},
        ("devices.cpu_hz", "no column 'speed'", "add it or name another"),
    ),
    "bad cell": (
        '[devices]\ntable = "d.csv"\n',
        {"d.csv": "cpu_hz\n1e9\nfast\n1e9\n"},
        ("d.csv, row 3, column 'cpu_hz'", "give a frequency such as"),
    ),
    "missing table": (
        '[devices]\ntable = "no.csv"\n',
        {},
        ("cannot read no.csv", "check the path"),
    ),
    "not toml": ("[devices\ncount = 3\n", {}, ("s.toml is not a TOML file", "joulemesh init")),
    "unknown topology": ('[network]\ntopology = "rings"\n', {}, ("network.topology", "'ring'")),
    "no ring": (
        '[devices]\ncount = 3\n[network]\ntopology = "l.csv"\n[plan]\naggregation = "ring"\n',
        {"l.csv": "i,j\n0,1\n1,2\n"},
        ("plan.aggregation", 'set plan.aggregation = "tree"'),
    ),
    "missing gain": (
        '[devices]\ncount = 3\n[network]\ngains = "g.csv"\n',
        {"g.csv": "i,j,gain\n0,1,1e-9\n1,2,1e-9\n"},
        ("no gain for the link 0-2", "add the row"),
    ),
    "unknown data": ('[training]\ndataset = "mnits"\n', {}, ("dataset", "did you mean 'mnist'?")),
    "short list": (
        "[devices]\ncount = 4\ncpu_hz = [1e9, 2e9, 3e9]\n",
        {},
        ("devices.cpu_hz lists 3 values for 4 devices", "give one number per device"),
    ),
    "bound without constants": (
        '[plan]\niterations = "bound"\n',
        {},
        ('plan.iterations = "bound"', "[bounds]"),
    ),
    "huge": (
        '[plan]\niterations = 1000000000\nrounds = "uniform"\n',
        {},
        ("1,000,000,000 iterations", "set plan.iterations to at most"),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line_with_the_field_and_the_fix(
    name: str, command: Command, tmp_path: Path
) -> None:
    text, files, wanted = BAD[name]
    (tmp_path / "s.toml").write_text(text)
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    before = sorted(path.name for path in tmp_path.iterdir())
    refused(command("plan", "s.toml", "--out", "plan.npz"), *wanted)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("where", ["missing/plan.npz", "file/plan.npz", "folder.csv"])
def test_an_unwritable_out_is_refused_and_nothing_is_half_written(
    where: str, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("a file")
    (tmp_path / "folder.csv").mkdir()
    refused(command("plan", "--out", where), f"cannot write {where}", "choose another place")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder.csv"]
    assert (tmp_path / "file").read_text() == "a file"


# Through a process -----------------------------------------------------------------------------


def process(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "joulemesh", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


def test_a_refusal_reaches_the_shell_as_one_line_and_code_2(tmp_path: Path) -> None:
    done = process("plan", "--set", "budget.deadline_s=-1", folder=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: budget.deadline_s:")
    assert done.stderr.count("\n") == 1


def test_a_reader_that_stops_early_is_no_traceback(tmp_path: Path) -> None:
    command = f"{sys.executable} -m joulemesh plan --json --set devices.count=50 | head -c 10"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout == '{"scheme":'
    assert "Traceback" not in done.stderr


def test_the_time_line_of_an_iteration_is_written(command: Command, tmp_path: Path) -> None:
    made = command("plan", "--timeline", "line.csv", "--iteration", 3)
    assert made.code == 0
    assert "wrote line.csv" in made.out
    rows = (tmp_path / "line.csv").read_text().splitlines()
    assert rows[0].startswith("kind,phase,device,others,ready_s,start_s,end_s,joules")
    trains = joulemesh.plan(joulemesh.Scenario()).rounds[2] > 0
    assert sum(row.startswith("train,") for row in rows) == trains.sum()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--timeline", "line.png"), "line.png: time lines end in .csv or .json, not '.png'"),
        (("--timeline", "line.csv", "--iteration", 0), "iteration 0 is not one of 1.."),
    ],
)
def test_a_time_line_that_cannot_be_is_refused(
    command: Command, tmp_path: Path, arguments: tuple[object, ...], said: str
) -> None:
    refused = command("plan", "--out", "plan.csv", *arguments)
    assert (refused.code, said in refused.err) == (2, True)
    assert not list(tmp_path.iterdir())
