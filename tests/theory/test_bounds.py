"""The bounds' formulas by hand, their identities, and what the report makes of the undefined."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.theory.bounds import (
    Constants,
    corollary1_corrected,
    corollary1_printed,
    drift,
    evaluate,
    p42,
    phi_printed,
    theorem1_corrected,
    theorem1_printed,
    theorem2_corrected,
    theorem2_discounted,
    theorem2_limit_printed,
    theorem2_printed,
)

PI2_12 = math.pi**2 / 12
SOME = Constants(
    strong_convexity=0.2,
    smoothness=2.0,
    gradient_variance=0.3,
    gradient_bound=4.0,
    divergence=1.5,
    initial_gap=5.0,
)


# --- p42 and drift ------------------------------------------------------------------------------


@pytest.mark.parametrize("a", [0.05, 0.5, 0.9, 0.99])
def test_table_1(a: float) -> None:
    table = {
        (3, 1, 1): a**5 + a**2 + a,
        (2, 2, 1): a**5 + a**3 + a,
        (2, 1, 2): a**5 + a**3 + a**2,
        (1, 3, 1): a**5 + a**4 + a,
        (1, 2, 2): a**5 + a**4 + a**2,
        (1, 1, 3): a**5 + a**4 + a**3,
    }
    got = {tau: p42(tau, a) for tau in table}
    assert got == pytest.approx(table, rel=1e-14)
    assert min(got, key=lambda tau: float(got[tau])) == (1, 1, 3)


def test_objectives_take_one_column_per_device() -> None:
    tau = np.array([[1, 2], [3, 1], [2, 2]])
    both = np.asarray(p42(tau, 0.7))
    alone = np.array([p42(tau[:, i], 0.7) for i in (0, 1)])
    np.testing.assert_allclose(both, alone, rtol=1e-15)
    physics = {"a": 0.7, "eta": 0.1, "smoothness": 2.0, "divergence": 3.0}
    costs = np.array([drift(tau[:, i], **physics) for i in (0, 1)])
    np.testing.assert_allclose(np.asarray(drift(tau, **physics)), costs, rtol=1e-15)


def test_objectives_at_the_ends_of_a() -> None:
    assert p42([2, 3], 0.0) == 0.0
    assert p42([2, 3], 1.0) == 2.0
    for a in (-0.1, 1.1, math.nan):
        with pytest.raises(ScenarioError, match=r"lower training\.learning_rate"):
            p42([1, 2], a)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 0.999))
@settings(max_examples=100, deadline=None)
def test_p42_is_convex(seed: int, a: float) -> None:
    one, two = np.random.default_rng(seed).uniform(0, 10, (2, 6))
    middle = p42((one + two) / 2, a)
    assert middle <= (p42(one, a) + p42(two, a)) / 2 * (1 + 1e-12)


def test_noise_term_telescopes_with_the_exact_factor() -> None:
    # D <- a^τ D + c(1 − a^τ) from D = 0, c = 1, a = .9 (notes: telescoping-noise).
    for tau in ([1, 1, 1, 7], [7, 1, 1, 1], [2, 3, 2, 3]):
        gap = 0.0
        for rounds in tau:
            gap = 0.9**rounds * gap + (1 - 0.9**rounds)
        assert gap == pytest.approx(0.65132, abs=5e-6)
        c = Constants(0.1, 0.1, 2.0, 0.0, 0.0, 0.0)  # a = .9 and c = σMη/(2m) = 1 at η = 1
        assert theorem1_corrected(tau, c, 1.0) == pytest.approx(gap, rel=1e-12)


def test_the_papers_factor_makes_the_noise_term_depend_on_the_allocation() -> None:
    c = Constants(0.1, 0.1, 2.0, 0.0, 0.0, 0.0)
    got = [
        theorem1_printed(tau, c, 1.0, literal_index=False)
        for tau in ([1, 1, 1, 7], [7, 1, 1, 1], [2, 3, 2, 3])
    ]
    assert got == pytest.approx([2.64, 3.79, 3.10], abs=0.006)


def test_drift_prefers_even_rounds_and_p42_late_ones() -> None:
    def cost(tau: list[int]) -> float:
        return float(drift(tau, a=0.95, eta=0.5, smoothness=1.0, divergence=1.0))

    assert cost([4, 4, 4, 4]) < cost([1, 1, 1, 13])
    assert cost([13, 1, 1, 1]) < cost([1, 1, 1, 13])
    assert p42([1, 1, 1, 13], 0.95) < p42([4, 4, 4, 4], 0.95)


# --- constants ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("strong_convexity", 0.0),
        ("strong_convexity", 3.0),
        ("strong_convexity", -1.0),
        ("smoothness", math.inf),
        ("gradient_variance", -1e-9),
        ("gradient_bound", math.nan),
        ("divergence", -2.0),
        ("initial_gap", math.inf),
    ],
)
def test_bad_constants_are_refused(name: str, value: float) -> None:
    fields = {**SOME.__dict__, name: value}
    with pytest.raises(ScenarioError, match=rf"bounds\.{name} = "):
        Constants(**fields)


def test_remark_2_on_random_hessians() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        basis, _ = np.linalg.qr(rng.normal(size=(6, 6)))
        M = rng.uniform(1, 5)
        curvature = rng.uniform(0.05, 0.95) * M
        values = np.concatenate([[-curvature, M], rng.uniform(-curvature, M, 4)])
        regularised = basis @ np.diag(values) @ basis.T + 2 * curvature * np.eye(6)
        ends = np.linalg.eigvalsh(regularised)[[0, -1]]
        np.testing.assert_allclose([curvature, M + 2 * curvature], ends, rtol=1e-9)


# --- theorem 1 and 2, printed -------------------------------------------------------------------


def test_theorem1_printed_by_hand() -> None:
    # a = 1/2, c = σMη/(2m) = 1/4; devices with rounds (1, 2) and (2, 1).
    c = Constants(1.0, 1.0, 1.0, 0.0, 0.0, 8.0)
    tau = [[1, 2], [2, 1]]
    whole = 8 / 2**3
    letter = [0.25 * (1 + 0.5**2 + 0.5**2), 0.25 * (1 + 0.5**4 + 0.5**1)]  # (n−j+1) τ_j
    read = [0.25 * (1 + 0.5**3 + 0.5**2), 0.25 * (1 + 0.5**3 + 0.5**1)]  # S_j
    assert theorem1_printed(tau, c, 0.5) == pytest.approx(whole + np.mean(letter), rel=1e-14)
    assert theorem1_printed(tau, c, 0.5, aggregation=3.0, literal_index=False) == pytest.approx(
        3 + whole + np.mean(read), rel=1e-14
    )


def test_theorem1_printed_contains_p42() -> None:
    tau = np.array([1, 4, 2, 6])
    ball = SOME.gradient_variance * SOME.smoothness * 0.1 / (2 * SOME.strong_convexity)
    rest = 0.98 ** tau.sum() * SOME.initial_gap + ball
    got = theorem1_printed(tau, SOME, 0.1, literal_index=False)
    assert got == pytest.approx(rest + ball * float(p42(tau, 0.98)), rel=1e-13)


def test_theorem2_printed_by_hand() -> None:
    # n = 1: T = 2, η = 1/(M T⁴) = 1/64 with M = 4; N = 2, k = 3: φ = 3·1·3/2 = 4.5.
    c = Constants(1.0, 4.0, 2.0, 1.0, 0.5, 1.0)
    eta, phi = 1 / 64, 4.5
    inner = (0.25 + 1) ** 2 + 2 * (1 + (eta + 0.5 * 0.125) * 4) * phi
    expected = PI2_12 / 2 * (0.125 * inner + 0.5 * phi)
    assert theorem2_printed(1, 2, 3, c) == pytest.approx(expected, rel=1e-14)
    assert theorem2_printed(9, 2, 3, c, eta) == pytest.approx(expected, rel=1e-14)
    assert theorem2_limit_printed(2, 3, c) == pytest.approx(PI2_12 * 0.5 * phi / 2, rel=1e-14)
    far = theorem2_printed(10**6, 2, 3, c)
    assert far == pytest.approx(theorem2_limit_printed(2, 3, c), rel=1e-9)


def test_the_norm_that_phi_stands_for_is_one() -> None:
    N, k = 20, 1
    residual = np.kron(np.full((N, N), 1 / N), np.eye(k)) - np.eye(N * k)
    norm2 = np.linalg.norm(residual, 2) ** 2
    frobenius2 = np.linalg.norm(residual) ** 2
    line_above = k * (N - 1) ** 2 * (N + 1) / N
    figures = [norm2, frobenius2, phi_printed(N, k), line_above]
    assert figures == pytest.approx([1.0, 19.0, 37.05, 379.05], rel=1e-12)
    wide = np.kron(np.full((4, 4), 1 / 4), np.eye(3)) - np.eye(12)
    assert np.linalg.norm(wide, 2) == pytest.approx(1.0, rel=1e-12)


# --- theorem 1 and 2, corrected -----------------------------------------------------------------


def test_corrected_by_hand_equal_rounds() -> None:
    # η = 1/2, m = M = 1, δ = 2: Δ = ητδ²(1 + Mητ/2) = 2.5 and 6; a = 1/2, Q = 3.
    c = Constants(1.0, 1.0, 1.0, 99.0, 2.0, 8.0)
    np.testing.assert_allclose(theorem2_corrected([1, 2], c, 0.5), [2.5, 6.0], rtol=1e-14)
    averaging = 2.5 * 0.5**2 + 6.0
    assert theorem2_discounted([1, 2], c, 0.5) == pytest.approx(averaging, rel=1e-14)
    assert drift([1, 2], a=0.5, eta=0.5, smoothness=1.0, divergence=2.0) == pytest.approx(averaging)
    expected = 8 / 8 + 0.25 * (1 - 1 / 8) + averaging
    assert theorem1_corrected([1, 2], c, 0.5) == pytest.approx(expected, rel=1e-14)
    alike = np.array([[1, 1, 1], [2, 2, 2]])
    assert theorem1_corrected(alike, c, 0.5) == pytest.approx(expected, rel=1e-14)


def test_corrected_by_hand_unequal_rounds() -> None:
    # Rounds (1, 3) then (2, 2): γ = η·mean = 1, and V_1 = η²G·mean τ² = 5/4 G, V_2 = η²τ²δ² = δ².
    c = Constants(1.0, 1.0, 1.0, 4.0, 2.0, 8.0)
    tau = [[1, 3], [2, 2]]
    first = 0.5 * 4 + (0.5 + 0.5) * 5
    second = 0.5 * 4 + (0.5 + 0.5) * 4
    np.testing.assert_allclose(theorem2_corrected(tau, c, 0.5), [first, second], rtol=1e-14)
    # Both exponents after iteration 1 are 2: no cost of unevenness.
    expected = 0.25 * first + second
    assert theorem2_discounted(tau, c, 0.5) == pytest.approx(expected, rel=1e-14)
    # Swapped in time the exponents differ: b = (1/2, 1/8), sd 3/16, √(G V) = √(4·4).
    swapped = theorem2_discounted(tau[::-1], c, 0.5)
    assert swapped == pytest.approx(0.5 * second + 3 / 16 * 4 + first, rel=1e-14)
    noise = 0.25 * (1 - (1 / 8 + 1 / 32) / 2)
    assert theorem1_corrected(tau, c, 0.5) == pytest.approx(8 / 8 + noise + expected, rel=1e-14)


def test_corrected_with_known_costs_of_averaging() -> None:
    c = Constants(1.0, 1.0, 0.0, 0.0, 0.0, 8.0)
    known = theorem1_corrected([1, 2], c, 0.5, aggregation=[3.0, 5.0])
    assert known == pytest.approx(1 + 3 / 4 + 5, rel=1e-14)
    costs = [[3.0, 1.0], [5.0, -1.0]]
    uneven = theorem1_corrected([[1, 1], [2, 1]], c, 0.5, aggregation=costs)
    assert uneven == pytest.approx(8 / 4 + ((3 / 4 + 5) + (1 / 2 - 1)) / 2, rel=1e-14)
    with pytest.raises(ScenarioError, match="do not fit rounds"):
        theorem1_corrected([[1, 1], [2, 1]], c, 0.5, aggregation=[3.0, 5.0])


def test_an_iteration_in_which_nobody_trains_costs_nothing() -> None:
    assert theorem2_corrected([[0, 0], [1, 1]], SOME, 0.1)[0] == 0.0


# --- corollary 1 --------------------------------------------------------------------------------


def test_corollary1_printed_by_hand() -> None:
    # N = 2, k = 1: φ = 3/2, σφ = 3; G = 3, σ/(2m) = 1, gap 4, and a = 1/2 at η = 1/2 = 1/M.
    c = Constants(1.0, 2.0, 2.0, 3.0, 0.0, 4.0)
    inside = PI2_12 * (9 + 3) / 2 + PI2_12 * 3 / 2 + 1 + 4 / math.log(2)
    got = corollary1_printed(c, 0.5, devices=2, parameters=1, target_gap=0.25)
    assert got == pytest.approx(1 + 4 * inside, rel=1e-14)


@given(
    ratio=st.floats(0.02, 1.0), step=st.floats(0.05, 1.0), sigma=st.floats(0.0, 1.0),
    gap=st.floats(0.1, 50.0), share=st.floats(0.01, 0.99),
)  # fmt: skip
@settings(max_examples=100, deadline=None)
def test_corollary1_corrected_equals_the_recursion(
    ratio: float, step: float, sigma: float, gap: float, share: float
) -> None:
    c = Constants(2 * ratio, 2.0, sigma, 1.0, 0.0, gap)
    eta = step / 2
    ball = sigma * 2.0 * eta / (2 * 2 * ratio)
    target = ball + share * (gap - ball)
    needed = corollary1_corrected(c, eta, target_gap=target)
    if gap <= ball:
        assert needed == 0.0 or math.isnan(needed)
        return
    rounds, now = 0, gap
    while now > target * (1 + 1e-12):
        now = (1 - 2 * ratio * eta) * now + sigma * 2.0 * eta**2 / 2
        rounds += 1
    # The two may disagree by one round where the recursion lands on the target to rounding.
    assert rounds - 1 - 1e-6 <= needed <= rounds + 1e-6


def test_corollary1_corrected_at_the_edges() -> None:
    assert corollary1_corrected(SOME, 0.1, target_gap=5.0) == 0.0
    exact = Constants(1.0, 1.0, 1.0, 0.0, 0.0, 5.0)  # noise ball 1/4 at η = 1/2
    assert math.isnan(corollary1_corrected(exact, 0.5, target_gap=0.25))
    assert corollary1_corrected(exact, 0.5, target_gap=0.26) > 0
    assert math.isnan(corollary1_corrected(SOME, 0.6, target_gap=1.0))
    one = Constants(1.0, 1.0, 0.0, 0.0, 0.0, 5.0)
    assert corollary1_corrected(one, 1.0, target_gap=0.1) == 1.0


# --- lemmas -------------------------------------------------------------------------------------


def test_lemma_1_on_random_quadratics() -> None:
    rng = np.random.default_rng(8)
    for _ in range(50):
        basis, _ = np.linalg.qr(rng.normal(size=(4, 4)))
        values = rng.uniform(0.1, 3.0, 4)
        hessian = basis @ np.diag(values) @ basis.T
        here, there = rng.normal(size=(2, 4)) * 3
        gain = here @ hessian @ here / 2 - there @ hessian @ there / 2
        assert np.sum((hessian @ here) ** 2) >= 2 * values.min() * gain * (1 - 1e-12)


def test_lemma_2_on_random_gradients() -> None:
    # Unbiased draws from finitely many gradients: the expectation is exact.
    rng = np.random.default_rng(9)
    for _ in range(50):
        draws = rng.normal(size=(7, 5)) * rng.uniform(0.1, 4)
        chance = rng.dirichlet(np.ones(7))
        mean = chance @ draws
        sigma = chance @ np.sum((draws - mean) ** 2, axis=1)
        second = chance @ np.sum(draws**2, axis=1)
        assert second <= (sigma + mean @ mean) * (1 + 1e-12)


# --- the report ---------------------------------------------------------------------------------


def test_evaluate_puts_all_figures_side_by_side() -> None:
    tau = np.array([[1, 2, 3], [2, 2, 2]])
    record = evaluate(tau, SOME, 0.1, 7, target_gap=2.0)
    height = theorem2_printed(2, 3, 7, SOME)
    expected = {
        "theorem1_printed": theorem1_printed(tau, SOME, 0.1, aggregation=height),
        "theorem1_printed_p15": theorem1_printed(
            tau, SOME, 0.1, aggregation=height, literal_index=False
        ),
        "theorem1_corrected": theorem1_corrected(tau, SOME, 0.1),
        "theorem2_printed": height,
        "theorem2_limit_printed": theorem2_limit_printed(3, 7, SOME),
        "theorem2_corrected": float(theorem2_corrected(tau, SOME, 0.1).sum()),
        "theorem2_discounted": theorem2_discounted(tau, SOME, 0.1),
        "corollary1_printed": corollary1_printed(
            SOME, 0.1, devices=3, parameters=7, target_gap=2.0
        ),
        "corollary1_corrected": corollary1_corrected(SOME, 0.1, target_gap=2.0),
        "target_gap": 2.0,
        "noise_ball": 0.15,
        "p42": np.mean(p42(tau, 0.98)),
        "drift": np.mean(drift(tau, a=0.98, eta=0.1, smoothness=2.0, divergence=1.5)),
    }
    got = record.to_dict()
    del got["notes"]
    assert got == pytest.approx(expected, rel=1e-13)
    assert set(record.notes) == {"corollary1_printed", "corollary1_corrected"}  # stated for δ = 0
    json.dumps(record.to_dict(), allow_nan=False)


def test_evaluate_explains_a_learning_rate_that_is_too_large() -> None:
    record = evaluate([[1, 2], [2, 2]], SOME, 0.6, 7)
    assert record.theorem1_printed is None
    assert record.theorem1_corrected is None
    assert record.p42 is None
    assert record.theorem2_printed is not None  # it has its own learning rate
    assert record.notes["theorem1_corrected"] == "needs a learning rate of at most 0.5, has 0.6"
    json.dumps(record.to_dict(), allow_nan=False)


def test_evaluate_explains_a_printed_domain_of_its_own() -> None:
    flat = Constants(0.1, 0.5, 0.1, 1.0, 0.0, 1.0)  # 1/M = 2, but the paper also wants η <= 1
    record = evaluate([[2, 2]], flat, 1.5, 7)
    assert record.theorem1_printed is None
    assert record.theorem1_corrected is not None
    assert record.notes["theorem1_printed"] == "needs a learning rate of at most 1, has 1.5"


def test_evaluate_explains_a_target_inside_the_noise_ball() -> None:
    record = evaluate([[1, 2]], SOME, 0.1, 7, target_gap=0.1)
    assert record.corollary1_corrected is None
    assert "inside the noise ball of 0.15" in record.notes["corollary1_corrected"]
    assert record.corollary1_printed is not None
    for target in (0.0, -1.0, math.nan):
        hopeless = evaluate([[1, 2]], SOME, 0.1, 7, target_gap=target)
        assert hopeless.corollary1_printed is None
        assert "give a positive" in hopeless.notes["corollary1_printed"]
        json.dumps(hopeless.to_dict(), allow_nan=False)


def test_evaluate_one_iteration_of_one_device() -> None:
    record = evaluate([[3]], SOME, 0.1, 7)
    assert record.theorem2_limit_printed == 0.0  # φ(1) = 0
    assert record.theorem1_corrected is not None
    assert record.target_gap == 0.5


def test_evaluate_reports_overflow_as_none() -> None:
    huge = Constants(0.1, 1.0, 1.0, 1e200, 1e200, 1.0)
    record = evaluate([[1, 2]], huge, 0.5, 7)
    assert record.theorem2_printed is None
    assert "too large" in record.notes["theorem2_printed"]
    json.dumps(record.to_dict(), allow_nan=False)


def test_evaluate_wants_a_column_per_device() -> None:
    with pytest.raises(ScenarioError, match=r"\[n, N\]"):
        evaluate([1, 2], SOME, 0.1, 7)
    with pytest.raises(ScenarioError, match=">= 0"):
        evaluate([[1, -2]], SOME, 0.1, 7)
