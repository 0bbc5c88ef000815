"""The rooms of the package, read from its code: their order, what each imports and may not know.

`python -m tools.house` draws docs/figures/house.svg and docs/figures/house-run.svg anew (see
`tools.house_pictures`); `python -m tools.house --imports` prints who imports whom, and how often.
"""

from __future__ import annotations

__all__ = [
    "HOME",
    "LINE",
    "ORDER",
    "Import",
    "imports",
    "imports_of",
    "modules",
    "room_of",
    "rooms_imported",
    "says",
]

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import joulemesh

HOME = Path(joulemesh.__file__).parent

# Rooms in the order in which data flow; those of one line may import each other. The bounds are
# formulas that planning uses; measuring their constants takes training, hence a room of its own.
ORDER = (
    (
        "_version",
        "base",
        "registries",
        "tables",
        "tolerance",
    ),
    ("fading", "meters", "templates"),
    ("scenario",),
    ("data", "metrics", "models"),
    ("world",),
    ("ledger",),
    ("aggregation",),
    ("theory",),
    ("planning",),
    ("training",),
    ("deploy",),
    ("testing", "theory.measured"),
    ("methods",),
    ("calibration", "study", "views"),
    ("studio",),
    ("cli",),
    ("__main__",),
)
LINE = {room: line for line, rooms in enumerate(ORDER) for room in rooms}

# A project to start from is the user's code, which comes in by the front door.
_OUTSIDE = HOME / "templates" / "project"


@dataclass(frozen=True)
class Import:
    """One import of a module.

    Attributes:
        line: where it stands.
        name: of the module, absolute; of what is taken from it too.
        door: did it come through the front door, `import joulemesh`?
    """

    line: int
    name: str
    door: bool = False


def modules() -> list[Path]:
    """Every module of the package.

    >>> HOME / "base" / "errors.py" in modules()
    True
    """
    return sorted(path for path in HOME.rglob("*.py") if not path.is_relative_to(_OUTSIDE))


def room_of(module: Path | str) -> str:
    """The room of a module, given as its file or by its name below `joulemesh`.

    >>> room_of("theory.bounds"), room_of("theory.measured.gap"), room_of(HOME / "base/errors.py")
    ('theory', 'theory.measured', 'base')
    """
    if isinstance(module, Path):
        module = ".".join(module.relative_to(HOME).with_suffix("").parts)
    parts = module.split(".")
    two = ".".join(parts[:2])
    return two if two in LINE else parts[0]


@cache
def _front_door() -> dict[str, str]:
    """Names that `import joulemesh` offers, and the modules that they come from."""
    tree = ast.parse((HOME / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_HOME":
            homes: dict[str, str] = ast.literal_eval(node.value)
            return homes
    raise LookupError("joulemesh/__init__.py has no _HOME")


def imports(tree: ast.AST, package: str) -> Iterator[Import]:
    """Every import, inside functions too, but not for type checkers.

    Args:
        tree: of a module.
        package: that it stands in, absolute.

    Yields:
        Modules, and what is taken from them; what is taken from `joulemesh` itself, as
        ``joulemesh.plan`` or ``from joulemesh import plan``, by the module that it comes from.
    """
    doors: set[str] = set()
    for node in _at_run_time(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
                if alias.name == "joulemesh":
                    doors.add(alias.asname or alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield Import(node.lineno, base)
            if base.split(".")[0] == "joulemesh":
                names = [f"{base}.{alias.name}" for alias in node.names]
                yield from (_through_the_door(node.lineno, name) for name in names)
    for node in ast.walk(tree) if doors else ():
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in doors:
            yield _through_the_door(node.lineno, f"joulemesh.{node.attr}")


def _through_the_door(line: int, name: str) -> Import:
    home = _front_door().get(name.removeprefix("joulemesh."))
    return Import(line, name) if home is None else Import(line, home, door=True)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *([node.module] if node.module else [])])


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes except those that only a type checker looks at."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield other
                yield from _at_run_time(other)
        else:
            yield node
            yield from _at_run_time(node)


def imports_of(path: Path) -> list[Import]:
    """Every import of a module of the package.

    >>> "joulemesh.base.errors" in {found.name for found in imports_of(HOME / "base" / "lock.py")}
    True
    """
    package = ".".join(["joulemesh", *path.relative_to(HOME).parts[:-1]])
    return list(imports(ast.parse(path.read_text("utf-8")), package))


def rooms_imported(path: Path) -> Iterator[tuple[Import, str]]:
    """Imports of a module from rooms of the house, each with its room."""
    for found in imports_of(path):
        above, _, inside = found.name.partition(".")
        room = room_of(inside)
        if above == "joulemesh" and room in LINE:
            yield found, room


@cache
def counted() -> Counter[tuple[str, str]]:
    """How many modules of one room import another, by (importing, imported)."""
    pairs: Counter[tuple[str, str]] = Counter()
    for path in modules():
        own = room_of(path)
        pairs.update({(own, room) for found, room in rooms_imported(path) if not found.door})
    return pairs


def says(room: str) -> dict[str, str]:
    """What a room says of itself: the parts of its docstring, by ``In``, ``Out``, ``May not know``.

    >>> sorted(says("world"))
    ['In', 'May not know', 'Out']
    """
    path = HOME.joinpath(*room.split("."), "__init__.py")
    doc = ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
    text = " ".join(doc.split("\n\n")[0].split())
    parts = re.split(r"\b(In|Out|May not know): ", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def main() -> None:
    """Draw the pictures, or print the imports."""
    if "--imports" in sys.argv[1:]:
        for (own, other), count in sorted(
            counted().items(), key=lambda item: LINE.get(item[0][0], 0)
        ):
            print(f"{own} imports {other} in {count} modules")
        return
    from tools.house_pictures import draw

    draw()


if __name__ == "__main__":
    main()
