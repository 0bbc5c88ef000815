"""What the learning figures share: a task, its scenario, the rows of its curves.

Choices that the paper leaves open, the same in every figure (notes: open-settings): batches of 32,
constant learning rate, plain SGD, a round is one SGD step (eqs. `ticp` and `eicp` count an epoch;
notes: rounds-steps-and-epochs), uniform weights, MLP 784-200-10, PENS's CNN of 73,418 parameters.
All devices hold equally many samples, also under label skew, so that nothing but labels differs.
Curves have few points: every one is measured on the whole test set and on as many training
samples, and evaluation should stay below a tenth of the time.
"""

from __future__ import annotations

__all__ = [
    "CIFAR",
    "CURVE_COLUMNS",
    "DIGITS",
    "FASHION",
    "MNIST",
    "Task",
    "curve_rows",
    "skew",
    "skew_words",
]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.reading import spec
from joulemesh.scenario import Scenario
from joulemesh.study.record import Entry
from yan_li_2024.outcome import Row

CURVE_COLUMNS = ("test_accuracy", "device_accuracy_mean", "train_loss", "consensus")

IID = "iid"


def skew(partition: str) -> dict[str, Any]:
    """The scenario's fields for ``"iid"`` or ``"dirichlet ALPHA"``.

    >>> skew("dirichlet 0.1")
    {'training.partition': 'dirichlet', 'training.alpha': 0.1}
    """
    kind, _, alpha = partition.partition(" ")
    made: dict[str, Any] = {"training.partition": kind}
    return made | ({"training.alpha": float(alpha)} if alpha else {})


def skew_words(partition: str) -> str:
    """How labels are spread, for a reader.

    >>> skew_words("dirichlet 0.1"), skew_words("iid")
    ('Dirichlet(0.1)', 'i.i.d.')
    """
    _, _, alpha = partition.partition(" ")
    return f"Dirichlet({alpha})" if alpha else "i.i.d."


@dataclass(frozen=True)
class Task:
    """What is learned.

    Attributes:
        dataset: by name.
        model: ``"mlp"`` or ``"cnn"``.
        title: for figures.
        hidden: of the MLP.
        learning_rate: constant; Theorem 1 needs that (notes: constant-step-size).
    """

    dataset: str
    model: str
    title: str
    hidden: tuple[int, ...] = (200,)
    learning_rate: float = 0.05

    def scenario(
        self,
        devices: int,
        *,
        topology: str = "ring",
        partition: str = IID,
        each: int | None = None,
        eval_every: int = 20,
        chunk: int = 10,
        device_samples: int = 500,
        **changes: Any,
    ) -> Scenario:
        """The preset ``paper`` with this task.

        Args:
            devices: N.
            topology: of the graph.
            partition: ``"iid"`` or ``"dirichlet ALPHA"``.
            each: samples on every device; an equal share of all unless given.
            eval_every: iterations between evaluations.
            chunk: iterations in one call of the program; equal chunks share a compilation.
            device_samples: test samples for the devices' own models.
            changes: further fields, with ``__`` for the dot.
        """
        share = spec(self.dataset).train // devices if each is None else each
        fields = {
            "devices.count": devices,
            "devices.samples": share,
            "network.topology": topology,
            "plan.physics": "physical",
            "training.dataset": self.dataset,
            "training.model": self.model,
            "training.hidden": self.hidden,
            "training.learning_rate": self.learning_rate,
            "training.local_round": "step",
            "training.eval_every": eval_every,
            "training.chunk_iterations": chunk,
            "training.eval_device_samples": device_samples,
            **skew(partition),
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
        return Scenario.preset("paper").override(fields)


MNIST = Task("mnist", "mlp", "MNIST, MLP")
FASHION = Task("fashion-mnist", "mlp", "Fashion-MNIST, MLP")
CIFAR = Task("cifar-10", "cnn", "CIFAR-10, CNN")
# Digits are 8×8 pixels, too few for the CNN: quick figures use a small MLP in its place.
DIGITS = Task("digits", "mlp", "digits, MLP", hidden=(32,), learning_rate=0.1)


def curve_rows(where: dict[str, Any], entry: Entry, seeds: Sequence[int]) -> list[Row]:
    """A curve as rows: one for each seed and evaluation.

    Args:
        where: columns that tell the curve from others.
        entry: the curve.
        seeds: in the entry's order.
    """
    rows: list[Row] = []
    for s, seed in enumerate(seeds):
        for k, iteration in enumerate(entry.iteration.tolist()):
            values = {name: float(entry.curves[name][k, s]) for name in CURVE_COLUMNS}
            rows.append({**where, "seed": seed, "iteration": iteration, **values})
    return rows


def at(entry: Entry, curve: str, iteration: int) -> NDArray[np.float64]:
    """A curve at the evaluation nearest to an iteration, [S]."""
    nearest = int(np.argmin(np.abs(entry.iteration - iteration)))
    return np.asarray(entry.curves[curve][nearest])
