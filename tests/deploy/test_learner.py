"""A user's own learner and data: taken as they are, or refused with a line."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.host import Worker
from joulemesh.deploy.device.learner import LateLearner, Training, load_learner
from joulemesh.deploy.effects import Evaluate
from joulemesh.deploy.fleet.fleet import Task
from joulemesh.scenario import Scenario
from tests.deploy.loopback import ToyLearner

GOOD = """
import numpy as np

class Learner:
    def __init__(self, device=0, data=None):
        self.device, self.data, self.w = device, data, np.zeros(3)
    def parameters(self): return self.w
    def load(self, parameters): self.w = parameters
    def train(self, iteration, rounds): self.w += 1
    def evaluate(self): return 0.5

ready = Learner(9)

def make(name, seed):
    return Learner(device=(name, seed))
"""
GIVEN = {"device": 3, "name": "farm-03", "seed": 5, "data": Path("mine.npz")}


def load(folder: Path, text: str, name: str) -> Any:
    (folder / "own.py").write_text(text)
    return load_learner(f"{folder / 'own.py'}:{name}", GIVEN)


def test_an_object_a_class_and_a_function(tmp_path: Path) -> None:
    made = [load(tmp_path, GOOD, name)._thing for name in ("ready", "Learner", "make")]
    assert made[0].device == 9
    assert (made[1].device, made[1].data) == (3, Path("mine.npz"))
    assert made[2].device == ("farm-03", 5)


def test_a_figure_alone_is_the_accuracy_and_nothing_is_remembered(tmp_path: Path) -> None:
    learner = load(tmp_path, GOOD, "Learner")
    assert learner.evaluate() == {"accuracy": 0.5}
    assert learner.save() == {}
    given = np.ones(3)
    learner.load(given)
    learner.train(1, 1)
    assert given.tolist() == [1.0, 1.0, 1.0]  # what it changes in place is its own


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (GOOD, "nobody", r"own\.py has no 'nobody'; correct the name"),
        ("three = 3", "three", "is neither a learner nor a function that makes one"),
        (GOOD.replace("def load(", "def lad("), "Learner", r"has no load\(parameters\): a learner"),
        (GOOD.replace("iteration, rounds", "rounds"), "Learner", r"train cannot be called with"),
        (GOOD + "def other(where): 0", "other", "asks for 'where', which nobody gives"),
        (GOOD + "Learner.save = lambda self: {}", "ready", "one of save"),
    ],
)
def test_what_is_no_learner_is_refused(tmp_path: Path, text: str, name: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        load(tmp_path, text, name)


def test_a_learner_of_another_size_is_refused_when_it_is_made(tmp_path: Path) -> None:
    late = LateLearner(lambda: load(tmp_path, GOOD, "Learner"), 4)
    with pytest.raises(ScenarioError, match=r"an array \(3,\) of type float64.*vector of 4 float"):
        late.parameters()


TASK = Task(shape=(2,), kind="float32", classes=3, mean=(1.0, 2.0), std=(2.0, 4.0))


def data(path: Path, **changes: Any) -> Path:
    x = np.array([[1.0, 2.0], [3.0, 6.0]], np.float32)
    arrays = {"x_train": x, "y_train": [0, 1], "x_test": x, "y_test": [1, 0], **changes}
    np.savez(path, **arrays)
    return path


def test_own_samples_are_scaled_and_labelled_as_everybody_else_s(tmp_path: Path) -> None:
    from joulemesh.deploy.device.simulated import own_data

    found = own_data(data(tmp_path / "a.npz"), Scenario(), TASK)
    assert found.normalise(found.x_train).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert found.classes == 3  # although only two are held here
    named = TASK.model_copy(update={"class_names": ("ant", "bee", "cow")})
    held = data(tmp_path / "b.npz", y_train=["cow", "bee"], y_test=["bee", "cow"])
    found = own_data(held, Scenario(), named)
    assert found.y_train.tolist() == [2, 1]
    assert found.y_test.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changes", "names", "said"),
    [
        (
            {name: np.zeros((2, 5), np.float32) for name in ("x_train", "x_test")},
            (),
            r"the shape \(5,\), and \(2,\) on the other devices",
        ),
        ({"y_train": [0, 4]}, (), "has 5 classes, and the fleet learns 3"),
        ({}, ("ant", "bee", "cow"), "has numbers for labels, and the fleet names its classes"),
        (
            {"y_train": ["ant", "elk"], "y_test": ["elk", "ant"]},
            ("ant", "bee", "cow"),
            "has a class 'elk', and the fleet learns 3",
        ),
    ],
)
def test_samples_of_another_kind_are_refused(
    tmp_path: Path, changes: dict[str, Any], names: tuple[str, ...], said: str
) -> None:
    from joulemesh.deploy.device.simulated import own_data

    with pytest.raises(ScenarioError, match=said):
        own_data(
            data(tmp_path / "a.npz", **changes),
            Scenario(),
            TASK.model_copy(update={"class_names": names}),
        )


def evaluated(devices: tuple[int | None, ...], holders: tuple[int, ...]) -> dict[int, list[int]]:
    """By iteration, the places of those who evaluate, of 12 iterations and every second one."""
    found: dict[int, list[int]] = defaultdict(list)

    async def all_of_them() -> None:
        for place, device in enumerate(devices):

            def tell(kind: str, figures: dict[str, Any], place: int = place) -> None:
                assert kind == "evaluated"
                found[figures["iteration"]].append(place)

            training = Training(ToyLearner(), 2, device)
            training.begin(Worker("learner"), tell)
            training.last = 12
            for t in range(1, 13):
                training.evaluate(Evaluate(t, np.zeros(3), holders))
                await training.evaluated(5.0)
            training.close()

    asyncio.run(all_of_them())
    return dict(found)


def test_devices_that_hold_the_same_evaluate_in_turn_and_at_the_end_all() -> None:
    every = evaluated((4, 7, 9), holders=(4, 7, 9))
    assert every == {2: [1], 4: [2], 6: [0], 8: [1], 10: [2], 12: [0, 1, 2]}


def test_whoever_holds_its_own_or_has_samples_of_its_own_evaluates_itself() -> None:
    both = {t: [0, 1] for t in (2, 4, 6, 8, 10, 12)}
    assert evaluated((4, 7), holders=()) == both
    assert evaluated((None, None), holders=(4, 7)) == both
