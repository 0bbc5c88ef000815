"""What the torch learner does on a GPU gives the numbers of a CPU; its parts run on a CPU here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from joulemesh.models import from_torch
from joulemesh.training import Options
from joulemesh.training.batches import Batches
from joulemesh.training.torch.gradients import PlacedBatches, products_for_convolutions
from joulemesh.training.torch.learner import TorchLearner

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from tests.training.torch.modules import Cnn, Mlp  # noqa: E402
from tests.training.torch.test_learner import DIGITS, parts, schedules, settings  # noqa: E402

CPU = torch.device("cpu")


def test_draws_made_ahead_on_the_processor_are_the_simulators() -> None:
    held, seeds, options = parts(2), (3, 2**40 + 1), Options(batch_size=8)
    host = Batches(held, seeds, options)
    ahead = PlacedBatches(torch, CPU, held, seeds, options, ahead=True)
    order = np.array([5, 0, 7, 2, 1, 3, 4, 6])
    ahead.expect(10, np.array([3, 0, 5]))
    for t, start, stop in ((10, 0, 2), (10, 2, 3), (12, 1, 5), (10, 0, 3)):
        wanted, _ = host.draw(t, order[:6], start, stop)
        given, valid = ahead.placed(t, (order, torch.as_tensor(order)), 6, start, stop)
        assert valid is None
        np.testing.assert_array_equal(given.numpy(), wanted)


def test_steps_that_no_block_can_hold_are_drawn_by_themselves(monkeypatch: Any) -> None:
    monkeypatch.setattr("joulemesh.training.torch.gradients._BLOCK_BYTES", 8 * 8 * 8 * 4)
    held, options = parts(2), Options(batch_size=8)
    host = Batches(held, (0, 1), options)
    ahead = PlacedBatches(torch, CPU, held, (0, 1), options, ahead=True)
    ahead.expect(0, np.array([9, 2, 2, 2]))
    for t, start, stop in ((0, 0, 4), (0, 4, 9), (1, 0, 2), (2, 1, 2), (3, 0, 2)):
        wanted, _ = host.draw(t, np.arange(8), start, stop)
        given, _ = ahead.placed(t, (np.arange(8), None), 8, start, stop)
        np.testing.assert_array_equal(given.numpy(), wanted)


@pytest.mark.parametrize("padding", [0, 1, (2, 0), "valid", "same"])
@pytest.mark.parametrize("kernel", [3, (2, 5)])
def test_products_of_patches_are_convolutions(padding: Any, kernel: Any) -> None:
    layer = torch.nn.Conv2d(3, 4, kernel, padding=padding).double()
    stacked = {n: torch.stack([p.detach(), -2 * p.detach()]) for n, p in layer.named_parameters()}
    x = torch.randn(2, 5, 3, 7, 9, dtype=torch.float64)

    def loss(params: Any, one: Any) -> Any:
        return torch.func.functional_call(layer, params, (one,)).square().sum()

    def both() -> Any:
        return torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)))(stacked, x)

    plain = both()
    with products_for_convolutions(torch):
        products = both()
    for name, leaf in plain[0].items():
        torch.testing.assert_close(products[0][name], leaf, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(products[1], plain[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layer", [{"stride": 2}, {"dilation": 2}, {"groups": 2}])
def test_other_convolutions_are_left_as_they_are(layer: dict[str, int]) -> None:
    module, x = torch.nn.Conv2d(2, 4, 3, **layer), torch.randn(1, 2, 8, 8)
    with products_for_convolutions(torch):
        given = module(x)
    torch.testing.assert_close(given, module(x), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [Mlp, Cnn])
def test_a_learner_as_on_a_gpu_gives_the_numbers_of_one_on_a_cpu(
    kind: Any, monkeypatch: Any
) -> None:
    def trained() -> Any:
        model = from_torch(kind)
        learner = TorchLearner(model, DIGITS, parts(2), schedules()["dense"], settings(), (0, 1))
        *_, (state, _) = learner.train()
        return learner, learner.params(state)

    _, wanted = trained()
    monkeypatch.setattr("joulemesh.training.torch.gradients.is_gpu", lambda device: True)
    monkeypatch.setattr("joulemesh.training.torch.gradients.is_gpu", lambda device: True)
    learner, given = trained()
    assert learner.together
    for name, leaf in wanted.items():
        np.testing.assert_allclose(given[name], leaf, atol=1e-12, rtol=0)
