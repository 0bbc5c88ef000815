"""The workflows and the image: what they name exists, and they are allowed no more than they need.

Neither can be run here. YAML and instructions are read, and held against the Makefile, the locks,
the command line and the package's metadata.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.test_examples import check_command
from tools import lock

yaml: Any = pytest.importorskip("yaml")  # a dependency of Flax
ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
EXTRAS, GROUPS = lock.requirement_sets()


class Strict(yaml.SafeLoader):  # type: ignore[misc]
    """Refuses a key that is there twice, of which others keep the last."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = [self.construct_object(key, deep) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"a key twice: {keys}"
        return super().construct_mapping(node, deep)


def read(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.load(path.read_text("utf-8"), Strict)
    return content


def jobs() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in WORKFLOWS:
        for name, job in read(path)["jobs"].items():
            yield f"{path.stem}/{name}", job


JOBS = dict(jobs())
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def commands(job: str) -> list[str]:
    return [step["run"] for name, step in STEPS if name == job and "run" in step]


# --- what the workflows may ---------------------------------------------------------------------


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: str(path.stem))
def test_a_workflow_reads_at_most_and_knows_no_secret(path: Path) -> None:
    assert read(path)["permissions"] in ({}, {"contents": "read"})
    assert "secrets." not in path.read_text("utf-8")
    triggers = read(path)[True]  # YAML takes `on` for true
    assert "pull_request_target" not in triggers


def test_only_a_release_may_more_and_only_what_signing_needs() -> None:
    more = {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job}
    assert set(more) == {"release/build", "release/publish"}
    assert {one for given in more.values() for one, how in given.items() if how == "write"} == {
        "id-token",
        "attestations",
    }


def test_actions_are_those_of_known_owners_at_a_version() -> None:
    used = [step["uses"] for _, step in STEPS if "uses" in step]
    for action in used:
        assert re.fullmatch(r"(actions/[\w-]+@v\d+|pypa/[\w-]+@release/v\d+)", action), action
    for _, step in STEPS:
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"] == {"persist-credentials": False}


def test_no_job_of_a_change_runs_for_ever() -> None:
    for name, job in JOBS.items():
        if name.startswith("ci/"):
            assert 0 < job["timeout-minutes"] <= 60, name


# --- what the workflows do ----------------------------------------------------------------------


def test_jobs_call_targets_that_exist() -> None:
    called = set()
    for name in JOBS:
        if name.startswith("ci/") and name != "ci/windows":
            for command in commands(name):
                tool, *words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "X", command))
                assert tool == "make", command
                called |= {word for word in words if "=" not in word}
    assert called <= TARGETS
    assert {"lint", "tests", "dist", "docs", "image"} == called
    released = "\n".join(commands("release/build"))
    for line in re.findall(r"\bmake ([a-z -]+)", released):
        assert set(line.split()) <= TARGETS


def test_every_locked_python_and_system_is_tried() -> None:
    matrix = JOBS["ci/tests"]["strategy"]["matrix"]
    assert tuple(matrix["python"]) == lock.PYTHONS
    assert matrix["os"] == ["ubuntu-latest", "macos-latest"]
    assert set(JOBS["ci/windows"]["strategy"]["matrix"]["python"]) <= set(lock.PYTHONS)
    (versions,) = (
        step["with"]["python-version"]
        for name, step in STEPS
        if name == "ci/wheels" and "setup-python" in step.get("uses", "")
    )
    assert sorted(versions.split()) == list(lock.PYTHONS)


def test_windows_types_what_a_user_types() -> None:
    typed = commands("ci/windows")
    assert typed[0].split()[:2] == ["python", "tools/install.py"]
    assert set(typed[0].split()[2:]) <= EXTRAS.keys() | GROUPS.keys()
    names = set()
    for line in typed[1:]:
        words = shlex.split(line.partition(" > ")[0])
        check_command(words)
        names.add(words[1])
    assert {"plan", "run", "compare"} <= names


# --- the image ----------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"\\\n\s*", "", (ROOT / "Containerfile").read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


def test_the_image_copies_what_is_there_and_what_is_let_through() -> None:
    admitted = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }
    copied = set()
    for word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            copied |= set(rest.split()[:-1])
    assert copied == admitted
    for name in copied:
        assert (ROOT / name).exists(), name
    assert "pyproject.toml" in copied


def test_the_image_has_two_stages_and_an_ordinary_user() -> None:
    words = [word for word, _ in instructions()]
    assert words.count("FROM") == 2
    last = instructions()[len(words) - words[::-1].index("FROM") :]
    given = dict(last)
    assert given["USER"] == "joulemesh"
    assert [word for word, _ in last].index("USER") < [word for word, _ in last].index("ENTRYPOINT")
    assert not any("pip" in rest for word, rest in last if word == "RUN")
    assert json.loads(given["ENTRYPOINT"]) == ["joulemesh"]
    arguments = dict(rest.split("=") for word, rest in instructions() if word == "ARG")
    assert arguments["PYTHON"] in lock.PYTHONS
    assert arguments["EXTRAS"] in EXTRAS


@pytest.mark.parametrize(
    ("extras", "files"),
    [("", []), ("jax", ["jax"]), ("jax,deploy", ["jax", "deploy"])],
)
def test_extras_become_locks(extras: str, files: list[str]) -> None:
    """The image's own words, by the shell that would run them."""
    (run,) = (rest for word, rest in instructions() if word == "RUN" and "$EXTRAS" in rest)
    words = re.search(r'\$\((echo "\$EXTRAS".*?)\)$', run)
    assert words is not None
    done = subprocess.run(
        ["sh", "-c", f"echo {words[0]}"],
        env={"EXTRAS": extras, "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [part for name in files for part in ("-r", f"locks/{name}.txt")]
    for part in re.findall(r"locks/\w+\.txt", run + done.stdout):
        assert (ROOT / part).is_file()
