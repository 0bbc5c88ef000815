"""How figures and short texts are written, in tables, on pages and beside progress bars."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.registry import Citation
from joulemesh.deploy.operator.standing import Probe, Standing
from joulemesh.deploy.record.history import Event
from joulemesh.metrics import ACCURACY, LOSS
from joulemesh.planning.notes import Figure, figures
from joulemesh.scenario import Origin, Scenario
from joulemesh.scenario.varied import Varied
from joulemesh.studio.form import _label, _range, written
from joulemesh.views import charts as digest
from joulemesh.views import words
from joulemesh.views.comparison import method_text
from joulemesh.views.deployment import _missed, event_words
from joulemesh.views.fleet import _clock, check_summary, status_summary
from joulemesh.views.latex import entry_key
from joulemesh.views.progress import Pace, facts, progress_line
from joulemesh.views.report import spans
from joulemesh.views.setting import _listed, _span
from joulemesh.views.sweep import words_of
from joulemesh.views.terminal import sparkline
from joulemesh.views.words import (
    difference_text,
    few_names,
    figure_text,
    metric_text,
    open_text,
    target_text,
    target_tile,
    target_words,
)


def plan(**fields: Any) -> joulemesh.Plan:
    return joulemesh.plan(Scenario.preset("adaptive").override(fields))


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (figure_text(0.9512, 0.004), "95.1 ± 0.4"),
        (figure_text(0.0562, 0.0129, "J"), "56.2 ± 12.9 mJ"),
        (figure_text(338.8, 0.0, "J"), "339 J"),
        (figure_text(0.4512, 0.0213, share=False), "0.451 ± 0.021"),
        (figure_text(61.27, None, share=False), "61.3"),
        (difference_text(-0.02, 0.01), "−2.0 ± 1.0 *"),
        (difference_text(0.02, 0.03), "+2.0 ± 3.0"),
        (difference_text(0.5, None), "+50.0"),
        (difference_text(-0.02, 0.0), "−2.0 ± 0.0"),  # equal by chance: no width, no asterisk
        (target_text({"x": None, "reached": 2, "seeds": 5}, "x", "J"), "2 of 5 seeds"),
        (method_text({"method": "a", "worlds": 3, "worlds_asked": 5}), "a (3 of 5 worlds)"),
        (metric_text(0.9512, ACCURACY), "95.1 %"),
        (metric_text(0.123456, LOSS), "0.1235"),
        (spans([1, 3, 4, 5, 9]), "1, 3–5, 9"),
        (sparkline(np.array([0.0, 1.0, 2.0, 7.0])), "▁▂▃█"),
        (words.percent(0.953), "95.3 %"),
        (words.model_words("mlp"), "an MLP"),
        (words.model_words("ResNet"), "a ResNet"),
        (words.page_title("Run", words.Subject("fleet", "2026-11-05T22:05:02+00:00")),
         "Run of fleet, 5 November 2026"),
        (words.page_title("Run", words.Subject("fleet", method="fixed:3")),
         "Run of fixed:3 on fleet"),
        (words.page_title("Comparison", words.Subject()), "Comparison"),
        (words.value_words("energy_j", (6.0, 30.0)), "6 J to 30 J"),
        (words.value_words("deadline_s", 0.04), "40 ms"),
        (words.value_words("cycles_per_sample", 3e5), "300,000"),
        (words.value_words("capacitance", 1e-27), "1e-27"),
        (words.value_words("hidden", (64, 32)), "[64, 32]"),
        (words.figure_words("step_s", Figure("devices.step_s", 0.02, Origin("given"), 0.031)),
         "20 ms (95 % interval within ±3.1 %)"),
        (words.by_section(figures(Scenario())[:3]),
         "[budget] total_s 4 s, energy_j 6 J to 30 J; [devices] count 20"),
        (words.device_words(Scenario(devices={"count": 1200, "profile": "esp32"})),
         "1,200 devices (esp32)"),
        (words.device_words(Scenario(devices={"count": 2, "profile": ["esp32", "laptop"]})),
         "2 devices (1 esp32, 1 laptop)"),
        (words_of(Varied("network.topology", ("ring", "a" * 40)), 1), f"{'a' * 21}…"),
        (entry_key(Citation("Hegedűs, Danner", "On the Decentralized", 2021)),
         "hegedus2021decentralized"),
        (_listed((0, 1, 2, 3)), "seeds 0 to 3"),
        (_listed((7,)), "seed 7"),
        (_listed((3, 1)), "seeds 3, 1"),
        (few_names(["a"]), "a"),
        (few_names(["a", "b", "c"]), "a, b and c"),
        (_span(np.array([0.0032, 0.0096]), "s"), "3.2 ms to 9.6 ms"),
        (_clock(0.004), "exact"),
        (_clock(-42.0), "42 s behind"),
        (check_summary([Probe("laptop", "gate", "10.0.0.7:7711", True)]), "no problem on 1 link"),
        (status_summary([Standing(0, "gate", "training", 0, 3, 20, 1.5), Standing(1, "barn")]),
         "1 of 2 devices answer: 1 training; iteration 3 of 20; 1.5 J metered, 0 J planned so far"),
        (_missed([[0, 1], [1, 1], [0, 2]], ["gate", "barn", "mast"]), "barn, mast"),
        (_missed("?", []), "others"),
        (event_words(Event(0, 0, "suspected", {"device": 1, "reason": "no beat"}), ["a", "barn"]),
         "suspects barn: no beat"),
        (event_words(Event(0, 0, "melted", {"celsius": 90}), ["gate"]), "melted: celsius 90"),
        (_label("budget.deadline_s", "s"), "deadline"),
        (_label("plan.on_depletion", ""), "on depletion"),
        (_range([{"type": "integer", "minimum": 1, "maximum": 1000}]),
         "whole number, at least 1, at most 1,000"),
        (_range([{"type": "string"}]), ""),
        (written("ring"), "ring"),
        (written((6.0, 30.0)), "[6.0, 30.0]"),
        (written("12"), '"12"'),
        (written(None), ""),
    ],
)  # fmt: skip
def test_a_text(made: str, wanted: str) -> None:
    assert made == wanted


def test_a_target_and_how_far_evaluations_leave_it_open() -> None:
    assert open_text([{"energy_to_target_j_error": 5.41, "time_to_target_s_error": 0.075}]) == (
        "interpolated between evaluations, to within 5.41 J and 75 ms"
    )
    found: dict[str, Any] = {"target_words": "test accuracy 0.9", "target": 0.9, "reached": 1}
    found |= {"target_metric": "accuracy", "energy_to_target_j": None, "time_to_target_s": None}
    assert target_words(found, 3) == "test accuracy 0.9: 1 of 3 seeds"
    assert target_tile(found | {"reached": 0}, 3)[1:] == ("not reached", "")
    found |= {"reached": 3, "energy_to_target_j": 48.4, "energy_to_target_j_ci95": 13.1}
    found |= {"time_to_target_s": 0.5, "time_to_target_s_ci95": 0.2}
    found |= {"energy_to_target_j_error": 2.31, "time_to_target_s_error": 0.07}
    assert target_tile(found, 3) == (
        "energy to 90.0 % accuracy",
        "48.4 ± 13.1 J",
        "time 500 ± 200 ms; interpolated between evaluations, to within 2.31 J and 70 ms",
    )


def test_a_line_of_progress_leaves_out_what_does_not_fit() -> None:
    known = ["iteration 50 of 100", "accuracy 0.95"]
    wide = progress_line("training", 0.5, known, 75.0, 60).plain
    assert wide == "training ━━━━━━───── iteration 50 of 100, accuracy 0.95 1:15"
    assert progress_line("training", 0.5, known, 75.0, 40).plain == (
        "training iteration 50 of 100 1:15"
    )
    left = facts(40, 1000, accuracy=0.95, energy_j=12.5, seconds_left=75.2)
    assert left == ["iteration 40 of 1,000", "accuracy 0.950", "1 min 16 s left", "12.5 J spent"]
    pace = Pace(clock=iter([10.0, 14.0]).__next__)
    assert np.isnan(pace.left_s("fixed:3", 20, 100))
    assert pace.left_s("fixed:3", 40, 100) == 12.0


def test_few_points_and_few_digits() -> None:
    assert digest.every(101, 3).tolist() == [0, 50, 100]
    assert digest.few_digits(np.array([[1 / 3, np.inf]]), 2) == [[0.33, None]]


def test_joules_of_charts_add_up() -> None:
    made = plan()
    flow = digest.flow_data(made)
    assert [use["key"] for use in flow["uses"]] == ["train", "send", "left"]
    total = sum(sum(source["joules"]) for source in flow["sources"])
    assert total == pytest.approx(made.energy_budget_j.sum(), rel=1e-4)
    along = digest.link_energy_j(made, made.timeline.route.link_index)
    assert along.sum() == pytest.approx(made.exchange_j[0].sum())  # a tree: up once, down once
    first, *_, last = digest.battery_left(made, np.array([0, 50, 100]))
    assert (first == 1).all()
    assert last == pytest.approx(made.margin_j / made.energy_budget_j)
    sunny = plan(**{"devices.harvest_w": 0.5, "plan.iterations": 5})
    data = digest.harvest_data(sunny)
    assert data is not None
    assert data["spent"][-1] == pytest.approx(sunny.spent_j.sum(), rel=1e-4)
