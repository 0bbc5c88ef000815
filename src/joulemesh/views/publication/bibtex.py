"""References of what was used, as BibTeX."""

from __future__ import annotations

__all__ = ["Used", "bibtex", "entry_key", "keys_of"]

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from joulemesh.citation import Citation
from joulemesh.printable import printable
from joulemesh.views.publication.latex import Tex, escape

_SMALL = {"a", "an", "the", "on", "of", "for", "in", "to", "with", "and", "can"}
_VENUE = {
    "article": "journal",
    "inproceedings": "booktitle",
    "techreport": "institution",
    "misc": "howpublished",
}


class Used(NamedTuple):
    """Something that a study rests on.

    Attributes:
        what: in words, such as ``"method d-psgd"``.
        citations: where it was published.
        note: what to know where there is no publication.
    """

    what: str
    citations: tuple[Citation, ...]
    note: str = "no publication is recorded"


def bibtex(used: Sequence[Used], *, version: str) -> str:
    r"""The entries of everything that was used, each publication once.

    Args:
        used: what to cite; a comment above each entry says what it is for.
        version: of Joulemesh, told in its own entry.

    Returns:
        The text of a ``.bib`` file; comments name what has no publication.

    >>> cited = Citation("Yan, Li", "Adaptive Learning & More", 2024, arxiv="2403.20075")
    >>> print(bibtex([Used("method a", (cited,)), Used("method b", ())], version="1.0"), end="")
    % method b: no publication is recorded
    <BLANKLINE>
    % method a
    @misc{yan2024adaptive,
      author = {Yan and Li},
      title = {{Adaptive Learning \& More}},
      howpublished = {arXiv:2403.20075},
      year = {2024},
      eprint = {2403.20075},
      archiveprefix = {arXiv},
    }
    """
    wanted = _wanted(used)
    missing = [f"% {_comment(f'{one.what}: {one.note}')}\n" for one in used if not one.citations]
    keys = _keys(list(wanted))
    entries = [
        f"% {_comment('; '.join(what))}\n{_entry(keys[cited], cited, version)}"
        for cited, what in wanted.items()
    ]
    return "\n".join(filter(None, ["".join(missing), *entries]))


def _wanted(used: Sequence[Used]) -> dict[Citation, list[str]]:
    """Every publication once, with what it is for."""
    wanted: dict[Citation, list[str]] = {}
    for one in used:
        for cited in one.citations:
            named = wanted.setdefault(cited, [])
            named += [] if one.what in named else [one.what]
    return wanted


def keys_of(used: Sequence[Used]) -> dict[str, tuple[str, ...]]:
    """The keys by which a text cites each thing that was used.

    >>> keys_of([Used("method a", (Citation("Yan", "T", 2024),)), Used("method b", ())])
    {'method a': ('yan2024t',), 'method b': ()}
    """
    keys = _keys(list(_wanted(used)))
    return {one.what: tuple(keys[cited] for cited in one.citations) for one in used}


def _comment(text: str) -> str:
    """BibTeX takes an at sign for an entry wherever it stands."""
    return " ".join(printable(text).replace("@", "(at)").split())


def entry_key(cited: Citation) -> str:
    """The key of an entry: first author, year, first word of the title, in plain letters.

    >>> entry_key(Citation("Hegedűs, Danner", "On the Decentralized", 2021))
    'hegedus2021decentralized'
    """
    author = (cited.names or cited.authors).strip("{}").split(",")[0].split(" and ")[0]
    family = author.removeprefix("The ").split(" ")[0] if cited.names.startswith("{") else author
    words = [word for word in re.split(r"\W+", cited.title) if word and word.lower() not in _SMALL]
    first = _plain(words[0]) if words else ""
    year = "" if cited.year is None else str(cited.year)
    if not family:
        return f"{first or 'untitled'}{year}"
    return f"{_plain(family)}{year}{'' if cited.year is None else first}" or "untitled"


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]", "", letters.lower())


def _keys(citations: Sequence[Citation]) -> dict[Citation, str]:
    """Keys, with a number behind those that others have already."""
    keys: dict[Citation, str] = {}
    for cited in citations:
        key, count = entry_key(cited), 1
        while key in keys.values():
            count += 1
            key = f"{entry_key(cited)}-{count}"
        keys[cited] = key
    return keys


def _entry(key: str, cited: Citation, version: str) -> str:
    kind, fields = _kind(cited), dict(_fields(cited))
    if cited.year is None:
        fields["version"] = version
        fields["note"] = f"Version {version}"
    lines = [f"  {name} = {{{_value(text)}}}," for name, text in fields.items() if text]
    return "\n".join([f"@{kind}{{{key},", *lines, "}"]) + "\n"


def _value(text: str) -> str:
    """Text for BibTeX, which counts braces whether they are escaped or not."""
    return escape(text).replace(r"\{", r"\textbraceleft{}").replace(r"\}", r"\textbraceright{}")


def _kind(cited: Citation) -> str:
    if cited.kind:
        return cited.kind
    return "article" if "pages" in cited.pages else "inproceedings" if cited.venue else "misc"


def _fields(cited: Citation) -> Iterator[tuple[str, str]]:
    whole = cited.names or " and ".join(name.strip() for name in cited.authors.split(","))
    corporate = whole.startswith("{")
    yield "author", Tex(f"{{{_value(whole.strip('{}'))}}}") if corporate else whole
    yield "title", Tex(f"{{{_value(cited.title)}}}")
    parts = cited.pages
    preprint = f"arXiv:{cited.arxiv}" if cited.arxiv else ""  # for styles that know no eprint
    yield _VENUE.get(_kind(cited), "howpublished"), parts.get("venue", preprint)
    yield "volume", parts.get("volume", "")
    yield "number", parts.get("number", "")
    yield "pages", Tex(re.sub("[-–]", "--", parts.get("pages", "")))
    yield "year", "" if cited.year is None else str(cited.year)
    yield "doi", Tex(_address(cited.doi or ""))
    yield "eprint", cited.arxiv or ""
    yield "archiveprefix", "arXiv" if cited.arxiv else ""
    yield "url", Tex(_address(cited.address or ""))


def _address(url: str) -> str:
    r"""An address for ``\url``, which takes it as it is; braces and the like are encoded."""
    return re.sub(r"[{}\\\s]", lambda found: f"%{ord(found[0]):02X}", url)
