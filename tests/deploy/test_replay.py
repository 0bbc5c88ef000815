"""A deployment played again in one process: with no fault it is the simulated run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.data import Dataset, from_arrays
from joulemesh.deploy.device.continuation import first_view
from joulemesh.deploy.record.history import history_of
from joulemesh.deploy.record.replay import Course, Played, course_of_histories, plans_of, replay
from joulemesh.deploy.view import View
from joulemesh.models import build
from joulemesh.planning.ground import Ground
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES
from joulemesh.training import DeviceTrainer, Engine, Options
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.prepare import partitions
from tests.deploy.test_continuation import full, small

Vector = NDArray[Any]
SIZE = 7


class Pull:
    """A learner without JAX: it is pulled to a place of its own, with momentum."""

    def __init__(self, device: int, dtype: str = "float64") -> None:
        self.device = device
        self.held: Vector = np.zeros(SIZE, dtype)
        self.momentum: Vector = np.zeros(SIZE, dtype)

    def parameters(self) -> Vector:
        return self.held

    def load(self, parameters: Vector) -> None:
        self.held = np.array(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        aim = np.sin(np.arange(SIZE) + self.device + 0.1 * iteration).astype(self.held.dtype)
        for _ in range(min(rounds, 5)):
            self.momentum = (self.momentum + (aim - self.held)) / 2
            self.held = self.held + self.momentum / 4

    def evaluate(self) -> Mapping[str, float]:
        return {}

    def save(self) -> Mapping[str, Vector]:
        return {"momentum": self.momentum}

    def restore(self, memory: Mapping[str, Vector]) -> None:
        self.momentum = memory["momentum"]


def played(scenario: joulemesh.Scenario, course: Course, dtype: str = "float64") -> list[Played]:
    learners = [Pull(device, dtype) for device in range(scenario.devices.count)]
    return list(replay(course, plans_of(Ground.of(scenario)), learners))


def by_matrices(plan: Plan) -> list[Vector]:
    """The same run with mixing matrices: what the simulator does."""
    learners = [Pull(device) for device in range(plan.scenario.devices.count)]
    after = []
    for t in range(plan.iterations):
        for device, learner in enumerate(learners):
            learner.train(t + 1, int(plan.rounds[t, device]))
        held = np.stack([learner.held for learner in learners])
        if plan.exchanged[t]:
            held = plan.scheme_at(t + 1).mixing(t, t + 1)[0] @ held
        for device, learner in enumerate(learners):
            learner.held = held[device]
        after.append(held)
    return after


PATTERNS: list[dict[str, Any]] = [
    {"plan__exchange": "neighbours"},
    {"plan__exchange": {"every": 3, "final": True, "times": 2}},
    {"plan__exchange": {"between": "none", "every": 3}},
    {"plan__exchange": {"train": 2, "mix": 1, "final": True}, "plan__rounds": "spread"},
    {"plan__rounds": "spread", "budget__total_s": 0.05, "budget__deadline_s": None},
    {"network__fading": "rayleigh", "plan__aggregation": "tree-chunked"},
]


@pytest.mark.parametrize(
    "fields", [{"plan__aggregation": name} for name in SCHEMES.names()] + PATTERNS, ids=str
)
def test_with_no_fault_it_is_the_simulated_run(fields: dict[str, Any]) -> None:
    scenario = small(plan__gossip_rounds=3, **fields)
    plan, course = joulemesh.plan(scenario), Course((first_view(6),))
    runs = played(scenario, course)
    assert len(runs) == plan.iterations
    for run, wanted in zip(runs, by_matrices(plan), strict=True):
        np.testing.assert_allclose(run.vectors, wanted, rtol=0, atol=1e-10)
    assert [run.seconds for run in runs] == pytest.approx(plan.latency_s.tolist(), rel=1e-12)
    assert sum(run.train_j + run.exchange_j for run in runs) == pytest.approx(plan.spent_j)


def _data() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    return from_arrays(x[:90], np.arange(90) % 3, x[90:], np.arange(30) % 3)


class Trainer:
    """A `DeviceTrainer` as a learner."""

    def __init__(self, trainer: DeviceTrainer) -> None:
        self.trainer, self.params = trainer, trainer.begin()
        self.save, self.restore = trainer.save, trainer.load

    def parameters(self) -> Vector:
        return self.trainer.vector(self.params)

    def load(self, parameters: Vector) -> None:
        self.params = self.trainer.params_of(parameters)

    def train(self, iteration: int, rounds: int) -> None:
        self.params = self.trainer.train(self.params, iteration, rounds)

    def evaluate(self) -> Mapping[str, float]:
        return {}


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "atol"), [("float64", 1e-10), ("float32", 1e-5)])
def test_with_no_fault_it_is_the_engines_run(precision: Any, atol: float) -> None:
    data = _data()
    scenario = small(
        plan__exchange={"every": 3, "final": True},
        plan__rounds="fixed",
        plan__fixed_rounds=2,
        training__precision=precision,
        training__optimizer="adam",
        training__batch_size=4,
        training__learning_rate=0.01,
    )
    plan = joulemesh.plan(scenario, data=data)
    model, options = build("logistic", data.shape, 3), Options.from_scenario(scenario.training)
    held = partitions(scenario, data, (0,), plan.work.round_samples)[0]
    engine = Engine(model, data, [held], schedule_of(plan), options, (0,))
    *_, (state, _) = engine.train()
    trainers = [
        Trainer(DeviceTrainer.of(model, data, held, options, seed=0, device=device))
        for device in range(6)
    ]
    *_, last = replay(Course((first_view(6),)), plans_of(plan.ground), trainers)
    fleet = engine.params(state)
    for device, trainer in enumerate(trainers):
        mine = trainer.trainer.params_of(last.vectors[device])
        for name, leaf in mine.items():
            np.testing.assert_allclose(leaf, fleet[name][0, device], rtol=0, atol=atol)


def test_a_device_that_is_gone_keeps_what_it_had_and_is_given_the_mean_again() -> None:
    scenario, rest = small(), (0, 1, 3, 4, 5)
    everybody = tuple(range(6))
    gone = View(1, 3, rest, left_j=full(scenario, rest, 0.6))
    back = View(2, 6, everybody, left_j=full(scenario, everybody, 0.3), gifts=((2, 1),))
    runs = played(scenario, Course((first_view(6), gone, back)))
    assert [run.view for run in runs] == [0, 0, 1, 1, 1, 2, 2, 2]
    away = [run.vectors[2] for run in runs[1:5]]
    assert all(np.array_equal(one, away[0]) for one in away)
    assert all(not run.rounds[2] for run in runs[2:5])
    for run in runs:
        members = everybody if run.view != 1 else rest
        assert all(np.array_equal(run.vectors[i], run.vectors[members[0]]) for i in members)
    alone = played(scenario, Course((first_view(6), gone)))
    assert np.array_equal(alone[4].vectors, runs[4].vectors)
    assert not np.array_equal(alone[5].vectors, runs[5].vectors)


def test_what_was_lost_leaves_no_trace_in_the_optimiser() -> None:
    """Trained, sent and averaged by the others, but never committed: momentum is as before."""
    scenario, rest, everybody = small(), (0, 1, 3, 4, 5), tuple(range(6))
    views = (
        first_view(6),
        View(1, 3, rest, left_j=full(scenario, rest, 0.6)),
        View(2, 4, everybody, left_j=full(scenario, everybody, 0.3), gifts=((2, 1),)),
    )
    whole, lost = (
        played(scenario, Course(views)),
        played(scenario, Course(views, lost=frozenset({(2, 2)}))),
    )
    assert np.array_equal(whole[2].vectors[0], lost[2].vectors[0])  # they had its part
    assert not np.array_equal(whole[3].vectors, lost[3].vectors)  # its next rounds differ


def test_rounds_that_were_trained_before_a_change_are_kept() -> None:
    scenario = small()
    course = Course((first_view(6),), rounds={(2, 4): 1})
    assert played(scenario, course)[1].rounds[4] == 1


def test_journals_tell_what_happened() -> None:
    """A device missed, one given its parameters, and one that went on without a neighbour."""

    def line(kind: str, **figures: Any) -> bytes:
        return json.dumps({"at": 1.0, "kind": kind, **figures}).encode()

    def committed(iteration: int, view: int, absent: Any = ()) -> bytes:
        costs = dict.fromkeys(("train_j", "train_s", "exchange_j", "exchange_s", "spent_j"), 0.0)
        facts = {"iteration": iteration, "view": view, "rounds": 3, "absent": absent, "sent": {}}
        return line("committed", **facts, **costs)

    view = line("view", number=1, start=3, members=[0, 1], left_j=[1.0, 2.0], gifts=[[1, 0]])
    journals = {
        0: [committed(1, 0), view, committed(2, 0, [[0, 1]]), committed(3, 1)],
        1: [committed(1, 0), view, committed(2, 1), committed(3, 1)],
    }
    histories = [history_of(lines, device, str(device)) for device, lines in journals.items()]
    course = course_of_histories(histories, 3)
    assert [one.number for one in course.views] == [0, 1]
    assert course.absent == {(2, 0): ((0, 1),)}
    assert course.lost == {(1, 2), (2, 1), (2, 2)}
    assert course.gifts(3) == ((1, 0),)
    assert course.rounds[3, 1] == 3
