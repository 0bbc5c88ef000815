"""How many threads PyTorch computes with: by the size of the work, and as before afterwards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

from joulemesh.models import from_torch
from joulemesh.training import Schedule

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.training.torch import steps as placed  # noqa: E402
from joulemesh.training.torch.learner import TorchLearner  # noqa: E402
from tests.training.torch.modules import Cnn  # noqa: E402
from tests.training.torch.test_learner import DIGITS, parts, settings  # noqa: E402


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Seen(Cnn):
    """Remembers how many threads it is computed with."""

    threads: ClassVar[set[int]] = set()

    def forward(self, x: Any) -> Any:
        if self.training:
            Seen.threads.add(torch.get_num_threads())
        return super().forward(x)


def learner(kind: Any, seeds: int = 2) -> TorchLearner:
    schedule = Schedule(np.ones((2, 4), np.int32))
    return TorchLearner(
        from_torch(kind), DIGITS, parts(seeds), schedule, settings(), tuple(range(seeds))
    )


def linear() -> Any:
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))


@pytest.mark.parametrize(("worth", "wanted"), [(math.inf, 1), (0.0, 2)])
def test_small_steps_get_one_thread_and_the_number_returns(
    worth: float, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = learner(Seen)
    assert one.multiply_adds > 0  # counted once, by another forward pass
    monkeypatch.setattr(placed, "WORTH_THREADS", worth)
    Seen.threads = set()
    one.run()
    assert Seen.threads == {wanted}
    assert torch.get_num_threads() == 2


def test_the_work_is_that_of_what_is_computed_at_once() -> None:
    """One device after another with convolutions on a CPU, all at once without."""
    batch = settings().batch_size
    stacked = learner(linear)
    assert stacked.together
    assert stacked.multiply_adds == 2 * 4 * batch * 64 * 10  # seeds, devices
    for seeds in (1, 3):
        alone = learner(Cnn, seeds)
        assert not alone.together
        assert alone.multiply_adds == learner(Cnn).multiply_adds


def test_a_failure_leaves_the_number_as_it_was() -> None:
    one = learner(linear)._parts

    def fail() -> None:
        with one.threads():
            assert torch.get_num_threads() == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("channels", "wanted"), [(8, 1), (256, 2)])
def test_modules_with_convolutions_are_judged_by_one_device(channels: int, wanted: int) -> None:
    """However many devices and seeds there are, one step computes one of them."""

    def made() -> Any:
        return torch.nn.Sequential(
            torch.nn.Conv2d(1, channels, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Conv2d(channels, channels, 3, padding=1),
            torch.nn.Flatten(),
            torch.nn.Linear(64 * channels, 10),
        )

    for seeds in (1, 4):
        with learner(made, seeds)._parts.threads():
            assert torch.get_num_threads() == wanted
