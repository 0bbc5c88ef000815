"""Claims of the paper, and verdicts on them: exact, or from seeds with 95 % intervals."""

from __future__ import annotations

__all__ = [
    "COLUMNS",
    "LEAST_SEEDS",
    "Claim",
    "Finding",
    "claims_csv",
    "exact",
    "judge",
    "read_claims",
]

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from joulemesh.results.statistics import CONFIDENCE, Estimate, estimate

LEAST_SEEDS = 5

COLUMNS = (
    "id",
    "figure",
    "section",
    "verdict",
    "effect",
    "low",
    "high",
    "unit",
    "basis",
    "sentence",
    "quantity",
    "detail",
)


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper that can be tested.

    Attributes:
        id: short and stable.
        figure: which part of the reproduction decides it.
        section: where the sentence stands in the paper.
        sentence: quoted.
        quantity: what decides it; positive in favour of the sentence.
        unit: of the quantity.
        why: what a reader should know whichever way it falls.
    """

    id: str
    figure: str
    section: str
    sentence: str
    quantity: str
    unit: str
    why: str


@dataclass(frozen=True)
class Finding:
    """A claim and what became of it.

    Attributes:
        claim: the claim.
        verdict: ``"holds"``, ``"does not hold"`` or ``"undecided"``.
        effect: the quantity, where the claim does worst if it is about several cases.
        low, high: its 95 % interval over seeds; for exact quantities the range over all cases.
        basis: ``"exact"``, or on how many seeds it rests.
        detail: which case it is, and how the others did.
    """

    claim: Claim
    verdict: str
    effect: float
    low: float
    high: float
    basis: str
    detail: str

    def row(self) -> dict[str, Any]:
        """The finding as a row of ``claims.csv``."""
        made: dict[str, Any] = {
            name: getattr(self.claim, name)
            for name in ("id", "figure", "section", "unit", "sentence", "quantity")
        }
        made |= {"verdict": self.verdict, "basis": self.basis, "detail": self.detail}
        for name in ("effect", "low", "high"):
            value = getattr(self, name)
            made[name] = f"{value:.6g}" if math.isfinite(value) else ""
        return {name: made[name] for name in COLUMNS}


def exact(claim: Claim, margins: Mapping[str, float], *, strict: bool = True) -> Finding:
    """Decide a claim by quantities that are known without chance.

    Args:
        claim: the claim.
        margins: of every case by name; positive in favour.
        strict: a margin of 0 refutes.

    Returns:
        The finding: it holds if it does in every case.

    >>> claim = Claim("c", "table1", "IV", "a < b", "b - a", "", "")
    >>> exact(claim, {"first": 2.0, "second": 0.5}).verdict
    'holds'
    >>> exact(claim, {"first": 2.0, "second": -0.5}).detail
    'worst of 2: second; against the claim: 1'
    """
    worst = min(margins, key=lambda name: margins[name])
    against = sum(value <= 0 if strict else value < 0 for value in margins.values())
    more = f"worst of {len(margins)}: {worst}" if len(margins) > 1 else worst
    return Finding(
        claim,
        "does not hold" if against else "holds",
        margins[worst],
        margins[worst],
        max(margins.values()),
        "exact",
        f"{more}; against the claim: {against}" if len(margins) > 1 else more,
    )


def judge(
    claim: Claim, differences: Mapping[str, ArrayLike], *, margin: float = 0.0, note: str = ""
) -> Finding:
    """Decide a claim by differences measured at several seeds.

    The claim holds if every case's 95 % interval lies above −margin. It does not hold if the
    interval of some case lies below, at a confidence raised for the number of cases (Bonferroni):
    among many cases one fails by chance. Otherwise, or with fewer than 5 seeds, it is undecided.

    Args:
        claim: the claim.
        differences: of every case by name, one per seed, positive in favour; NaN where a seed
            diverged.
        margin: how far a difference may fall short and still count as none.
        note: what the detail should end with.

    Returns:
        The finding; the effect is that of the worst case.

    >>> claim = Claim("c", "fig8", "V", "x beats y", "accuracy of x - y", "", "")
    >>> judge(claim, {"iid": [0.03, 0.02, 0.04, 0.03, 0.03]}).verdict
    'holds'
    >>> judge(claim, {"iid": [0.03, -0.02, 0.04, -0.03, 0.0]}).verdict
    'undecided'
    """
    found = {what: estimate(np.asarray(values, float)) for what, values in differences.items()}
    seeds = min(one.seeds for one in found.values())
    above = [what for what, one in found.items() if one.mean - one.half > -margin]
    below = [what for what, one in found.items() if _refuted(one, margin, len(found))]
    worst = min(found, key=lambda what: (found[what].mean, what))
    if seeds < LEAST_SEEDS:
        verdict = "undecided"
    elif len(above) == len(found):
        verdict = "holds"
    else:
        verdict = "does not hold" if below else "undecided"
    detail = worst
    if len(found) > 1:
        tally = f"in favour {len(above)}, against {len(below)}"
        detail = f"worst of {len(found)}: {worst}; {tally}"
    if seeds < LEAST_SEEDS:
        detail += f"; {seeds} seeds are too few, {LEAST_SEEDS} are needed"
    one = found[worst]
    return Finding(
        claim,
        verdict,
        one.mean,
        one.mean - one.half,
        one.mean + one.half,
        f"{seeds} seeds",
        "; ".join(filter(None, [detail, note])),
    )


def _refuted(one: Estimate, margin: float, cases: int) -> bool:
    """Does the interval lie below −margin, at a confidence raised for the number of cases?"""
    if one.seeds < 2:
        return False
    usual = float(special.stdtrit(one.seeds - 1, (1 + CONFIDENCE) / 2))
    wider = float(special.stdtrit(one.seeds - 1, 1 - (1 - CONFIDENCE) / (2 * cases)))
    return one.mean + one.half * wider / usual < -margin


def claims_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of findings as CSV.

    >>> claims_csv([]).strip().split(",")[:4]
    ['id', 'figure', 'section', 'verdict']
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def read_claims(text: str) -> Sequence[dict[str, str]]:
    """Rows of a ``claims.csv``; none if it is something else.

    >>> read_claims("a,b\\n1,2\\n")
    []
    """
    reader = csv.DictReader(io.StringIO(text))
    return list(reader) if tuple(reader.fieldnames or ()) == COLUMNS else []
