"""Verdicts: worked by hand, and what must hold of any data."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yan_li_2024 import FIGURES
from yan_li_2024.claims import (
    LEAST_SEEDS,
    VERDICTS,
    Claim,
    exact,
    judge,
    open_constant,
    read_claims,
    sentence_verdict,
    sentences,
)
from yan_li_2024.sentences import SENTENCES
from yan_li_2024.verdicts import MARKS, effect_words, tally_words

CLAIM = Claim("c", "fig8", "V", "x beats y", "loss of y − x", "loss", "")
REPRODUCTION = Path(__file__).parents[2] / "docs" / "reproduction"

# Mean 3, standard deviation √2.5, t(0.975, 4) = 2.7764: 3 ± 2.7764·√(2.5/5) = 3 ± 1.9632.
ONE_TO_FIVE = [1.0, 2.0, 3.0, 4.0, 5.0]


def test_effect_and_interval_by_hand() -> None:
    found = judge(CLAIM, {"case": ONE_TO_FIVE})
    assert found.verdict == "holds"
    assert found.effect == pytest.approx(3.0)
    assert (found.low, found.high) == pytest.approx((1.0368, 4.9632), abs=1e-4)
    assert found.basis == "5 seeds"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        (ONE_TO_FIVE, "holds"),
        ([-x for x in ONE_TO_FIVE], "does not hold"),
        ([x - 3 for x in ONE_TO_FIVE], "undecided"),
        (ONE_TO_FIVE[:4], "undecided"),  # 4 seeds, however clear
        ([*ONE_TO_FIVE[:4], float("nan")], "undecided"),  # a diverged seed is no seed
    ],
)
def test_one_case(values: list[float], verdict: str) -> None:
    assert judge(CLAIM, {"case": values}).verdict == verdict


def test_a_claim_on_several_cases_holds_only_if_all_do() -> None:
    weak = [x - 2 for x in ONE_TO_FIVE]  # mean 1, interval from −0.96
    both = judge(CLAIM, {"strong": ONE_TO_FIVE, "weak": weak})
    assert both.verdict == "undecided"
    assert both.effect == pytest.approx(1.0)
    assert both.detail == "worst of 2: weak; in favour 1, against 0"


def test_one_bad_case_of_many_must_be_worse_to_refute() -> None:
    """Mean −2, half width 1.96: against the claim alone, but not as one of twenty cases."""
    bad = [x - 5 for x in ONE_TO_FIVE]
    assert judge(CLAIM, {"bad": bad}).verdict == "does not hold"
    many = {f"good {k}": ONE_TO_FIVE for k in range(19)} | {"bad": bad}
    assert judge(CLAIM, many).verdict == "undecided"
    # t(1 − 0.05/40, 4) = 6.7583: the mean must lie below −6.7583·√0.5 = −4.7788.
    worse = {**many, "bad": [x - 7.7 for x in ONE_TO_FIVE]}
    assert judge(CLAIM, worse).verdict == "undecided"
    worst = {**many, "bad": [x - 7.8 for x in ONE_TO_FIVE]}
    assert judge(CLAIM, worst).verdict == "does not hold"


def test_a_margin_lets_a_small_shortfall_pass() -> None:
    short = [-0.001, 0.001, -0.002, 0.002, 0.0]
    assert judge(CLAIM, {"case": short}).verdict == "undecided"
    assert judge(replace(CLAIM, needs="> -0.005"), {"case": short}).verdict == "holds"


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(-1, 1), min_size=LEAST_SEEDS, max_size=LEAST_SEEDS),
        min_size=1,
        max_size=4,
    )
)
def test_a_claim_and_its_opposite_never_both_hold(cases: list[list[float]]) -> None:
    named = {str(k): np.array(values) for k, values in enumerate(cases)}
    one = judge(CLAIM, named)
    other = judge(CLAIM, {name: -values for name, values in named.items()})
    assert one.verdict in MARKS
    assert [one.verdict, other.verdict].count("holds") <= 1
    if len(cases) == 1 and one.verdict == "holds":
        assert other.verdict == "does not hold"


@pytest.mark.parametrize(
    ("needs", "values", "verdict", "effect"),
    [
        ("> 0", {"a": 2.0, "b": 0.5}, "holds", 0.5),
        ("> 0", {"a": 0.0}, "does not hold", 0.0),
        (">= 0", {"a": 0.0}, "holds", 0.0),
        ("> 1", {"a": 1.5, "b": 0.9}, "does not hold", 0.9),
        ("<= 0", {"a": 0.0, "b": 138.0}, "does not hold", 138.0),
        ("< 0.1", {"a": 0.05, "b": 0.01}, "holds", 0.05),
    ],
)
def test_exact_claims(needs: str, values: dict[str, float], verdict: str, effect: float) -> None:
    found = exact(replace(CLAIM, needs=needs), values)
    assert (found.verdict, found.effect) == (verdict, effect)
    assert (found.low, found.high) == (min(values.values()), max(values.values()))


def test_what_an_open_constant_decides_is_not_refuted() -> None:
    one = replace(CLAIM, needs="", unit="")
    found = open_constant(one, {"a": 0.4, "b": 15.6})
    assert (found.verdict, found.effect) == ("depends", 15.6)
    assert effect_words(found.row()) == "15.6"
    assert open_constant(one, {"a": 0.0}).verdict == "holds"  # whatever the constant


@given(st.lists(st.sampled_from(VERDICTS), min_size=1, max_size=5))
def test_a_sentence_has_one_verdict(verdicts: list[str]) -> None:
    """Tests that agree decide; tests that differ make it depend, and never count twice."""
    rows = [{"sentence": "s", "verdict": verdict} for verdict in verdicts]
    ((found, tests),) = sentences([*rows])
    assert found == sentence_verdict(verdicts)
    assert found == (verdicts[0] if len(set(verdicts)) == 1 else "depends")
    assert len(tests) == len(verdicts)
    assert sum(int(n) for n in re.findall(r"\d+", tally_words(rows))) == 1


def test_only_what_the_paper_states_is_refuted() -> None:
    """Eq. s1 prints O(ln 1/ε): a constant of ours refutes nothing, nor does less data."""
    rows = {row["id"]: row for row in read_claims((REPRODUCTION / "claims.csv").read_text("utf-8"))}
    for name in ("gossip-dearer-printed", "smaller-epsilon-printed"):
        assert rows[name]["verdict"] == "depends"
    assert rows["fig5-fewer"]["verdict"] == "undecided"
    assert not [name for name in rows if "local" in name]


def test_every_claim_has_its_own_id_and_a_figure_that_decides_it() -> None:
    names = [one.id for one in SENTENCES]
    assert len(set(names)) == len(names)
    assert {one.figure for one in SENTENCES} == set(FIGURES)
    assert all(one.sentence and one.quantity and one.section for one in SENTENCES)
