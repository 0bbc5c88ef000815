"""Where a method, a data set or anything else was published."""

from __future__ import annotations

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
