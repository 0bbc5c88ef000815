"""Runs that end no better than guessing say so, and name the learning rate, not batteries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from joulemesh.data import load
from joulemesh.scenario import Training
from joulemesh.study.runs import chance_note
from joulemesh.training.prepare import probabilities

DIGITS = load("digits")


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


@pytest.mark.parametrize("scale", [0.01, 1.0, 100.0])
def test_probabilities_are_told_from_logits(scale: float) -> None:
    logits = scale * np.random.default_rng(0).normal(size=(16, 10))
    share = np.exp(logits - logits.max(axis=1, keepdims=True))
    assert probabilities(share / share.sum(axis=1, keepdims=True))
    assert not probabilities(logits)
    assert not probabilities(np.log(share / share.sum(axis=1, keepdims=True) + 1e-12))
