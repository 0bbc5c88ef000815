"""What a study rests on: every entry of the registries can be cited, or says that it cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import joulemesh
from joulemesh.base.registry import Citation
from joulemesh.cli.main import app
from joulemesh.data.reading import DATASETS
from joulemesh.methods import names, register
from joulemesh.methods.base import METHODS
from joulemesh.registries import MODELS, PARTITIONS, SCHEMES
from joulemesh.scenario import Scenario, profiles
from joulemesh.study.paper import references, used_by, used_in
from tests.views.publication.bibtex_grammar import parse

WITHOUT = {
    "spread",
    "tree-chunked",
    "iid",
    "quantity",
    "resample",
    "mlp",
    "logistic",
    "token-mlp",
    "verses",
}
"""What Joulemesh has of its own, or what everybody knows."""


OTHER = {
    "diabetes": {"training.loss": "mse", "training.partition": "iid"},
    "verses": {
        "training.loss": "token-cross-entropy",
        "training.model": "token-mlp",
        "training.partition": "iid",
    },
}
"""What else a scenario says about data without classes."""


def small(changes: dict[str, object] | None = None) -> Scenario:
    base = {"devices.count": 4, "plan.iterations": 3}
    return Scenario.preset("adaptive").override({**base, **(changes or {})})


NAMED = {
    "method": names(),
    "data set": DATASETS,
    "aggregation scheme": SCHEMES.names(),
    "partition": PARTITIONS.names(),
    "model": MODELS.names(),
}
FIELDS = {
    "data set": "training.dataset",
    "aggregation scheme": "plan.aggregation",
    "partition": "training.partition",
    "model": "training.model",
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, listed in NAMED.items() for name in listed]
)
def test_everything_is_cited_or_says_that_it_is_not(kind: str, name: str) -> None:
    methods = (name,) if kind == "method" else ("adaptive",)
    other = OTHER.get(name, {}) if kind == "data set" else {}
    scenario = small({FIELDS[kind]: name, **other} if kind in FIELDS else None)
    used = {one.what: one for one in used_by(scenario, methods)}
    text = references([used[f"{kind} {name}"]])
    if name in WITHOUT:
        assert text == f"% {kind} {name}: no publication is recorded\n"
    else:
        entries = parse(text)
        assert entries
        assert all(entry.fields.get("author") for entry in entries)


@pytest.mark.parametrize("name", [*profiles.DEVICES, *profiles.RADIOS])
def test_every_profile_leads_to_its_sources(name: str) -> None:
    section = "network" if name in profiles.RADIOS else "devices"
    used = used_by(Scenario.preset("adaptive").override({f"{section}.profile": name}), ())
    mine = next(one for one in used if one.what == f"profile {name}")
    assert {entry.fields["url"] for entry in parse(references([mine]))} == {
        source.url for source in profiles.find(name).sources
    }


def test_a_users_method_is_cited_as_it_was_registered() -> None:
    mine = Citation("Doe", "My Method", 2026, "Journal of Joules 1:2-3")
    with METHODS.scoped():
        register("mine", lambda name, setting, given: None, citation=mine)  # type: ignore[arg-type, return-value]
        used = used_by(small(), ["mine"])
    assert mine in {cited for one in used for cited in one.citations}
    note = next(one for one in used_by(small(), ["mine"]) if one.what == "method mine").note
    assert note == "it is not known here; name its file with --load"


def test_the_command_reads_scenarios_and_folders(tmp_path: Path) -> None:
    (tmp_path / "scenario.toml").write_text(small().to_toml(), "utf-8")
    (tmp_path / "study.json").write_text(json.dumps({"methods": ["d-psgd", "pens"]}))
    runner = CliRunner()
    done = runner.invoke(app, ["cite", str(tmp_path)])
    assert done.exit_code == 0, done.output
    keys = {entry.key for entry in parse(done.stdout)}
    assert {"joulemesh", "yan2024adaptive", "lian2017decentralized"} <= keys
    one = runner.invoke(app, ["cite", str(tmp_path / "scenario.toml"), "--json"])
    assert json.loads(one.stdout)[0]["what"] == "Joulemesh"
    target = str(tmp_path / "r.bib")
    assert runner.invoke(app, ["cite", str(tmp_path), "--out", target]).exit_code == 0
    assert parse(Path(target).read_text("utf-8")) == parse(done.stdout)
    assert [one.what for one in used_in(tmp_path)][2:4] == ["method d-psgd", "method pens"]


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=r"has no scenario\.toml: name a folder that"):
        used_in(tmp_path)
