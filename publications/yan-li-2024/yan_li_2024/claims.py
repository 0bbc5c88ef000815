"""Tests of the paper's sentences, and verdicts on them: exact, or from seeds with 95 % intervals.

A sentence may have several tests; `sentence_verdict` makes one verdict of theirs.
"""

from __future__ import annotations

__all__ = [
    "COLUMNS",
    "LEAST_SEEDS",
    "VERDICTS",
    "Claim",
    "Finding",
    "claims_csv",
    "exact",
    "judge",
    "needs_words",
    "open_constant",
    "read_claims",
    "sentence_verdict",
    "sentences",
]

import csv
import io
import math
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from joulemesh.study.statistics import CONFIDENCE, Estimate, estimate

LEAST_SEEDS = 5

VERDICTS = ("holds", "does not hold", "depends", "undecided")
"""Of a test; *depends*: on a constant that the paper does not give. Of a sentence: what its tests
agree on; *depends* where they differ."""

COLUMNS = (
    "id",
    "figure",
    "section",
    "verdict",
    "effect",
    "low",
    "high",
    "unit",
    "needs",
    "basis",
    "sentence",
    "quantity",
    "detail",
)
_OF_SENTENCE = "sentence_verdict"  # written for those who count; computed from the others

_COMPARED = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_WORDS = {">": "above", ">=": "at least", "<": "below", "<=": "at most"}
_SCALE = {"points": 100.0}  # accuracies are shares of 1


@dataclass(frozen=True)
class Claim:
    """One test of a sentence of the paper.

    Attributes:
        id: short and stable.
        figure: which part of the reproduction decides it.
        section: where the sentence stands in the paper.
        sentence: quoted; the same text in every test of the sentence.
        quantity: what decides it; fields in braces are filled in with what was run.
        unit: of the quantity.
        why: what a reader should know whichever way it falls.
        needs: what the quantity must be for the sentence to hold, such as ``"> 1"``; empty where
            the paper leaves a constant open.
    """

    id: str
    figure: str
    section: str
    sentence: str
    quantity: str
    unit: str
    why: str
    needs: str = "> 0"

    @property
    def rising(self) -> bool:
        """Does more of the quantity speak for the sentence?"""
        return self.needs.startswith(">")

    @property
    def level(self) -> float:
        """The value beyond which the quantity speaks for the sentence."""
        return float(self.needs.split()[1])

    def met(self, value: float) -> bool:
        """Does a value speak for the sentence?"""
        return bool(_COMPARED[self.needs.split()[0]](value, self.level))


def needs_words(needs: str) -> str:
    """What a quantity must be, in words.

    >>> needs_words("> 1"), needs_words("<= 0"), needs_words("")
    ('above 1', 'at most 0', '')
    """
    if not needs:
        return ""
    sign, level = needs.split()
    return f"{_WORDS[sign]} {level.replace('-', '−')}"


