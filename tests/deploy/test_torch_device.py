"""A PyTorch module as a learner, where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from joulemesh.deploy.device.learner import OwnLearner
from joulemesh.deploy.device.torch_device import TorchDevice

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow


def device(**options: Any) -> TorchDevice:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(80, 5)).astype(np.float32), draw.integers(3, size=80)
    x[np.arange(80), y] += 3.0
    data = {"x_train": x[:60], "y_train": y[:60], "x_test": x[60:], "y_test": y[60:]}
    torch.manual_seed(4)
    return TorchDevice(torch.nn.Linear(5, 3), data, device=1, **options)


def adam(parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=0.05)


def test_it_learns() -> None:
    one = device()
    before = one.evaluate()["accuracy"]
    one.train(1, 100)
    assert one.evaluate()["accuracy"] > max(before, 0.8)
    assert one.parameters().shape == (18,)


@pytest.mark.parametrize("options", [{}, {"optimizer": adam}], ids=["SGD", "Adam"])
def test_stopped_and_resumed_it_ends_with_the_same_bits(options: dict[str, Any]) -> None:
    through, stopped, again = (OwnLearner(device(**options), "test") for _ in range(3))
    through.train(1, 5)
    through.train(2, 5)
    stopped.train(1, 5)
    again.load(stopped.parameters())
    again.restore(stopped.save())
    again.train(2, 5)
    assert again.parameters().tobytes() == through.parameters().tobytes()


def test_what_it_gives_is_not_changed_by_further_training() -> None:
    one = OwnLearner(device(), "test")
    before = np.array(one.parameters())
    given = one.parameters()
    one.train(1, 3)
    assert given.tobytes() == before.tobytes()
