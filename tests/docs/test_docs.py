"""Every page's code runs, prints what the page shows, and every link leads somewhere.

Blocks of a page run in order, in one folder. A block with a title is a file of that name; `$` lines
are commands, and what follows them is what they print; a `text` block right after a `python` block
is what that prints. `…` stands for anything in a line, and alone on a line for any lines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import joulemesh
from joulemesh.cli.main import main
from joulemesh.methods import registry

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# Made by tools/reference.py when the site is built.
MADE = {"reference/cli.md", "reference/scenario.md"}
PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    DOCS / "tutorial.md",
    DOCS / "own-method.md",
    *sorted((DOCS / "how-to").glob("*.md")),
    *sorted((DOCS / "explanation").glob("*.md")),
]
# What installs, serves for ever, needs several machines or trains for an hour is tried elsewhere.
NOT_HERE = (
    ".venv/",
    "git",
    "make",
    "pip",
    "python3 -m venv",
    "sbatch",
    "srun",
    "ssh",
    "tensorboard",
)
ELSEWHERE = ("--hosts", "--coordinator", "reproduce all")
SLOW = ("own-method", "model-and-data", "equal-energy")  # they compile much, for what others show
WIDTH = "88"

BLOCK = re.compile(r"^( *)```(\w+)([^\n]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    kind: str
    title: str
    text: str
    line: int
    shown: str | None  # what a python block is said to print


def blocks(page: str) -> Iterator[Block]:
    found = list(BLOCK.finditer(page))
    for k, match in enumerate(found):
        title = re.search(r'title="([^"]+)"', match[3])
        after = found[k + 1] if k + 1 < len(found) else None
        follows = after and after[2] == "text" and not page[match.end() : after.start()].strip()
        yield Block(
            match[2],
            title[1] if title else "",
            textwrap.dedent(match[4]),
            page.count("\n", 0, match.start()) + 1,
            textwrap.dedent(after[4]) if after and follows else None,
        )


def commands(text: str) -> Iterator[tuple[str, str]]:
    """(command, what it prints) of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        joined = re.sub(r"\\\n\s*", "", part)
        line, _, shown = joined.partition("\n")
        yield line.strip(), shown


def agrees(shown: str, printed: str) -> bool:
    """Does what was printed fit what the page shows?

    >>> agrees("a … c\\n…\\nz\\n", "a b c\\n1\\n2\\nz\\n"), agrees("a\\n", "a\\nb\\n")
    (True, False)
    """
    pattern = ""
    for line in shown.rstrip().split("\n"):
        inside = ".*".join(re.escape(part.rstrip("\n")) for part in line.rstrip().split("…"))
        pattern += "(?:.*\n)*?" if line.strip() == "…" else inside + "[ \t]*\n"
    return re.fullmatch(pattern, printed.rstrip() + "\n") is not None


class Reader:
    """Somebody who types what a page says, in a folder of their own."""

    def __init__(self, page: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch):
        self.page, self.capsys, self.patch = page, capsys, patch
        self.names: dict[str, object] = {"__name__": "__main__"}

    def follow(self, block: Block) -> None:
        where = f"{self.page.name}, line {block.line}"
        if block.title:
            Path(block.title).parent.mkdir(parents=True, exist_ok=True)
            Path(block.title).write_text(block.text, "utf-8")
        elif block.kind == "console":
            for line, shown in commands(block.text):
                self.command(line, shown, where)
        elif block.kind == "python":
            exec(compile(block.text, where, "exec"), self.names)
            self.compare(block.shown or "", self.capsys.readouterr().out, where)
        elif block.kind == "toml":
            joulemesh.Scenario(**tomllib.loads(block.text))

    def command(self, line: str, shown: str, where: str) -> None:
        words = shlex.split(line, comments=True)
        if line.startswith(NOT_HERE) or any(word in line for word in ELSEWHERE):
            return
        if words[0] == "joulemesh" and not {"|", ">", "&&"} & {*words}:
            code, out, err = self.in_process(words)
        else:
            done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
            code, out, err = done.returncode, done.stdout, done.stderr
        expected = 2 if shown.startswith("error: ") else 0
        assert code == expected, f"{where}: {line} ended with {code}\n{out}{err}"
        if expected:  # a refusal is one line, however the page breaks it
            shown, out = " ".join(shown.split()), err
        self.compare(shown, out, f"{where}: {line}")

    def in_process(self, words: list[str]) -> tuple[int, str, str]:
        self.patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
        out, err = self.capsys.readouterr()
        code = end.value.code
        return code if isinstance(code, int) else int(code is not None), out, err

    def compare(self, shown: str, printed: str, where: str) -> None:
        if shown.strip():
            assert agrees(shown, printed), f"{where} prints\n{printed}"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept runs and programs: pages that say the same train it once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])
        for page in PAGES
    ],
)
def test_the_page_does_what_it_says(
    page: Path,
    cache: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    before = {*sys.modules}
    reader = Reader(page, capsys, monkeypatch)
    try:
        for block in blocks(page.read_text("utf-8")):
            reader.follow(block)
    finally:  # modules and methods of the page's own files
        for name in {*registry._METHODS} - {*registry._BUILT_IN}:
            del registry._METHODS[name]
        for name in {*sys.modules} - before:
            if str(tmp_path) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]


def slug(heading: str) -> str:
    """The anchor that MkDocs and GitHub give to a heading."""
    own = re.search(r"\{ #([\w-]+) \}", heading)
    if own:
        return own[1]
    return re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower()))


def anchors(page: Path) -> set[str]:
    return {slug(one) for one in re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)}


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_links_lead_somewhere(page: Path) -> None:
    text = BLOCK.sub("", page.read_text("utf-8"))
    for link in (one or other for one, other in LINK.findall(text)):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if target.is_relative_to(DOCS) and str(target.relative_to(DOCS)) in MADE:
            continue
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}"


def test_every_page_is_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [
        name for page in DOCS.rglob("*.md") if (name := str(page.relative_to(DOCS))) not in site
    ]
    assert not missing


def test_blocks_are_read_as_they_are_meant() -> None:
    page = '```toml title="a.toml"\nseed = 1\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n'
    file, code, shown = blocks(page)
    assert (file.kind, file.title, file.text) == ("toml", "a.toml", "seed = 1\n")
    assert (code.kind, code.shown, shown.kind) == ("python", "1\n", "text")
    typed = "$ joulemesh plan \\\n    --json\n{…\n$ ls  # here\n"
    assert [*commands(typed)] == [("joulemesh plan --json", "{…\n"), ("ls  # here", "")]
