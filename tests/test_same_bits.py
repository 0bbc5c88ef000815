"""The tool that shows that a change of the code changes no result: it must notice a single bit."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from joulemesh import Scenario
from joulemesh.cli.main import app
from joulemesh.fading import spellings
from joulemesh.methods.base import lookup, names
from tools import same_bits
from tools.same_bits import Record, differences, record
from tools.same_bits_cases import SCENARIOS, Case
from tools.same_bits_commands import COMMANDS, WITHOUT, Fleets
from tools.same_bits_figures import digest, figures, plain

RECORD = Path(same_bits.__file__).with_name("same_bits.json")
TINY = {
    "devices.count": 3,
    "devices.cycles_per_sample": 1e4,
    "plan.iterations": 2,
    "plan.rounds": "fixed",
    "plan.fixed_rounds": 1,
    "training.model": "logistic",
}
COMPARED: dict[str, Any] = {"methods": ("fixed:1",), "equal": "iterations"}
TWO = (Case("run", TINY), Case("compare", TINY, **COMPARED))


@pytest.fixture(scope="module")
def made() -> Record:
    return record(TWO)


@pytest.mark.slow
def test_the_same_code_gives_the_same_record(made: Record) -> None:
    assert record(TWO) == made
    assert set(made["cases"]["run"]) == {"plan", "ledger", "parameters", "metrics"}
    assert set(made["cases"]["compare"]) == {"comparison", "row of fixed:1", "curves of fixed:1"}


@pytest.mark.slow
def test_a_change_of_one_figure_is_named(made: Record) -> None:
    other = record([Case("run", {**TINY, "training.learning_rate": 0.1 * (1 + 1e-6)}), TWO[1]])
    (one,) = differences(made["cases"], other["cases"])
    assert (one.case, one.trained) == ("run", True)
    other = record([TWO[0], Case("compare", {**TINY, "budget.energy_j": 29.0}, **COMPARED)])
    (one,) = differences(made["cases"], other["cases"])
    assert (one.case, one.kind, one.figures) == ("compare", "value", 2)
    assert one.where == "row of fixed:1: leftover_j"


@pytest.mark.parametrize("part", ["plan", "ledger", "parameters", "metrics"])
def test_every_part_is_compared(made: Record, part: str) -> None:
    other = copy.deepcopy(made["cases"])
    name = next(iter(other["run"][part]))
    other["run"][part][name] = "0" * 16
    (one,) = differences(made["cases"], other)
    assert (one.kind, one.where, one.figures) == ("value", f"{part}: {name}", 1)
    assert one.trained == (part in ("parameters", "metrics"))
    del other["run"]
    (line,) = map(str, differences(made["cases"], other))
    assert line == "run: value: only in the old record"


def test_prose_and_clocks_are_left_out_and_nothing_else() -> None:
    row = {"scheme": "tree", "notes": ["it is far"], "energy_j": 2.0, "active": [True], "n": None}
    assert plain({**row, "wall_s": 3.0, "reason": "too far", "where": "/tmp/x"}) == {
        **row,
        "notes": [],
    }


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_one_bit_of_an_array_is_noticed(kind: Any) -> None:
    values = np.linspace(0.1, 1.0, 50, dtype=kind).reshape(5, 10)
    other = values.copy()
    other[3, 7] = np.nextafter(other[3, 7], kind(2))
    found = {digest(values), digest(other), digest(values.ravel()), digest(values[:, ::-1])}
    assert len(found) == 4
    assert digest(values) == digest(np.asfortranarray(values)) == digest(values.copy())
    assert digest(-0.0) != digest(0.0)
    with pytest.raises(TypeError, match="object has no digest"):
        digest(object())


CHOICES = {
    "plan.aggregation": {"tree", "ring", "ring-chunked", "gossip", "metropolis"},
    "plan.rounds": {"theorem4", "theorem4-literal", "backfill", "uniform", "fixed", "inverse"},
    "network.topology": {"quasi-ring", "grid", "complete", "geometric"},
    "network.bits_per_parameter": {"16"},
    "network.fading": {name.partition(":")[0] for name in spellings()} - {"none"},
    "training.partition": {"iid", "shards", "quantity", "resample", "column"},
    "training.model": {"logistic", "mlp", "cnn"},
    "training.weights": {"samples"},
    "training.precision": {"float64", "bfloat16"},
    "training.local_round": {"epoch"},
}


def flat(sections: dict[str, Any]) -> dict[str, Any]:
    """Values of a scenario by full names."""
    seed = {"seed": sections.pop("seed")}
    return seed | {
        f"{name}.{key}": value for name in sections for key, value in sections[name].items()
    }


@pytest.mark.parametrize("field", CHOICES)
def test_scenarios_cover_every_choice(field: str, tmp_path: Path) -> None:
    given = {str(case.scenario(tmp_path).given.get(field, "")) for case in SCENARIOS}
    assert CHOICES[field] <= {value.partition(":")[0] for value in given}


def test_every_field_of_the_scenario_is_set_by_a_case(tmp_path: Path) -> None:
    defaults = flat(Scenario().model_dump())
    changed = {
        name
        for case in SCENARIOS
        for scenario in [case.scenario(tmp_path)]
        for name in scenario.given
        if flat(scenario.model_dump())[name] != defaults[name]
    }
    assert sorted(defaults.keys() - changed) == []


def test_scenarios_cover_every_method() -> None:
    compared = {name.partition(":")[0] for case in SCENARIOS for name in case.methods}
    assert {name for name in names() if lookup(name).built_in} <= compared


def printing_json(group: Any, name: str = "") -> Iterator[str]:
    """Commands that have the option --json."""
    for word, command in group.commands.items():
        whole = f"{name} {word}".strip()
        if hasattr(command, "commands"):
            yield from printing_json(command, whole)
        elif any("--json" in parameter.opts for parameter in command.params):
            yield whole


def test_every_command_that_prints_json_is_in_a_case() -> None:
    covered = {command for case in COMMANDS for command in case.covers}
    assert {*printing_json(typer.main.get_command(app))} == covered | WITHOUT.keys()


def test_virtual_fleets_go_as_they_went(tmp_path: Path) -> None:
    """Their course hangs on no processor: it is the same everywhere."""
    kept = json.loads(RECORD.read_text("utf-8"))["cases"]["fleets 0 to 499"]
    some = Fleets(range(25))
    assert figures(some.measure(tmp_path)) == {"seeds 0 to 24": kept["seeds 0 to 24"]}


@pytest.mark.parametrize("name", ["preset narrowband", "preset paper"])
def test_plans_are_as_they_were(name: str, tmp_path: Path) -> None:
    (case,) = [one for one in SCENARIOS if one.name == name]
    kept = json.loads(RECORD.read_text("utf-8"))["cases"]
    found = differences({name: kept[name]}, {name: figures(case.measure(tmp_path))})
    assert [str(one) for one in found if one.kind == "value"] == []
