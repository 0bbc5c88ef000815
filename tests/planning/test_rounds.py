"""Rounds policies: one contract for all, hand-worked cases, and the paper's own claims."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.planning.policy import Policy, weighted
from joulemesh.planning.policy import allocate as allocate_by
from joulemesh.planning.rounds import (
    backfill,
    fixed,
    inverse,
    theorem4,
    theorem4_literal,
    theorem4_weights,
    uniform,
)
from joulemesh.registries import POLICIES as REGISTRY
from joulemesh.scenario import PlanOptions
from joulemesh.theory.bounds import p42

POLICIES = REGISTRY.names()
CONTRACT = tuple(policy.name for policy in REGISTRY if not policy.zeros)
Case = tuple[int, int, NDArray[np.float64], NDArray[np.float64]]


def allocate(
    policy: str,
    iterations: int,
    total: ArrayLike,
    cap: ArrayLike,
    *,
    zeta: float,
    fixed_rounds: int,
    start: int = 1,
) -> NDArray[np.int64]:
    """By name, with options that a scenario would refuse."""
    options = PlanOptions.model_construct(rounds=policy, zeta=zeta, fixed_rounds=fixed_rounds)
    return allocate_by(REGISTRY[policy], iterations, total, cap, options=options, start=start)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """(n, start, total [N], cap [n−start+1, N]), feasible, fractional."""
    n = draw(st.integers(1, 12))
    start = draw(st.integers(1, n))
    count, devices = n - start + 1, draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    cap = rng.integers(1, draw(st.integers(2, 30)), (count, devices)) + rng.uniform(
        0, 0.99, (count, devices)
    )
    total = count + rng.integers(0, 8 * count + 1, devices) + rng.uniform(0, 0.99, devices)
    return n, start, total, cap


@pytest.mark.parametrize("policy", CONTRACT)
@given(case=cases(), above=st.floats(1e-9, 1e6))
@settings(max_examples=60, deadline=None)
def test_contract(policy: str, case: Case, above: float) -> None:
    n, start, total, cap = case
    tau = allocate(policy, n, total, cap, zeta=n - 1 + above, fixed_rounds=1, start=start)
    assert tau.dtype == np.int64
    assert tau.shape == cap.shape
    assert (tau >= 1).all()
    assert (tau <= cap).all()
    goal = np.minimum(np.floor(total), np.floor(cap).sum(axis=0))
    match REGISTRY[policy].spends:
        case "all":
            np.testing.assert_array_equal(tau.sum(axis=0), goal)
        case "least":
            least = REGISTRY[policy].least(PlanOptions(fixed_rounds=1))
            assert (tau == least).all()
        case "at-most":
            assert (tau.sum(axis=0) <= goal).all()


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_says_what_it_is(name: str) -> None:
    policy = REGISTRY[name]
    assert policy.name == name
    assert policy.description
    assert "\n" not in policy.description
    assert set(policy.parameters) <= set(PlanOptions.model_fields)
    least = {"least": 4}.get(policy.spends, 0 if name == "spread" else 1)
    assert policy.least(PlanOptions(fixed_rounds=4)) == least
    assert policy.zeros or least


@pytest.mark.parametrize("name", POLICIES)
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_a_policy_takes_only_the_options_that_it_names(name: str, case: Case) -> None:
    n, start, total, cap = case
    total = 3.0 * n + total
    cap = cap + 3
    options: dict[str, Any] = {"zeta": n + 3.0, "fixed_rounds": 1}
    other = {"zeta": n + 40.0, "fixed_rounds": 2}
    unnamed = {key: value for key, value in other.items() if key not in REGISTRY[name].parameters}
    try:
        first = allocate(name, n, total, cap, start=start, **options)
    except ScenarioError:  # outside the printed case of theorem4-literal
        assert REGISTRY[name].zeros
        return
    again = allocate(name, n, total, cap, start=start, **{**options, **unnamed})
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("name", [policy.name for policy in REGISTRY if policy.causal])
@given(case=cases(), above=st.floats(0.5, 100.0))
@settings(max_examples=40, deadline=None)
def test_re_planned_in_every_iteration_a_policy_keeps_its_sum(
    name: str, case: Case, above: float
) -> None:
    n, _, total, _ = case
    total, cap = np.floor(total) + n, np.full((n, len(total)), 9)
    options: dict[str, Any] = {"zeta": n - 1 + above, "fixed_rounds": 1}
    whole = allocate(name, n, total, cap, **options)
    walked, left = [], total.copy()
    for start in range(1, n + 1):
        row = allocate(name, n, left, cap[start - 1 :], start=start, **options)[0]
        walked.append(row)
        left -= row
    np.testing.assert_array_equal(np.sum(walked, axis=0), whole.sum(axis=0))
    assert np.abs(np.array(walked) - whole).max() <= 1  # whole numbers may fall the other way


def _as_given(rounds: Any) -> Policy:
    return Policy("own", "rounds by hand", lambda *arguments: rounds)


@pytest.mark.parametrize(
    ("rounds", "match"),
    [
        ([[1.5, 1], [1, 1]], r"gives float64 \[2, 2\]; return whole numbers \[2, 2\]"),
        ([1, 1], r"gives int64 \[2\]; return whole numbers \[2, 2\]"),
        ([[1, 0], [1, 1]], "gives device 1 0 rounds in row 1, less than the least of 1"),
        ([[1, 1], [5, 1]], "gives device 0 5 rounds in row 2, more than the cap of 4"),
        ([[1, 3], [1, 4]], "gives device 1 more rounds than the 6 that its battery pays for"),
    ],
)
def test_what_a_policy_gives_is_checked(rounds: object, match: str) -> None:
    with pytest.raises(ScenarioError, match=match):
        allocate_by(_as_given(rounds), 2, [6, 6], [4, 4], options=PlanOptions())


@pytest.mark.parametrize("weights", [[1, 2], [1, 0, 1], [1, np.nan, 1], [1, -1, 1], 1.0])
def test_weights_are_positive_numbers_for_every_iteration(weights: Any) -> None:
    policy = weighted("own", "weights by hand", lambda n, options: weights)
    with pytest.raises(ScenarioError, match=r'"own" .*must be 3 positive numbers'):
        allocate_by(policy, 3, 9, 9, options=PlanOptions())


@pytest.mark.parametrize("policy", CONTRACT)
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_devices_do_not_influence_each_other(policy: str, case: Case) -> None:
    n, start, total, cap = case
    together = allocate(policy, n, total, cap, zeta=n + 3.0, fixed_rounds=1, start=start)
    for i in range(len(total)):
        alone = allocate(
            policy,
            n,
            total[i : i + 1],
            cap[:, i : i + 1],
            zeta=n + 3.0,
            fixed_rounds=1,
            start=start,
        )
        np.testing.assert_array_equal(together[:, i], alone[:, 0])


@pytest.mark.parametrize("policy", POLICIES)
def test_shapes(policy: str) -> None:
    def shape(total: object, cap: object) -> tuple[int, ...]:
        return allocate(policy, 3, total, cap, zeta=4.0, fixed_rounds=2).shape  # type: ignore[arg-type]

    assert shape(7, 9) == (3,)
    assert shape(np.array(7.0), np.float64(9)) == (3,)
    assert shape([7, 8], 9) == (3, 2)
    assert shape(7, [9, 8]) == (3, 2)
    assert shape([7, 8], [9, 8]) == (3, 2)
    assert shape(7, np.full((3, 4), 9)) == (3, 4)
    assert shape([7], 9) == (3, 1)


@pytest.mark.parametrize("policy", CONTRACT)
def test_totals_beyond_integers_are_clipped_to_the_caps(policy: str) -> None:
    tau = allocate(policy, 3, [1e300, np.inf], [4.9, 2], zeta=4.0, fixed_rounds=2)
    per_iteration = [2, 2] if policy == "fixed" else [4, 2]
    np.testing.assert_array_equal(tau, np.tile(per_iteration, (3, 1)))


@pytest.mark.parametrize("policy", CONTRACT)
def test_unlimited_time_is_a_cap_too(policy: str) -> None:
    tau = allocate(policy, 4, 10, np.inf, zeta=9.0, fixed_rounds=2)
    assert tau.sum() == (8 if policy == "fixed" else 10)


@pytest.mark.parametrize("policy", CONTRACT)
def test_infeasible_energy_names_device_figure_and_remedy(policy: str) -> None:
    with pytest.raises(InfeasibleError) as e:
        allocate(policy, 4, [8, 3.9], 5, zeta=9.0, fixed_rounds=1)
    assert (e.value.device, e.value.code) == (1, "energy")
    assert e.value.figures == {"has": 3.9, "needs": 4}


@pytest.mark.parametrize("policy", POLICIES)
def test_infeasible_deadline_names_device_iteration_and_remedy(policy: str) -> None:
    least = REGISTRY[policy].least(PlanOptions(fixed_rounds=1))
    cap = np.full((4, 3), 5.0)
    cap[1, 2] = least - 0.3
    with pytest.raises(InfeasibleError) as e:
        allocate(policy, 6, 8, cap, zeta=9.0, fixed_rounds=1, start=3)
    assert (e.value.device, e.value.code) == (2, "deadline")
    assert e.value.figures == {"has": least - 1, "needs": least}
    assert "in iteration 4" in str(e.value)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("total", "cap", "match"),
    [
        ([9, np.nan], 5, "total of device 1 is NaN"),
        (9, [5, np.nan], "cap of device 1 is NaN"),
        (np.nan, 5, "total of the device is NaN"),
        ([9, 9], [5, 5, 5], "total is for 2 devices but cap for 3"),
        ([[9]], 5, "do not fit 4 iterations"),
        (9, [[5, 5]] * 3, "do not fit 4 iterations"),
    ],
)
def test_malformed_input_is_refused(policy: str, total: object, cap: object, match: str) -> None:
    with pytest.raises(ScenarioError, match=match):
        allocate(policy, 4, total, cap, zeta=9.0, fixed_rounds=1)  # type: ignore[arg-type]


def test_unknown_policy_lists_the_names() -> None:
    with pytest.raises(ScenarioError, match=f"'magic' is unknown.*{', '.join(POLICIES)}"):
        allocate("magic", 4, 9, 5, zeta=9.0, fixed_rounds=1)


MISSING = {
    (0, 1): "iterations 1..0 do not exist; set plan.iterations to at least 1",
    (3, 0): "iterations 0..3 do not exist; set plan.iterations to at least 1",
    (3, 4): "iterations 4..3 do not exist; set plan.iterations to at least 4",
    (-1, 1): "iterations 1..-1 do not exist; set plan.iterations to at least 1",
}


@pytest.mark.parametrize(("iterations", "start"), MISSING)
@pytest.mark.parametrize("policy", POLICIES)
def test_iterations_that_do_not_exist_are_refused(policy: str, iterations: int, start: int) -> None:
    with pytest.raises(ScenarioError) as refusal:
        allocate(policy, iterations, 9, 5, zeta=9.0, fixed_rounds=1, start=start)
    assert str(refusal.value) == MISSING[iterations, start]


def test_every_way_in_looks_whether_its_iterations_exist() -> None:
    with pytest.raises(ScenarioError, match=r"4\.\.3 do not exist"):
        theorem4(3, 9, 5, 9.0, start=4)
    for call in (
        lambda: theorem4_weights(0, 5.0),
        lambda: theorem4(0, 9, 5, 9.0),
        lambda: theorem4_literal(0, 9, 5, 9.0),
        lambda: backfill(0, 9, 5),
        lambda: uniform(0, 9, 5),
        lambda: fixed(0, 9, 5, 1),
        lambda: inverse(0, 9, 5, 9.0),
    ):
        with pytest.raises(ScenarioError, match=r"1\.\.0 do not exist"):
            call()


def test_fixed() -> None:
    np.testing.assert_array_equal(fixed(2, [6, 9], 3, 3), np.full((2, 2), 3))
    with pytest.raises(InfeasibleError) as e:
        fixed(2, [6, 5], 3, 3)
    assert (e.value.device, e.value.code) == (1, "energy")
    assert e.value.figures == {"has": 5.0, "needs": 6}
    with pytest.raises(InfeasibleError) as e:
        fixed(2, 9, [4, 2.9], 3)
    assert (e.value.device, e.value.code) == (1, "deadline")
    assert e.value.figures == {"has": 2.0, "needs": 3}
    with pytest.raises(ScenarioError, match=r"plan\.fixed_rounds = 0"):
        fixed(2, 9, 4, 0)


# --- theorem 4 -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["theorem4", "theorem4-literal", "inverse"])
@pytest.mark.parametrize("zeta", [9.0, 3.0, -np.inf, np.nan])
def test_zeta_must_exceed_n_minus_1(policy: str, zeta: float) -> None:
    with pytest.raises(ScenarioError, match=r"plan\.zeta = .*set plan\.zeta above 9"):
        allocate(policy, 10, 30, 10, zeta=zeta, fixed_rounds=1)


def test_theorem4_by_hand() -> None:
    # ζ = n = 3: weights 1/3, 1/2, 1. 11 rounds: exactly (2, 3, 6).
    assert theorem4(3, 11, 10, 3.0).tolist() == [2, 3, 6]
    # Cap 4: the others share 7 as 2 : 3, (2.8, 4.2) -> the second is capped too.
    assert theorem4(3, 11, 4, 3.0).tolist() == [3, 4, 4]
    # 5 rounds: the first would get 10/11 and is lifted to 1; (4/3, 8/3) -> (1, 3).
    assert theorem4(3, 5, 4, 3.0).tolist() == [1, 1, 3]
    # ζ = 5, n = 2: ln(5/2), ln 4; 10 rounds: (3.98, 6.02).
    assert theorem4(2, 10, 10, 5.0).tolist() == [4, 6]


def test_weights_are_the_printed_logarithms_up_to_a_factor() -> None:
    for n, zeta in ((10, 20.0), (10, 9.4), (50, 400.0)):
        t = np.arange(1, n + 1)
        printed = np.log((zeta - t + 1) / (n - t + 1))
        ours = theorem4_weights(n, zeta)
        np.testing.assert_allclose(ours / ours.sum(), printed / printed.sum(), rtol=1e-11)
        assert (np.diff(ours) > 0).all()


@pytest.mark.parametrize("offset", [-1e-9, -1e-13, 0.0, 1e-13, 1e-9])
def test_harmonic_limit_at_zeta_equal_n(offset: float) -> None:
    n = 400
    np.testing.assert_allclose(theorem4_weights(n, n + offset), 1 / np.arange(n, 0, -1), rtol=1e-8)
    np.testing.assert_array_equal(
        theorem4(n, 1600, 50, n + offset), theorem4(n, 1600, 50, float(n))
    )


@pytest.mark.parametrize("zeta", [1e12, 1e300, np.inf])
def test_large_zeta_is_uniform(zeta: float) -> None:
    tau = theorem4(10, [30, 70], [5, 9], zeta)
    np.testing.assert_array_equal(tau, np.full((10, 2), [3, 7]))


@pytest.mark.parametrize("zeta", [5e-324, 1e-300, 1e-17, 0.5, 1.0, 7.0])
def test_a_single_iteration_takes_all(zeta: float) -> None:
    assert theorem4_weights(1, zeta).tolist() == [1.0]
    assert theorem4(1, 5, 9, zeta).tolist() == [5]
    assert inverse(1, 5, 9, zeta).tolist() == [5]


def test_tail_of_a_plan_continues_it_when_nothing_changed() -> None:
    whole = theorem4(3, 11, 10, 3.0)
    assert theorem4(3, 11 - whole[0], 10, 3.0, start=2).tolist() == whole[1:].tolist()
    for policy in ("backfill", "uniform", "fixed"):
        kept = allocate(policy, 6, 20, 8, zeta=9.0, fixed_rounds=2)
        rest = allocate(policy, 6, 20 - kept[:3].sum(), 8, zeta=9.0, fixed_rounds=2, start=4)
        np.testing.assert_array_equal(kept[3:], rest)


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_inverse_is_theorem4_backwards(case: Case) -> None:
    n, _, total, cap = case
    total = total + n
    level = cap[0] + 1
    np.testing.assert_array_equal(
        inverse(n, total, level, n + 1.0), theorem4(n, total, level, n + 1.0)[::-1]
    )
    caps = np.resize(cap, (n, cap.shape[1]))
    np.testing.assert_array_equal(
        inverse(n, total, caps, n + 1.0), theorem4(n, total, caps[::-1], n + 1.0)[::-1]
    )


def test_inverse_on_a_tail_uses_the_tail_of_the_reversed_weights() -> None:
    # n = 3, ζ = 3: reversed weights 1, 1/2, 1/3; from iteration 2 on: 3 : 2.
    tau = allocate("inverse", 3, 10, 9, zeta=3.0, fixed_rounds=1, start=2)
    assert tau.tolist() == [6, 4]


@pytest.mark.parametrize(
    ("n", "total", "zeros", "last", "used"),
    [(400, 1600, 157, 243, 1377), (400, 300, 355, 45, 182), (100, 300, 43, 57, 243)],
)
def test_literal_floors_waste_rounds(n: int, total: int, zeros: int, last: int, used: int) -> None:
    tau = theorem4_literal(n, total, 1000, float(n))
    assert ((tau == 0).sum(), tau[-1], tau.sum()) == (zeros, last, used)


def test_literal_domain() -> None:
    # n = 10, ζ = 20, τ0 = 2: case 1 reaches to 17.5 τ0, but its last value passes τ0 long before.
    with pytest.raises(
        ScenarioError, match=r"36 of the device exceeds 34\.9905.*plan.rounds = .theorem4"
    ):
        theorem4_literal(10, 36, 2, 20.0)
    with pytest.raises(ScenarioError, match=r"device 1 for 6 rounds in iteration 10.*cap of 5"):
        theorem4_literal(10, [20, 31], 5, 20.0)
    why = r"can afford -1 rounds .*\(the exchanges alone overdraw the battery\)"
    with pytest.raises(InfeasibleError, match=why) as e:
        theorem4_literal(10, [5, -1], 5, 20.0)
    assert (e.value.device, e.value.code) == (1, "energy")


def test_literal_domain_is_that_of_the_first_iteration_and_includes_its_end() -> None:
    # n = 2, ζ = 2: weights 1/2, 1; the first share is a third of the total, so 3 τ0 = 6 is the end.
    assert theorem4_literal(2, 6, [[2], [100]], 2.0).ravel().tolist() == [2, 4]
    with pytest.raises(ScenarioError, match="the rounds total 7 of device 1 exceeds 6,"):
        theorem4_literal(2, [6, 7], [[2, 2], [100, 100]], 2.0)
    assert theorem4_literal(4, 0.5, 5, 4.0).tolist() == [0, 0, 0, 0]


def test_literal_names_the_first_value_above_its_cap() -> None:
    # 6 rounds are (2, 4): what fills its cap is no fault.
    with pytest.raises(ScenarioError, match="for 4 rounds in iteration 2, above the cap of 3"):
        theorem4_literal(2, 6, [[2], [3]], 2.0)
    # 11 rounds are (2, 3, 6), of which two are too many.
    with pytest.raises(ScenarioError, match="for 3 rounds in iteration 2, above the cap of 2"):
        theorem4_literal(3, 11, [[10], [2], [5]], 3.0)


def test_literal_on_a_tail_uses_the_tail_of_the_weights() -> None:
    # n = 3, ζ = 3: weights 1/3, 1/2, 1; from iteration 2 on: 1 : 2, and messages count from 2.
    tail: dict[str, Any] = {"zeta": 3.0, "fixed_rounds": 1, "start": 2}
    assert allocate("theorem4-literal", 3, 9, 9, **tail).tolist() == [3, 6]
    with pytest.raises(ScenarioError, match="for 6 rounds in iteration 3, above the cap of 5"):
        allocate("theorem4-literal", 3, 9, 5, **tail)


def test_literal_keeps_whole_shares() -> None:
    # Harmonic n = 5 gives 12 : 15 : 20 : 30 : 60; 137 k rounds are whole for every k.
    for k in [*range(1, 60), *range(10**7, 10**7 + 60)]:
        tau = theorem4_literal(5, 137 * k, 1e12, 5.0)
        assert tau.tolist() == [12 * k, 15 * k, 20 * k, 30 * k, 60 * k]


# --- the printed theorem ----------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 100, 400])
@pytest.mark.parametrize("above", [0.5, 10.0, 1000.0])
def test_printed_middle_cases_are_empty_for_every_t0(n: int, above: float) -> None:
    zeta = n - 1 + above
    t = np.arange(1, n + 1)
    logs = np.log((zeta - n + t) / t)  # un-flipped, as in the sums of `optt`
    flipped = np.log((zeta - t + 1) / (n - t + 1))
    lower, upper = logs.sum() / flipped[:-1], logs.sum() / flipped[1:]
    assert (lower > upper).all()


def test_printed_cases_1_and_4_overlap() -> None:
    n, zeta = 10, 20.0
    total = np.log((zeta - n + np.arange(1, n + 1)) / np.arange(1, n + 1)).sum()
    case1, case4 = total / np.log(zeta / n), total / np.log(zeta - n + 1)
    assert case1 == pytest.approx(17.5, abs=0.05)
    assert case4 == pytest.approx(5.06, abs=0.005)


# --- backfill and (P42) -------------------------------------------------------------------------


def objective(tau: tuple[int, ...], a: Fraction) -> Fraction:
    return sum((a ** sum(tau[j:]) for j in range(len(tau))), Fraction(0))


def small_problems() -> list[tuple[int, int, int]]:
    full = [(n, cap, q) for n in range(1, 5) for cap in range(1, 5) for q in range(n, n * cap + 2)]
    return [*full, (5, 2, 8), (5, 3, 9), (5, 3, 13), (5, 4, 7), (5, 4, 12)]


@pytest.mark.parametrize("a", [Fraction(1, 20), Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)])
def test_backfill_is_the_exact_optimum(a: Fraction) -> None:
    for n, cap, total in small_problems():
        feasible = [t for t in product(range(1, cap + 1), repeat=n) if sum(t) <= total]
        values = {t: objective(t, a) for t in feasible}
        best = min(values, key=lambda t: values[t])
        assert [t for t in feasible if values[t] == values[best]] == [best]
        assert tuple(backfill(n, total, cap).tolist()) == best


def test_backfill_with_a_cap_per_iteration_is_the_exact_optimum() -> None:
    a, rng = Fraction(7, 10), np.random.default_rng(11)
    for _ in range(60):
        caps = rng.integers(1, 5, 4)
        total = int(rng.integers(4, caps.sum() + 3))
        feasible = [t for t in product(*(range(1, c + 1) for c in caps)) if sum(t) <= total]
        best = min(feasible, key=lambda t: objective(t, a))
        assert tuple(backfill(4, total, caps[:, None])[:, 0].tolist()) == best


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 12), cap=st.integers(1, 9), data=st.data())
@settings(max_examples=150, deadline=None)
def test_backfill_maximises_every_suffix_sum(
    seed: int, n: int, cap: int, data: st.DataObject
) -> None:
    total = data.draw(st.integers(n, n * cap + 3))
    goal = min(total, n * cap)
    left = np.arange(n, 0, -1)  # n − j + 1
    most = np.minimum(left * cap, goal - n + left)
    suffix = np.cumsum(backfill(n, total, cap)[::-1])[::-1]
    np.testing.assert_array_equal(suffix, most)
    # A random feasible point never has a larger suffix.
    rng = np.random.default_rng(seed)
    tau = np.ones(n, dtype=int)
    for t in rng.permutation(np.repeat(np.arange(n), cap - 1))[: total - n]:
        tau[t] += 1
    assert (np.cumsum(tau[::-1])[::-1] <= most).all()


def test_without_a_cap_backfill_is_the_papers_closed_form() -> None:
    assert backfill(6, 20.7, np.inf).tolist() == [1, 1, 1, 1, 1, 15]  # ⌊τ_total⌋ − T + 2, T = 7


def test_backfill_is_not_optimal_when_a_varies_with_time() -> None:
    # η = 1/(M t⁴), m/M = 1/2, n = 4, Q = 10, τ0 = 6 (notes: back-filling).
    a = 1 - 0.5 / np.arange(1, 5) ** 4.0

    def varying(tau: tuple[int, ...]) -> float:
        return float(sum(np.prod(a[j:] ** np.array(tau[j:])) for j in range(4)))

    feasible = [t for t in product(range(1, 7), repeat=4) if sum(t) <= 10]
    best = min(feasible, key=varying)
    assert best == (4, 4, 1, 1)
    assert varying(best) == pytest.approx(2.918, abs=5e-4)
    assert varying(tuple(backfill(4, 10, 6).tolist())) == pytest.approx(3.383, abs=5e-4)


@pytest.mark.parametrize(
    ("n", "total", "cap", "a", "zeta", "exact", "water", "even", "front"),
    [
        (10, 30, 5, 0.9, 20, 1.603, 1.794, 2.576, 4.476),
        (10, 30, 10, 0.9, 20, 0.975, 1.735, 2.576, 5.208),
        (10, 30, 10, 0.9, 10, 0.975, 1.174, 2.576, 5.208),
        (10, 30, 10, 0.9, 1000, 0.975, 2.323, 2.576, 5.208),
        (10, 30, 5, 0.99, 20, 8.085, 8.237, 8.504, 8.952),
        (10, 30, 5, 0.5, 20, 0.0323, 0.0323, 0.1429, 0.970),
        (20, 60, 8, 0.9, 40, 0.807, 1.241, 2.685, 7.153),
        (50, 150, 6, 0.95, 400, 2.801, 3.715, 6.009, 15.52),
        (100, 300, 6, 0.99, 400, 18.66, 23.29, 31.07, 52.85),
        (100, 300, 6, 0.9, 400, 1.134, 1.148, 2.690, 8.986),
        (100, 300, 10, 0.999, 400, 79.71, 83.66, 86.26, 93.13),
        (400, 1600, 10, 0.99, 400, 9.458, 9.470, 24.38, 92.86),
        (400, 1600, 50, 0.99, 400, 1.532, 1.583, 24.38, 96.76),
    ],
)
def test_objective_of_p42_by_policy(
    n: int,
    total: int,
    cap: int,
    a: float,
    zeta: float,
    exact: float,
    water: float,
    even: float,
    front: float,
) -> None:
    best = backfill(n, total, cap)
    got = [
        p42(tau, a)
        for tau in (best, theorem4(n, total, cap, zeta), uniform(n, total, cap), best[::-1])
    ]
    assert got == pytest.approx([exact, water, even, front], rel=1.5e-3)


def test_more_rounds_than_training_counts_are_refused_with_the_limit() -> None:
    """By the plan, by a method and by a schedule, all in the same words."""
    import joulemesh
    from joulemesh.methods import build
    from joulemesh.methods.setting import Setting
    from joulemesh.training.schedule import Schedule

    many = r"3,000,000,000 rounds in an iteration are more than the 2,147,483,647"
    default = joulemesh.Scenario.preset("adaptive")
    fields = {"plan.rounds": "fixed", "plan.fixed_rounds": 3_000_000_000}
    rich = {"budget.energy_j": 1e12, "budget.deadline_s": 1e9}
    with pytest.raises(ScenarioError, match=many + r".*set plan.fixed_rounds to at most"):
        joulemesh.plan(default.override(fields | rich))
    with pytest.raises(ScenarioError, match=many):
        build("fixed:3000000000", Setting(default))
    with pytest.raises(ScenarioError, match=many):
        Schedule(np.full((1, 2), 3_000_000_000))
    with pytest.raises(ScenarioError, match=r"2,147,483,647.*raise plan.iterations"):
        joulemesh.plan(default.override(rich | {"budget.energy_j": 1e9, "plan.iterations": 2}))
