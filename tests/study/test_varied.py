"""Which values a text names, and which scenarios they make."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import combinations, value_of, varied_of


@pytest.mark.parametrize(
    ("field", "text", "values"),
    [
        ("devices.count", "10,20, 50", (10, 20, 50)),
        ("devices.count", "10:50:10", (10, 20, 30, 40, 50)),
        ("devices.count", "10:55:20,100", (10, 30, 50, 100)),
        ("devices.count", "10:80:x2", (10, 20, 40, 80)),
        ("training.alpha", "0.1:0.4:0.1", (0.1, 0.2, 0.3, 0.4)),
        ("training.learning_rate", "1e-3:1:x10", (0.001, 0.01, 0.1, 1.0)),
        ("budget.total_s", "500ms:2s:500ms", (0.5, 1.0, 1.5, 2.0)),
        ("budget.energy_j", "1 Wh,[6 J, 30 J]", ("1 Wh", ["6 J", "30 J"])),
        ("network.topology", "ring,grid", ("ring", "grid")),
        ("network.channel_known", "true,false", (True, False)),
        ("training.model", "my_models.py:Net,mlp", ("my_models.py:Net", "mlp")),
        ("training.dataset", "'a,b.npz',\"c\"", ("a,b.npz", "c")),
        ("plan.exchange", "exact,{every=9, final=true}", ("exact", {"every": 9, "final": True})),
    ],
)  # fmt: skip
def test_texts_name_values(field: str, text: str, values: tuple[Any, ...]) -> None:
    assert varied_of({field: text})[0].values == values


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ({}, "nothing is varied"),
        ({"devices.cout": "1"}, "is not a field of a scenario; did you mean 'devices.count'?"),
        ({"alpha": "1"}, "did you mean 'training.alpha'?"),
        ({"devices.count": "10,,20"}, "a value is empty"),
        ({"devices.count": ""}, "a value is empty"),
        ({"devices.count": []}, "devices.count has no values"),
        ({"devices.count": "50:10:10"}, "a range goes up"),
        ({"devices.count": "10:50:0"}, "a range goes up"),
        ({"devices.count": "0:50:x2"}, "a range goes up"),
        ({"devices.count": "1:9e9:1"}, "has more than 1,000 values"),
        ({"devices.count": range(99), "plan.iterations": range(200)}, "19,800 combinations, more"),
        ({"devices.count": "10,ten"}, "devices.count"),
        ({"devices.count": "10,20,10"}, "devices.count has the value 10 twice"),
        ({"budget.energy_j": "1 Wh,3600"}, "budget.energy_j has the value 3600.0 twice"),
        ({"budget.energy_j": "5 min"}, "this is a time"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(vary: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        combinations(Scenario(), varied_of(vary))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_that_do_not_go_together_are_a_combination_with_the_reason() -> None:
    vary = {"network.topology": ["grid", [[0, 1], [1, 2]]], "network.gains": [None, [1e-9, 1e-9]]}
    _, made = combinations(Scenario(devices={"count": 3}), varied_of(vary))
    assert [one.scenario is None for one in made] == [False, True, False, False]
    assert "network.gains lists 2 gains" in made[1].reason


FIELDS: dict[str, list[Any]] = {
    "devices.count": [2, 3, 5, 8],
    "training.alpha": [0.1, 1.0, 10.0],
    "plan.iterations": [1, 5, "auto"],
    "network.topology": ["ring", "complete"],
}
SETS = st.fixed_dictionaries(
    {},
    optional={
        name: st.lists(st.sampled_from(values), min_size=1, max_size=3, unique=True)
        for name, values in FIELDS.items()
    },
).filter(bool)


@given(vary=SETS)
def test_combinations_are_the_product(vary: dict[str, list[Any]]) -> None:
    fields, made = combinations(Scenario(), varied_of(vary))
    assert {one.name: list(one.values) for one in fields} == vary
    held = [tuple(value_of(one.scenario, name) for name in vary) for one in made]  # type: ignore[arg-type]
    assert held == list(itertools.product(*vary.values()))
    assert [one.number for one in made] == list(range(len(held)))
