"""Successive halving: its arithmetic by hand, and that it finds the best."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.study.search import Halving, Score, Trial, survivors


def rung_of(tuner: Halving) -> list[Trial]:
    return list(iter(tuner.ask, None))


def test_ten_candidates_by_hand() -> None:
    """10 with a tenth, the best 4 with a third, the best 2 with all: scores change on the way."""
    tuner = Halving(10)
    first = rung_of(tuner)
    assert [trial.candidate for trial in first] == list(range(10))
    assert {(trial.rung, trial.share) for trial in first} == {(0, 0.1)}
    assert tuner.left == pytest.approx(10 * 0.1 + 4 / 3 + 2)
    for trial in first:
        tuner.tell(trial, Score(0, -[5, 9, 1, 8, 2, 7, 3, 6, 4, 0][trial.candidate] / 10))
    second = rung_of(tuner)
    assert [trial.candidate for trial in second] == [1, 3, 5, 7]
    assert {trial.share for trial in second} == {1 / 3}
    for trial in second:
        tuner.tell(trial, Score(0, -float(trial.candidate)))
    third = rung_of(tuner)
    assert [(trial.candidate, trial.share) for trial in third] == [(5, 1.0), (7, 1.0)]
    assert not tuner.finished
    tuner.tell(third[0], Score(0, -0.9))
    assert tuner.ask() is None
    tuner.tell(third[1], Score(0, -0.8))
    assert tuner.finished
    assert tuner.left == 0
    assert tuner.best == 5


def test_who_cannot_be_judged_goes_on_and_takes_nobodys_place() -> None:
    tuner = Halving(7)
    for trial in rung_of(tuner):
        unpaid = trial.candidate == 6
        tuner.tell(trial, None if unpaid else Score(0, float(trial.candidate)))
    assert [trial.candidate for trial in rung_of(tuner)] == [0, 1, 6]


def test_a_trial_is_told_once() -> None:
    tuner = Halving(2)
    trial = tuner.ask()
    assert trial is not None
    tuner.tell(trial, Score(0, 0.0))
    for wrong in (trial, Trial(1, 0, 0.1), Trial(0, 2, 1.0)):
        with pytest.raises(ScenarioError, match="was not asked for, or has been told"):
            tuner.tell(wrong, Score(0, 0.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0,), "no candidate to try"),
        ((3, (0.5, 0.2, 1.0)), "out of order"),
        ((3, (0.1, 0.5)), "the last of them 1"),
        ((3, ()), "out of order"),
        ((3, (0.1, 1.0), 1), "keep = 1 drops nothing"),
    ],
)
def test_bad_settings_are_refused(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        Halving(*arguments)  # type: ignore[arg-type]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(0, 1, allow_nan=False), min_size=1, max_size=60, unique=True),
    st.lists(st.floats(0.01, 0.9), max_size=4, unique=True),
    st.integers(2, 5),
)
def test_a_learner_whose_order_is_the_same_in_every_rung_gives_the_best(
    quality: list[float], shares: list[float], keep: int
) -> None:
    """A deterministic learner: accuracy grows with the share, and never changes the order."""
    tuner = Halving(len(quality), (*sorted(shares), 1.0), keep)
    told, work = 0, tuner.left
    while not tuner.finished:
        trials = rung_of(tuner)
        assert trials
        for trial in trials:
            tuner.tell(trial, Score(0, -quality[trial.candidate] * (1 + trial.share)))
            told += 1
    assert tuner.best == max(range(len(quality)), key=quality.__getitem__)
    sizes = [len(rung) for rung in tuner.rungs]
    assert sum(sizes) == told
    assert sizes == [len(quality)] + [survivors(size, keep) for size in sizes[:-1]]
    assert work == pytest.approx(
        sum(size * share for size, share in zip(sizes, tuner.shares, strict=True))
    )
