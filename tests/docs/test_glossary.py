"""The glossary has one meaning for each word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"


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
