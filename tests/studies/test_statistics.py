from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from joulemesh.studies.statistics import estimate, paired, reached_at

FIGURES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


def test_an_interval_by_hand() -> None:
    # Mean 0.93; deviations -0.02, 0, 0.02, so s = 0.02; t(0.975, 2) = 4.302653 of any table.
    found = estimate(np.array([0.91, 0.93, 0.95]))
    assert found.mean == pytest.approx(0.93)
    assert found.half == pytest.approx(4.302653 * 0.02 / math.sqrt(3), rel=1e-6)
    assert found.seeds == 3


def test_two_seeds_have_the_widest_interval() -> None:
    # s = 0.1/√2, t(0.975, 1) = 12.706205: half = 12.706205 · 0.1/2.
    assert estimate(np.array([0.8, 0.9])).half == pytest.approx(0.6353102, rel=1e-6)


def test_one_seed_has_no_interval_and_none_has_no_mean() -> None:
    assert estimate(np.array([0.5, np.nan])).mean == 0.5
    assert math.isnan(estimate(np.array([0.5, np.nan])).half)
    assert math.isnan(estimate(np.array([np.nan])).mean)


@settings(deadline=None, max_examples=50)
@given(FIGURES)
def test_intervals_are_those_of_scipy(values: list[float]) -> None:
    found = estimate(np.array(values))
    if np.std(values) > 1e-9:
        low, high = stats.t.interval(
            0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
        )
        assert found.mean - found.half == pytest.approx(low, abs=1e-6)
        assert found.mean + found.half == pytest.approx(high, abs=1e-6)


def test_pairing_removes_what_seeds_have_in_common() -> None:
    hard = np.array([0.5, 0.7, 0.9])  # seeds differ by far more than methods do
    better = hard + np.array([0.01, 0.02, 0.03])
    found = paired(better, hard)
    assert found.mean == pytest.approx(0.02)
    assert found.half == pytest.approx(4.302653 * 0.01 / math.sqrt(3), rel=1e-6)
    assert found.half < estimate(better).half / 10


def test_pairing_needs_both() -> None:
    found = paired(np.array([0.9, np.nan, 0.7]), np.array([np.nan, 0.8, 0.6]))
    assert (found.seeds, found.mean) == (1, pytest.approx(0.1))


def test_the_first_evaluation_that_reaches_counts_even_if_the_curve_falls_again() -> None:
    accuracy = np.array([[0.2, 0.9, 0.1], [0.8, 0.3, 0.2], [0.7, 0.95, 0.3]])
    cost = np.array([[1.0, 10.0, 5.0], [2.0, 20.0, 6.0], [3.0, 30.0, 7.0]])
    assert reached_at(accuracy, cost, 0.8).tolist()[:2] == [2.0, 10.0]
    assert np.isnan(reached_at(accuracy, cost, 0.8)[2])
