"""The planner's methods, and fixed rounds on its exchange."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from joulemesh.methods import Setting, build
from joulemesh.planning.static import plan
from joulemesh.scenario import Scenario
from joulemesh.training.from_plan import schedule_of


def test_adaptive_is_the_plan(small: Scenario) -> None:
    made, planned = build("adaptive", small), plan(small)
    np.testing.assert_array_equal(made.schedule.rounds, planned.rounds)
    assert made.schedule.mixing == "mean"
    assert made.exchange is None
    np.testing.assert_allclose(made.ledger().spent_j, planned.spent_j)
    np.testing.assert_allclose(made.ledger().seconds, planned.latency_s)


@pytest.mark.parametrize("policy", ["theorem4", "backfill", "uniform", "fixed", "inverse"])
def test_any_policy(small: Scenario, policy: str) -> None:
    made = build(f"adaptive:{policy}", small)
    expected = plan(small.override({"plan.rounds": policy})).rounds
    np.testing.assert_array_equal(made.schedule.rounds, expected)


def test_inverse_reverses_the_rounds(small: Scenario) -> None:
    late = small.override({"plan.rounds": "backfill"})
    np.testing.assert_array_equal(
        build("inverse", late).schedule.rounds,
        plan(late.override({"plan.rounds": "inverse"})).rounds,
    )
    even = build("inverse", small).schedule.rounds.sum(axis=0)
    assert (even <= plan(small).rounds.sum(axis=0)).all()


def test_policies_share_the_number_of_iterations(small: Scenario) -> None:
    longest = small.override({"plan.iterations": "longest", "plan.zeta": 30.0})
    n = plan(longest).iterations
    assert plan(longest.override({"plan.rounds": "uniform"})).iterations > n
    assert build("adaptive:uniform", longest).schedule.iterations == n


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan.aggregation": "ring"},
        {"plan.aggregation": "metropolis", "plan.gossip_rounds": 3},
        {"plan.aggregation": "gossip", "plan.gossip_rounds": "balanced"},
        {"plan.aggregation": "gossip", "plan.physics": "paper"},
        {"network.channel_known": False},
    ],
)
def test_fixed_has_the_plans_exchange(small: Scenario, changes: dict[str, object]) -> None:
    scenario = small.override({"budget.deadline_s": 1.0, "budget.energy_j": 20.0, **changes})
    made, planned = build("fixed:2", scenario), plan(scenario)
    np.testing.assert_allclose(
        made.ledger().exchange_j, np.broadcast_to(planned.exchange_j, (24, 6))
    )
    exchange_s = made.ledger().seconds - 2 * planned.world.devices.round_latency_s.max()
    np.testing.assert_allclose(exchange_s, planned.exchange_s)
    np.testing.assert_allclose(made.ledger().bits, planned.ledger.bits)
    ours, theirs = made.schedule, schedule_of(planned)
    assert ours.kind == theirs.kind
    if ours.kind == "dense":
        np.testing.assert_array_equal(ours.matrices(3, 6), theirs.matrices(3, 6))


_FADING: dict[str, dict[str, object]] = {
    "none": {},
    "rayleigh": {"network.fading": "rayleigh", "network.coherence_iterations": 3},
    "trace": {"network.fading": "trace:gains.csv", "network.coherence_iterations": 2},
}


@pytest.mark.parametrize("duplex", ["orthogonal", "half"])
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fading", _FADING)
@pytest.mark.parametrize("coordination", [True, False])
def test_fixed_with_the_plans_own_rounds_costs_what_the_plan_costs(
    small: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    coordination: bool,
    fading: str,
    known: bool,
    duplex: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    links = [(i, j) for i in range(6) for j in range(i + 1, 6)]
    gains = np.random.default_rng(3).uniform(0.2, 2.0, (12, len(links)))
    rows = [
        f"{t},{i},{j},{gain}"
        for t, row in enumerate(gains, 1)
        for (i, j), gain in zip(links, row, strict=True)
    ]
    Path("gains.csv").write_text("\n".join(["t,i,j,relative_gain", *rows]) + "\n")
    scenario = small.override(
        {
            "network.topology": "complete",
            "network.channel_known": known,
            "network.duplex": duplex,
            "plan.aggregation": "tree",
            "plan.coordination": coordination,
            "plan.rounds": "fixed",
            "plan.fixed_rounds": 3,
            "budget.deadline_s": 5.0,  # no exchange is skipped
            "budget.energy_j": 500.0,
            **_FADING[fading],
        }
    )
    planned, ledger = plan(scenario), build("fixed:3", scenario).ledger()
    assert planned.exchanged.all()
    assert planned.timeline.flooded.any() == coordination
    exchange_j = np.broadcast_to(planned.exchange_j, (24, 6))
    np.testing.assert_allclose(ledger.exchange_j, exchange_j, rtol=1e-12)
    np.testing.assert_allclose(ledger.compute_j, planned.compute_j, rtol=1e-12)
    np.testing.assert_allclose(ledger.seconds, planned.latency_s, rtol=1e-12)
    np.testing.assert_array_equal(ledger.bits, planned.ledger.bits)


def test_fixed_under_fading_pays_the_realised_gains(small: Scenario) -> None:
    fading = small.override({"network.fading": "rayleigh", "network.coherence_iterations": 3})
    spent = build("fixed:1", fading).ledger().exchange_j.sum(axis=1)
    assert len(np.unique(spent.reshape(8, 3)[:, 0])) == 8
    np.testing.assert_array_equal(spent.reshape(8, 3), np.repeat(spent[::3, None], 3, axis=1))
    # A tree that cannot follow the gains is never cheaper than one that does.
    blind = fading.override({"network.channel_known": False, "plan.aggregation": "tree"})
    unseen = build("fixed:1", blind).ledger().exchange_j.sum(axis=1)
    assert (unseen >= spent * (1 - 1e-12)).all()
    assert (unseen > spent).any()


def test_departed_devices_are_out_of_the_schedule(small: Scenario) -> None:
    leaving = small.override(
        {
            "budget.energy_j": {"values": (0.2, 5.0, 5.0, 5.0, 5.0, 5.0)},
            "plan.on_depletion": "leave",
            "plan.aggregation": "metropolis",
            "plan.gossip_rounds": 2,
            "budget.deadline_s": 0.2,
        }
    )
    made, planned = build("adaptive", leaving), plan(leaving)
    gone = np.flatnonzero(~planned.active[:, 0])
    assert 0 < gone[0] < planned.iterations  # it does leave
    assert any("depleted" in note for note in made.notes)
    before, after = made.schedule.matrices(gone[0] - 1, gone[0] + 1)
    assert before[0, 1] > 0
    np.testing.assert_array_equal(after[0], [1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(after[:, 0], [1, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(after.sum(axis=1), 1.0)
    np.testing.assert_allclose(made.ledger().spent_j, planned.spent_j)


def test_large_networks_mix_sparsely(small: Scenario) -> None:
    many = small.override(
        {
            "devices.count": 1200,
            "network.topology": "geometric",
            "plan.aggregation": "metropolis",
            "plan.gossip_rounds": 2,
            "plan.iterations": 2,
            "budget.deadline_s": 1.0,
        }
    )
    for name in ("adaptive", "fixed:2", "balanced:tau1=1,tau2=2"):
        schedule = build(name, many).schedule
        assert sparse.issparse(schedule.mixing), name
        assert schedule.mixing_rounds == 2, name


def test_gossip_is_not_weighted_and_says_so(small: Scenario) -> None:
    scenario = small.override(
        {
            "training.weights": "samples",
            "plan.aggregation": "metropolis",
            "plan.gossip_rounds": 2,
        }
    )
    assert any("plain mean" in note for note in build("adaptive", scenario).notes)
    exact = scenario.override({"plan.aggregation": "tree"})
    assert not build("adaptive", exact).notes


def test_settings_are_shared(small: Scenario) -> None:
    setting = Setting(small, "energy")
    made = build("fixed:3", setting)
    np.testing.assert_array_equal(
        made.ledger().seconds, build("fixed:3", small, equal="energy").ledger().seconds
    )


def test_spread_keeps_a_number_of_iterations_that_was_given(small: Scenario) -> None:
    for equal in ("batteries", "budget"):
        said = small.override({"plan.iterations": 7, "budget.total_s": 1.0})
        assert build("spread", said, equal=equal).ledger().iterations == 7
        assert build("spread:5", said, equal=equal).ledger().iterations == 5


def test_spread_chooses_where_only_a_preset_has_a_number() -> None:
    preset = Scenario.preset("adaptive")
    assert preset.plan.iterations == 100
    assert build("spread", preset, equal="budget").ledger().iterations > 100


def test_a_total_time_is_equal_for_all_unless_told_otherwise(small: Scenario) -> None:
    timed = small.override({"budget.total_s": 0.01})
    assert Setting(timed, None).equal == "budget"
    assert Setting(small, None).equal == "batteries"
    assert build("d-psgd", Setting(timed, None)).ledger().seconds.sum() <= 0.01
