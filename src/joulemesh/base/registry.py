"""Registries: every variation point by name, built in, installed as a plug-in or a user's own.

A registry maps names to small frozen records (`Entry`): a name, a description of one line, the
functions, and what they need. Names of built-in entries are known without importing the modules
that define them, so the scenario can be checked without NumPy-heavy or JAX-heavy imports; such a
module registers its entries when one of them is first looked up.

A user adds entries in two ways: a Python file given with ``--load``, or an installed package with
an entry point in the group ``joulemesh.plugins`` (a module to import, or a function to call).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Generic, Protocol, TypeVar

from joulemesh.base.errors import ScenarioError

GROUP = "joulemesh.plugins"

# A name stands in scenarios, lists, tables, figures, pages and file names as it is.
_MOST_LETTERS = 64
_NAME = re.compile(rf"[^\W_][\w.+-]{{0,{_MOST_LETTERS - 1}}}")


class Entry(Protocol):
    """What every record in a registry has."""

    @property
    def name(self) -> str:
        """The name that scenarios and commands use."""

    @property
    def description(self) -> str:
        """What it is, in one line."""


E = TypeVar("E", bound=Entry)


class Registry(Generic[E]):
    """The entries of one kind, by name, in the order in which they became known.

    Args:
        kind: what the entries are, for messages: ``"topology"``.
        homes: the module that registers each built-in entry, by the entry's name.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Colour:
    ...     name: str
    ...     description: str = ""
    >>> colours = Registry("colour")
    >>> colours.register(Colour("red", "that of blood")).name
    'red'
    >>> colours["red"].description, "blue" in colours
    ('that of blood', False)
    >>> colours["rad"]
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: colour 'rad' is unknown; did you mean 'red'? ...
    """

    def __init__(self, kind: str, homes: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._homes = dict(homes or {})
        self._entries: dict[str, E] = {}

    def register(self, entry: E) -> E:
        """Make an entry known by its name; a name that is taken gets the new entry.

        Raises:
            ScenarioError: a name that could not be written in a scenario or on a command line.
        """
        name = entry.name
        if not _NAME.fullmatch(name):
            raise ScenarioError(
                f"{self.kind} name {name!r} is unusable: use letters, digits, '.', '+', '-' and "
                f"'_', at most {_MOST_LETTERS} of them, beginning with a letter or a digit"
            )
        self._entries[name] = entry
        return entry

    def names(self) -> tuple[str, ...]:
        load_plugins()
        return tuple(dict.fromkeys([*self._homes, *self._entries]))

    @property
    def built_in(self) -> tuple[str, ...]:
        return tuple(self._homes)

    def unknown(self, name: object) -> str:
        """What to say about a name that is not here."""
        close = difflib.get_close_matches(str(name)[:60], self.names(), 1)
        known = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(self.names())}"
        return f"{self.kind} {str(name)[:60]!r} is unknown; {known} (--load FILE.py adds your own)"

    def __contains__(self, name: object) -> bool:
        return name in self._homes or name in self._entries or name in self.names()

    def __getitem__(self, name: str) -> E:
        if name not in self._entries and name in self._homes:
            import_module(self._homes[name])
        if name not in self._entries:
            load_plugins()
        if name not in self._entries:
            raise ScenarioError(self.unknown(name))
        return self._entries[name]

    def __iter__(self) -> Iterator[E]:
        return (self[name] for name in self.names())

    @contextmanager
    def scoped(self) -> Iterator[None]:
        """Forget, at the end, what is registered meanwhile; for tests and notebooks.

        >>> from joulemesh.base.errors import ScenarioError
        >>> registry = Registry("colour")
        >>> with registry.scoped():
        ...     pass
        """
        for name in self._homes:
            self[name]
        kept = dict(self._entries)
        try:
            yield
        finally:
            self._entries = kept


@cache
def load_plugins() -> None:
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
            if callable(loaded):
                loaded()
        except Exception as error:  # another package's code may raise anything
            raise ScenarioError(
                f"the installed plug-in {point.name!r} ({point.value}) fails with "
                f"{type(error).__name__}: {error}; update or uninstall it"
            ) from error


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


JOULEMESH = Citation(
    "The Joulemesh authors",
    "Joulemesh: decentralized federated learning on an energy and latency budget",
    None,
    names="{The Joulemesh authors}",
    kind="misc",
)
"""This software; its version is told where it is cited."""

PAPER = Citation(
    "Yan, Li",
    "Adaptive Decentralized Federated Learning in Energy and Latency Constrained Wireless Networks",
    2024,
    arxiv="2403.20075",
    names="Yan, Zhigang and Li, Dong",
)
"""What Joulemesh implements."""

MCMAHAN = Citation(
    "McMahan, Moore, Ramage, Hampson, Agüera y Arcas",
    "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    2017,
    "AISTATS",
    arxiv="1602.05629",
    names="McMahan, H. Brendan and Moore, Eider and Ramage, Daniel and Hampson, Seth and "
    "Agüera y Arcas, Blaise",
)

ONOSZKO = Citation(
    "Onoszko, Karlsson, Mogren, Listo Zec",
    "Decentralized Federated Learning of Deep Neural Networks on non-iid Data",
    2021,
    "FL-ICML workshop",
    arxiv="2107.08517",
    names="Onoszko, Noa and Karlsson, Gustav and Mogren, Olof and Listo Zec, Edvin",
)

KOLOSKOVA = Citation(
    "Koloskova, Stich, Jaggi",
    "Decentralized Stochastic Optimization and Gossip Algorithms with Compressed Communication",
    2019,
    "ICML",
    arxiv="1902.00340",
    names="Koloskova, Anastasia and Stich, Sebastian and Jaggi, Martin",
)

ALISTARH = Citation(
    "Alistarh, Grubic, Li, Tomioka, Vojnovic",
    "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding",
    2017,
    "NeurIPS",
    arxiv="1610.02132",
    names="Alistarh, Dan and Grubic, Demjan and Li, Jerry and Tomioka, Ryota and Vojnovic, Milan",
)

MNIST = Citation(
    "LeCun, Bottou, Bengio, Haffner",
    "Gradient-Based Learning Applied to Document Recognition",
    1998,
    "Proceedings of the IEEE 86(11):2278-2324",
    doi="10.1109/5.726791",
    names="LeCun, Yann and Bottou, Léon and Bengio, Yoshua and Haffner, Patrick",
)

FASHION_MNIST = Citation(
    "Xiao, Rasul, Vollgraf",
    "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine Learning Algorithms",
    2017,
    arxiv="1708.07747",
    names="Xiao, Han and Rasul, Kashif and Vollgraf, Roland",
)

CIFAR_10 = Citation(
    "Krizhevsky",
    "Learning Multiple Layers of Features from Tiny Images",
    2009,
    "University of Toronto",
    names="Krizhevsky, Alex",
    kind="techreport",
)

DIABETES = Citation(
    "Efron, Hastie, Johnstone, Tibshirani",
    "Least Angle Regression",
    2004,
    "Annals of Statistics 32(2)",
    doi="10.1214/009053604000000067",
    names="Efron, Bradley and Hastie, Trevor and Johnstone, Iain and Tibshirani, Robert",
)
"""Where the measurements of ``diabetes`` were published."""

DIGITS = Citation(
    "Alpaydin, Kaynak",
    "Optical Recognition of Handwritten Digits",
    1998,
    "UCI Machine Learning Repository",
    doi="10.24432/C50P49",
    names="Alpaydin, E. and Kaynak, C.",
    kind="misc",
)
"""What scikit-learn's digits are taken from."""
