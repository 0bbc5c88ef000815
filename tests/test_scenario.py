"""The scenario: every way to give a quantity, every way to get it wrong, and back to TOML."""

from __future__ import annotations

import contextlib
import copy
import json
import math
import pickle
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.registries import TOPOLOGIES
from joulemesh.scenario import (
    PRESETS,
    SECTIONS,
    Scenario,
)
from joulemesh.scenario.sections import FILES

# What the user writes --------------------------------------------------------------------------


def test_every_field_has_a_one_line_description() -> None:
    for section in SECTIONS.values():
        for name, field in section.model_fields.items():
            assert field.description, name
            assert "\n" not in field.description


def test_building_a_scenario_leaves_the_users_values_alone(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("cpu_hz\n1e9\n2e9\n3e9\n")
    values: dict[str, Any] = {"devices": {"table": str(tmp_path / "d.csv")}}
    before = copy.deepcopy(values)
    first = Scenario(**values)
    assert values == before
    assert first == Scenario(**values)


def test_a_scenario_can_be_copied_and_pickled() -> None:
    one = Scenario.preset("paper").override({"seed": 4, "devices.cpu_hz": {"values": [1, 2]}})
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.deepcopy(one) == one


def test_override_changes_one_field_and_only_that() -> None:
    one = Scenario.preset("adaptive")
    two = one.override({"devices.count": 50, "seed": 7})
    assert (two.devices.count, two.seed) == (50, 7)
    assert one.devices.count == 20
    same = two.override({"devices.count": 20, "seed": 0})
    assert same == one


def test_accounting_and_clock_follow_the_physics_unless_set() -> None:
    def of(**plan: Any) -> tuple[str, str]:
        options = Scenario(plan=plan).plan
        return options.pays, options.timed

    assert of() == ("transmitter", "critical-path")
    assert of(physics="paper") == ("both-ends", "paper")
    assert of(physics="paper", accounting="transmitter") == ("transmitter", "paper")
    assert of(timing="paper") == ("transmitter", "paper")


# What is refused -------------------------------------------------------------------------------

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown key": ({"devices": {"cout": 3}}, "devices.cout: unknown field; did you mean 'count'?"),
    "unknown section": ({"device": {}}, "device: unknown field; did you mean 'devices'?"),
    "a far-off key": ({"budget": {"xyz": 1}}, "budget.xyz: unknown field; known fields: energy_j"),
    "negative": ({"budget": {"energy_j": -1}}, "budget.energy_j: must be greater than 0, not -1"),
    "zero deadline": ({"budget": {"deadline_s": 0}}, "budget.deadline_s: input should be greater"),
    "nan": ({"devices": {"cpu_hz": float("nan")}}, "devices.cpu_hz: must be a finite number"),
    "nan deadline": ({"budget": {"deadline_s": float("nan")}}, "budget.deadline_s: input should"),
    "infinity": ({"network": {"area_m": float("inf")}}, "network.area_m: input should be a finite"),
    "nan in a list": (
        {"devices": {"cpu_hz": [1.0, float("nan")]}},
        "devices.cpu_hz: must be a fin",
    ),
    "text": (
        {"plan": {"zeta": "large"}},
        "plan.zeta: must be a number or one of auto, not 'large'",
    ),
    "no zeta": ({"plan": {"zeta": 0}}, "plan.zeta: must be greater than 0, not 0"),
    "a true count": (
        {"devices": {"count": True}},
        "devices.count: input should be a valid integer",
    ),
    "a true speed": ({"devices": {"cpu_hz": True}}, "devices.cpu_hz: must be a number, not True"),
    "half a device": (
        {"devices": {"count": 2.5}},
        "devices.count: input should be a valid integer",
    ),
    "backwards": ({"devices": {"cpu_hz": [2e9, 1e9]}}, "devices.cpu_hz: the range"),
    "empty list": ({"devices": {"cpu_hz": []}}, "devices.cpu_hz: is an empty list"),
    "no values": ({"devices": {"cpu_hz": {"values": []}}}, "devices.cpu_hz: is an empty list"),
    "odd table": ({"devices": {"cpu_hz": {"mean": [1]}}}, "devices.cpu_hz: must be {range = ...}"),
    "two keys": (
        {"devices": {"cpu_hz": {"range": [1, 2], "values": [1]}}},
        "devices.cpu_hz: must be {range = [low, high]} or {values = [...]}",
    ),
    "long range": ({"devices": {"cpu_hz": {"range": [1, 2, 3]}}}, "a range has two numbers"),
    "no samples": ({"devices": {"samples": 0}}, "devices.samples: must be at least 1, not 0"),
    "no iterations": ({"plan": {"iterations": 0}}, "plan.iterations: must be a whole number of at"),
    "half": ({"plan": {"iterations": 2.5}}, "plan.iterations: must be a whole number of at least"),
    "a word": (
        {"plan": {"iterations": "most"}},
        "plan.iterations: must be a number or one of auto, longest, bound",
    ),
    "policy": ({"plan": {"rounds": "magic"}}, "plan.rounds: must be one of theorem4, "),
    "quantile": (
        {"plan": {"fade_quantile": 1.0}},
        "plan.fade_quantile: input should be less than 1",
    ),
    "fading": (
        {"network": {"fading": "raleigh"}},
        "network.fading: must be one of none, rayleigh, rician, nakagami, trace:FILE.csv, not "
        "'raleigh'; did you mean 'rayleigh'?",
    ),
    "no fading": ({"network": {"fading": 3}}, "network.fading: must be one of none, rayleigh"),
    "a trace without file": (
        {"network": {"fading": "trace"}},
        "network.fading: must be written 'trace:FILE.csv', not 'trace'",
    ),
    "an empty file name": ({"network": {"fading": "trace:"}}, "must be written 'trace:FILE.csv'"),
    "rayleigh of what": (
        {"network": {"fading": "rayleigh:3"}},
        "network.fading: must be written 'rayleigh', not 'rayleigh:3'",
    ),
    "a line of sight alone": (
        {"network": {"rician_k_db": 61}},
        "network.rician_k_db: must be at most 60, not 61; such links hardly fade: use "
        'network.fading = "none"',
    ),
    "infinite K": ({"network": {"rician_k_db": float("inf")}}, "must be a finite number, not inf"),
    "K in words": (
        {"network": {"rician_k_db": "strong"}},
        "network.rician_k_db: must be a number or \"-inf\", not 'strong'",
    ),
    "m": ({"network": {"nakagami_m": 0.4}}, "network.nakagami_m: input should be greater than or"),
    "an end": ({"network": {"trace_end": "loop"}}, "network.trace_end: input should be 'refuse', "),
    "section as number": ({"plan": 3}, "plan: input should be a valid dictionary"),
    "seed": ({"seed": -1}, "seed: input should be greater than or equal to 0"),
    "topology": (
        {"network": {"topology": "rign"}},
        "network.topology: 'rign' is neither a topology nor a file; did you mean 'ring'?",
    ),
    "a long topology": ({"network": {"topology": "x" * 5000}}, "is neither a topology nor a file"),
    "hidden": ({"training": {"hidden": [64, 0]}}, "training.hidden.1: input should be greater"),
    "a time for an energy": (
        {"budget": {"energy_j": "5 min"}},
        "budget.energy_j = '5 min': this is a time; give an energy such as '100 Wh' or joules",
    ),
    "a time among energies": (
        {"budget": {"energy_j": ["6 J", "5 min"]}},
        "budget.energy_j = '5 min': this is a time; give an energy",
    ),
    "an energy for a time": ({"budget": {"deadline_s": "5 J"}}, "budget.deadline_s = '5 J': this"),
    "a misspelt unit": ({"devices": {"cpu_hz": "2 ghz"}}, "is unknown; did you mean 'GHz'?"),
    "a backward range": ({"budget": {"energy_j": ["1 Wh", 30]}}, "the range [3600.0, 30.0] runs"),
    "a negative text": ({"budget": {"energy_j": "-1 J"}}, "energy_j: must be greater than 0, not"),
    "a number as text": ({"budget": {"deadline_s": "5"}}, "input should be a valid number (got '5"),
    "constant": ({"bounds": {"smoothness": "guess"}}, "bounds.smoothness: must be a number or one"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_values_are_one_line_with_the_field(name: str) -> None:
    values, wanted = BAD[name]
    with pytest.raises(joulemesh.ScenarioError) as refusal:
        Scenario(**values)
    text = str(refusal.value)
    assert wanted in text
    assert "\n" not in text
    assert isinstance(refusal.value, ValueError)


def test_fields_may_be_written_with_units() -> None:
    one = Scenario(
        devices={
            "count": 2,
            "cpu_hz": {"values": ["2 GHz", 1e9]},
            "transmit_power_w": "30 dBm",
            "x_m": ["-1 km", 3],
        },
        network={
            "area_m": "0.5 km",
            "bandwidth_hz": "20 MHz",
            "max_rate_bps": "10 Mbit/s",
            "noise_dbm_per_hz": "-174 dBm/Hz",
            "shadowing_db": "8 dB",
        },
        budget={"energy_j": ["6 J", "0.01 Wh"], "deadline_s": "12 ms"},
    )
    assert one.devices.cpu_hz == {"values": (2e9, 1e9)}
    assert one.devices.transmit_power_w == 1.0
    assert one.devices.x_m == (-1000.0, 3.0)
    assert (one.network.area_m, one.network.bandwidth_hz) == (500.0, 20e6)
    assert (one.network.max_rate_bps, one.network.noise_dbm_per_hz) == (10e6, -174.0)
    assert one.network.shadowing_db == 8.0
    assert (one.budget.energy_j, one.budget.deadline_s) == ((6.0, 36.0), 0.012)
    assert Scenario(**tomllib.loads(one.to_toml())) == one
    assert one.override({"budget.energy_j": "1 Wh"}).budget.energy_j == 3600.0


def test_the_schema_takes_what_the_scenario_takes() -> None:
    parts = Scenario.model_json_schema()["$defs"]
    for section, field, example in (
        ("Budget", "deadline_s", "5 min"),
        ("Budget", "energy_j", "100 Wh"),
        ("Network", "max_rate_bps", "10 Mbit/s"),
    ):
        kinds = parts[section]["properties"][field]["anyOf"]
        assert [kind["examples"] for kind in kinds if "examples" in kind] == [[example]]
        assert "number" in [kind.get("type") for kind in kinds]
    assert "anyOf" not in parts["Training"]["properties"]["learning_rate"]


def test_presets_by_name_only() -> None:
    with pytest.raises(joulemesh.ScenarioError, match="the presets are default, adaptive"):
        Scenario.preset("../default")


# Files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"devices = [", b"\xff\xfe\x00", b"a = 1\na = 2", b"<html>"])
def test_a_file_that_is_not_toml_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_bytes(data)
    with pytest.raises(
        joulemesh.ScenarioError, match=r"is not a TOML file .*joulemesh init"
    ) as bad:
        Scenario.load(tmp_path / "bad.toml")
    assert "\n" not in str(bad.value)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "twice.json").write_text('{"seed": 1, "plan": {"zeta": 9, "zeta": 8}}')
    with pytest.raises(joulemesh.ScenarioError, match="'zeta' is given twice"):
        Scenario.load(tmp_path / "twice.json")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(joulemesh.ScenarioError, match=r"cannot read .*joulemesh init"):
            Scenario.load(path)


def test_paths_are_relative_to_the_scenario_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "links.csv").write_text("i,j\n0,1\n1,2\n")
    (tmp_path / "fleet" / "devices.csv").write_text("cpu_hz\n1e9\n2e9\n3e9\n")
    (tmp_path / "fleet" / "mine.npz").write_bytes(b"")
    (tmp_path / "fleet" / "raw").mkdir()
    (tmp_path / "fleet" / "trace.csv").write_text("t,i,j,gain\n1,0,1,1\n")
    (tmp_path / "fleet" / "scenario.toml").write_text(
        '[network]\ntopology = "links.csv"\nfading = "trace:trace.csv"\n'
        '[devices]\ntable = "devices.csv"\n'
        '[training]\ndataset = "mine.npz"\ndata_dir = "raw"\n'
    )
    monkeypatch.chdir(tmp_path)
    one = Scenario.load("fleet/scenario.toml")
    assert one.network.topology == str(tmp_path / "fleet" / "links.csv")
    assert one.network.fading == f"trace:{tmp_path / 'fleet' / 'trace.csv'}"
    assert one.devices.table == str(tmp_path / "fleet" / "devices.csv")
    assert one.training.dataset == str(tmp_path / "fleet" / "mine.npz")
    assert one.training.data_dir == str(tmp_path / "fleet" / "raw")


