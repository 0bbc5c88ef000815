"""Objectives by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.models.curves import CURVES
from joulemesh.study.record import Record
from joulemesh.study.search import Objective, Score


def run(*accuracy: float, joules: float = 10.0) -> Record:
    """Evaluated after every iteration, each of which takes as many joules, and half as many s."""
    n = len(accuracy)
    curves = np.zeros((n, len(CURVES)))
    curves[:, CURVES.index("test_accuracy")] = accuracy
    spent = joules * np.arange(1.0, n + 1)
    return Record(np.arange(1, n + 1), curves, curves[-1], spent, spent / 2, np.ones(2), np.ones(4))


def test_accuracy_is_the_mean_at_the_end() -> None:
    assert Objective().score([run(0.9, 0.6), run(0.1, 0.8)]) == Score(0, -0.7)


def test_the_price_of_a_target() -> None:
    runs = [run(0.5, 0.8, 0.9), run(0.1, 0.2, 0.8)]
    assert Objective.parse("energy-to:0.8").score(runs) == Score(0, 25.0)  # (20 + 30) / 2
    assert Objective.parse("time-to:0.8").score(runs) == Score(0, 12.5)
    figures = Objective.parse("energy-to:0.85").figures(runs)
    assert figures[0] == 30.0
    assert math.isnan(figures[1])


def test_what_misses_the_target_comes_after_what_reaches_it() -> None:
    wanted = Objective.parse("energy-to:0.8")
    dear = wanted.score([run(0.1, 0.8, joules=1e6)])
    near, far = wanted.score([run(0.79)]), wanted.score([run(0.3)])
    half = wanted.score([run(0.9), run(0.1)])  # one seed reaches it
    diverged = wanted.score([run(0.9), Record(diverged=3)])
    assert dear < near < half < far < diverged


def test_in_words() -> None:
    wanted = Objective.parse("energy-to:0.8")
    assert wanted.text(Score(0, 25.0)) == "25 J"
    assert wanted.text(Score(1, -0.5)) == "50.0 %, target not reached"
    assert wanted.text(Score(2, 0.0)) == "diverged"
    assert (str(wanted), str(Objective())) == ("energy-to:0.8", "accuracy")


@pytest.mark.parametrize("text", ["energy", "energy-to", "time-to:", "time-to:0", "energy-to:1.2"])
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ScenarioError, match=r"objective .*(unknown|the target is an accuracy)"):
        Objective.parse(text)
