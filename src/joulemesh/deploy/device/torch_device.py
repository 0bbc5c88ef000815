"""A PyTorch module as a device's learner."""

from __future__ import annotations

__all__ = ["TorchDevice"]

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.optional import require
from joulemesh.training import draws
from joulemesh.training.software import trained_words


class TorchDevice:
    """Trains an ``nn.Module`` on one device, for `joulemesh node run --learner FILE.py:NAME`.

    For a loop or an optimiser of your own; ``training.model = "FILE.py:NAME"`` needs none of it. A
    local round is one step of the optimiser on a batch that is drawn with replacement by seed,
    iteration, device and step, as the simulator draws it: training from the same start gives the
    same batches again. What the optimiser remembers stays on the device, through stops and crashes.

    Args:
        module: all of its parameters are trained and exchanged; its buffers stay on the device.
        data: x_train, y_train, x_test, y_test, as tensors or NumPy arrays.
        device: its number.
        seed: of the batches.
        batch_size: samples in one step.
        optimizer: makes the optimiser of the module's parameters; SGD with 0.05 unless given.
        loss: of the module's outputs and the labels; cross-entropy unless given.

    ::

        # learner.py, for --learner learner.py:make --data mine.npz
        import numpy as np
        import torch
        from joulemesh.deploy.device.torch_device import TorchDevice

        def make(device, seed, data):
            torch.manual_seed(seed)  # all devices begin with the same parameters
            module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
            return TorchDevice(module, np.load(data), device=device, seed=seed)
    """

    def __init__(
        self,
        module: Any,
        data: Mapping[str, Any],
        *,
        device: int,
        seed: int = 0,
        batch_size: int = 32,
        optimizer: Callable[[Any], Any] | None = None,
        loss: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self._torch = torch = require("torch", "training a PyTorch module")
        self.trained_by = trained_words("torch")
        self.module, self._key, self._batch = module, (seed, device), batch_size
        names = ("x_train", "y_train", "x_test", "y_test")
        self._data = {name: torch.as_tensor(np.asarray(data[name])) for name in names}
        self._parameters = [one for one in module.parameters() if one.requires_grad]
        make = optimizer or (lambda parameters: torch.optim.SGD(parameters, lr=0.05))
        self._optimizer = make(self._parameters)
        self._loss = loss or torch.nn.functional.cross_entropy

    def parameters(self) -> NDArray[Any]:
        """[P]: all parameters."""
        parts = [one.detach().cpu().numpy().ravel() for one in self._parameters]
        return np.concatenate(parts)

    def load(self, parameters: NDArray[Any]) -> None:
        """Take up other parameters."""
        at = 0
        with self._torch.no_grad():
            for one in self._parameters:
                part = parameters[at : at + one.numel()].reshape(tuple(one.shape))
                one.copy_(self._torch.as_tensor(np.array(part)))
                at += one.numel()

    def named(self, parameters: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """A vector of parameters as the arrays of the module, by name."""
        trained = [one for one in self.module.named_parameters() if one[1].requires_grad]
        parts = np.split(parameters, np.cumsum([leaf.numel() for _, leaf in trained])[:-1])
        return {
            name: part.reshape(tuple(leaf.shape))
            for (name, leaf), part in zip(trained, parts, strict=True)
        }

    def train(self, iteration: int, rounds: int) -> None:
        """Run local rounds of an iteration (from 1)."""
        x, y = self._data["x_train"], self._data["y_train"].long()
        self.module.train()
        seed, device = self._key
        key = draws.seed_key(seed, draws.BATCH, iteration - 1, device)
        lanes, size = np.arange(self._batch, dtype=np.uint32), np.array([len(y)], np.uint32)
        for step in range(rounds):
            drawn = draws.step_positions(key, np.array([step], np.uint32), lanes, size)
            batch = self._torch.as_tensor(drawn.astype(np.int64))
            self._optimizer.zero_grad()
            self._loss(self.module(x[batch].float()), y[batch]).backward()
            self._optimizer.step()

    def evaluate(self) -> dict[str, float]:
        """Accuracy and loss on the test samples."""
        x, y = self._data["x_test"], self._data["y_test"].long()
        self.module.eval()
        with self._torch.no_grad():
            outputs = self.module(x.float())
            accuracy = (outputs.argmax(1) == y).double().mean()
            return {"accuracy": float(accuracy), "loss": float(self._loss(outputs, y))}

    def save(self) -> dict[str, NDArray[Any]]:
        """What the optimiser remembers, as named arrays."""
        state = self._optimizer.state_dict()["state"]
        return {
            f"{number}.{name}": self._torch.as_tensor(value).detach().cpu().numpy()
            for number, kept in state.items()
            for name, value in kept.items()
            if value is not None
        }

    def restore(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `save` gave."""
        kept: dict[int, dict[str, Any]] = {}
        for key, array in memory.items():
            number, _, name = key.partition(".")
            kept.setdefault(int(number), {})[name] = self._torch.as_tensor(np.array(array))
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": kept})
