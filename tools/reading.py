"""Pages that are followed: their commands are typed, their code is run, their files are written.

Blocks of a page run in order, in one folder. A block with a title is a file of that name; `$` lines
are commands, and what follows them is what they print; a `text` block right after a `python` block
is what that prints. `…` stands for anything in a line, and alone on a line for any lines. A block
behind `<!-- needs NAME -->`, or that names a file of the page which imports an optional package, is
passed over where there is no such package.

Figures of a plan must agree to the digit. What was learned depends on the processor in its last
digits, so of a command that trains figures may differ by a quarter; seconds of the wall clock and
half-widths of intervals must only be there.
"""

from __future__ import annotations

__all__ = ["PAGES", "Block", "Reader", "agrees", "at_home", "blocks", "commands", "is_typed"]

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import joulemesh
from joulemesh import registries
from joulemesh.cli.main import main as joulemesh_main
from joulemesh.methods.base import METHODS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "tutorial.md",
    DOCS / "own-method.md",
    *sorted((DOCS / "how-to").glob("*.md")),
    *sorted((DOCS / "explanation").glob("*.md")),
    DOCS / "reference" / "python.md",
]
# What installs, serves for ever, needs several machines or trains for an hour is tried elsewhere.
NOT_HERE = (
    ".venv/",
    "git",
    "joulemesh studio",
    "make",
    "pip",
    "python3 -m venv",
    "sbatch",
    "scp",
    "srun",
    "ssh",
    "tensorboard",
)
ELSEWHERE = ("--hosts", "--coordinator", "reproduce all")
OPTIONAL = ("torch",)
WIDTH = 88
TRAINS = re.compile(r"joulemesh( --\w+)* (run|compare|estimate|bounds|doctor|reproduce)\b")
BLOCK = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)

# Seconds of the wall clock, and small drawings of curves.
_CLOCK = re.compile(r"in [\d.,]+ (?:m?s|min)\b(?: [\d.]+ s)?(?: \([\d,.]+ per second[^)]*\))?")
_DRAWN = re.compile(r"[▁▂▃▄▅▆▇█]+")
_NUMBER = re.compile(r"(?<![\w.])[+−-]?\d[\d,]*(?:\.\d+)?")
_SLACK = 0.25


@dataclass(frozen=True)
class Block:
    """A block of code on a page.

    Attributes:
        kind: the language that it names.
        title: the file that it is, or nothing.
        text: without indentation.
        line: where it begins.
        span: of its text within the page.
        indent: spaces before each line.
        shown: for a python block, the block that follows and says what is printed.
        needs: the package without which it cannot be tried.
    """

    kind: str
    title: str
    text: str
    line: int
    span: tuple[int, int]
    indent: str
    shown: Block | None
    needs: str = ""


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    before = len(page)
    for match in reversed([*BLOCK.finditer(page)]):
        title = re.search(r'title="([^"]+)"', match[3])
        needs = re.search(r"<!-- needs ([\w.]+) -->\s*\Z", page[: match.start()])
        after = found[-1] if found else None
        near = after is not None and after.kind == "text" and not page[match.end() : before].strip()
        found.append(
            Block(
                match[2],
                title[1] if title else "",
                textwrap.dedent(match[4]),
                page.count("\n", 0, match.start()) + 1,
                match.span(4),
                match[1],
                after if near else None,
                needs[1] if needs else "",
            )
        )
        before = match.start()
    return _with_needs(found[::-1])


def _with_needs(found: list[Block]) -> list[Block]:
    """Blocks that name a file of the page need what the file imports, itself or by another one."""
    files = {block.title: block.text for block in found if block.title.endswith(".py")}
    needs: dict[str, str] = {}
    for title, text in files.items():
        imported = set(re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE))
        known = {Path(name).stem: package for name, package in needs.items()}
        known |= {name: name for name in OPTIONAL}
        needs.update((title, known[name]) for name in imported & set(known))

    def need(block: Block) -> str:
        if block.needs or block.title:
            return block.needs
        return next((package for title, package in needs.items() if title in block.text), "")

    return [replace(block, needs=need(block)) for block in found]


