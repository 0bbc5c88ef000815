"""The form: every field of a scenario, as its schema describes it."""

from __future__ import annotations

import pytest

from joulemesh.registries import POLICIES
from joulemesh.scenario import Scenario
from joulemesh.scenario.scenario import field_names
from joulemesh.scenario.varied import typed_value
from joulemesh.studio.document import fields_of_scenario
from joulemesh.studio.form import form, written

FIELDS = {field["name"]: field for section in form()["sections"] for field in section["fields"]}


def test_every_field_is_there_once_with_its_meaning() -> None:
    assert set(FIELDS) == set(field_names())
    assert all(field["meaning"] for field in FIELDS.values())


def test_names_are_those_that_are_registered() -> None:
    assert FIELDS["plan.rounds"]["choices"] == list(POLICIES.names())


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("budget.energy_j", "unit", "J"),
        ("budget.energy_j", "range", "greater than 0"),
        ("budget.energy_j", "several", True),
        ("network.tries", "range", "whole number, at least 1, at most 1,000"),
        ("network.nakagami_m", "unit", ""),
        ("network.broadcast", "kind", "truth"),
        ("plan.timing", "kind", "choice"),
        ("plan.timing", "optional", True),
        ("plan.exchange", "kind", "text"),
        ("budget.deadline_s", "label", "deadline"),
    ],
)
def test_units_ranges_and_kinds(name: str, key: str, value: object) -> None:
    assert FIELDS[name][key] == value


@pytest.mark.parametrize("preset", ["default", "adaptive", "paper", "narrowband"])
def test_what_a_field_shows_is_what_it_takes(preset: str) -> None:
    """Typed back into the form, every value means the same."""
    scenario = Scenario.preset(preset)
    shown = fields_of_scenario(scenario)
    typed = {name: typed_value(one["text"]) for name, one in shown.items() if one["text"]}
    assert scenario.override(typed) == scenario


@pytest.mark.parametrize("text", ["12", "true", "a b", " a", "[1, 2]", 'say "x"', "x = 3", "2 J"])
def test_words_that_mean_something_else_are_quoted(text: str) -> None:
    assert typed_value(written(text)) == text