def test_files_that_a_scenario_names_can_be_kept_under_other_names(tmp_path: Path) -> None:
    from joulemesh.scenario.given import input_files
    from joulemesh.study.identity import asked, keep_inputs, portable

    (tmp_path / "trace").write_text("t,i,j,gain\n1,0,1,1\n")  # named like its model
    one = Scenario(network={"fading": f"trace:{tmp_path}/./trace"})
    assert input_files(one) == {"network.fading": tmp_path / "trace"}
    copies = keep_inputs(one, tmp_path / "run")
    assert copies == ["inputs/network-fading", "inputs/inputs.json"]
    assert portable(one).network.fading == "trace:inputs/network-fading"
    before = asked(one)
    (tmp_path / "trace").write_text("t,i,j,gain\n1,0,1,2\n")
    assert asked(one) != before
    assert asked(one)["network"]["fading"].startswith("trace:")
    assert input_files(Scenario(network={"fading": "rayleigh"})) == {}


def test_names_are_not_mistaken_for_files_beside_the_scenario(tmp_path: Path) -> None:
    """A folder with the data set's files may well be called after it."""
    (tmp_path / "mnist").mkdir()
    (tmp_path / "digits").write_text("notes")
    (tmp_path / "ring").write_text("i,j\n")
    (tmp_path / "rayleigh").write_text("t,i,j,gain\n")
    file = tmp_path / "s.toml"
    for name in ("mnist", "digits"):
        file.write_text(
            f'[training]\ndataset = "{name}"\n[network]\ntopology = "ring"\nfading = "rayleigh"\n'
        )
        one = Scenario.load(file)
        assert (one.training.dataset, one.network.topology) == (name, "ring")
        assert one.network.fading == "rayleigh"


