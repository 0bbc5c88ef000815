"""The size of the house, measured: the table in docs/explanation/house.md.

`python -m tools.house_table` prints it, `--write` puts it on the page. Code lines are those that
hold code: neither blank, nor comment, nor docstring. What an entry needs are the package's own
modules that importing it loads. What a run passes are the functions of the package that
`joulemesh run` calls for 6 devices and 20 iterations, counted by a profile.
"""

from __future__ import annotations

__all__ = ["FORMS", "measure", "table"]

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path
from typing import Any

from tools.house import HOME, LINE, imports_of, modules, room_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "explanation" / "house.md"
BEGIN, END = "<!-- measured -->", "<!-- /measured -->"

# One type for each fact is the aim: these classes are the forms that a fact has had.
FORMS = {
    "a cost": (
        "LinkCosts OnAir Prices Sent Ledger Timeline Ledgered Account MethodAccount Demand Purse "
        "Pricing Price Tariff Cast Tally Costs Priced"
    ),
    "a run's outcome": "ChunkReport Reports Trace Record Entry Point Curve Outcome",
    "a container of results": "Result WorldsResult Comparison ComparisonWorlds Sweep Tuning",
    "the options of a run": "Order Before _RunOptions RunOptions Asked RunRequest",
}

# Before the redesign: what this command printed for commit 836ca26.
BEFORE = {
    "lines of `src`": 104_823,
    "code lines of `src`": 66_027,
    "modules": 718,
    "rooms": 30,
    "own modules that `methods.fedavg` needs": 160,
    "own modules that `study.run` needs": 252,
    "functions that `joulemesh run` passes": 1_027,
    "files that `joulemesh run` passes": 198,
    "rooms that `joulemesh run` passes": 16,
    "imports per module": 5.5,
    "class names with two or more meanings": 68,
    "lines of tests": 60_394,
    "forms of a cost": 18,
    "forms of a run's outcome": 8,
    "forms of a container of results": 5,
    "forms of the options of a run": 5,
}
TARGET = {
    "lines of `src`": "≤ 65,000",
    "code lines of `src`": "≤ 42,000",
    "modules": "≤ 330",
    "rooms": "≤ 18",
    "own modules that `methods.fedavg` needs": "≤ 40",
    "own modules that `study.run` needs": "≤ 90",
    "functions that `joulemesh run` passes": "≤ 450",
    "files that `joulemesh run` passes": "≤ 90",
    "rooms that `joulemesh run` passes": "≤ 11",
    "imports per module": "≤ 4",
    "class names with two or more meanings": "≤ 5",
    "lines of tests": "≤ 42,000",
    "forms of a cost": "2",
    "forms of a run's outcome": "2",
    "forms of a container of results": "1",
    "forms of the options of a run": "1",
}

_NEEDS = "import sys, {0}; print(sum(name.split('.')[0] == 'joulemesh' for name in sys.modules))"
_PASSES = """
import inspect, json, sys, threading
from pathlib import Path
home, seen = sys.argv[1], set()
def note(frame, event, _):
    code = frame.f_code
    ours = event == "call" and code.co_filename.startswith(home)
    if ours and code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<"):
        seen.add((code.co_filename, code.co_qualname))
sys.setprofile(note)
threading.setprofile(note)
from joulemesh.cli.main import main
sys.argv = ["joulemesh", "run", "--set", "devices.count=6", "--set", "plan.iterations=20",
            "--out", sys.argv[2]]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
print("PASSED", json.dumps(sorted(seen)))
"""


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, nor comment, nor docstring.

    >>> code_lines('"What it is."\\n\\n# why\\nx = 1  # one\\ny = (\\n    2\\n)\\n')
    4
    """
    rows: set[int] = set()
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped and token.string.strip():
            rows.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                rows.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(rows)


def needs(module: str) -> int:
    """How many of the package's modules importing one of them loads."""
    done = subprocess.run(
        [sys.executable, "-c", _NEEDS.format(module)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def passed() -> list[tuple[str, str]]:
    """Files and functions that a small run calls."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _PASSES, str(HOME), str(Path(folder) / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return [(file, name) for file, name in json.loads(done.stdout.rsplit("PASSED", 1)[1])]


def measure(run: str = "joulemesh.study.run") -> dict[str, Any]:
    """All figures, by name.

    Args:
        run: the module that trains a scenario.
    """
    texts = {path: path.read_text("utf-8") for path in modules()}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    there = {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    ours = {_name(path) for path in texts}
    edges = sum(
        len({found.name for found in imports_of(path)} & ours - {_name(path)}) for path in texts
    )
    calls = passed()
    tests = list((ROOT / "tests").rglob("*.py"))
    return {
        "lines of `src`": sum(text.count("\n") for text in texts.values()),
        "code lines of `src`": sum(map(code_lines, texts.values())),
        "modules": len(texts),
        "rooms": sum((HOME / room).is_dir() for room in LINE),
        "own modules that `methods.fedavg` needs": needs("joulemesh.methods.fedavg"),
        "own modules that `study.run` needs": needs(run),
        "functions that `joulemesh run` passes": len(calls),
        "files that `joulemesh run` passes": len({file for file, _ in calls}),
        "rooms that `joulemesh run` passes": len(
            {room for file, _ in calls if (HOME / (room := room_of(Path(file)))).is_dir()}
        ),
        "imports per module": round(edges / len(texts), 1),
        "class names with two or more meanings": sum(many > 1 for many in classes.values()),
        "lines of tests": sum(path.read_text("utf-8").count("\n") for path in tests),
    } | {
        f"forms of {fact}": len(there.intersection(names.split())) for fact, names in FORMS.items()
    }


def _name(path: Path) -> str:
    parts = path.relative_to(HOME.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def table(found: dict[str, Any]) -> str:
    """The figures as a table: before the redesign, now, and where they should be."""
    rows = ["| | before | now | target |", "|---|---|---|---|"]
    rows += [f"| {name} | {BEFORE[name]:,} | {found[name]:,} | {TARGET[name]} |" for name in BEFORE]
    return "\n".join(rows)


def main() -> None:
    """Print the table, or write it on the page."""
    text = table(measure())
    if "--write" not in sys.argv:
        print(text)
        return
    page = PAGE.read_text("utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
