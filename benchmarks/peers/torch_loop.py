"""A plain PyTorch loop: device after device, step after step, then the mean. As fast as we can.

Samples are normalised and resident; the parameters of all devices are views of one [N, P] tensor,
so that the mean is two operations; the optimiser's step is PyTorch's fused one.
"""

from __future__ import annotations

import copy
import sys
import time
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from benchmarks.serve import cores, serve
from benchmarks.work import Work, shares, training_set


def network(work: Work, features: int) -> nn.Sequential:
    """The model of the work; of the CNN the same layers as Joulemesh's, 73,418 parameters."""
    if work.model == "mlp":
        widths = (features, *work.hidden, 10)
        layers: list[nn.Module] = []
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        return nn.Sequential(*layers[:-1])
    layers = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3), nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


class Devices:
    """N equal models whose parameters are rows of one tensor."""

    def __init__(
        self, work: Work, features: int, where: str, first: nn.Module | None = None
    ) -> None:
        first = (first or network(work, features)).to(where)
        count = sum(parameter.numel() for parameter in first.parameters())
        like = next(first.parameters())
        self.flat = torch.empty(work.devices, count, device=where, dtype=like.dtype)
        self.models = [copy.deepcopy(first) for _ in range(work.devices)]
        for row, model in zip(self.flat, self.models, strict=True):
            used = 0
            for parameter in model.parameters():
                part = row[used : used + parameter.numel()]
                used += parameter.numel()
                view = _like(part, parameter)
                parameter.data = view.copy_(parameter.data)
        self.optimizers = [
            torch.optim.SGD(model.parameters(), work.learning_rate, fused=True)
            for model in self.models
        ]

    @torch.no_grad()
    def average(self) -> None:
        self.flat.copy_(self.flat.mean(0))


def _like(part: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """View numbers as a parameter; kernels lie channels last, which is quicker on CPUs."""
    if parameter.ndim != 4:
        return part.view_as(parameter)
    outputs, inputs, height, width = parameter.shape
    return part.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def main() -> None:
    work = Work.parse(sys.argv[1])
    torch.manual_seed(0)
    torch.set_num_threads(cores())
    where = "cuda" if torch.cuda.is_available() else "cpu"
    x, y = (torch.from_numpy(array).to(where) for array in training_set(work))
    held = [torch.from_numpy(part).to(where) for part in shares(len(y), work.devices)]
    devices = Devices(work, x[0].numel(), where)

    def batch(index: torch.Tensor) -> torch.Tensor:
        # Images stay as they lie, channels last, which is quicker on CPUs.
        return x[index].permute(0, 3, 1, 2) if work.model == "cnn" else x[index]

    def iteration() -> None:
        for own, model, optimizer in zip(held, devices.models, devices.optimizers, strict=True):
            for _ in range(work.rounds):
                index = own[torch.randint(len(own), (work.batch,), device=where)]
                loss = nn.functional.cross_entropy(model(batch(index)), y[index])
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
        devices.average()

    def block(turn: str) -> dict[str, Any]:
        start = time.perf_counter()
        for _ in range(work.iterations):
            iteration()
        if where == "cuda":
            torch.cuda.synchronize()
        return {"seconds": time.perf_counter() - start, "device_steps": work.device_steps}

    iteration()
    serve(block, "torch")


if __name__ == "__main__":
    main()
