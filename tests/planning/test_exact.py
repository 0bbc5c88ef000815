"""Sums and comparisons that rounding does not decide, against fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.planning.exact import (
    exact_sum,
    most_affordable,
    remainder,
    two_product,
    two_sum,
    within,
)

FIGURES = st.floats(1e-12, 1e12)
WHOLE = st.integers(0, 2**31)


@given(a=FIGURES, b=FIGURES, count=WHOLE)
@settings(max_examples=300, deadline=None)
def test_rounded_and_rest_are_the_whole(a: float, b: float, count: int) -> None:
    high, low = two_sum(a, -b)
    assert Fraction(float(high)) + Fraction(float(low)) == Fraction(a) - Fraction(b)
    high, low = two_product(a, float(count))
    assert Fraction(float(high)) + Fraction(float(low)) == Fraction(a) * count


@given(rows=st.lists(st.lists(FIGURES, min_size=2, max_size=2), min_size=1, max_size=40))
@settings(max_examples=200, deadline=None)
def test_a_sum_and_its_rest_are_never_too_little(rows: list[list[float]]) -> None:
    total, rest = exact_sum(np.array(rows))
    assert total.tolist() == np.array(rows).sum(axis=0).tolist()
    for device in range(2):
        exactly = sum((Fraction(row[device]) for row in rows), Fraction(0))
        bound = Fraction(float(total[device])) + Fraction(float(rest[device]))
        assert exactly <= bound <= exactly * (1 + Fraction(1, 10**20))


@given(held=FIGURES, payments=st.lists(st.tuples(FIGURES, FIGURES), min_size=1, max_size=20))
@settings(max_examples=200, deadline=None)
def test_what_is_left_is_never_too_much(held: float, payments: list[tuple[float, float]]) -> None:
    left, owed, exactly = np.array([held]), np.zeros(1), Fraction(held)
    for pair in payments:
        left, owed = remainder(left, owed, *(np.array([one]) for one in pair))
        exactly -= sum(map(Fraction, pair))
    found = Fraction(float(left[0])) - Fraction(float(owed[0]))
    spent = sum(map(sum, payments))
    assert exactly - Fraction(1e-25 * (held + spent)) <= found <= exactly


@given(
    unit=FIGURES,
    count=WHOLE,
    fixed=st.lists(FIGURES, min_size=1, max_size=3),
    ulps=st.integers(-3, 3),
)
@settings(max_examples=400, deadline=None)
def test_the_most_that_a_budget_pays_for(
    unit: float, count: int, fixed: list[float], ulps: int
) -> None:
    """Budgets within a few units in the last place of what the count costs."""
    budget = float(sum(map(Fraction, fixed)) + count * Fraction(unit))
    for _ in range(abs(ulps)):
        budget = float(np.nextafter(budget, np.inf if ulps > 0 else 0.0))
    found = int(most_affordable(budget, unit, *fixed))

    def pays(k: int) -> bool:
        exactly = sum(map(Fraction, fixed)) + k * Fraction(unit)
        return exactly <= Fraction(budget) and k * unit + fixed[0] <= budget

    assert found < 0 or pays(found)
    assert found < -1 or not pays(found + 1)
    held, costs = np.array([budget]), [np.array([one]) for one in fixed]
    assert bool(within(held, *costs)[0]) == pays(0)


def test_it_broadcasts_and_counts_no_further_than_floating_point() -> None:
    found = most_affordable(10.0, np.array([1.0, 2.5]), np.array([[4.0], [9.5], [11.0]]))
    assert found.tolist() == [[6, 2], [0, 0], [-1, -1]]
    assert int(most_affordable(1e300, 1.0, 0.0)) == 2**53
    assert int(most_affordable(0.0, 1.0, 1e300)) == -(2**53)


def test_a_battery_that_is_spent_to_the_last_bit_is_not_overdrawn() -> None:
    """Walked iteration by iteration, with devices that leave, in binary and in decimal figures."""
    for battery in (0.5, 0.3, 0.7):
        plan = joulemesh.plan(
            joulemesh.Scenario.preset("adaptive").override(
                {
                    "devices.count": 4,
                    "devices.cycles_per_sample": 1e5,
                    "budget.energy_j": {"values": [battery, 2 * battery, 3 * battery, 9.0]},
                    "budget.deadline_s": 1.0,
                    "plan.on_depletion": "leave",
                    "plan.iterations": 40,
                }
            )
        )
        assert (plan.margin_j >= 0).all()
