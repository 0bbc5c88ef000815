"""The tool that shows that a change of the code changes no result: it must notice a single bit."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.fading import spellings
from joulemesh.methods.registry import lookup, names
from tools.same_bits import Record, differences, digest, elsewhere, machine, main, record
from tools.same_bits_cases import CASES, Case

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
    assert differences(made, record(TWO)) == []
    assert set(made["scenarios"]["run"]) == {"plan", "ledger", "parameters", "metrics"}
    assert set(made["scenarios"]["compare"]) == {"ledger of fixed:1", "metrics of fixed:1"}


@pytest.mark.slow
def test_a_change_of_one_figure_is_named(made: Record) -> None:
    other = record([Case("run", {**TINY, "training.learning_rate": 0.1 * (1 + 1e-6)}), TWO[1]])
    lines = differences(made, other)
    assert {line.rpartition(": ")[0] for line in lines} == {"run: parameters", "run: metrics"}
    other = record([TWO[0], Case("compare", {**TINY, "budget.energy_j": 29.0}, **COMPARED)])
    assert differences(made, other) == ["compare: ledger of fixed:1: leftover_j"]


@pytest.mark.parametrize("part", ["plan", "ledger", "parameters", "metrics"])
def test_every_part_is_compared(made: Record, part: str) -> None:
    other = copy.deepcopy(made)
    name = next(iter(other["scenarios"]["run"][part]))
    other["scenarios"]["run"][part][name] = "0" * 16
    assert differences(made, other) == [f"run: {part}: {name}"]
    del other["scenarios"]["run"]
    assert differences(made, other) == ["run: only in the old record"]


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


@pytest.mark.slow
def test_the_command_writes_checks_and_refuses(
    made: Record, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "record.json"
    assert main(["--write", str(file)], TWO) == 0
    assert json.loads(file.read_text("utf-8")) == made
    assert main(["--check", str(file)], TWO) == 0
    assert "0 differences in 2 scenarios" in capsys.readouterr().out
    old = copy.deepcopy(made)
    old["scenarios"]["run"]["ledger"]["bits"] = "0" * 16
    file.write_text(json.dumps(old), "utf-8")
    assert main(["--check", str(file)], TWO) == 1
    assert "run: ledger: bits\n1 differences" in capsys.readouterr().out
    assert main(["--check", str(file), "compare"], TWO) == 0
    assert "0 differences in 1 scenarios" in capsys.readouterr().out
    old["machine"]["jax"] = "0.0.1"
    file.write_text(json.dumps(old), "utf-8")
    assert main(["--check", str(file)], TWO) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "of another machine: jax 0.0.1 there and" in line
    assert main(["--check", str(tmp_path / "none.json")], TWO) == 2


def test_records_of_one_machine_can_be_compared() -> None:
    here = machine()
    assert elsewhere({"machine": here}, here) == ""
    assert here["processor"]
    assert here["cpu_devices"] >= 1


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


@pytest.mark.parametrize("field", CHOICES)
def test_scenarios_cover_every_choice(field: str, tmp_path: Path) -> None:
    given = {str(case.scenario(tmp_path).given.get(field, "")) for case in CASES}
    assert CHOICES[field] <= {value.partition(":")[0] for value in given}


def test_scenarios_cover_every_method() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 30
    compared = {name.partition(":")[0] for case in CASES for name in case.methods}
    assert {name for name in names() if lookup(name).built_in} <= compared
