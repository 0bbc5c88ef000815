"""Every page's code runs, prints what the page shows, and every link leads somewhere.

`tools/reading.py` says how blocks are read; `python -m tools.shown` writes what is shown anew.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.reading import BLOCK, DOCS, PAGES, ROOT, Reader, agrees, at_home, blocks, commands
from tools.shown import renewed, rewrite

# Made by tools/reference.py when the site is built.
MADE = {"reference/cli.md", "reference/scenario.md"}
# They compile much, for what others show.
SLOW = (
    "README",
    "publish",
    "losses",
    "measure",
    "tutorial",
    "report",
    "notebooks",
    "sweep",
    "tune",
    "own-method",
    "model-and-data",
    "pytorch",
    "equal-energy",
    "worlds",
    "add-your-own",
    "add-a-metric",
    "add-a-policy",
    "deploy",
    "measure-links",
    "export",
    "python",
)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Kept runs and programs: pages that say the same train it once."""
    return tmp_path_factory.mktemp("cache")


def compare(expected: str, printed: str, where: str, learned: bool) -> None:
    if expected.strip():
        said = f"{where} prints\n{printed}\n`python -m tools.shown` writes it into the page"
        assert agrees(expected, printed, learned=learned), said


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])
        for page in PAGES
    ],
)
def test_the_page_does_what_it_says(page: Path, cache: Path, tmp_path: Path) -> None:
    with at_home(tmp_path, cache):
        reader = Reader(page, compare)
        for block in blocks(page.read_text("utf-8")):
            reader.follow(block)


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


@pytest.mark.parametrize("folder", ["comparison", "reproduction", "decisions"])
def test_a_folder_of_results_links_all_its_pages(folder: str) -> None:
    first = (DOCS / folder / "README.md").read_text("utf-8")
    linked = {one or other for one, other in LINK.findall(first)}
    pages = {page.name for page in (DOCS / folder).glob("*.md")} - {"README.md"}
    assert pages <= {link.partition("#")[0] for link in linked}


def test_code_fits_a_laptop() -> None:
    """What ``test_site`` sees in a browser, where there is none: 101 letters fit 1280 px."""
    wide = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in sorted(DOCS.rglob("*.md"))
        for block in blocks(page.read_text("utf-8"))
        if block.kind not in ("math", "mermaid")
        for line in block.text.splitlines()
        if len(line) > 100
    ]
    assert wide == []


def test_every_page_is_in_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [
        name for page in DOCS.rglob("*.md") if (name := str(page.relative_to(DOCS))) not in site
    ]
    assert not missing


def test_the_readme_installs_what_its_commands_need() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    (line,) = re.findall(r"pip install -c constraints.txt '\.\[([a-z,]+)\]'", text)
    needs = dict.fromkeys(("deploy", "node", "watch"), "deploy") | {"studio": "studio"}
    typed = re.findall(r"\bjoulemesh ([a-z]+)\b", text)
    assert {"deploy", "studio", "run"} <= set(typed)
    assert {needs.get(command, "jax") for command in typed} | {"tools"} == set(line.split(","))


def test_blocks_are_read_as_they_are_meant() -> None:
    page = '```toml title="a.toml"\nseed = 1\n```\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n'
    file, code, text = blocks(page)
    assert (file.kind, file.title, file.text) == ("toml", "a.toml", "seed = 1\n")
    assert (code.kind, code.shown, text.kind) == ("python", text, "text")
    assert page[slice(*text.span)] == "1\n"
    typed = "$ joulemesh plan \\\n    --json\n{…\n$ ls  # here\n"
    assert [*commands(typed)] == [
        ("joulemesh plan \\\n    --json", "joulemesh plan --json", "{…\n"),
        ("ls  # here", "ls  # here", ""),
    ]


def test_what_needs_a_package_that_is_not_here_is_passed_over(tmp_path: Path) -> None:
    page = "<!-- needs no_such_package -->\n```python\nraise ValueError\n```\n"
    (block,) = blocks(page)
    assert block.needs == "no_such_package"
    Reader(tmp_path / "page.md", compare).follow(block)
    (block,) = blocks(page.replace("no_such_package", "json"))
    with pytest.raises(ValueError):
        Reader(tmp_path / "page.md", compare).follow(block)


def test_what_a_file_of_the_page_imports_is_needed() -> None:
    files = ("from torch import nn", "from net import Net", "import numpy")
    page = "".join(
        f'```python title="{name}.py"\n{text}\n```\n'
        for name, text in zip(("net", "train", "data"), files, strict=True)
    )
    typed = ("python data.py", "python data.py && python train.py", "joulemesh run net.py:Net")
    page += "".join(f"```console\n$ {line}\n```\n" for line in typed)
    assert [block.needs for block in blocks(page)] == ["", "", "", "", "torch", "torch"]


@pytest.mark.parametrize(
    ("on_page", "printed", "exactly", "learned"),
    [
        ("energy 339 J\n", "energy 339 J\n", True, True),
        ("energy 339 J\n", "energy 340 J\n", False, True),
        ("energy 339 J\n", "energy 500 J\n", False, False),
        ("a  95.1 ± 0.4\n", "a 95.3 ± 1.9\n", False, True),
        ("vs +0.3\n", "vs −1.2\n", False, True),
        ("progress ▁▂█ x\n", "progress ▁▁▂▃ x\n", False, True),
        ("9 device-steps in 1.2 s (7,000 per second once compiled)\n",
         "9 device-steps in 31 s (80 per second once compiled)\n", False, True),
        ("accuracy 0.95\n", "loss 0.95\n", False, False),
        ("accuracy 0.95\n", "accuracy 0.95\nmore\n", False, False),
        ("…\nb 1\n…\n", "a\nb 1\nc\n", True, True),
        ("b 1 … 3\n", "b 1 2 3\n", True, True),
    ],
)  # fmt: skip
def test_what_is_shown_agrees_with_what_is_printed(
    on_page: str, printed: str, exactly: bool, learned: bool
) -> None:
    assert agrees(on_page, printed) == exactly
    assert agrees(on_page, printed, learned=True) == learned


@pytest.mark.parametrize(
    ("on_page", "printed", "wanted"),
    [
        ("a 1\nb 2\n", "a 3\nb 4\nc 5\n", "a 3\nb 4\nc 5\n"),
        ("…\nb 2\n…\n", "a 3\nb 4\nc 5\n", "…\nb 4\n…\n"),
        ("energy 1 … of 2\n", "energy 3 J of 2\n", "energy 3 J of 2\n"),
        ("energy … of 2\n", "energy 3 J of 2\n", "energy … of 2\n"),
        ("error: old\n", "error: new\n", "error: new\n"),
        ("", "anything\n", ""),
    ],
)
def test_what_is_shown_is_renewed(on_page: str, printed: str, wanted: str) -> None:
    assert renewed(on_page, printed) == wanted


def test_a_page_is_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (
        "```console\n$ echo 1  # here\n0\n$ pip install x\nnothing\n```\n\n- a list\n\n"
        "  ```python\n  print(2)\n  ```\n\n  ```text\n  0\n  ```\n"
    )
    page.write_text(text, "utf-8")
    assert rewrite(page, tmp_path / "cache")
    now = text.replace("here\n0\n", "here\n1\n").replace("  0\n", "  2\n")
    assert page.read_text("utf-8") == now
    assert not rewrite(page, tmp_path / "cache")
