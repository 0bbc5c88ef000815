"""The house's rule: a room imports only rooms that stand above it, and planning never loads JAX."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import joulemesh

HOME = Path(joulemesh.__file__).parent

# Rooms in the order in which data flows; those of one line may import each other.
ORDER = (
    (
        "_version",
        "errors",
        "files",
        "machine",
        "optional",
        "own_code",
        "printable",
        "registries",
        "registry",
        "tables",
        "units",
    ),
    ("fading", "presets", "profiles", "templates"),
    ("scenario",),
    ("data", "models"),
    ("world",),
    ("aggregation",),
    ("theory",),
    ("planning",),
    ("training",),
    ("setup",),
    ("theory.measured",),
    ("methods",),
    ("studies",),
    ("views",),
    ("runs",),
    ("reproduce",),
    ("cli",),
    ("__main__",),
)
PLACE = {room: line for line, rooms in enumerate(ORDER) for room in rooms}
NEVER_JAX = (
    "errors",
    "files",
    "machine",
    "optional",
    "own_code",
    "printable",
    "registries",
    "registry",
    "tables",
    "units",
    "fading",
    "profiles",
    "scenario",
    "world",
    "theory",
    "aggregation",
    "planning",
)
HEAVY = {"jax", "jaxlib", "optax", "flax", "orbax", "torch", "tensorflow"}


def modules() -> list[Path]:
    return sorted(path for path in HOME.rglob("*.py"))


def room_of(path: Path) -> str:
    """The room in which a module stands; `theory.measured` is a room apart from `theory`."""
    return room_named(".".join(path.relative_to(HOME).with_suffix("").parts))


def room_named(module: str) -> str:
    """The room of a module, or of what is imported from one (named below `joulemesh`)."""
    parts = module.split(".")
    two = ".".join(parts[:2])
    return two if two in PLACE else parts[0]


def imports(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute module) of every import, inside functions too, but not for type checkers."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield from imports(other, package)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            else:
                base = node.module or ""
            yield node.lineno, base
            if base == "joulemesh":
                yield from ((node.lineno, f"joulemesh.{alias.name}") for alias in node.names)
        else:
            yield from imports(node, package)


def imported(path: Path) -> list[tuple[int, str]]:
    package = ".".join(["joulemesh", *path.relative_to(HOME).parts[:-1]])
    return list(imports(ast.parse(path.read_text("utf-8")), package))


def test_the_import_reader_sees_what_it_should() -> None:
    source = """
import joulemesh.cli.main
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from joulemesh.views import console
def late():
    from joulemesh import planning
    from ..world import links
    from . import sibling
"""
    found = [name for _, name in imports(ast.parse(source), "joulemesh.data")]
    assert found == [
        "joulemesh.cli.main",
        "typing",
        "joulemesh",
        "joulemesh.planning",
        "joulemesh.world",
        "joulemesh.data",
    ]


def test_every_module_stands_in_a_known_room() -> None:
    unknown = {room_of(path) for path in modules()} - set(PLACE) - {"__init__"}
    assert not unknown


@pytest.mark.parametrize("room", [room for rooms in ORDER for room in rooms])
def test_a_room_imports_only_rooms_above_it(room: str) -> None:
    """Imports inside functions count; those for type checkers do not."""
    wrong = []
    for path in modules():
        if room_of(path) != room:
            continue
        for line, name in imported(path):
            above, _, inside = name.partition(".")
            other = room_named(inside)
            if above != "joulemesh" or other not in PLACE:
                continue
            if PLACE[other] > PLACE[room]:
                wrong.append(f"{path.relative_to(HOME)}:{line} imports {name}")
    assert not wrong


@pytest.mark.parametrize("room", NEVER_JAX)
def test_rooms_before_training_never_name_jax(room: str) -> None:
    wrong = [
        f"{path.relative_to(HOME)}:{line} imports {name}"
        for path in modules()
        if room_of(path) == room
        for line, name in imported(path)
        if name.split(".")[0] in HEAVY
    ]
    assert not wrong


@pytest.mark.parametrize(
    "room",
    [
        "fading",
        "data",
        "theory",
        "world",
        "aggregation",
        "planning",
        "training",
        "training.jax",
        "setup",
        "views",
        "cli",
    ],
)
def test_every_room_says_what_it_is_in_three_lines(room: str) -> None:
    doc = importlib.import_module(f"joulemesh.{room}").__doc__
    assert doc is not None
    assert len(doc.strip().splitlines()) <= 3
    assert "In:" in doc
    assert "Out:" in doc
    assert "May not know:" in doc


# Rooms that have been put in order; others follow.
TIDY = ("setup", "training")
MOST_LINES, MOST_PARAMETERS = 350, 8


def parameters(function: ast.FunctionDef) -> int:
    every = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
    return sum(one.arg not in ("self", "cls") for one in every)


@pytest.mark.parametrize("room", TIDY)
def test_modules_and_signatures_stay_small(room: str) -> None:
    wrong = []
    for path in (HOME / room).rglob("*.py"):
        text, name = path.read_text("utf-8"), path.relative_to(HOME).as_posix()
        if len(text.splitlines()) > MOST_LINES:
            wrong.append(f"{name} has {len(text.splitlines())} lines")
        wrong += [
            f"{name}: {node.name} has {parameters(node)} parameters"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef) and parameters(node) > MOST_PARAMETERS
        ]
    assert not wrong


def test_the_engine_knows_nothing_of_plans_and_scenarios() -> None:
    """What its shelf may import: a learner is given a model, data, a schedule and a machine."""
    known = {"data", "errors", "files", "machine", "models", "own_code", "printable", "training"}
    wrong = [
        f"{path.relative_to(HOME)}:{line} imports {name}"
        for path in (HOME / "training" / "jax").rglob("*.py")
        for line, name in imported(path)
        if name.startswith("joulemesh.") and name.split(".")[1] not in known
    ]
    assert not wrong


def loaded(code: str, *arguments: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after some code."""
    script = f"import sys\n{code}\nprint('LOADED', *{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stdout.rsplit("LOADED", 1)[1].split())


RUN = """
from joulemesh.cli.main import main
sys.argv = ["joulemesh", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""


@pytest.mark.parametrize(
    "code",
    [
        "import joulemesh",
        "import joulemesh.planning, joulemesh.planning.plan, joulemesh.data, joulemesh.models",
        "import joulemesh; joulemesh.plan(joulemesh.Scenario.preset('paper')).to_json()",
        "import joulemesh.methods" if (HOME / "methods" / "__init__.py").exists() else "pass",
    ],
)
def test_importing_and_planning_load_no_jax(code: str) -> None:
    assert not loaded(code) & HEAVY


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("plan", "--json", "--set", "network.fading=rayleigh"),
        ("plan", "--set", "training.local_round=epoch", "--set", "budget.energy_j=1000.0",
         "--set", "budget.deadline_s=9.0"),
        ("schema",),
    ],
)  # fmt: skip
def test_commands_that_do_not_train_load_no_jax(arguments: tuple[str, ...]) -> None:
    assert not loaded(RUN, *arguments) & HEAVY


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not loaded("import joulemesh") & {"numpy", "scipy", "pydantic", "matplotlib", "sklearn"}
    assert not loaded(RUN, "plan") & {"matplotlib", "sklearn", "pooch"}
