"""Whose models a method trains: what `joulemesh methods` and the pages state, by trying each."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.cli.main import main
from joulemesh.methods import libraries, lookup, names
from joulemesh.models.torch_model import NotOfJaxError

ROOT = Path(__file__).parents[2]
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


@pytest.mark.parametrize("name", names())
def test_every_method_trains_a_model_of_jax(name: str) -> None:
    assert "jax" in libraries(name)
    assert trains(name)


def test_hardly_anything_is_left_open() -> None:
    assert [name for name in (*names(), *VARIANTS) if not libraries(name)] == [
        "adaptive:rounds=theorem4-literal"
    ]


def test_the_command_states_it_of_methods_and_parameters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["joulemesh", "methods", "--json"])
    with pytest.raises(SystemExit):
        main()
    for record in json.loads(capsys.readouterr().out):
        assert record["libraries"] == list(libraries(record["name"]))
        for parameter in record["parameters"]:
            only_jax = (record["name"], parameter["name"]) == ("balanced", "compress")
            wanted = ["jax"] if only_jax else record["libraries"]
            assert parameter["libraries"] == wanted, parameter["name"]


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/pytorch.md"])
def test_the_pages_name_the_methods_that_do_not_train_modules(page: str) -> None:
    text = (ROOT / page).read_text()
    (sentence,) = (line for line in text.splitlines() if "not for PyTorch" in line)
    named = set(re.findall(r"`([\w-]+)`(?! with)", sentence)) & set(names())
    assert named == {name for name in names() if "torch" not in libraries(name)}
    assert "`balanced` with `compress`" in sentence
