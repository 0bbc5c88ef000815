"""Where a method was published."""

from __future__ import annotations

__all__ = ["Citation"]

from dataclasses import dataclass


@dataclass(frozen=True)
class Citation:
    """A publication.

    Attributes:
        authors: family names, with commas.
        title: of the publication.
        year: of the publication.
        venue: journal with volume and pages, or conference; empty for a preprint.
        arxiv: number of the preprint, if there is one.
        doi: digital object identifier, if one is known.

    >>> print(Citation("Yan, Li", "Adaptive Learning", 2024, arxiv="2403.20075"))
    Yan, Li: "Adaptive Learning", 2024, arXiv:2403.20075
    >>> Citation("Yan, Li", "Adaptive Learning", 2024, "SPAWC", doi="10.1109/5.771073").url
    'https://doi.org/10.1109/5.771073'
    """

    authors: str
    title: str
    year: int
    venue: str = ""
    arxiv: str | None = None
    doi: str | None = None

    @property
    def url(self) -> str | None:
        """Where it can be read, if it has a number."""
        if self.doi is not None:
            return f"https://doi.org/{self.doi}"
        return None if self.arxiv is None else f"https://arxiv.org/abs/{self.arxiv}"

    def __str__(self) -> str:
        numbers = [f"arXiv:{self.arxiv}"] if self.arxiv else []
        numbers += [f"doi:{self.doi}"] if self.doi else []
        joint = ", " if self.venue[-1:].isdigit() else " "  # pages, or a name
        where = f"{self.venue}{joint}{self.year}" if self.venue else str(self.year)
        return ", ".join([f'{self.authors}: "{self.title}"', where, *numbers])
