from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from joulemesh.study.statistics import estimate, paired, reached_at

FIGURES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


def test_an_interval_by_hand() -> None:
    # Mean 0.93; deviations -0.02, 0, 0.02, so s = 0.02; t(0.975, 2) = 4.302653 of any table.
    found = estimate(np.array([0.91, 0.93, 0.95]))
    assert found.mean == pytest.approx(0.93)
    assert found.half == pytest.approx(4.302653 * 0.02 / math.sqrt(3), rel=1e-6)
    assert found.seeds == 3


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
    assert found.seeds == 1
    assert found.mean == pytest.approx(0.1)


# To the target ------------------------------------------------------------------------------------


def test_the_way_to_a_target_by_hand() -> None:
    # Evaluated after 2, 4, 8 and 16 iterations of 10 J each.
    iteration = np.array([2, 4, 8, 16])
    accuracy = np.array([[0.2, 0.9], [0.4, 0.95], [0.5, 0.96], [0.9, 0.97]])
    cost = np.repeat(10.0 * iteration[:, None], 2, axis=1)
    found = reached_at(iteration, accuracy, cost, 0.6)
    # A quarter of the way from 0.5 to 0.9: the end of the second of eight iterations.
    assert found.value.tolist() == pytest.approx([100.0, 20.0])
    assert (found.low.tolist(), found.high.tolist()) == ([80.0, 0.0], [160.0, 20.0])
    assert found.error.tolist() == pytest.approx([60.0, 20.0])
    # Between 0.4 and 0.5 a curve that rises steadily crosses 0.43 in the second iteration of four.
    found = reached_at(iteration, accuracy[:, :1], cost[:, :1], 0.43)
    assert np.concatenate(found).tolist() == pytest.approx([60.0, 40.0, 80.0])


def test_the_first_evaluation_that_reaches_counts_even_if_the_curve_falls_again() -> None:
    accuracy = np.array([[0.2, 0.9, 0.1], [0.8, 0.3, 0.2], [0.7, 0.95, 0.3]])
    cost = np.array([[1.0, 10.0, 5.0], [2.0, 20.0, 6.0], [3.0, 30.0, 7.0]])
    found = reached_at(np.array([1, 2, 3]), accuracy, cost, 0.8)
    assert found.value.tolist()[:2] == [2.0, 10.0]
    assert all(np.isnan(part[2]) for part in found)


def test_a_curve_that_wavers_below_the_target_may_have_been_there() -> None:
    # It falls by 0.06 once, and is within that of the target from 30 J on.
    accuracy = np.array([[0.3], [0.6], [0.76], [0.70], [0.82]])
    iteration = np.array([1, 2, 3, 10, 11])
    found = reached_at(iteration, accuracy, 10.0 * iteration[:, None], 0.8)
    assert np.concatenate(found).tolist() == [110.0, 30.0, 110.0]


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_the_bracket_contains_what_every_iteration_would_have_shown(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 60))
    steps = st.lists(st.floats(-0.02, 0.08), min_size=n, max_size=n)
    curve = np.clip(np.cumsum(data.draw(steps)), 0.0, 1.0)
    joules = np.cumsum(data.draw(st.lists(st.floats(0.5, 3.0), min_size=n, max_size=n)))
    seen = np.array(sorted({*data.draw(st.sets(st.integers(1, n))), n}))
    target = data.draw(st.floats(0.01, 1.0))
    there = np.flatnonzero(curve >= target)
    found = reached_at(seen, curve[seen - 1][:, None], joules[seen - 1][:, None], target)
    if np.isnan(found.value[0]):
        assert not (curve[seen - 1] >= target).any()
        return
    true = joules[there[0]]
    assert found.low[0] <= found.value[0] <= found.high[0]
    assert true <= found.high[0] + 1e-9  # always: an iteration that is seen cannot be missed
    # Unless it spikes above both ends of a gap by more than it ever falls, it is not missed below.
    shown = curve[seen - 1]
    fall = max(0.0, float(np.max(shown[:-1] - shown[1:], initial=0.0)))
    ends = np.concatenate([[0.0], shown])
    gap = np.searchsorted(seen, there[0] + 1)
    if target <= max(ends[gap], ends[gap + 1]) + fall:
        assert found.low[0] <= true + 1e-9
        assert abs(true - found.value[0]) <= found.error[0] + 1e-9
