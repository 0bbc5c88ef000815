"""Where a method, a data set or anything else was published."""

from __future__ import annotations

__all__ = ["Citation"]

import re
from dataclasses import dataclass

_PAGES = re.compile(
    r"(?P<venue>.*\S) (?P<volume>\d+)(?:\((?P<number>\d+)\))?:(?P<pages>\d+[-–]\d+)"
)


@dataclass(frozen=True)
class Citation:
    """A publication.

    Attributes:
        authors: family names, with commas.
        title: of the publication.
        year: of the publication; None where it has none, as software.
        venue: journal with volume and pages (``"Journal 8(2):131-143"``), conference, or
            institution; empty for a preprint.
        arxiv: number of the preprint, if there is one.
        doi: digital object identifier, if one is known.
        names: whole names, as BibTeX has them (``"Yan, Zhigang and Li, Dong"``); the family names
            alone unless given.
        kind: BibTeX's type of the entry; ``article`` for a venue with pages, ``misc`` without a
            venue and ``inproceedings`` otherwise, unless given.
        address: on the web, for what has no number.

    >>> print(Citation("Yan, Li", "Adaptive Learning", 2024, arxiv="2403.20075"))
    Yan, Li: "Adaptive Learning", 2024, arXiv:2403.20075
    >>> Citation("Yan, Li", "Adaptive Learning", 2024, "SPAWC", doi="10.1109/5.771073").url
    'https://doi.org/10.1109/5.771073'
    """

    authors: str
    title: str
    year: int | None
    venue: str = ""
    arxiv: str | None = None
    doi: str | None = None
    names: str = ""
    kind: str = ""
    address: str | None = None

    @property
    def url(self) -> str | None:
        """Where it can be read, if that is known."""
        if self.doi is not None:
            return f"https://doi.org/{self.doi}"
        return self.address if self.arxiv is None else f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def pages(self) -> dict[str, str]:
        """``venue``, ``volume``, ``number`` and ``pages``, as far as the venue tells them.

        >>> Citation("Yan", "Learning", 2024, "Journal of Joules 8:1-9").pages
        {'venue': 'Journal of Joules', 'volume': '8', 'pages': '1-9'}
        """
        found = _PAGES.fullmatch(self.venue)
        if found is None:
            return {"venue": self.venue} if self.venue else {}
        return {name: text for name, text in found.groupdict().items() if text is not None}

    def __str__(self) -> str:
        numbers = [f"arXiv:{self.arxiv}"] if self.arxiv else []
        numbers += [f"doi:{self.doi}"] if self.doi else []
        joint = ", " if self.venue[-1:].isdigit() else " "  # pages, or a name
        when = "" if self.year is None else str(self.year)
        where = joint.join(filter(None, (self.venue, when)))
        return ", ".join(filter(None, [f'{self.authors}: "{self.title}"', where, *numbers]))