# To TOML and back ------------------------------------------------------------------------------

positive = st.floats(1e-300, 1e300)
quantity = st.one_of(
    positive,
    st.integers(1, 10**9),
    st.tuples(positive, positive).map(sorted),
    st.lists(positive, min_size=3, max_size=6),
    st.lists(positive, min_size=1, max_size=4).map(lambda xs: {"values": xs}),
    st.tuples(positive, positive).map(lambda pair: {"range": sorted(pair)}),
)
words = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    return Scenario(
        seed=draw(st.integers(0, 2**63)),
        devices={
            "count": draw(st.integers(1, 10**6)),
            "cpu_hz": draw(quantity),
            "samples": draw(st.one_of(st.just("partition"), st.floats(1, 1e6), words)),
            "x_m": draw(st.one_of(st.none(), st.floats(-1e6, 1e6))),
        },
        network={
            "topology": draw(st.sampled_from(TOPOLOGIES.names())),
            "noise_dbm_per_hz": draw(st.floats(-300, 0)),
            "channel_known": draw(st.booleans()),
            "gains": draw(st.one_of(st.none(), words)),
            "fading": draw(
                st.sampled_from(("none", "rician", "nakagami"))
                | words.filter(str.strip).map("trace:{}".format)
            ),
            "rician_k_db": draw(st.floats(-300, 60) | st.just("-inf") | st.just(-math.inf)),
            "nakagami_m": draw(st.floats(0.5, 1e6)),
        },
        budget={"energy_j": draw(quantity), "deadline_s": draw(positive)},
        plan={
            "iterations": draw(st.sampled_from((1, 77, "longest", "bound"))),
            "accounting": draw(st.sampled_from((None, "transmitter", "both-ends"))),
            "gossip_rounds": draw(st.sampled_from((3, "epsilon", "balanced"))),
        },
        training={
            "hidden": draw(st.lists(st.integers(1, 99), max_size=3)),
            "optimizer": draw(words),
        },
        bounds={"smoothness": draw(st.one_of(st.just("estimate"), st.floats(0, 1e9)))},
    )


