"""Modules to train, and the obvious loop that trains them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.training import draws

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")


class Mlp(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """As the built-in MLP with one hidden layer, which takes channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Linear(64, 16), torch.nn.Linear(16, 10)

    def forward(self, x: Any) -> Any:
        return self.b(torch.relu(self.a(x.movedim(1, -1).flatten(1))))


class Cnn(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    def __init__(self) -> None:
        super().__init__()
        self.c, self.d = torch.nn.Conv2d(1, 4, 3), torch.nn.Linear(36, 10)
        self.norm = torch.nn.GroupNorm(2, 4)

    def forward(self, x: Any) -> Any:
        seen = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.c(x))), 2)
        return self.d(seen.flatten(1))


class Transformer(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """One block of attention over the rows of an image."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(8, 8), torch.nn.Linear(8, 10)
        self.qkv, self.mlp = torch.nn.Linear(8, 24), torch.nn.Linear(8, 8)
        self.norm = torch.nn.LayerNorm(8)
        self.register_buffer("place", torch.linspace(-1, 1, 64).reshape(8, 8))

    def forward(self, x: Any) -> Any:
        rows = self.into(x[:, 0]) + self.place
        q, k, v = self.qkv(self.norm(rows)).chunk(3, dim=-1)
        seen = torch.softmax(q @ k.transpose(1, 2) / 8**0.5, dim=-1) @ v
        return self.out((rows + self.mlp(torch.nn.functional.gelu(seen))).mean(dim=1))


class Dropping(Mlp):
    def forward(self, x: Any) -> Any:
        hidden = torch.relu(self.a(x.flatten(1)))
        return self.b(torch.nn.functional.dropout(hidden, 0.3, self.training))


class Branching(Mlp):
    """Decides by its data, which ``vmap`` cannot follow."""

    def forward(self, x: Any) -> Any:
        made = super().forward(x)
        return made if made.sum() > 0 else 2 * made


def loop(learner: Any, mixing: Any) -> list[dict[str, NDArray[Any]]]:
    """Every device's parameters of the first seed, trained one step after another.

    Args:
        learner: says what is trained; plain SGD.
        mixing: (iteration, [N, P] before) -> after the exchange.
    """
    options, schedule, data = learner.options, learner.schedule, learner.dataset
    held, seed = learner.partitions[0], learner.seeds[0]
    modules = []
    for _ in range(schedule.devices):
        module = learner.model.make().double()
        module.load_state_dict({**module.state_dict(), **learner.model.initial(seed)})
        modules.append(module.double().train())
    images = torch.as_tensor(np.moveaxis(data.x_train.astype(np.float64), 3, 1))
    mean, std = float(data.mean), float(data.std)
    images, labels = images * (1 / std) + (-mean / std), torch.as_tensor(data.y_train).long()
    lanes = np.arange(options.batch_size, dtype=np.uint32)
    for t in range(schedule.iterations):
        for i, module in enumerate(modules):
            key = draws.seed_key(seed, draws.BATCH, t, i)
            size = np.array([len(held.indices(i))], np.uint32)
            for step in range(int(schedule.rounds[t, i])):
                at = draws.step_positions(key, np.array([step], np.uint32), lanes, size)
                index = torch.as_tensor(held.indices(i)[at].astype(np.int64))
                module.zero_grad()
                torch.nn.functional.cross_entropy(module(images[index]), labels[index]).backward()
                with torch.no_grad():
                    for one in module.parameters():
                        one -= options.learning_rate * one.grad
        if schedule.exchanged[t]:
            before = np.stack([_vector(module) for module in modules])
            for module, row in zip(modules, mixing(t, before), strict=True):
                vector = torch.tensor(row)
                torch.nn.utils.vector_to_parameters(vector, _leaves(module))
    return [
        {name: one.detach().numpy() for name, one in module.named_parameters()}
        for module in modules
    ]


def _vector(module: Any) -> NDArray[Any]:
    """All parameters, in the order of their names."""
    made: NDArray[Any] = torch.nn.utils.parameters_to_vector(_leaves(module)).detach().numpy()
    return made


def _leaves(module: Any) -> list[Any]:
    return [one for _, one in sorted(module.named_parameters())]