def commands(text: str) -> Iterator[tuple[str, str, str]]:
    """(command as typed, command in one line, what it prints) of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        typed = re.match(r"(?:[^\n]*\\\n)*[^\n]*\n?", part)
        assert typed is not None
        line = re.sub(r"\\\n\s*", "", typed[0]).strip()
        yield typed[0].rstrip("\n"), line, part[typed.end() :]


def agrees(shown: str, printed: str, *, learned: bool = False) -> bool:
    """Whether what was printed fits what a page shows.

    Args:
        shown: on the page.
        printed: today.
        learned: whether its figures may differ a little.

    >>> agrees("a … c\\n…\\nz\\n", "a b c\\n1\\n2\\nz\\n"), agrees("a\\n", "a\\nb\\n")
    (True, False)
    >>> agrees("accuracy 0.951\\n", "accuracy 0.949\\n", learned=True)
    True
    """
    if learned:
        shown, printed = (_CLOCK.sub("in time", _DRAWN.sub("█", text)) for text in (shown, printed))
    wanted: list[str] = []
    pattern = ""
    for line in shown.rstrip().split("\n"):
        if line.strip() == "…":
            pattern += "(?:.*\n)*?"
            continue
        for part in re.split(r"(…)", line.rstrip()):
            pattern += ".*" if part == "…" else _literal(part, learned, wanted)
        pattern += "[ \t]*\n"
    found = re.fullmatch(pattern, printed.rstrip() + "\n")
    return found is not None and all(map(_near, wanted, found.groups()))


def _literal(text: str, learned: bool, wanted: list[str]) -> str:
    """A pattern for a part of a line; figures that may differ are groups, listed in ``wanted``."""
    if not learned:
        return re.escape(text)
    pattern, end = "", 0
    for number in _NUMBER.finditer(text):
        pattern += re.sub(r"(?:\\ )+", " +", re.escape(text[end : number.start()]))
        alone = number[0][0] in "+−" or text[: number.start()].rstrip().endswith("±")
        wanted.append("" if alone else number[0])
        pattern += r"([+−-]?\d[\d,]*(?:\.\d+)?)"
        end = number.end()
    return pattern + re.sub(r"(?:\\ )+", " +", re.escape(text[end:]))


def _near(wanted: str, found: str) -> bool:
    if not wanted:
        return True
    first, second = (float(number.replace(",", "")) for number in (wanted, found))
    return abs(first - second) <= _SLACK * max(abs(first), abs(second))


Compare = Callable[[str, str, str, bool], None]


def is_typed(line: str) -> bool:
    """Whether a command can be tried here."""
    return not line.startswith(NOT_HERE) and not any(word in line for word in ELSEWHERE)


class Reader:
    """Somebody who types what a page says, in the folder where they are.

    Args:
        page: its name, for messages.
        compare: called with what is shown, what is printed, where, and whether it was learned.
    """

    def __init__(self, page: Path, compare: Compare) -> None:
        self.page, self.compare = page, compare
        self.names: dict[str, object] = {"__name__": "__main__"}

    def follow(self, block: Block) -> None:
        """Do what a block says."""
        where = f"{self.page.name}, line {block.line}"
        if block.needs and importlib.util.find_spec(block.needs) is None:
            return
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, "utf-8")
        elif block.kind == "console":
            for _, line, shown in commands(block.text):
                self.type(line, shown, where)
        elif block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(block.text, where, "exec"), self.names)
            shown = block.shown.text if block.shown is not None else ""
            self.compare(shown, out.getvalue(), where, "joulemesh.run" in block.text)
        elif block.kind == "toml":
            joulemesh.Scenario(**tomllib.loads(block.text))

    def type(self, line: str, shown: str, where: str) -> None:
        """Type a command."""
        words = shlex.split(line, comments=True)
        if not is_typed(line):
            return
        if words[0] == "joulemesh" and not {"|", "||", ">", "&&"} & {*words}:
            code, out, err = _in_process(words)
        else:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
            code, out, err = done.returncode, done.stdout, done.stderr
        expected = 2 if shown.startswith("error: ") else 0
        if code != expected:
            raise AssertionError(f"{where}: {line} ended with {code}\n{out}{err}")
        if expected:  # a refusal is one line, however the page breaks it
            shown, out = " ".join(shown.split()), err
        self.compare(shown, out, f"{where}: {line}", TRAINS.search(line) is not None)


def _in_process(words: list[str]) -> tuple[int, str, str]:
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = words
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            joulemesh_main()
        code: object = 0
    except SystemExit as end:
        code = end.code
    finally:
        sys.argv = before
    return code if isinstance(code, int) else int(code is not None), out.getvalue(), err.getvalue()


@contextlib.contextmanager
def at_home(folder: Path, cache: Path) -> Iterator[None]:
    """Stand in a folder, in a terminal of known width; leave nothing of a page's code behind."""
    before, path, modules, where = dict(os.environ), [*sys.path], {*sys.modules}, Path.cwd()
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ |= {"XDG_CACHE_HOME": str(cache), "COLUMNS": str(WIDTH), "TERM": "dumb"}
    sys.path.insert(0, str(folder))
    os.chdir(folder)
    try:
        with registries.scoped(), METHODS.scoped():
            yield
    finally:
        os.chdir(where)
        sys.path[:] = path
        os.environ.clear()
        os.environ |= before
        for name in {*sys.modules} - modules:
            if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]