@given(one=scenarios(), comments=st.booleans())
@settings(max_examples=150, deadline=None)
def test_toml_round_trip(one: Scenario, comments: bool) -> None:
    assert Scenario(**tomllib.loads(one.to_toml(comments=comments))) == one


@given(one=scenarios())
@settings(max_examples=50, deadline=None)
def test_json_round_trip(one: Scenario) -> None:
    assert Scenario(**json.loads(json.dumps(one.model_dump(mode="json")))) == one


@pytest.mark.parametrize("name", PRESETS)
def test_presets_round_trip(name: str, tmp_path: Path) -> None:
    one = Scenario.preset(name)
    (tmp_path / "s.toml").write_text(one.to_toml(comments=True), "utf-8")
    assert Scenario.load(tmp_path / "s.toml") == one


def test_an_empty_path_is_no_traceback(tmp_path: Path) -> None:
    for name in FILES:
        section, _, field = name.partition(".")
        (tmp_path / "s.toml").write_text(f'[{section}]\n{field} = ""\n')
        with contextlib.suppress(joulemesh.ScenarioError):
            joulemesh.plan(Scenario.load(tmp_path / "s.toml"))


# The presets -----------------------------------------------------------------------------------


def test_the_default_is_calibrated() -> None:
    """Battery and time bind some devices each, and every device trains."""
    plan = joulemesh.plan(Scenario())
    bound = plan.binding.tolist()
    assert set(bound) == {"energy", "time"}
    assert min(bound.count("energy"), bound.count("time")) >= 4
    assert 1 <= plan.rounds.mean() <= 10
    assert (plan.rounds.sum(axis=0) >= 0.5 * plan.iterations).all()
    assert Scenario().budget.total_s == 4.0
    assert plan.time_s > 0.99 * 4.0
    assert not [note for note in plan.notes if not note.startswith("plan.iterations")]


