"""Exchanges that differ by iteration."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.aggregation.contract import check
from joulemesh.aggregation.patterned import Patterned
from joulemesh.base.errors import ScenarioError
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.training.from_plan import schedule_of

PATTERNS: list[Any] = [
    "neighbours",
    {"every": 4},
    {"every": 3, "final": True, "times": 2},
    {"final": True},
    {"between": "none", "every": 5},
    {"between": "none", "final": True},
]


def plan_with(exchange: Any, **changes: Any) -> Plan:
    given = {"plan.iterations": 10, "plan.exchange": exchange, "devices.count": 8}
    return joulemesh.plan(Scenario.preset("adaptive").override({**given, **changes}))


def test_by_hand() -> None:
    """Six iterations, an exact average in the third and the last, neighbours otherwise."""
    made = plan_with({"every": 3, "final": True}, **{"plan.iterations": 7})
    assert [made.scheme_at(t + 1).exact_at(t) for t in range(7)] == [
        False, False, True, False, False, True, True,
    ]  # fmt: skip
    tree = joulemesh.plan(made.scenario.override({"plan.exchange": "exact"}))
    near = joulemesh.plan(made.scenario.override({"plan.exchange": "neighbours"}))
    expected = [tree.exchange_s[0] if t in (2, 5, 6) else near.exchange_s[0] for t in range(7)]
    assert made.exchange_s.tolist() == expected
    np.testing.assert_array_equal(made.exchange_j[2], tree.exchange_j[0])
    np.testing.assert_array_equal(made.exchange_j[0], near.exchange_j[0])


def test_nothing_is_sent_between() -> None:
    made = plan_with({"between": "none", "every": 5})
    assert np.flatnonzero(made.exchanged).tolist() == [4, 9]
    assert np.flatnonzero(made.exchange_s).tolist() == [4, 9]
    assert schedule_of(made).kind == "mean"


def test_one_neighbour_mixing_is_d_psgd() -> None:
    made = plan_with("neighbours")
    assert (made.scheme, made.timeline.scheme.rounds) == ("metropolis", 1)


@pytest.mark.parametrize("exchange", PATTERNS)
@pytest.mark.parametrize("topology", ["ring", "grid", "complete"])
def test_peers_route_and_matrix_agree(exchange: Any, topology: str) -> None:
    made = plan_with(exchange, **{"network.topology": topology})
    costs = made.world.costs(made.world.channel.gain(0))
    for t in (0, 2, 4, 9):
        check(made.scheme_at(t + 1), costs, t)


@pytest.mark.parametrize("exchange", PATTERNS)
def test_what_is_planned_is_what_is_priced(exchange: Any) -> None:
    """The ledger of every iteration is the price of the messages of its route."""
    made = plan_with(exchange)
    costs, bits = made.world.costs(made.world.channel.gain(0)), []
    for t in range(made.iterations):
        route = made.route(t + 1)
        spent = np.zeros(8)
        for _, sender, receiver, size in () if route is None else route.messages():
            link = int(
                np.flatnonzero((made.world.graph.edges == sorted((sender, receiver))).all(1))[0]
            )
            joules = costs.forward_j if sender < receiver else costs.backward_j
            spent[sender] += joules[link] * size
        bits.append(spent.sum())
        row = made.exchange_j[0 if len(made.exchange_j) == 1 else t]
        np.testing.assert_allclose(spent, row, rtol=1e-12)
    assert (np.array(bits) > 0).tolist() == made.exchanged.tolist()


@pytest.mark.parametrize("exchange", PATTERNS)
def test_the_fast_engine_equals_the_loop(exchange: Any) -> None:
    from joulemesh.aggregation.contract import execute

    made = plan_with(exchange)
    schedule, rng = schedule_of(made), np.random.default_rng(0)
    values = rng.normal(size=(8, 24))
    costs = made.world.costs(made.world.channel.gain(0))
    for t in range(made.iterations):
        scheme = made.scheme_at(t + 1)
        expected = execute(scheme, scheme.route(costs, t), values)
        np.testing.assert_allclose(_mixed(schedule, t, values), expected, atol=1e-12)


def _mixed(schedule: Any, t: int, values: Any) -> Any:
    """What a schedule says of one exchange, written out."""
    if not schedule.exchanged[t]:
        return values
    if schedule.kind == "mean" or (schedule.kind == "sparse" and schedule.exact[t]):
        return np.broadcast_to(values.mean(axis=0), values.shape)
    if schedule.kind == "sparse":
        for _ in range(schedule.mixing_rounds):
            values = schedule.mixing @ values
        return values
    return schedule.matrices(t, t + 1)[0] @ values


@pytest.mark.parametrize("exchange", [{"every": 2}, {"between": "none", "final": True}])
def test_under_fading(exchange: Any) -> None:
    made = plan_with(exchange, **{"network.fading": "rayleigh"})
    assert isinstance(made.timeline.scheme, Patterned)
    assert (made.margin_j >= 0).all()
    for t in range(made.iterations):
        route = made.route(t + 1)
        if route is not None and len(route.edge):
            exact = made.timeline.scheme.exact_at(t)
            assert (route.scheme == "metropolis") == (not exact)


@pytest.mark.parametrize("fading", ["none", "rayleigh"])
def test_where_nothing_is_sent_nothing_is_averaged(fading: str) -> None:
    """The engine would take the mean in every iteration that counts as exchanged."""
    made = plan_with({"between": "none", "every": 4}, **{"network.fading": fading})
    schedule, values = schedule_of(made), np.arange(8.0)[:, None]
    for t in range(made.iterations):
        sent = made.route(t + 1)
        silent = sent is None or not len(sent.edge)
        assert silent or t in (3, 7)
        assert np.array_equal(_mixed(schedule, t, values), values) == silent


def test_what_every_exchange_leaves() -> None:
    """Nothing after an exact average, everything where nothing is sent, less with neighbours."""
    silent = plan_with({"between": "none", "every": 4}).timeline.contraction
    assert silent.tolist() == [1, 1, 1, 0, 1, 1, 1, 0, 1, 1]
    near = plan_with({"every": 5}).timeline.contraction
    assert near[[4, 9]].tolist() == [0, 0]
    assert ((np.delete(near, [4, 9]) > 0) & (np.delete(near, [4, 9]) < 1)).all()


@pytest.mark.parametrize("iterations", ["longest", "auto"])
def test_iterations_that_cost_nothing_are_no_more_than_rounds(iterations: str) -> None:
    given = {"plan.rounds": "spread", "plan.iterations": iterations, "budget.energy_j": 1.0}
    made = plan_with({"between": "none", "final": True}, **given)
    assert 1 < made.iterations <= int((1.0 / made.world.devices.round_energy_j).max()) + 1


def test_mixing_without_training() -> None:
    """Blocks of two iterations with training and one without, by rounds that may be zero."""
    blocks = {"train": 2, "mix": 1}
    made = plan_with(blocks, **{"plan.rounds": "spread", "plan.iterations": 9})
    assert (made.rounds[2::3] == 0).all()
    assert (made.rounds[0::3] > 0).any()
    with pytest.raises(ScenarioError, match="has iterations without training"):
        plan_with(blocks)


@pytest.mark.parametrize("exchange", PATTERNS)
def test_the_longest_plan_is_the_longest(exchange: Any) -> None:
    small = {"budget.energy_j": 3.0, "devices.count": 6}
    made = plan_with(exchange, **{"plan.iterations": "longest", **small})
    n = made.iterations
    assert n > 1
    plan_with(exchange, **{"plan.iterations": n, **small})
    with pytest.raises(joulemesh.InfeasibleError):
        plan_with(exchange, **{"plan.iterations": n + 1, **small})


def test_as_toml_and_back() -> None:
    given = Scenario().override({"plan.exchange": {"every": 10, "final": True}})
    assert "exchange = { every = 10, final = true }" in given.to_toml()
    again = Scenario(**tomllib.loads(given.to_toml()))
    assert again.plan.exchange == given.plan.exchange


@pytest.mark.parametrize(
    ("exchange", "words"),
    [
        ("sometimes", 'give "exact", "neighbours" or a table of between, times'),
        ({"evry": 2}, "'evry' is not one of between"),
        ({"every": 0}, "every: "),
        ({"every": 2, "train": 3}, "give train and mix together"),
        ({"between": "none"}, "devices never exchange"),
    ],
)
def test_refused(exchange: Any, words: str) -> None:
    with pytest.raises(ScenarioError, match=r"plan\.exchange: ") as refusal:
        Scenario().override({"plan.exchange": exchange})
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