@dataclass(frozen=True)
class Finding:
    """A test and what became of it.

    Attributes:
        claim: the test.
        verdict: one of `VERDICTS`.
        effect: the quantity, in the case where the sentence does worst if there are several.
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
            for name in ("id", "figure", "section", "unit", "needs", "sentence", "quantity")
        }
        made |= {"verdict": self.verdict, "basis": self.basis, "detail": self.detail}
        for name in ("effect", "low", "high"):
            value = getattr(self, name)
            made[name] = f"{value:.6g}" if math.isfinite(value) else ""
        return {name: made[name] for name in COLUMNS}


def exact(claim: Claim, values: Mapping[str, float]) -> Finding:
    """Decide a claim by quantities that are known without chance.

    Args:
        claim: the claim.
        values: the quantity in every case, by name.

    Returns:
        The finding: it holds if it does in every case.

    >>> claim = Claim("c", "table1", "IV", "a costs less", "b over a", "times", "", "> 1")
    >>> exact(claim, {"first": 2.0, "second": 1.5}).verdict
    'holds'
    >>> exact(claim, {"first": 2.0, "second": 0.5}).detail
    'worst of 2: second; against the sentence: 1'
    """
    worst = (min if claim.rising else max)(values, key=lambda name: values[name])
    against = sum(not claim.met(value) for value in values.values())
    detail = worst
    if len(values) > 1:
        detail = f"worst of {len(values)}: {worst}; against the sentence: {against}"
    return Finding(
        claim,
        "does not hold" if against else "holds",
        values[worst],
        min(values.values()),
        max(values.values()),
        "exact",
        detail,
    )


def open_constant(claim: Claim, least: Mapping[str, float]) -> Finding:
    """A claim that a constant decides which the paper does not give.

    Args:
        claim: the claim.
        least: the value that the constant has to exceed, in every case by name.

    Returns:
        The finding: it depends, unless any positive constant will do.

    >>> claim = Claim("c", "fig7", "V", "a costs less", "least constant", "", "", "")
    >>> found = open_constant(claim, {"first": 2.0, "second": 16.0})
    >>> found.verdict, found.effect
    ('depends', 16.0)
    """
    most = max(least, key=lambda name: least[name])
    return Finding(
        claim,
        "depends" if least[most] > 0 else "holds",
        least[most],
        min(least.values()),
        least[most],
        "exact",
        f"the largest of {len(least)}: {most}" if len(least) > 1 else most,
    )


def judge(claim: Claim, differences: Mapping[str, ArrayLike], *, note: str = "") -> Finding:
    """Decide a claim by differences measured at several seeds.

    The claim holds if every case's 95 % interval lies above its level. It does not hold if the
    interval of some case lies below, at a confidence raised for the number of cases (Bonferroni):
    among many cases one fails by chance. Otherwise, or with fewer than 5 seeds, it is undecided.

    Args:
        claim: the claim; in points, if it is about accuracies.
        differences: of every case by name, one per seed, positive in favour, accuracies as shares
            of 1; NaN where a seed diverged.
        note: what the detail should end with.

    Returns:
        The finding; the effect is that of the worst case.

    >>> claim = Claim("c", "fig8", "V", "x beats y", "accuracy of x - y", "", "")
    >>> judge(claim, {"iid": [0.03, 0.02, 0.04, 0.03, 0.03]}).verdict
    'holds'
    >>> judge(claim, {"iid": [0.03, -0.02, 0.04, -0.03, 0.0]}).verdict
    'undecided'
    """
    scale, level = _SCALE.get(claim.unit, 1.0), claim.level
    found = {
        what: estimate(scale * np.asarray(values, float)) for what, values in differences.items()
    }
    seeds = min(one.seeds for one in found.values())
    above = [what for what, one in found.items() if one.mean - one.half > level]
    below = [what for what, one in found.items() if _refuted(one, level, len(found))]
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


def _refuted(one: Estimate, level: float, cases: int) -> bool:
    """Does the interval lie below the level, at a confidence raised for the number of cases?"""
    if one.seeds < 2:
        return False
    usual = float(special.stdtrit(one.seeds - 1, (1 + CONFIDENCE) / 2))
    wider = float(special.stdtrit(one.seeds - 1, 1 - (1 - CONFIDENCE) / (2 * cases)))
    return one.mean + one.half * wider / usual < level


def sentence_verdict(verdicts: Iterable[str]) -> str:
    """One verdict of a sentence from those of its tests.

    >>> sentence_verdict(["holds", "holds"]), sentence_verdict(["holds", "does not hold"])
    ('holds', 'depends')
    """
    found = set(verdicts)
    return found.pop() if len(found) == 1 else "depends"


def sentences(
    rows: Iterable[Mapping[str, str]],
) -> list[tuple[str, list[Mapping[str, str]]]]:
    """The verdict on every sentence, with its tests: rows of ``claims.csv``, in their order.

    >>> rows = [{"sentence": "a", "verdict": "holds"}, {"sentence": "b", "verdict": "undecided"},
    ...         {"sentence": "a", "verdict": "does not hold"}]
    >>> [(verdict, len(tests)) for verdict, tests in sentences(rows)]
    [('depends', 2), ('undecided', 1)]
    """
    tests: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        tests.setdefault(row["sentence"], []).append(row)
    return [(sentence_verdict(row["verdict"] for row in each), each) for each in tests.values()]


def claims_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of findings as CSV, each with the verdict on its sentence.

    >>> claims_csv([]).strip().split(",")[:4]
    ['id', 'figure', 'section', 'verdict']
    """
    every = list(rows)
    verdict = {tests[0]["sentence"]: verdict for verdict, tests in sentences(every)}
    text = io.StringIO()
    writer = csv.DictWriter(text, (*COLUMNS, _OF_SENTENCE), lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, _OF_SENTENCE: verdict[row["sentence"]]} for row in every)
    return text.getvalue()


def read_claims(text: str) -> list[dict[str, str]]:
    """Rows of a ``claims.csv``; none if it is something else.

    >>> read_claims("a,b\\n1,2\\n")
    []
    """
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != (*COLUMNS, _OF_SENTENCE):
        return []
    return [{name: row[name] for name in COLUMNS} for row in reader]
