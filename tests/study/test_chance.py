"""Runs that end no better than guessing say so, and name the learning rate, not batteries."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import joulemesh
from joulemesh.cli.main import main
from joulemesh.data import from_arrays, load
from joulemesh.models import build
from joulemesh.scenario import Training
from joulemesh.study.runs import chance_note
from joulemesh.training.prepare import probabilities

DIGITS = load("digits")
SMALL = {"devices.count": 4, "plan.iterations": 8, "budget.deadline_s": 1.0}


def note(score: float, final: float, name: str = "accuracy", **training: Any) -> str:
    figures = np.array([score]), np.array([final])
    return chance_note(DIGITS, Training(**training), name, *figures)


def test_the_limit_is_the_most_frequent_class_and_a_standard_error() -> None:
    share = np.bincount(DIGITS.y_test).max() / len(DIGITS.y_test)
    error = math.sqrt(share * (1 - share) / len(DIGITS.y_test))
    for score in np.linspace(0, 1, 201).tolist():
        assert ("no better than chance" in note(score, 1.0)) == (score <= share + error), score
    said = note(share, 1.0, learning_rate=0.3)
    assert f"{share:.4f} ± {error:.4f}" in said
    assert "training.learning_rate first (now 0.3)" in said


@pytest.mark.parametrize(("loss", "bad"), [(0.1, False), (2.3, False), (2.31, True), (1e9, True)])
def test_a_loss_above_that_of_guessing_is_named(loss: float, bad: bool) -> None:
    assert bool(note(0.9, loss)) == bad
    assert ("lower training.learning_rate" in note(0.9, loss)) == bad


def test_regression_and_other_scores_are_not_judged_by_accuracy() -> None:
    assert not note(0.0, 1e9, "loss", loss="mse")
    assert not note(0.0, 1.0, "f1")


def test_a_run_that_learns_nothing_says_so_everywhere(tmp_path: Path) -> None:
    changes = {**SMALL, "training.learning_rate": 100.0}
    scenario = joulemesh.Scenario.preset("adaptive").override(changes)
    result = joulemesh.run(scenario, out=tmp_path / "run")
    first = result.notes[0]
    assert "no better than chance" in first
    assert "lower training.learning_rate first (now 100)" in first
    assert "batter" not in result.answer
    kept = json.loads((tmp_path / "run" / "result.json").read_text())
    assert kept["notes"][0] == kept["answer"] == first
    page = (tmp_path / "run" / "report.html").read_text()
    assert "no better than chance" in page
    assert result.plan.answer.text[:40] not in page
    good = joulemesh.run(scenario.override({"training.learning_rate": 0.05}))
    assert not good.chance
    assert good.answer == good.plan.answer.text
    study = joulemesh.compare(scenario, "fixed:2,d-psgd", seeds=1, cache=tmp_path / "cache")
    for row in study.table():
        assert "training.learning_rate first (now 100)" in row["notes"][0]


def test_worlds_and_tuning_that_learn_nothing_say_so(tmp_path: Path) -> None:
    changes = {**SMALL, "training.learning_rate": 100.0}
    scenario = joulemesh.Scenario.preset("adaptive").override(changes)
    worlds = joulemesh.run(scenario, worlds=2)
    assert any("no better than chance" in note for note in worlds.notes)
    found = joulemesh.tune(
        scenario, {"plan.iterations": [7, 8]}, seeds=1, search_seeds=1, candidates=2, cache=tmp_path
    )
    assert "training.learning_rate first (now 100)" in found.winner.notes[0]


def test_the_reasons_are_printed_when_all_methods_diverge(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    told = [f"--set={name}={value}" for name, value in SMALL.items()]
    told += ["--set=training.learning_rate=1e30", "--seeds=1", f"--cache={tmp_path}", "--json"]
    words = ["compare", "--preset", "adaptive", "--methods", "fixed:2,d-psgd", *told]
    monkeypatch.setattr(sys, "argv", ["joulemesh", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    *reasons, last = capsys.readouterr().err.strip().splitlines()[-3:]
    assert last.startswith("error: none of the methods could run")
    for name, reason in zip(("fixed:2", "d-psgd"), reasons, strict=True):
        assert reason.startswith(f"{name}: diverged: seed 0 in iteration ")
        assert "lower training.learning_rate (now 1e+30)" in reason


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_probabilities_are_told_from_logits(scale: float) -> None:
    logits = scale * np.random.default_rng(0).normal(size=(16, 10))
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert probabilities(share / share.sum(axis=1, keepdims=True))
    assert not probabilities(logits)
    assert not probabilities(np.log(share / share.sum(axis=1, keepdims=True) + 1e-12))


def test_a_model_that_ends_in_softmax_is_noted_before_training(tmp_path: Path) -> None:
    plain = build("logistic", DIGITS.shape, 10)

    def apply(params: Any, x: jax.Array) -> jax.Array:
        return jax.nn.softmax(plain.apply(params, x))

    scenario = joulemesh.Scenario.preset("adaptive").override(SMALL)
    stages: list[str] = []
    result = joulemesh.run(scenario, model=(plain.init, apply), on_stage=stages.append)
    noted = [stage for stage in stages if stage.startswith("note: ")]
    assert len(noted) == 1
    assert stages.index(noted[0]) < stages.index("training")
    assert "remove the last Softmax" in noted[0]
    assert noted[0].removeprefix("note: ") in result.notes
    named: dict[str, Any] = {"model": (plain.init, apply), "cache": tmp_path, "seeds": 1}
    assert any("Softmax" in one for one in joulemesh.compare(scenario, "fixed:2", **named).notes)
    fine = joulemesh.run(scenario, model=(plain.init, plain.apply))
    assert not any("Softmax" in one for one in fine.notes)


def test_numbers_to_predict_are_not_looked_at() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    data = from_arrays(x[:40], x[:40, 0], x[40:], x[40:, 0], targets="numbers")
    changes = {**SMALL, "training.loss": "mse", "training.partition": "iid"}
    scenario = joulemesh.Scenario.preset("adaptive").override(changes)

    def init(key: Any) -> Any:
        return {"w": jnp.zeros((3, 1))}

    def one(params: Any, x: Any) -> Any:
        return jnp.ones((len(x), 1)) + 0 * (x @ params["w"])

    result = joulemesh.run(scenario, model=(init, one), data=data)
    assert not result.chance
    assert not any("Softmax" in note for note in result.notes)


def test_a_module_of_pytorch_that_ends_in_softmax_is_noted() -> None:
    torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")
    layers = (torch.nn.Flatten(), torch.nn.Linear(64, 10))
    scenario = joulemesh.Scenario.preset("adaptive").override({**SMALL, "plan.iterations": 2})
    for module, noted in (
        (torch.nn.Sequential(*layers, torch.nn.Softmax(dim=1)), True),
        (torch.nn.Sequential(*layers), False),
        (torch.nn.Sequential(*layers, torch.nn.LogSoftmax(dim=1)), False),
    ):
        result = joulemesh.run(scenario, model=module)
        assert any("remove the last Softmax" in note for note in result.notes) == noted
