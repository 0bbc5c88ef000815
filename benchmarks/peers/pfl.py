"""pfl-research (pfl[pytorch]): federated averaging of 20 users in a simulated backend."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.serve import cores, serve
from benchmarks.work import Work, shares, training_set


class MLP(torch.nn.Sequential):
    """With the two functions that pfl asks of a module."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__(
            torch.nn.Linear(inputs, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 10)
        )

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.train()
        return torch.nn.functional.cross_entropy(self(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        self.eval()
        total = torch.nn.functional.cross_entropy(self(x), y, reduction="sum").item()
        return {"loss": Weighted(total, len(y))}


class Clock(TrainingProcessCallback):
    """Notes when each central iteration ended."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self.ends.append(time.perf_counter())
        return False, Metrics()


def users(work: Work) -> FederatedDataset:
    x, y = (torch.from_numpy(array) for array in training_set(work))
    held = [(x[part], y[part]) for part in shares(len(y), work.devices)]
    sampler = get_user_sampler("minimize_reuse", list(range(work.devices)))
    return FederatedDataset(lambda user: PyTorchTensorDataset(held[user]), sampler)


def main() -> None:
    work = Work.parse(sys.argv[1])
    torch.set_num_threads(cores())
    net = MLP(28 * 28, *work.hidden)
    central = torch.optim.SGD(net.parameters(), lr=1.0)  # takes the mean of the differences
    model = PyTorchModel(net, torch.optim.SGD, central)
    data = users(work)
    backend = SimulatedBackend(training_data=data, val_data=data)
    local = NNTrainHyperParams(
        local_batch_size=work.batch,
        local_num_epochs=None,
        local_num_steps=work.rounds,
        local_learning_rate=work.learning_rate,
    )
    # The first central iteration is evaluated whatever one asks: it is left out of the time.
    settings = NNAlgorithmParams(
        central_num_iterations=work.iterations + 1,
        evaluation_frequency=work.iterations + 1,
        train_cohort_size=work.devices,
        val_cohort_size=0,
    )

    def block(_: str) -> dict[str, Any]:
        clock = Clock()
        FederatedAveraging().run(settings, backend, model, local, callbacks=[clock])
        return {"seconds": clock.ends[-1] - clock.ends[0], "device_steps": work.device_steps}

    serve(block, "pfl", "torch")


main()
