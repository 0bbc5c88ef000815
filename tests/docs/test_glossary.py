"""The glossary has one meaning for each word, and the code keeps away from words with many."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
SOURCE = ROOT / "src" / "joulemesh"
# "place" was a path, a slot, an index, a rank and a position. In these rooms it names nothing.
ROOMS = (
    "aggregation", "data", "fading", "files", "methods", "metrics", "models", "planning",
    "training", "units", "views", "world",
)  # fmt: skip
VAGUE = {"place", "places"}
# "block" was any part of anything. Here it is a coherence block, a block of rows, or nothing.
STRICT = ("aggregation", "metrics", "models", "planning", "training", "units", "world")
COHERENCE = {("world/channel.py", "block"), ("planning/ground.py", "block")}
OF_ROWS = {
    (f"training/jax/{module}.py", name)
    for module in ("iteration", "local_sgd", "shared_start", "strategy")
    for name in ("block", "blocks")
}


def words() -> list[str]:
    lines = re.findall(r"^\| (\*\*.+?\*\*) \|", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    return [word for line in lines for word in re.findall(r"\*\*(.+?)\*\*", line)]


def test_every_word_is_explained_once() -> None:
    found = words()
    assert len(found) > 40
    assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize(
    "word",
    ["iteration", "round", "step", "device-step", "exchange", "tick", "row", "seed", "chunk",
     "coherence block", "stride", "view", "world", "scheme", "policy", "method", "contender",
     "plan", "ledger", "budget", "battery", "deadline", "horizon", "departure", "target"],
)  # fmt: skip
def test_the_words_that_a_reader_meets_are_there(word: str) -> None:
    assert word in words()


def bound(tree: ast.AST) -> Iterator[str]:
    """Names that a module binds: variables, arguments, attributes of classes, functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name


@pytest.mark.parametrize("room", ROOMS)
def test_vague_words_name_nothing(room: str) -> None:
    found = {
        (str(path.relative_to(SOURCE)), name)
        for path in (SOURCE / room).rglob("*.py")
        for name in bound(ast.parse(path.read_text("utf-8")))
        if name in (VAGUE | {"block", "blocks"} if room in STRICT else VAGUE)
    }
    assert sorted(found - COHERENCE - OF_ROWS) == []