def test_the_papers_plan_of_the_default_devices_is_calibrated() -> None:
    """Both constraints bind for some device, and mean rounds lie in 3..10."""
    plan = joulemesh.plan(Scenario.preset("adaptive"))
    assert {"energy", "deadline"} <= set(plan.binding.tolist())
    assert 3 <= plan.rounds.mean() <= 10


@pytest.mark.parametrize("topology", TOPOLOGIES.names())
@pytest.mark.parametrize("name", PRESETS)
def test_presets_can_be_planned_on_every_named_topology(name: str, topology: str) -> None:
    plan = joulemesh.plan(Scenario.preset(name).override({"network.topology": topology}))
    assert (plan.margin_j >= 0).all()
    if plan.deadline_s is not None:
        assert (plan.margin_s >= -1e-9 * plan.deadline_s).all()
    assert plan.total_s is None or plan.time_s <= plan.total_s
    assert (plan.deadline_s, plan.total_s) != (None, None)


def test_the_paper_preset_is_section_v_a() -> None:
    one = Scenario.preset("paper")
    plan = joulemesh.plan(one)
    assert (one.devices.count, one.devices.transmit_power_w, one.devices.cpu_hz) == (20, 1.0, 2e9)
    assert one.devices.cycles_per_sample == (1000.0, 3000.0)
    assert one.network.noise_dbm_per_hz == -174.0
    assert (one.plan.physics, one.plan.pays, one.plan.timed) == ("paper", "both-ends", "paper")
    assert plan.work.parameters == 159_010  # MLP 784-200-10
    assert plan.iterations == 400
    assert np.unique(plan.work.round_samples).tolist() == [3000.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network.interference_m": 50.0}, r"applies to a shared medium only; set network.medium"),
        (
            {"network.medium": "shared", "plan.physics": "paper"},
            r'"shared" has no price under plan.physics = "paper"',
        ),
        (
            {"network.broadcast": True, "plan.timing": "paper"},
            r'broadcast = true has no price under plan.timing = "paper"',
        ),
        ({"network.broadcast": True, "network.duplex": "half"}, r"one link at a time"),
        (
            {
                "network.medium": "shared",
                "network.interference_m": 9.0,
                "devices.positions": "moves.csv",
            },
            r"devices.positions moves them; leave one of them out",
        ),
        (
            {
                "network.medium": "shared",
                "network.interference_m": 9.0,
                "devices.count": 3,
                "network.topology": [[0, 1], [1, 2]],
                "network.gains": [1e-9, 1e-9],
            },
            r"needs the devices' places, and network.gains has none",
        ),
    ],
)
def test_settings_of_the_medium_that_do_not_go_together_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=message):
        Scenario().override(changes)
