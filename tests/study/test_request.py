"""What a run is asked to do is written down once, and read back whole."""

from __future__ import annotations

import inspect

import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.study.request import RunRequest

KEPT = {"worlds": 3, "seeds": (4, 5), "deterministic": True, "method": "fixed:2", "equal": "time"}


def test_the_fields_of_a_request_are_the_arguments_of_run() -> None:
    # A loss becomes a field of the scenario.
    assert set(inspect.signature(joulemesh.run).parameters) - {"loss"} == set(
        RunRequest.model_fields
    )


def test_everything_that_decides_the_numbers_is_read_back() -> None:
    scenario = Scenario(seed=7).override({"devices.count": 9})
    begun = RunRequest.of(scenario=scenario, target=0.8, resume=True, **KEPT)
    assert begun.kept().keys() == KEPT.keys()
    again = RunRequest.from_text(begun.to_text())
    assert {name: getattr(again, name) for name in KEPT} == KEPT
    assert again.scenario == scenario
    assert again.scenario.origins() == scenario.origins()
    assert (again.target, again.resume) == (None, False)


@pytest.mark.parametrize("name", KEPT)
def test_a_resumed_run_has_what_is_not_given_anew(name: str) -> None:
    begun = RunRequest.of(scenario=Scenario(), **KEPT)
    assert getattr(RunRequest.of(scenario=Scenario()).resumed(begun), name) == KEPT[name]
    other = {"worlds": 2, "seeds": 1, "deterministic": False, "method": "pens", "equal": "budget"}
    given = RunRequest.of(scenario=Scenario(), **{name: other[name]}).resumed(begun)
    assert given.kept() == {**begun.kept(), name: other[name]}


def test_a_wrong_value_is_named() -> None:
    with pytest.raises(ScenarioError, match=r"deterministic = 'perhaps': .*boolean"):
        RunRequest.of(scenario=Scenario(), deterministic="perhaps")
