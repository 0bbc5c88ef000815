"""Significance: paired tests as SciPy makes them, Holm's correction, and who is the best."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import joulemesh
from joulemesh.study.comparison import WorldsComparison, judged
from joulemesh.study.statistics import estimate, holm, t_test
from tests.views.publication.studies import study

A = (0.90, 0.91, 0.93, 0.92)
B = (0.88, 0.90, 0.90, 0.89)
C = (0.70, 0.72, 0.73, 0.71)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12))
def test_the_test_is_scipys_and_agrees_with_the_interval(values: list[float]) -> None:
    found = np.array(values)
    p = t_test(found)
    if math.isnan(p):
        assert np.ptp(found) <= 1e-9 * max(1.0, float(np.abs(found).max()))
        return
    assert p == pytest.approx(stats.ttest_1samp(found, 0.0).pvalue, rel=1e-6, abs=1e-12)
    mean, half, _ = estimate(found)
    if abs(p - 0.05) > 1e-9:
        assert (p < 0.05) == (abs(mean) > half)


def test_too_little_to_test_gives_no_p_value() -> None:
    assert math.isnan(t_test(np.array([])))
    assert math.isnan(t_test(np.array([1.0, np.nan])))
    assert math.isnan(t_test(np.array([0.1, 0.1, 0.1])))


def test_holms_correction_by_hand() -> None:
    assert holm([0.005, 0.011, 0.02, 0.04]) == pytest.approx([0.02, 0.033, 0.04, 0.04])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_methods_are_tested_against_the_best_with_correction() -> None:
    found = judged(study({"c": C, "a": A, "b": B}), "accuracy")
    assert (found.best, found.against) == (1, 1)
    raw = [stats.ttest_rel(one, A).pvalue for one in (C, B)]
    assert [found.p[0], found.p[2]] == pytest.approx(holm(raw), rel=1e-6)
    assert math.isnan(found.p[1])


def test_a_baseline_takes_the_place_of_the_best() -> None:
    found = judged(study({"a": A, "b": B, "c": C}), "accuracy", "b")
    assert (found.best, found.against) == (0, 1)
    assert found.p[2] == pytest.approx(
        holm([stats.ttest_rel(A, B).pvalue, stats.ttest_rel(C, B).pvalue])[1], rel=1e-6
    )
    with pytest.raises(joulemesh.ScenarioError, match="method 'x' is not in this comparison"):
        judged(study({"a": A}), "accuracy", "x")


def test_less_is_better_where_something_is_paid() -> None:
    found = judged(study({"a": A, "b": A}, joules={"a": 100.0, "b": 80.0}), "energy_to_target_j")
    assert found.best == 1


def test_worlds_are_what_is_counted() -> None:
    """Twenty seeds in two worlds are two differences, not forty."""
    rng = np.random.default_rng(0)
    worlds = []
    for shift in (0.01, 0.03):
        base = 0.9 + 0.001 * rng.standard_normal(20)
        worlds.append(study({"a": (base + shift).tolist(), "b": base.tolist()}))
    several = WorldsComparison.of(worlds[0].scenario, worlds, None)
    found = judged(several, "accuracy")
    assert found.p[1] == pytest.approx(stats.ttest_1samp([0.01, 0.03], 0.0).pvalue, rel=1e-3)
