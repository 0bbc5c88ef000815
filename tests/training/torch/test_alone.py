"""Devices that are trained by themselves end with what stacked devices end with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from joulemesh.models import from_torch
from joulemesh.training import Options, Schedule

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.training.torch import steps  # noqa: E402
from joulemesh.training.torch.gradients import Gradients, Samples  # noqa: E402
from joulemesh.training.torch.learner import TorchLearner  # noqa: E402
from tests.training.torch.modules import Cnn, loop  # noqa: E402
from tests.training.torch.test_learner import DIGITS, parts, settings  # noqa: E402

ROUNDS = np.array([[3, 0, 1, 2], [0, 0, 0, 0], [2, 2, 2, 2]])


class Dropping(Cnn):
    def forward(self, x: Any) -> Any:
        return torch.nn.functional.dropout(super().forward(x), 0.3, self.training)


def learner(options: Options, kind: Any = Cnn, seeds: tuple[int, ...] = (0, 1)) -> TorchLearner:
    held = parts(len(seeds))
    return TorchLearner(from_torch(kind), DIGITS, held, Schedule(ROUNDS), options, seeds)


def trained(one: TorchLearner) -> Any:
    *_, (state, _) = one.train()
    return one.params(state)


def test_they_end_with_what_the_obvious_loop_ends_with() -> None:
    one = learner(settings())
    assert one._steps._alone is not None
    given = trained(one)
    wanted = loop(one, lambda t, before: np.broadcast_to(before.mean(axis=0), before.shape))
    for i, params in enumerate(wanted):
        for leaf, value in params.items():
            np.testing.assert_allclose(given[leaf][0, i], value, atol=1e-10, rtol=0)


@pytest.mark.parametrize("changes", [{"optimizer": "adam"}, {"local_round": "epoch"}])
def test_they_end_as_stacked_devices_do(changes: dict[str, Any], monkeypatch: Any) -> None:
    options = settings(batch_size=100, **changes)  # of an epoch the last batch is shorter
    given = trained(learner(options))
    monkeypatch.setattr(Gradients, "traceable", False)
    stacked = learner(options)
    assert stacked._steps._alone is None
    for leaf, value in trained(stacked).items():
        np.testing.assert_allclose(given[leaf], value, atol=1e-12, rtol=0)


def test_steps_that_are_drawn_in_parts_are_the_same(monkeypatch: Any) -> None:
    whole = trained(learner(settings()))
    monkeypatch.setattr(steps, "_DRAWN_BYTES", 1)
    for leaf, value in trained(learner(settings())).items():
        np.testing.assert_array_equal(value, whole[leaf])


def test_modules_that_draw_are_trained_one_after_another() -> None:
    first, second = (learner(settings(), Dropping) for _ in range(2))
    assert first._steps._alone is None
    again = trained(second)
    for leaf, value in trained(first).items():
        np.testing.assert_array_equal(value, again[leaf])


def test_images_lie_with_their_channels_last_and_read_the_same() -> None:
    cpu, index = torch.device("cpu"), torch.arange(6).reshape(2, 3)
    plain = Samples(torch, DIGITS, cpu, torch.float64).train(index)
    lying = Samples(torch, DIGITS, cpu, torch.float64, last=True).train(index)
    assert lying[0][0].is_contiguous(memory_format=torch.channels_last)
    assert lying[0].equal(plain[0])
    assert lying[1].equal(plain[1])
