"""The vectorised water-filling against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.planning.policy import water_fill


def exact_water_fill(weights: list[Fraction], total: int, caps: list[int]) -> list[int]:
    """Level by walking the breakpoints, then largest remainder, ties to the later iteration."""

    def filled(level: Fraction) -> list[Fraction]:
        pairs = zip(weights, caps, strict=True)
        return [min(max(level * w, Fraction(1)), Fraction(cap)) for w, cap in pairs]

    goal = min(total, sum(caps))
    points = sorted({b / w for w, cap in zip(weights, caps, strict=True) for b in (1, cap)})
    below = max(p for p in points if sum(filled(p)) <= goal)
    above = min((p for p in points if sum(filled(p)) >= goal), default=below)
    low, high = sum(filled(below)), sum(filled(above))
    level = below if high == low else below + (above - below) * (goal - low) / (high - low)
    ideal = filled(level)
    rounds = [floor(x) for x in ideal]
    order = sorted(range(len(ideal)), key=lambda t: (ideal[t] - rounds[t], t), reverse=True)
    for t in order[: goal - sum(rounds)]:
        rounds[t] += 1
    return rounds


@st.composite
def fills(draw: st.DrawFn) -> tuple[list[int], int, list[int]]:
    count = draw(st.integers(1, 7))
    weights = draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    caps = draw(st.lists(st.integers(1, 9), min_size=count, max_size=count))
    total = draw(st.integers(count, sum(caps) + 3))
    return weights, total, caps


@given(fills())
@settings(max_examples=300, deadline=None)
def test_equals_exact_rational_water_filling(case: tuple[list[int], int, list[int]]) -> None:
    weights, total, caps = case
    expected = exact_water_fill([Fraction(w) for w in weights], total, caps)
    column = np.array(caps)[:, None]
    assert water_fill(weights, total, column)[:, 0].tolist() == expected


def test_harmonic_weights_equal_exact_arithmetic_for_every_total() -> None:
    n, cap = 8, 7
    weights = [Fraction(1, n - t) for t in range(n)]
    totals = np.arange(n, n * cap + 1)
    rounds = water_fill([float(w) for w in weights], totals, cap)
    for column, total in zip(rounds.T, totals, strict=True):
        assert column.tolist() == exact_water_fill(weights, int(total), [cap] * n)


def test_equals_exact_arithmetic_for_many_rounds() -> None:
    rng = np.random.default_rng(12)
    for _ in range(40):
        n = int(rng.integers(2, 13))
        weights = [int(w) for w in rng.integers(1, 1000, n)]
        caps = [int(c) for c in rng.integers(1, 3000, n)]
        total = int(rng.integers(n, sum(caps)))
        expected = exact_water_fill([Fraction(w) for w in weights], total, caps)
        assert water_fill(weights, total, np.array(caps)[:, None])[:, 0].tolist() == expected


def test_ties_go_to_the_later_iteration() -> None:
    assert water_fill([1, 1, 1, 1], 6, 9).tolist() == [1, 1, 2, 2]
    # (1.5, 2.5, 4): the tie of the halves is between unequal weights.
    assert water_fill([3, 5, 8], 8, 9).tolist() == [1, 3, 4]


def test_blocks_of_devices_do_not_change_a_device() -> None:
    rng = np.random.default_rng(5)
    n, devices = 500, 400  # more than one block
    weights = rng.uniform(0.1, 5.0, n)
    total, cap = rng.integers(n, 9 * n, devices), rng.integers(1, 20, (n, devices))
    together = water_fill(weights, total, cap)
    for i in (0, 130, 131, 399):
        alone = water_fill(weights, total[i : i + 1], cap[:, i : i + 1])
        np.testing.assert_array_equal(together[:, i], alone[:, 0])


@pytest.mark.parametrize("scale", [1e-305, 1.0, 1e305])
def test_only_ratios_of_weights_matter(scale: float) -> None:
    assert water_fill(np.array([1.0, 2.0, 3.0]) * scale, 12, 1e11).tolist() == [2, 4, 6]


@pytest.mark.parametrize("total", [1e11, 999_999_999_999])
def test_sums_stay_exact_for_enormous_totals(total: float) -> None:
    weights = np.random.default_rng(1).uniform(1e-6, 1.0, 301)
    rounds = water_fill(weights, total, np.inf)
    assert rounds.sum() == int(total)
    assert rounds.min() >= 1


def test_widely_spread_weights_meet_the_contract() -> None:
    weights = 10.0 ** np.linspace(-150, 150, 31)
    cap = np.arange(1, 32)[:, None] * np.array([1, 50])
    rounds = water_fill(weights, [300, 900], cap)
    assert rounds.sum(axis=0).tolist() == [300, 900]
    assert (rounds >= 1).all()
    assert (rounds <= cap).all()


def test_a_device_axis_may_be_empty() -> None:
    assert water_fill([1.0, 1.0], np.zeros(0), 3).shape == (2, 0)


@pytest.mark.parametrize("weights", [[], [1.0, 0.0], [1.0, np.nan], [np.inf], [[1.0]]])
def test_bad_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ScenarioError, match="positive and finite"):
        water_fill(weights, 5, 5)


def test_more_rounds_than_can_be_counted_are_refused() -> None:
    with pytest.raises(ScenarioError, match="more than 1e\\+12 rounds"):
        water_fill([1.0, 2.0], np.inf, np.inf)


def test_refusals_name_device_and_iteration() -> None:
    caps = np.array([[3, 3], [3, 0.5]])
    with pytest.raises(InfeasibleError, match="device 1 has time for 0 rounds in iteration 8") as e:
        water_fill([1.0, 1.0], 9, caps, start=7)
    assert (e.value.device, e.value.code) == (1, "deadline")
