"""The pages that are made: every command, option and field is in them, and shown well."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

import joulemesh
from joulemesh.scenario import PRESETS, SECTIONS

TOOLS = Path(__file__).parents[2] / "tools"


def tool(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(f"docs_{name}", TOOLS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_every_command_and_option_is_in_the_reference() -> None:
    page = tool("reference").cli_page()
    for name, command in tool("reference").commands().items():
        part = page.split(f"## `joulemesh {name}`")[1].split("\n## ")[0]
        assert command.help.splitlines()[0] in part
        for option in command.params:
            if option.name != "help" and option.opts[0].startswith("--"):
                assert f"`{option.opts[0]}" in part, (name, option.opts)
        assert f"$ joulemesh {name}" in part


def test_every_field_is_in_the_reference() -> None:
    page = tool("reference").scenario_page()
    for name, section in SECTIONS.items():
        part = page.split(f"## `[{name}]`")[1].split("\n## ")[0]
        rows = [line for line in part.splitlines() if line.startswith("| `")]
        assert [row.split("`")[1] for row in rows] == list(section.model_fields)
    assert all(f"### {name}\n" in page for name in PRESETS)


NAMES = [name for name in joulemesh.__all__ if not name.startswith("__")]


def _has_doctest(thing: object) -> bool:
    return ">>> " in (inspect.getdoc(thing) or "")


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_in_the_reference_with_an_example(name: str) -> None:
    """An example of its own, or of the public function that gives it; doctests are run."""
    page = (TOOLS.parent / "docs" / "reference" / "python.md").read_text("utf-8")
    assert re.search(rf"^::: joulemesh\.{name}$", page, re.MULTILINE)
    thing = getattr(joulemesh, name)
    made_by = [
        one
        for one in (getattr(joulemesh, other) for other in NAMES)
        if inspect.isfunction(one)
        and re.search(rf"\b{name}\b", str(one.__annotations__.get("return")))
    ]
    assert _has_doctest(thing) or any(_has_doctest(one) for one in made_by)


def test_the_package_is_typed() -> None:
    assert Path(joulemesh.__file__).with_name("py.typed").is_file()
    hints = Path(joulemesh.__file__).read_text("utf-8").split("if TYPE_CHECKING:")[1]
    assert all(re.search(rf"import (.*, )?{name}\b", hints) for name in NAMES)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ('{"enum": ["none", "rayleigh"]}', "`none`, `rayleigh`"),
        ('{"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]}', "number > 0"),
        ('{"type": "array", "items": {"type": "integer"}}', "list of whole number"),
        ('{"anyOf": [{"type": "integer", "minimum": 1}, {"enum": ["longest"]}]}',
         "whole number ≥ 1 or `longest`"),
        ('{"anyOf": [{"type": "number"}, {"type": "string", "examples": ["5 min"]}]}',
         'number or `"5 min"`'),
        ('{"type": "integer", "minimum": 1, "maximum": 9007199254740992}', "whole number ≥ 1"),
    ],
)  # fmt: skip
def test_what_a_field_may_be(schema: str, words: str) -> None:
    assert tool("reference")._values(json.loads(schema)) == words


def test_doctests_become_examples() -> None:
    pytest.importorskip("griffe", reason="the extra docs is not installed")
    with_heading = tool("doctests").with_heading
    assert with_heading("Add.\n\n>>> 1 + 1\n2") == "Add.\n\nExamples:\n    >>> 1 + 1\n    2"
    assert with_heading("Quote >>> this.") == "Quote >>> this."


def test_console_blocks_are_copied_without_prompts_and_output() -> None:
    mark = tool("copying").on_page_content
    block = '<div class="language-console highlight"><pre><span></span><code>{}</code></pre></div>'
    typed = (
        '<span class="gp">$ </span>joulemesh<span class="w"> </span>plan &gt; &quot;a&quot; \\\n'
    )
    page = block.format(f"{typed}    --json\n<span class='go'>scheme tree</span>\n")
    assert 'data-copy="joulemesh plan &gt; &quot;a&quot; \\&#10;    --json"' in mark(page)
    assert mark(page).endswith(page.removeprefix('<div class="language-console highlight">'))
    other = page.replace("console", "python")
    assert mark(other) == other


@pytest.mark.parametrize(
    "name", ["copying", "figures_in_text", "reading", "records", "reference", "shown"]
)
def test_examples_of_the_tools_are_right(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"tools.{name}"))
    assert (found.failed, found.attempted > 0) == (0, True)
