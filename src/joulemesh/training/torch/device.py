"""One device's trainer of a PyTorch module: its rounds of an iteration, as the learner's rows.

It holds the samples of one device and nothing of the others, and draws the batches that the learner
draws for that device: a peer in the field and a row of the simulator compute the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, Partition
from joulemesh.metrics import reported, score_metric
from joulemesh.models.torch_model import TorchModel
from joulemesh.training.learner import DivergedError
from joulemesh.training.schedule import Options
from joulemesh.training.software import trained_words
from joulemesh.training.tensors import Arrays
from joulemesh.training.torch.evaluation import figure_of
from joulemesh.training.torch.steps import Parts

Tensor: TypeAlias = Any
Leaves: TypeAlias = dict[str, Tensor]

_TOGETHER = 500  # test samples that are evaluated at once


class TorchTrainer:
    """Trains one device, as `joulemesh.training.jax.device.DeviceTrainer` does with JAX."""

    torch = True

    def __init__(
        self, model: TorchModel, data: Dataset, options: Options, seed: int, device: int
    ) -> None:
        model = model.copy()  # nodes of one process train in threads
        self.options, self.seed, self.trained_by = options, seed, trained_words("torch")
        samples = len(data.y_train)
        whole = Partition(np.arange(samples), np.array([0, samples]))
        self._parts = parts = Parts(model, data, [whole], options, (seed,), numbers=(device,))
        self._torch = parts.torch
        self.repeatable = parts.device.type == "cpu"
        self._steps = parts.steps(np.array([options.learning_rate]))
        self._targets = np.asarray(data.y_test)
        self._metric = score_metric(reported(options).score, model.minimised)
        self._params = parts.stacked([model.initial(seed)], 1)
        self._memory = self._steps.optimizer.memory(self._params)
        self._first = self.save()

    def parameters(self) -> NDArray[Any]:
        """[P]: all parameters, in the order of their names."""
        leaves = [leaf[0].flatten() for leaf in self._params.values()]
        return np.array(self._torch.cat(leaves).cpu().numpy())

    def load(self, parameters: NDArray[Any]) -> None:
        given = self._torch.as_tensor(np.array(parameters))
        sizes = [leaf.numel() for leaf in self._params.values()]
        for leaf, part in zip(self._params.values(), given.split(sizes), strict=True):
            leaf.copy_(part.reshape(leaf.shape))

    def named(self, parameters: NDArray[Any]) -> Arrays:
        """A vector of parameters as the arrays of the module, by name."""
        ends = np.cumsum([leaf.numel() for leaf in self._params.values()])
        parts = np.split(np.array(parameters), ends[:-1])
        return {
            name: part.reshape(tuple(leaf.shape[1:]))
            for (name, leaf), part in zip(self._params.items(), parts, strict=True)
        }

    def prepare(self) -> None:
        """Trace the program; otherwise the first iteration takes longer."""
        held = self.parameters(), self.save()
        self.train(1, 1)
        self.load(held[0])
        self.restore(held[1])

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""
        if not rounds:
            return
        with self._parts.threads(), self._torch.random.fork_rng(devices=self._parts.forked):
            self._steps.expect(iteration - 1, [np.full((1, 1), rounds)])
            self._steps.train(self._params, self._memory, iteration - 1)
        if not all(bool(leaf.isfinite().all()) for leaf in self._params.values()):
            raise DivergedError(iteration, self.seed, self.options.learning_rate)

    def evaluate(self) -> Mapping[str, float]:
        """Accuracy, or another score, and loss on the test samples."""
        own = {name: leaf[0] for name, leaf in self._params.items()}
        samples, gradients, count = self._parts.samples, self._parts.gradients, len(self._targets)
        with self._torch.no_grad():
            parts = [np.arange(k, min(k + _TOGETHER, count)) for k in range(0, count, _TOGETHER)]
            made = [gradients.tested(own, samples.test(index)) for index in parts]
            outputs = self._torch.cat(made).cpu()
            targets = self._torch.as_tensor(self._targets)
            wanted = targets.to(outputs.dtype) if targets.is_floating_point() else targets.long()
            loss = float(gradients.criterion(outputs, wanted))
        figure = figure_of(self._metric, outputs.numpy(), self._targets)
        return {self._metric.name: figure, "loss": loss}

    def save(self) -> Arrays:
        """What the optimiser remembers, as named arrays; none for plain SGD."""
        return {
            f"optimizer.{name}": np.array(leaf[0].cpu().numpy())
            for name, leaf in self._memory.items()
        }

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave; a device that was given parameters only begins afresh."""
        given = memory or self._first
        shapes = {name: np.shape(array) for name, array in self._first.items()}
        if {name: np.shape(array) for name, array in given.items()} != shapes:
            raise ScenarioError(
                f"what the optimiser remembers is not that of {self.options.optimizer!r} and this "
                "model; start again without it"
            )
        for name, leaf in self._memory.items():
            leaf[0] = self._torch.as_tensor(np.array(given[f"optimizer.{name}"]))
