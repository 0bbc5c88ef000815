"""The light installation plans, checks, measures and takes part; what it cannot do, it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from joulemesh.base.optional import EXTRAS
from tests import light
from tests.deploy.test_node_process import LEARNER
from tools import lock

# Commands of one process, so that its imports are paid once; with what each must print or refuse.
SCRIPT = """
import contextlib, io, json, sys
from joulemesh.cli.main import main

def call(line):
    sys.argv = ["joulemesh", *line]
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()

print(json.dumps({" ".join(line): call(line) for line in json.loads(sys.argv[1])}))
"""
WORK = [
    ["plan", "--json"],
    ["plan", "--preset", "paper"],
    ["plan", "--set", "training.dataset=mnist", "--set", "training.model=cnn"],
    ["profiles"],
    ["schema"],
    ["init", "fleet.toml"],
    ["plan", "fleet.toml", "--out", "plan.json"],
    ["new", "project"],
    ["doctor"],
    ["deploy", "--help"],
    ["node", "run", "--help"],
]
REFUSE = {
    "run --out never": "training needs JAX",
    "compare --out never": "training needs JAX",
    "tune --out never": "training needs JAX",
    "sweep --vary devices.count=4,5 --out never": "training needs JAX",
    "estimate": "training needs JAX",
    "bounds": "training needs JAX",
    "plan --figure never.png": "drawing a figure needs Matplotlib",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str, str]]:
    folder = tmp_path_factory.mktemp("light")
    lines = [*WORK, *(line.split() for line in REFUSE)]
    ended = light.python(folder, "-c", SCRIPT, json.dumps(lines))
    assert not ended.returncode, ended.stderr
    found = json.loads(ended.stdout)
    found["left"] = (0, " ".join(path.name for path in folder.iterdir()), "")
    return found  # type: ignore[no-any-return]


def test_planning_and_looking_things_up_need_no_extra(
    done: dict[str, tuple[int, str, str]],
) -> None:
    for line in WORK:
        code, out, err = done[" ".join(line)]
        assert code == 0, f"{line}: {err or out}"


def test_what_needs_more_is_refused_in_a_line_with_the_extra_and_writes_nothing(
    done: dict[str, tuple[int, str, str]],
) -> None:
    for line, reason in REFUSE.items():
        code, _, err = done[line]
        assert code == 2, line
        extra = "figures" if "figure" in line else "jax"
        fix = f"which is not installed; pip install 'joulemesh[{extra}]'"
        assert err == f"error: {reason}, {fix}\n"
    assert "never" not in done["left"][1]


def test_the_table_of_optional_packages_agrees_with_the_extras() -> None:
    extras: dict[str, Any] = lock.requirement_sets()[0]
    packages = {
        "array_api_compat": "array-api-compat",
        "jaxlib": "jax",
        "mlflow": "mlflow-skinny",
        "pynvml": "nvidia-ml-py",
    }
    for module, (extra, _) in EXTRAS.items():
        assert packages.get(module, module) in {one.name for one in extras[extra]}, module


@pytest.mark.slow
def test_a_fleet_of_own_learners_needs_no_jax(tmp_path: Path) -> None:
    (tmp_path / "walk.py").write_text(LEARNER)
    ended = light.python(
        tmp_path, "-m", "joulemesh", "deploy", "local", "--preset", "adaptive",
        "--set", "devices.count=3", "--set", "plan.iterations=4",
        "--set", "training.model=logistic", "--learner", "walk.py:Walk", "--out", "fleet",
        sets=("base", "deploy"),
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert "3 devices carried out 4 iterations" in ended.stdout
    assert (tmp_path / "fleet" / "report.html").stat().st_size > 10_000


def test_a_node_loads_no_jax(tmp_path: Path) -> None:
    code = (
        "import joulemesh.deploy.device.runner, joulemesh.cli.node, joulemesh.deploy.transport.tcp"
    )
    ended = light.python(tmp_path, "-c", code, sets=("base", "deploy"))
    assert (ended.returncode, ended.stderr) == (0, "")
