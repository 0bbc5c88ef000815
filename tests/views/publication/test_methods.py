"""The setting in words: every figure of it is the scenario's, the plan's or the study's."""

from __future__ import annotations

import pytest

import joulemesh
from joulemesh.base.units import si
from joulemesh.views.setting import Sizes, comparison_methods, run_methods
from joulemesh.views.words import Subject
from tests.views.publication.studies import study

VERSIONS = {
    "joulemesh": "0.1.0",
    "python": "3.11.7",
    "numpy": "2.4",
    "platform": "Linux",
    "accelerators": "cpu, cpu",
}
SIZES = Sizes(1437, 360, 10)
A = (0.90, 0.91, 0.93)


def plain(text: str) -> str:
    return " ".join(text.split())


def test_a_comparison_states_devices_budgets_data_methods_seeds_and_versions() -> None:
    found = study({"a": A, "b": A}, refused=["c"])
    plan = joulemesh.plan(found.scenario)
    keys = {"method a": ("yan2024",), "data set digits": ("al1998",), "Joulemesh": ("jm",)}
    text = plain(comparison_methods(found, plan, SIZES, VERSIONS, keys))
    low, high = (
        si(float(plan.energy_budget_j.min()), "J"),
        si(float(plan.energy_budget_j.max()), "J"),
    )
    for said in (
        "We simulated 4 devices in a square of 500 m × 500 m, connected in a ring, with 4 links",
        "a bandwidth of 20 MHz, a noise density of −174 dBm/Hz",
        "128.1 + 37.6 log10(d/km) dB and no fading",
        f"Batteries hold {low} to {high}",
        "an iteration must end within 40 ms",
        "digits [al1998] (1,437 training and 360 test samples of 10 classes)",
        "an MLP of 4,810 parameters (32 bits each)",
        "Dirichlet(0.5)",
        "batch size of 32 and a learning rate of 0.1",
        "We compared a [yan2024] (4 iterations) and b (4 iterations) on equal batteries",
        "Not able to run: c.",
        "means of 3 seeds (seeds 0 to 2)",
        "paired by seed, with Holm's correction",
        "Joulemesh 0.1.0 [jm] with Python 3.11.7 and NumPy 2.4 on the CPU (Linux).",
    ):
        assert said in text, said


def test_a_run_states_its_plan_and_its_seeds() -> None:
    scenario = study({"a": A}).scenario
    plan = joulemesh.plan(scenario)
    text = plain(run_methods(scenario, plan, Subject(), SIZES, (7,), VERSIONS))
    assert "The plan has 3 iterations and averages along a tree after each;" in text
    assert f"(mean {plan.rounds.mean():.3g}) local rounds" in text
    assert "Training was run once (seed 7)." in text
    other = plain(run_methods(scenario, None, Subject(method="pens"), None, (1, 2), VERSIONS))
    assert "The method was pens. Training was run with 2 seeds (seeds 1 to 2)." in other


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network.fading": "rayleigh"}, "rayleigh fading, constant within 1 iteration."),
        ({"network.path_loss": "power-law"}, "30 + 30 log10(d/m) dB"),
        ({"network.duplex": "half"}, "It is assumed that idling is free, receiving is free, each"),
        ({"network.header_bits": 720}, "A packet carries 1,500 bytes, with 90 bytes of headers"),
        ({"devices.receive_power_w": 0.2}, "Receiving draws 200 mW."),
        ({"training.partition": "shards"}, "each device holds 2 shards"),
        (
            {"training.local_round": "epoch", "budget.deadline_s": 1.0},
            "one pass over the device's samples",
        ),
        ({"network.topology": "complete"}, "connected in a complete graph, with 6 links"),
        (
            {"network.topology": "geometric"},
            "in a geometric graph (mean degree 20 asked for), with",
        ),
        ({"network.topology": [[0, 1], [1, 2], [2, 3]]}, "connected in a graph of their own, with"),
        ({"training.partition": "iid"}, "samples are split evenly and at random among the devices"),
        ({"budget.total_s": 9.0}, "the whole training must end within 9 s"),
    ],
)
def test_what_the_scenario_changes_the_paragraph_tells(
    changes: dict[str, object], said: str
) -> None:
    scenario = study({"a": A}).scenario.override(changes)
    text = run_methods(scenario, joulemesh.plan(scenario), Subject(), SIZES, (0,), VERSIONS)
    assert said in plain(text)
