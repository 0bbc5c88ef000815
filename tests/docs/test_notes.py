"""Citations of the notes lead to their sections, formulas can be shown, and named tests exist."""

from __future__ import annotations

import ast
import re
import subprocess
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.test_docs import anchors
from tools.formulas import FormulaError, formulas, mathml, on_page_content, on_page_markdown

ROOT = Path(__file__).parents[2]
NOTES = ROOT / "docs" / "explanation" / "notes.md"
READ = (".py", ".md", ".toml", ".yml", ".sh", ".cfg", ".js", ".html", ".cff")
CITED = re.compile(r"\bnotes:(?:\s|#)+([a-z0-9]+(?:-[a-z0-9]+)+)")
# Files that are not in the repository, and sections of the notes by number.
DANGLING = re.compile(
    r"\b(?:DESIGN|HOUSE|STYLE|DEPLOY)\b(?:\.md)?|\b[Nn]otes,? [A-G](?:\.\d+)*\b|\bpaper\.tex\b|"
    r"(?<![\w.])shared/|\b[A-G]\.\d+\.\d+\b|\b(?:by|of|in) the notes\b"
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def files() -> list[Path]:
    """The text files of the repository: tracked ones, or all of them in an unpacked sdist."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split("\n")  # fmt: skip
    folders = ("src", "tests", "tools", "benchmarks", "docs")
    paths = [ROOT / name for name in listed if name] or [
        path for folder in folders for path in (ROOT / folder).rglob("*")
    ]
    me = Path(__file__).resolve()
    return [
        p for p in paths if (p.suffix in READ or p.name == "Makefile") and p.is_file() and p != me
    ]


def cited(text: str) -> list[str]:
    return CITED.findall(text)


def test_every_citation_leads_to_a_section() -> None:
    known = anchors(NOTES)
    found = {
        (str(path.relative_to(ROOT)), one)
        for path in files()
        for one in cited(path.read_text("utf-8"))
    }
    assert len(found) > 25, "citations are no longer recognised"
    assert sorted((path, one) for path, one in found if one not in known) == []


def test_nothing_cites_a_file_that_is_not_here() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if DANGLING.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "names", "dangling"),
    [
        ("proved (notes: back-filling).", ["back-filling"], False),
        ("# harmonic (notes:\n    # water-filling)", ["water-filling"], False),
        ("notes: list[str]", [], False),
        ("see notes F.12", [], True),
        ('as n, see DESIGN "n and T"', [], True),
        ("its limit is harmonic (F.4.33)", [], True),
        ("suggested by the notes", [], True),
        ("Section V-B.3 and Theorem 4", [], False),
    ],
)
def test_citations_are_recognised(text: str, names: list[str], dangling: bool) -> None:
    assert cited(text) == names
    assert (DANGLING.search(text) is not None) == dangling


@cache
def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_the_tests_that_the_notes_name_exist() -> None:
    named = TEST.findall(NOTES.read_text("utf-8"))
    assert len(named) > 40
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (ROOT / path).is_file() or name not in functions(ROOT / path)
    ]
    assert missing == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_formulas_become_well_formed_mathml(page: Path) -> None:
    for tex, display in formulas(page.read_text("utf-8")):
        root = ElementTree.fromstring(mathml(tex, display=display))
        for node in root.iter():
            wanted = {"mfrac": 2, "msub": 2, "msup": 2, "munder": 2, "mover": 2, "msubsup": 3}
            assert len(node) == wanted.get(node.tag, len(node)), tex


def test_formulas_by_hand() -> None:
    assert mathml(r"\frac{a}{2}") == "<math><mfrac><mi>a</mi><mn>2</mn></mfrac></math>"
    assert mathml(r"x_i^2") == "<math><msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup></math>"
    index = "<mi>t</mi>"
    assert f"<msub><mo>∑</mo>{index}</msub>" in mathml(r"\sum_t x")
    assert f"<munder><mo>∑</mo>{index}</munder>" in mathml(r"\sum_t x", display=True)
    assert "<mtext>if&#160;so</mtext>" in mathml(r"\text{if so}")
    assert mathml("a < b").count("&lt;") == 1
    two = mathml(r"\begin{aligned} a &= b \\ &\le c \end{aligned}", display=True)
    assert [two.count(tag) for tag in ("<mtr>", "<mtd")] == [2, 4]


@pytest.mark.parametrize(
    "tex", [r"\frac{a}", r"\nosuch x", "{a", r"\left( a", "a # b", r"\begin{x}"]
)
def test_a_formula_that_cannot_be_shown_stops_the_build(tex: str) -> None:
    with pytest.raises(FormulaError, match="formula"):
        mathml(tex)


def test_pages_get_formulas_and_keep_code() -> None:
    page = on_page_markdown("```math\nx\n```\n\n```text\n$`y`$\n```\n")
    assert page.startswith('<div class="formula"><math display="block"><mi>x</mi></math></div>')
    html = "<p>$<code>a &lt; b</code>$, <code>c</code></p>"
    shown = on_page_content(html)
    assert "<mo>&lt;</mo>" in shown
    assert shown.endswith("</math>,</span> <code>c</code></p>")
