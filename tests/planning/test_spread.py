"""The policy `spread`: even rounds, zeros included, aligned so that iterations are short."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from benchmarks.spread import cases, least_time, most_rounds
from joulemesh import InfeasibleError, Scenario
from joulemesh.planning.policy import allocate
from joulemesh.planning.rounds import Profile, fit_time, level_of, ranks, spread
from joulemesh.registries import POLICIES
from joulemesh.scenario import PlanOptions
from joulemesh.tolerance import TOLERANCE


def asked(**changes: Any) -> Scenario:
    """The default scenario with `spread` and other fields changed."""
    named = {name.replace("__", "."): value for name, value in changes.items()}
    return Scenario.preset("adaptive").override({"plan.rounds": "spread", **named})


# The rounds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100, 377, 1000])
def test_every_beginning_of_the_order_is_evenly_spread(n: int) -> None:
    rank = ranks(n)
    assert sorted(rank.tolist()) == list(range(n))
    assert rank[-1] == 0  # everybody who trains at all trains in the last iteration
    for k in range(2, n + 1):
        places = np.flatnonzero(rank < k)
        assert np.diff(places).max() <= 2 * n / k
        due = np.arange(1, n + 1) * k / n
        assert np.abs(np.cumsum(rank < k) - due).max() < 3


@given(
    n=st.integers(1, 40),
    total=st.lists(st.integers(0, 300), min_size=1, max_size=5),
    cap=st.integers(0, 9),
)
def test_sums_are_exact_and_rounds_differ_by_one_at_most(
    n: int, total: list[int], cap: int
) -> None:
    rounds = spread(n, total, cap)
    assert rounds.sum(axis=0).tolist() == [min(one, n * cap) for one in total]
    assert (rounds.max(axis=0) - rounds.min(axis=0) <= 1).all()
    # Devices' extra rounds are nested: two devices never train one each where the other does not.
    extra = rounds > rounds.min(axis=0)
    for a, b in itertools.combinations(extra.T, 2):
        assert (a <= b).all() or (b <= a).all()


@given(data=st.data(), n=st.integers(1, 20))
def test_caps_of_their_own_are_kept_and_used_up(data: st.DataObject, n: int) -> None:
    caps = np.array(data.draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)))[:, None]
    total = data.draw(st.integers(0, 80))
    rounds = spread(n, [total], caps)
    assert (rounds <= caps).all()
    assert rounds.sum() == min(total, caps.sum())
    least = rounds[rounds < caps]  # below its cap, an iteration is within one of the most
    assert not least.size or least.min() >= rounds.max() - 1


@given(n=st.integers(2, 30), total=st.integers(0, 90), cap=st.integers(1, 5))
def test_planning_the_rest_anew_changes_nothing(n: int, total: int, cap: int) -> None:
    whole = spread(n, total, cap)
    left = min(total, n * cap)
    for t in range(n):
        rest = spread(n, left, cap, start=t + 1)
        assert rest.tolist() == whole[t:].tolist()
        left -= int(rest[0])


def test_large_numbers_do_not_overflow() -> None:
    rounds = spread(1000, [10**12 - 1, 3], 2**53)
    assert rounds.sum(axis=0).tolist() == [10**12 - 1, 3]


def test_exchanges_that_are_not_paid_are_refused() -> None:
    with pytest.raises(InfeasibleError, match="the exchanges alone overdraw the battery"):
        allocate(POLICIES["spread"], 3, [-1, 4], 2, options=PlanOptions())
    with pytest.raises(InfeasibleError, match="has time for -1 rounds"):
        allocate(POLICIES["spread"], 3, [1, 4], [2, -1], options=PlanOptions())


# Under a total time ------------------------------------------------------------------------------


@settings(max_examples=200)
@given(data=st.data(), n=st.integers(1, 12), devices=st.integers(1, 5))
def test_a_profile_is_what_the_rounds_take(data: st.DataObject, n: int, devices: int) -> None:
    each = st.lists(st.integers(0, 40), min_size=devices, max_size=devices)
    most = np.array(data.draw(each))
    round_s = np.array(
        data.draw(
            st.lists(st.sampled_from([0.1, 0.25, 1.0, 3.7]), min_size=devices, max_size=devices)
        )
    )
    lengths = (spread(n, most, 10**6) * round_s).max(axis=1)
    profile = Profile.of(most, n, round_s)
    assert profile.total_s == pytest.approx(lengths.sum(), rel=1e-12)
    assert profile.at(ranks(n)).tolist() == lengths.tolist()
    time_s = data.draw(st.floats(0, 1.1)) * profile.total_s
    fitted = fit_time(n, most, round_s, time_s)
    assert (fitted <= most).all()
    assert (fitted >= level_of(n, most, round_s, time_s)).all()
    taken = spread(n, fitted, 10**6)
    exact = sum(
        max(k * Fraction(s) for k, s in zip(row, round_s.tolist(), strict=True))
        for row in taken.tolist()
    )
    assert exact <= Fraction(time_s) * (1 + Fraction(2) ** -51)  # floats decide
    for device in np.flatnonzero(fitted < most):  # nothing more fits
        more = fitted.copy()
        more[device] += 1
        assert Profile.of(more, n, round_s).total_s > time_s


def test_the_integer_program_finds_nothing_better() -> None:
    """Alignment is optimal; what is filled up is within 1 % of the most rounds at that level."""
    own = best = 0
    for case in cases(25, seed=3):
        rounds = fit_time(case.iterations, case.most, case.round_s, case.time_s)
        own_s = Profile.of(rounds, case.iterations, case.round_s).total_s
        assert own_s == pytest.approx(least_time(case, rounds), rel=1e-6)
        level = level_of(case.iterations, case.most, case.round_s, case.time_s)
        own, best = own + int(rounds.sum()), best + most_rounds(case, level)
    assert 0.99 * best <= own <= best


# Plans -------------------------------------------------------------------------------------------


def test_more_iterations_than_the_weakest_battery_pays_rounds_for() -> None:
    most = joulemesh.plan(asked(plan__rounds="uniform", plan__iterations="longest")).iterations
    plan = joulemesh.plan(asked(plan__iterations=2 * most))
    assert (plan.rounds == 0).any()
    assert plan.active.all() and plan.exchanged.all()  # noqa: PT018
    spent = plan.rounds.sum(axis=0)
    assert (spent == np.minimum(plan.timeline.total, plan.iterations * plan.timeline.cap[0])).all()
    assert (plan.margin_j >= 0).all()
    assert (plan.margin_j[plan.binding == "energy"] < plan.world.devices.round_energy_j.max()).all()


@pytest.mark.parametrize("deadline_s", [None, 0.03])
def test_a_total_time_is_used_and_never_exceeded(deadline_s: float | None) -> None:
    limits = {} if deadline_s is None else {"budget__deadline_s": deadline_s}
    plan = joulemesh.plan(asked(budget__total_s=1.5, plan__aggregation="ring-chunked", **limits))
    price = [Fraction(x) for x in plan.world.devices.round_latency_s.tolist()]
    taken = sum(map(Fraction, plan.exchange_s.tolist()), Fraction())
    for row in plan.rounds.tolist():
        taken += max(k * s for k, s in zip(row, price, strict=True))
    assert taken <= Fraction(1.5 * (1 + TOLERANCE))
    assert plan.margin_total_s < min(map(float, price))
    assert (plan.margin_s >= 0).all()


@pytest.mark.parametrize("fading", ["none", "rayleigh"])
@pytest.mark.parametrize("limits", [{"total_s": 0.9}, {"deadline_s": 0.02}])
def test_iterations_that_only_mix_have_no_rounds(fading: str, limits: dict[str, float]) -> None:
    plan = joulemesh.plan(
        asked(
            plan__exchange={"between": "neighbours", "every": 5, "train": 3, "mix": 2},
            plan__iterations=50,
            network__fading=fading,
            **{f"budget__{name}": value for name, value in limits.items()},
        )
    )
    mixed = np.arange(50) % 5 >= 3
    assert not plan.rounds[mixed].any()
    assert plan.rounds[~mixed].any(axis=1).all()
    assert plan.margin_total_s >= 0
    assert (plan.margin_s >= 0).all()


def test_devices_that_never_train_are_named() -> None:
    battery_j = [0.11, *[20.0] * 19]
    plan = joulemesh.plan(asked(budget__energy_j={"values": battery_j}))
    assert plan.rounds[:, 0].sum() == 0
    assert any("1 of 20 devices (the first is device 0) never train" in one for one in plan.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"budget__total_s": 1e-3},
        {"budget__total_s": 0.9443},
        {"budget__deadline_s": 0.01},
        {"budget__energy_j": 0.1},
        {"budget__energy_j": 0.1, "budget__total_s": 0.1},
        {"budget__energy_j": 1e-3, "budget__deadline_s": 1e-3, "budget__total_s": 0.1},
    ],
)
def test_a_plan_in_which_nobody_trains_is_refused_with_what_helps(changes: dict[str, Any]) -> None:
    from tests.planning.test_total_time import followed

    with pytest.raises(InfeasibleError) as refused:
        joulemesh.plan(asked(**changes))
    assert refused.value.device is not None
    assert refused.value.code in ("energy", "deadline", "time")
    remedies = str(refused.value).partition("; ")[2]
    for remedy in remedies.split(", or "):
        scenario = asked(**changes)
        if "on_depletion" in remedy:
            made = joulemesh.plan(scenario.override({"plan.on_depletion": "leave"}))
        else:
            made = joulemesh.plan(followed(scenario, remedy))
        assert made.rounds.any()


@pytest.mark.slow
def test_a_run_with_iterations_without_rounds_learns() -> None:
    scenario = asked(
        plan__iterations=30,
        budget__energy_j={"values": [0.06, *[0.3] * 19]},
        training__model="logistic",
        training__l2=1e-4,
    )
    plan = joulemesh.plan(scenario)
    assert (plan.rounds == 0).mean() > 0.3
    result = joulemesh.run(scenario, seeds=1)
    assert result.accuracy[-1] > 0.3
