"""Whose models a method trains: what `joulemesh methods` and the pages state, by trying each."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.cli.main import main
from joulemesh.methods import libraries, lookup, names
from joulemesh.models.torch_model import NotOfJaxError

SMALL = {
    "devices.count": 4,
    "network.topology": "complete",
    "plan.iterations": 2,
    "training.model": "logistic",
}
VARIANTS = [
    f"{name}:{key}={value}"
    for name in names()
    for key, parameter in lookup(name).parameters.items()
    for value in parameter.words or filter(None, (parameter.example,))
]


def trains(name: str, **model: Any) -> bool:
    """Train a few iterations; a refusal before that is an answer, too."""
    scenario = Scenario.preset("adaptive").override(SMALL)
    try:
        return bool(joulemesh.run(scenario, method=name, **model).loss[-1] > 0)
    except NotOfJaxError:
        return False


@pytest.mark.parametrize("name", [*names(), *VARIANTS])
def test_a_method_trains_the_models_that_it_is_said_to(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    if not libraries(name):  # it cannot be made ready for a small fleet
        pytest.skip("refused for another reason")
    assert trains(name, model=module) == ("torch" in libraries(name))


def test_every_method_trains_a_model_of_jax() -> None:
    assert {libraries(name) for name in names()} == {("jax", "torch")}
    scenario = Scenario.preset("adaptive").override({**SMALL, "plan.iterations": 4})
    made = joulemesh.compare(scenario, methods=names(), equal="iterations")
    assert [one.name for one in made.entries] == list(names())
    assert not [one.name for one in made.entries if one.infeasible or one.diverged]
    assert all(len(one.iteration) for one in made.entries)


def test_hardly_anything_is_left_open() -> None:
    assert [name for name in (*names(), *VARIANTS) if not libraries(name)] == [
        "adaptive:rounds=theorem4-literal"
    ]


def test_the_command_states_it_of_every_method(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["joulemesh", "methods", "--json"])
    with pytest.raises(SystemExit):
        main()
    records = json.loads(capsys.readouterr().out)
    assert records
    assert all(record["libraries"] == ["jax", "torch"] for record in records)
