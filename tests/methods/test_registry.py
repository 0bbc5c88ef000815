from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import InfeasibleError, ScenarioError
from joulemesh.methods import Contender, Setting, build, names, register, split, whole
from joulemesh.methods.base import METHODS, Parameter
from joulemesh.scenario import Scenario

KNOWN = (
    "adaptive",
    "spread",
    "fixed",
    "inverse",
    "gossip-learning",
    "balanced",
    "pens",
    "d-psgd",
    "fedavg",
    "skiptrain",
    "gossip-pga",
    "merge",
    "led",
)


def test_every_method_of_the_comparison_is_known() -> None:
    assert names()[: len(KNOWN)] == KNOWN


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adaptve", "did you mean 'adaptive'"),
        ("xyzzy", "known: adaptive, spread, fixed"),
        ("fixed:0", "a whole number of at least 1"),
        ("fixed:three", "a whole number of at least 1"),
        ("fixed:", "a whole number of at least 1"),
        ("fixed:tau=3,tau=4", "given twice"),
        ("fixed:3,4", "no parameter '4'"),
        ("fixed:rounds=3", "known parameters: tau"),
        ("inverse:3", "it takes none"),
        ("adaptive:later", "one of theorem4"),
        ("gossip-learning:s=0", "above 0, at most 1"),
        ("gossip-learning:s=nan", "above 0, at most 1"),
        ("gossip-learning:form=partitioned,s=0.2", "leave s out"),
        ("gossip-learning:parts=4", "needs form=partitioned"),
        ("gossip-learning:form=partitioned,parts=1000", "at most 650 parts"),
        ("gossip-learning:s=0.0001", "at least 0.0015"),
        ("balanced:tau1=2,compress=zip", "identity, topk:FRACTION"),
        ("balanced:compress=topk:2", "identity, topk:FRACTION"),
        ("balanced:compress=qsgd:0.5", "identity, topk:FRACTION"),
        ("balanced:gamma=0.5", "gamma belongs to compress"),
        ("balanced:tau2=0,compress=identity", "compresses nothing"),
        ("pens:top=0", "a whole number of at least 1"),
    ],
)
def test_bad_input_is_refused_in_one_line(small: Scenario, name: str, message: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        build(name, small)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_linear_methods_are_priced_without_jax() -> None:
    code = (
        "import sys, joulemesh\n"
        "from joulemesh.methods import build\n"
        "scenario = joulemesh.Scenario.preset('default')\n"
        "for name in ('adaptive', 'fixed', 'inverse', 'balanced', 'd-psgd', 'fedavg'):\n"
        "    build(name, scenario, equal='energy')\n"
        "sys.exit('jax' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_energy_is_another_name_for_batteries(small: Scenario) -> None:
    assert Setting(small, "energy").equal == "batteries"
    one, other = (build("fixed:3", small, equal=terms) for terms in ("energy", "batteries"))
    assert one.schedule.iterations == other.schedule.iterations


def test_a_plan_that_no_battery_ends_says_so(small: Scenario) -> None:
    def notes(name: str, **changes: object) -> str:
        scenario = small.override({f"budget.{key}": value for key, value in changes.items()})
        return " ".join(build(name, scenario, equal="batteries").notes)

    for name in ("adaptive", "inverse"):
        rich = notes(name, energy_j=1e3)
        assert "its plan of 24 iterations is over, not at a battery: 99" in rich
        assert "not at a battery" not in notes(name)
    assert "not at a battery" not in notes("fixed:3", energy_j=1e3)
    lasting = small.override({"budget.energy_j": 1e3})
    assert not build("adaptive", lasting, equal="time").notes  # ends with the clock, as it must


def test_unknown_equality(small: Scenario) -> None:
    with pytest.raises(ScenarioError, match="one of iterations, batteries, time"):
        build("fixed:3", small, equal="joules")


def test_lists_of_methods_are_taken_apart() -> None:
    text = "adaptive, balanced:tau1=4,compress=topk:0.1,gamma=0.3,fixed:3,gossip-learning:0.1,tau=2"
    assert split(text) == [
        "adaptive",
        "balanced:tau1=4,compress=topk:0.1,gamma=0.3",
        "fixed:3",
        "gossip-learning:0.1,tau=2",
    ]
    assert split("") == []


def test_main_parameter_may_be_bare(small: Scenario) -> None:
    bare, named = build("fixed:2", small), build("fixed:tau=2", small)
    np.testing.assert_array_equal(bare.schedule.rounds, named.schedule.rounds)
    assert (bare.name, named.name) == ("fixed:2", "fixed:tau=2")


def test_a_users_own_method(small: Scenario, own_methods: None) -> None:
    def alone(name: str, setting: Setting, given: Mapping[str, Any]) -> Contender:
        prices = setting.route_prices(given["tau"], lambda t: None, alike=True)
        return setting.contender(name, given["tau"], prices)

    with pytest.raises(ScenarioError, match="use letters, digits"):
        register("my:own", alone)
    register("alone", alone, parameters={"tau": whole()}, main="tau")
    made = build("alone:2", small)
    assert names()[-1] == "alone"
    assert not made.schedule.exchanged.any()
    assert made.schedule.rounds.max() == 2


def test_scenario_without_a_plan(small: Scenario) -> None:
    poor = small.override({"budget.energy_j": 0.2})
    with pytest.raises(InfeasibleError):
        build("adaptive", poor)
    with pytest.raises(InfeasibleError):
        build("fedavg:1", poor, equal="time")  # the clock is the adaptive plan's
    # n is the scenario's, τ is plan.fixed_rounds, and the overdraft is told.
    made = build("fedavg", poor)
    assert made.schedule.rounds.shape == (24, 6)
    assert made.schedule.rounds.max() == 3
    assert any("overdraws" in note for note in made.notes)
    endless = poor.override({"plan.iterations": "longest", "budget.energy_j": 0.001})
    with pytest.raises(InfeasibleError):
        build("fedavg", endless)


def test_runs_beyond_all_measure_are_refused(small: Scenario) -> None:
    rich = small.override({"budget.energy_j": 1e9})
    with pytest.raises(ScenarioError, match="more than 1000000 iterations of fedavg:1"):
        build("fedavg:1", rich, equal="energy")


NOT_FIRST = ("-a", "_a", "../a", "a" * 65)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a b",
        "a,b",
        "a=b",
        "[red]",
        "[/]",
        "$x$",
        "<b>",
        'a"b',
        "a'b",
        "a\nb",
        "\x1b[m",
        *NOT_FIRST,
    ],
)
def test_names_that_break_tables_figures_or_pages_are_refused(name: str) -> None:
    with pytest.raises(ScenarioError, match="use letters, digits") as refused:
        register(name, lambda name, setting, given: None)  # type: ignore[arg-type, return-value]
    assert str(refused.value).isprintable()
    assert name not in METHODS


@pytest.mark.parametrize("value", ["[red]", "$x$", "<b>", "a\nb", "\x1b[31m"])
def test_so_are_texts_of_parameters(small: Scenario, own_methods: None, value: str) -> None:
    takes = {"word": Parameter(str, "any word")}
    register("own", lambda name, setting, given: None, parameters=takes)  # type: ignore[arg-type, return-value]
    with pytest.raises(ScenarioError, match=r"word = .* is unusable") as refused:
        build(f"own:word={value}", small)
    assert str(refused.value).isprintable()
