"""Registries: what is known by name, and what a user's file or an installed plug-in adds."""

from __future__ import annotations

import ast
import csv
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from joulemesh import registries
from joulemesh.base import optional as own_code
from joulemesh.base.errors import ScenarioError
from joulemesh.base.registry import Registry
from joulemesh.cli.main import main
from joulemesh.registries import REGISTRIES
from tools.reading import DOCS, blocks

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


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.kind)
def test_every_built_in_entry_is_registered_by_its_home(registry: Registry[Any]) -> None:
    for name in registry.built_in:
        assert registry[name].name == name
        assert registry[name].description


@cache
def texts(path: Path) -> set[str]:
    """All texts in a module."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def command(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    words = [sys.executable, "-m", "joulemesh", *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, cwd=folder, env={**os.environ, **environment}
    )


ASKED = ("--set", "network.fading=halves", "--set", "plan.iterations=4", "--json")


@pytest.mark.slow
def test_a_users_file_adds_an_entry_to_every_command_that_reads_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "halves.py").write_text(HALVES)
    without = command("plan", *ASKED, folder=tmp_path)
    assert without.returncode == 2
    assert "--load FILE.py adds your own" in without.stderr
    assert without.stderr.count("\n") == 1
    planned = command("plan", "--load", "halves.py", *ASKED, folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["iterations"] == 4
    run = command("run", "--load", "halves.py", *ASKED, "--out", "r", folder=tmp_path)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "r/inputs/halves.py").read_text() == HALVES
    again = command("report", "r", folder=tmp_path)
    assert again.returncode == 2
    assert "halves" in again.stderr
    report = command("report", "r", "--load", "halves.py", folder=tmp_path)
    assert report.returncode == 0, report.stderr


@pytest.mark.slow
def test_an_installed_plug_in_adds_an_entry(tmp_path: Path) -> None:
    (tmp_path / "halves_plugin.py").write_text(HALVES)
    about = tmp_path / "halves-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: halves\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[joulemesh.plugins]\nhalves = halves_plugin\n")
    import os

    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    planned = command("plan", *ASKED, folder=tmp_path, PYTHONPATH=path)
    assert planned.returncode == 0, planned.stderr
    (tmp_path / "halves_plugin.py").write_text("raise OSError('no driver')\n")
    broken = command("plan", *ASKED, folder=tmp_path, PYTHONPATH=path)
    assert broken.returncode == 2
    assert "plug-in 'halves'" in broken.stderr
    assert "no driver" in broken.stderr


SMALL = """
[devices]
count = 4
[budget]
energy_j = [0.5, 1.5]
[plan]
iterations = 4
[training]
model = "logistic"
batch_size = 8
chunk_iterations = 4
"""
STAR = next(
    block.text
    for block in blocks((DOCS / "how-to" / "add-a-scheme.md").read_text("utf-8"))
    if block.title == "star.py"
)
OWN = {
    "training.loss": """
from joulemesh.metrics import Loss
from joulemesh.metrics import cross_entropy
from joulemesh.registries import LOSSES
LOSSES.register(Loss("mine", "twice the cross-entropy", lambda z, y: 2 * cross_entropy(z, y),
                     targets="classes", score="accuracy"))
""",
    "plan.aggregation": STAR.replace('"star"', '"mine"'),
    "network.topology": """
from joulemesh.registries import TOPOLOGIES
from joulemesh.world import Topology
TOPOLOGIES.register(Topology(
    "mine", "one device in the middle", lambda site: [(0, i) for i in range(1, site.devices)]))
""",
    "training.partition": """
import numpy as np
from joulemesh.data import PartitionKind, regroup
from joulemesh.registries import PARTITIONS
def deal(labels, devices, rng, sizes):
    return regroup(np.arange(len(labels)) % devices, devices, rng)
PARTITIONS.register(PartitionKind("mine", "every so many", deal))
""",
    "plan.rounds": """
import numpy as np
from joulemesh.planning.policy import weighted
from joulemesh.registries import POLICIES
POLICIES.register(weighted("mine", "grows", lambda n, options: np.arange(1.0, n + 1)))
""",
    "training.model": """
from joulemesh.models import ModelKind
from joulemesh.registries import MODELS
def build(shape, classes):
    import jax, jax.numpy as jnp
    features = 1
    for size in shape:
        features *= size
    return (
        lambda key: {"w": 0.01 * jax.random.normal(key, (features, classes))},
        lambda params, x: x.reshape(len(x), -1) @ params["w"],
    )
MODELS.register(ModelKind("mine", "without biases", build))
""",
    "network.fading": HALVES.replace('"halves"', '"mine"'),
    "training.metrics": """
from joulemesh.registries import METRICS
from joulemesh.metrics import Metric
METRICS.register(Metric("mine", "share of errors", lambda logits, y: logits.argmax(axis=1) != y,
                        better="lower", share=True))
""",
}


@pytest.fixture
def typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Commands typed in this process, which forgets what they have loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own_code, "_FILES", set())

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["joulemesh", *words])
        code = 0
        with registries.scoped():
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return code, *capsys.readouterr()

    return run


COMPARED = ("--methods", "adaptive,fixed:1", "--seeds", "1", "--cache", "kept", "--json")


def test_one_file_with_an_entry_of_every_kind_is_planned_run_and_compared(
    typed: Callable[..., tuple[int, str, str]],
) -> None:
    Path("own.py").write_text("".join(OWN.values()))
    Path("small.toml").write_text(SMALL)
    fields = [word for field in OWN for word in ("--set", f"{field}=mine")]
    asked = ("small.toml", "--load", "own.py", *fields)
    code, planned, said = typed("plan", *asked, "--json")
    assert code == 0, said
    assert json.loads(planned)["scheme"] == "mine"
    code, _, said = typed("run", *asked, "--out", "r")
    assert code == 0, said
    result, page = json.loads(Path("r/result.json").read_text()), Path("r/report.html").read_text()
    assert result["test_mine"] == pytest.approx(1 - result["accuracy"], abs=1e-6)
    with open("r/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert float(row["test_mine"]) == pytest.approx(1 - float(row["test_accuracy"]), abs=1e-6)
    assert '"key":"test_mine"' in page
    code, compared, said = typed("compare", *asked, *COMPARED, "--out", "c")
    assert code == 0, said
    for row in json.loads(compared)["methods"]:
        assert row["test_mine"] == pytest.approx(1 - row["accuracy"], abs=1e-6)
    assert '"key":"test_mine"' in next(Path("c").glob("*.html")).read_text()


def test_a_comparison_plans_a_policy_of_the_users_own(
    typed: Callable[..., tuple[int, str, str]],
) -> None:
    Path("own.py").write_text(OWN["plan.rounds"])
    Path("small.toml").write_text(SMALL)
    methods = ("--methods", "adaptive,adaptive:mine", "--seeds", "1", "--cache", "kept", "--json")
    code, compared, said = typed("compare", "small.toml", "--load", "own.py", *methods)
    assert code == 0, said
    assert [row["method"] for row in json.loads(compared)["methods"]] == [
        "adaptive",
        "adaptive:mine",
    ]
    code, _, said = typed("compare", "small.toml", *methods)
    assert code == 2
    assert "adaptive:mine" in said
