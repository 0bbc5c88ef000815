"""A strict reader of BibTeX: whatever it does not know is an error."""

from __future__ import annotations

import re
from typing import NamedTuple

REQUIRED = {
    "article": {"author", "title", "journal", "year"},
    "inproceedings": {"author", "title", "booktitle", "year"},
    "techreport": {"author", "title", "institution", "year"},
    "misc": {"title"},
}
FIELDS = {
    "author", "title", "journal", "booktitle", "institution", "howpublished", "volume", "number",
    "pages", "year", "doi", "eprint", "archiveprefix", "url", "version", "note",
}  # fmt: skip


class Entry(NamedTuple):
    kind: str
    key: str
    fields: dict[str, str]


def parse(text: str) -> list[Entry]:
    """The entries of a text in which only comments stand between them."""
    entries: list[Entry] = []
    where = 0
    while True:
        at = text.find("@", where)
        between = text[where : at if at >= 0 else len(text)]
        for line in between.splitlines():
            assert not line or line.startswith("% "), f"neither entry nor comment: {line!r}"
        if at < 0:
            break
        entry, where = _entry(text, at)
        entries.append(entry)
    keys = [entry.key for entry in entries]
    assert len(set(keys)) == len(keys), keys
    return entries


def _entry(text: str, at: int) -> tuple[Entry, int]:
    head = re.compile(r"@(\w+)\{([a-z0-9][a-z0-9:-]*),\n").match(text, at)
    assert head is not None, text[at : at + 60]
    kind, key = head.groups()
    assert kind in REQUIRED, kind
    fields: dict[str, str] = {}
    where = head.end()
    while text[where] != "}":
        name = re.compile(r"  ([a-z]+) = \{").match(text, where)
        assert name is not None, text[where : where + 60]
        assert name[1] in FIELDS, name[1]
        assert name[1] not in fields, name[1]
        fields[name[1]], where = _value(text, name.end())
        assert text.startswith(",\n", where), text[where : where + 20]
        where += 2
    assert REQUIRED[kind] <= set(fields), (key, REQUIRED[kind] - set(fields))
    _check(fields)
    return Entry(kind, key, fields), where + 1


def _value(text: str, start: int) -> tuple[str, int]:
    """What stands between balanced braces, which BibTeX counts whether escaped or not."""
    depth, where = 1, start
    while depth:
        depth += {"{": 1, "}": -1}.get(text[where], 0)
        where += 1
    value = text[start : where - 1]
    assert value.strip() == value != ""
    assert value.isascii()
    assert "\n" not in value
    return value, where


def _check(fields: dict[str, str]) -> None:
    assert re.fullmatch(r"\d{4}", fields.get("year", "2000"))
    assert re.fullmatch(r"\d+--\d+", fields.get("pages", "1--2"))
    assert re.fullmatch(r"\d{4}\.\d{4,5}", fields.get("eprint", "2403.20075"))
    assert re.fullmatch(r"10\.\d{4,}/\S+", fields.get("doi", "10.1109/x"))
    assert fields.get("url", "https://x").startswith("http")
    assert ("eprint" in fields) == ("archiveprefix" in fields)
    if "author" in fields:
        for author in fields["author"].split(" and "):
            assert author.strip()
