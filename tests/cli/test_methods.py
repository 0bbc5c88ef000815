"""`joulemesh methods`: every contender with its parameters and citation, the user's own too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from joulemesh.methods import lookup, names
from tests.commands import Command

OWN = '''"""Lazy mixing: a step towards the neighbours."""

from joulemesh.methods import Citation, number, register, whole


def build(name, setting, given):
    raise NotImplementedError


register(
    "lazy",
    build,
    citation=Citation("Doe", "On Laziness", 2020),
    parameters={
        "tau": whole(meaning="rounds per iteration", default="3"),
        "step": number(meaning="how far to move", default="0.5"),
    },
    main="step",
)
register("bare", lambda name, setting, given: None)
'''


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch, own_methods: None) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_all_methods_are_listed_with_parameters_and_citations(command: Command) -> None:
    code, out, err = command("methods")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    starts = [line.split(":")[0] for line in lines if line[:1].strip() and ":" in line]
    assert [start for start in starts if start in names()] == list(names())
    text = " ".join(out.split())
    for method in map(lookup, names()):
        assert method.description in text
        assert str(method.citation or "") in text  # spread is Joulemesh's own
        for name in method.parameters:
            assert any(line.strip().startswith(f"{name} ") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "…" not in out


def test_methods_as_json(command: Command) -> None:
    code, out, _ = command("methods", "--json")
    assert code == 0
    records = {record["name"]: record for record in json.loads(out)}
    assert list(records) == list(names())
    fixed = records["fixed"]
    assert fixed["parameters"] == [
        {
            "name": "tau",
            "default": "plan.fixed_rounds",
            "meaning": "rounds per iteration",
            "values": "a whole number of at least 1",
        }
    ]
    assert fixed["citation"]["url"] == "https://arxiv.org/abs/2403.20075"
    assert all(record["built_in"] for record in records.values())


def test_methods_of_the_users_own_are_listed(command: Command, tmp_path: Path) -> None:
    (tmp_path / "lazy.py").write_text(OWN)
    code, out, _ = command("methods", "--load", "lazy.py")
    assert code == 0
    assert "lazy: Lazy mixing: a step towards the neighbours." in out
    assert 'Doe: "On Laziness", 2020' in out
    _, out, _ = command("methods", "lazy", "--load", "lazy.py", "--json")
    (record,) = json.loads(out)
    assert [one["name"] for one in record["parameters"]] == ["step", "tau"]  # the main one first
    assert not record["built_in"]
    _, out, _ = command("methods", "bare", "--load", "lazy.py", "--json")
    assert json.loads(out)[0]["citation"] is None
