"""Runs that share a program compute what they compute alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data import load, partition
from joulemesh.models import build
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.jax.platform import this_machine
from joulemesh.training.schedule import Members
from tests.compiled import compiled_programs

DIGITS = load("digits")
MODEL = build("mlp", DIGITS.shape, 10, (8,))
HELD = partition(DIGITS.y_train, 3, kind="iid")
SHORT = Schedule(np.array([[2, 0, 1], [0, 3, 1], [1, 1, 0]]))
LONG = Schedule(np.array([[1, 1, 1], [0, 2, 0], [1, 0, 1], [1, 1, 1], [0, 0, 1]]))


def engine(schedule: Schedule, seeds: tuple[int, ...], rate: float = 0.1, **how: Any) -> Engine:
    options = Options(learning_rate=rate, eval_every=1, eval_share=0.0, chunk_iterations=2)
    machine = replace(this_machine(), **how)
    return Engine(MODEL, DIGITS, [HELD] * len(seeds), schedule, options, seeds, machine=machine)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [{}, {"start": "own"}, {"loop": False, "start": "own"}, {"loop": False, "start": "factored"}],
)
def test_members_learn_what_each_of_them_learns_alone(how: dict[str, Any]) -> None:
    together = Members.of([SHORT, LONG, SHORT], [0.1, 0.1, 0.4], seeds=2)
    trace = engine(together, (3, 4) * 3, **how).run()
    for k, (schedule, rate) in enumerate([(SHORT, 0.1), (LONG, 0.1), (SHORT, 0.4)]):
        alone = engine(schedule, (3, 4), rate, **how).run()
        mine = trace.part(trace.iteration <= schedule.iterations, slice(2 * k, 2 * k + 2))
        np.testing.assert_allclose(mine.test_loss, alone.test_loss, rtol=2e-5)
        np.testing.assert_array_equal(mine.iteration, alone.iteration)
        np.testing.assert_allclose(mine.test_accuracy, alone.test_accuracy, atol=0.01)
    one, other = (
        trace.part(trace.iteration <= 3, slice(0, 1)),
        trace.part(trace.iteration <= 3, slice(4, 5)),
    )
    assert np.abs(one.test_loss - other.test_loss).max() > 1e-3  # the rate does matter


def test_on_a_cpu_they_are_the_same_bits() -> None:
    together = Members.of([SHORT, LONG], [0.1, 0.3], seeds=1)
    trace = engine(together, (7, 7)).run()
    alone = engine(LONG, (7,), 0.3).run()
    np.testing.assert_array_equal(trace.test_loss[:, 1], alone.test_loss[:, 0])


def test_a_member_that_diverges_leaves_the_others_as_they_are() -> None:
    together = Members.of([LONG, LONG], [1e30, 0.1], seeds=1)
    trace = engine(together, (5, 5)).run()
    assert not np.isfinite(trace.test_loss[-1, 0])
    alone = engine(LONG, (5,)).run()
    np.testing.assert_array_equal(trace.test_loss[:, 1], alone.test_loss[:, 0])


def test_another_rate_and_other_rounds_compile_nothing_anew() -> None:
    first = engine(Members.of([LONG, SHORT], [0.1, 0.2], seeds=1), (0, 0))
    first.run()
    second = engine(Members.of([SHORT, LONG], [0.3, 0.05], seeds=1), (1, 2))
    assert second.key == first.key
    before = compiled_programs(first.programs.watched)
    assert before > 0
    second.run()
    assert compiled_programs(second.programs.watched) == before


def test_members_must_agree_on_their_exchanges() -> None:
    mixed = np.full((1, 3, 3), 1 / 3)
    gossip = Schedule(SHORT.rounds, mixing=mixed)
    with pytest.raises(ScenarioError, match="differ in their length or exchanges"):
        Members.of([gossip, LONG], [0.1, 0.1], 1)
    both = Members.of([gossip, Schedule(SHORT.rounds[::-1], mixing=mixed)], [0.1, 0.2], 1)
    assert both.kind == "dense"
    assert both.digest() != Members.of([gossip, gossip], [0.1, 0.2], 1).digest()


def test_as_many_members_as_seeds() -> None:
    with pytest.raises(ScenarioError, match="there are 2 members for 3 seeds"):
        engine(Members.of([SHORT, SHORT], [0.1, 0.2], 1), (0, 1, 2))
