"""The house's rule: a room imports only rooms that stand above it, and planning never loads JAX."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from tools.house import (
    HOME,
    LINE,
    ORDER,
    imports,
    imports_of,
    modules,
    room_of,
    rooms_imported,
    says,
)

LATE = ("data", "metrics", "models")  # they load JAX when a function is first asked for
NEVER_JAX = [room for rooms in ORDER[: LINE["planning"] + 1] for room in rooms if room not in LATE]
PACKAGES = [room for room in LINE if HOME.joinpath(*room.split("."), "__init__.py").exists()]

# What a notebook shows, a figure, a folder: made in rooms below. An object whose method offers one
# calls it through the front door.
UPWARD = {
    ("planning/plan.py", "joulemesh.views.notebook"),
    ("scenario/scenario.py", "joulemesh.views.notebook"),
}
HEAVY = {"jax", "jaxlib", "optax", "flax", "orbax", "torch", "tensorflow"}


def test_the_import_reader_sees_what_it_should() -> None:
    source = """
import joulemesh.cli.main
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from joulemesh.views import terminal
def late():
    from joulemesh import planning
    from ..world import links
    from . import sibling
"""
    found = [one.name for one in imports(ast.parse(source), "joulemesh.data")]
    assert found == [
        "joulemesh.cli.main",
        "typing",
        "joulemesh",
        "joulemesh.planning",
        "joulemesh.world",
        "joulemesh.world.links",
        "joulemesh.data",
        "joulemesh.data.sibling",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "import joulemesh\ndef late():\n    return joulemesh.run(1)",
        "def late():\n    import joulemesh as j\n    return j.run(1)",
        "from joulemesh import run",
    ],
)
def test_the_import_reader_sees_through_the_front_door(source: str) -> None:
    seen = [one.name for one in imports(ast.parse(source), "joulemesh.data") if one.door]
    assert seen == ["joulemesh.study.run"]


def test_every_module_stands_in_a_known_room() -> None:
    unknown = {room_of(path) for path in modules()} - set(LINE) - {"__init__"}
    assert not unknown


def test_a_room_imports_only_rooms_above_it() -> None:
    """Imports inside functions and calls through the front door count; those for types do not."""
    wrong = {
        (path.relative_to(HOME).as_posix(), found.name)
        for path in modules()
        for found, room in rooms_imported(path)
        if room_of(path) in LINE and LINE[room] > LINE[room_of(path)]
    }
    assert wrong == UPWARD


@pytest.mark.parametrize("room", NEVER_JAX)
def test_rooms_before_training_never_name_jax(room: str) -> None:
    wrong = [
        f"{path.relative_to(HOME)}:{found.line} imports {found.name}"
        for path in modules()
        if room_of(path) == room
        for found in imports_of(path)
        if found.name.split(".")[0] in HEAVY
    ]
    assert not wrong


@pytest.mark.parametrize("room", PACKAGES)
def test_no_room_imports_what_it_may_not_know(room: str) -> None:
    """Rooms named in double backticks; at least one is, and each stands in the house."""
    unknown_to = set(re.findall(r"``([a-z_.]+)``", says(room)["May not know"]))
    assert unknown_to
    assert unknown_to <= set(LINE) - {room}
    wrong = [
        f"{path.relative_to(HOME)}:{found.line} imports {found.name}"
        for path in modules()
        if room_of(path) == room
        for found, other in rooms_imported(path)
        if other in unknown_to and (path.relative_to(HOME).as_posix(), found.name) not in UPWARD
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
        "import joulemesh; joulemesh.plan(joulemesh.Scenario())._repr_html_()",
        "import joulemesh.study.comparison, joulemesh.study.result",
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
    assert not loaded("import joulemesh") & {"numpy", "scipy", "pydantic", "matplotlib"}
    assert not loaded(RUN, "--version") & {"numpy", "pydantic", "asyncio"}
    unused = {"matplotlib", "jax", "pandas", "pooch", "asyncio", "tarfile"}  # readers, networks
    assert not loaded(RUN, "plan") & unused


def compared_by_value(source: str) -> list[str]:
    """Dataclasses with a field that is an array, and with ``==`` of their own."""
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any(
            ast.unparse(one).startswith("dataclass") and "eq=False" not in ast.unparse(one)
            for one in node.decorator_list
        )
        and any(
            isinstance(field, ast.AnnAssign)
            and re.search(r"Array\b|^Ints\b", ast.unparse(field.annotation))
            and "Callable" not in ast.unparse(field.annotation)
            for field in node.body
        )
    ]


def test_what_holds_arrays_is_not_compared_by_value() -> None:
    """Two arrays that are compared give an array, of which no one truth can be had."""
    both = "@dataclass(frozen=True{})\nclass Held:\n    gains: FloatArray | None = None"
    assert compared_by_value(both.format("")) == ["Held"]
    assert compared_by_value(both.format(", eq=False")) == []
    found = {path: compared_by_value(path.read_text("utf-8")) for path in modules()}
    assert not {path.name: names for path, names in found.items() if names}
