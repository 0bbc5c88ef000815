"""How devices train: what the user may set, checked."""

from __future__ import annotations

__all__ = ["Options"]

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

from pydantic import BaseModel

from joulemesh.base.errors import ScenarioError

Precision = Literal["float32", "float64", "bfloat16"]


@dataclass(frozen=True)
class Options:
    """Settings of the engine; those of ``[training]`` under the same names.

    Attributes:
        batch_size: samples in one SGD step.
        learning_rate: η.
        optimizer: an optimiser of optax by name (`training.torch.optimizers` has some of them for
            PyTorch). Its state stays with each device across
            iterations; exchanges touch parameters only.
        local_round: a round is one ``"step"`` on a batch drawn with replacement, or one
            ``"epoch"``, a pass over the device's samples in a fresh order.
        weights: of the mean, ``"uniform"`` or by ``"samples"``.
        precision: ``"bfloat16"`` computes losses in bfloat16 on float32 parameters.
        eval_every: iterations between evaluations; the last iteration is always evaluated.
        eval_at: the iterations (from 1, ascending) to evaluate after, in place of every
            ``eval_every``-th; the last iteration is evaluated all the same.
        eval_device_samples: test samples on which devices' own models are evaluated, at most.
        eval_test_samples: test samples on which the mean model is evaluated, at least, whatever
            ``eval_share`` says.
        eval_share: work of evaluation as a share of training's, at most: the samples that curves
            are evaluated on are reduced to meet it (see ``evaluation``). 0: never
            reduced.
        chunk_iterations: iterations in one compiled call.
        deterministic: ask XLA for kernels that give the same bits in every run.
        metrics: names of metrics to compute besides score and loss.
        loss: what is minimised, by name; it decides which metrics are reported. The function
            itself is the model's.
        score: the metric that runs are compared by; ``"auto"`` for the loss's own.

    >>> Options(batch_size=0)
    Traceback (most recent call last):
    ...
    joulemesh.ScenarioError: training.batch_size = 0 is out of range: use 1 or more
    """

    batch_size: int = 32
    learning_rate: float = 0.05
    optimizer: str = "sgd"
    local_round: Literal["step", "epoch"] = "step"
    weights: Literal["uniform", "samples"] = "uniform"
    precision: Precision = "float32"
    eval_every: int = 5
    eval_at: tuple[int, ...] = ()
    eval_device_samples: int = 1000
    eval_test_samples: int = 0
    eval_share: float = 0.08
    chunk_iterations: int = 20
    deterministic: bool = False
    # These have digests of their own.
    metrics: tuple[str, ...] = field(default=(), repr=False)
    loss: str = field(default="cross-entropy", repr=False)
    score: str = field(default="auto", repr=False)

    def __post_init__(self) -> None:
        for name in ("batch_size", "eval_every", "eval_device_samples", "chunk_iterations"):
            if getattr(self, name) < 1:
                raise ScenarioError(
                    f"training.{name} = {getattr(self, name)} is out of range: use 1 or more"
                )
        if any(later <= one for one, later in pairwise((0, *self.eval_at))):
            raise ScenarioError(
                f"eval_at = {self.eval_at} is out of order: give ascending iterations, from 1"
            )
        if not 0 < self.learning_rate < float("inf"):
            raise ScenarioError(
                f"training.learning_rate = {self.learning_rate} is out of range: use more than 0"
            )
        if not 0 <= self.eval_share < 1:
            raise ScenarioError(f"eval_share = {self.eval_share} is out of range: use 0 to 1")
        for name, allowed in (
            ("local_round", ("step", "epoch")),
            ("weights", ("uniform", "samples")),
            ("precision", get_args(Precision)),
        ):
            if getattr(self, name) not in allowed:
                raise ScenarioError(
                    f"training.{name} = {getattr(self, name)!r} is unknown: "
                    f"use {' or '.join(allowed)}"
                )

    @classmethod
    def from_scenario(cls, training: BaseModel, **changes: Any) -> Options:
        """Take the settings of a scenario's ``[training]`` section, with changes."""
        names = set(cls.__dataclass_fields__) & set(type(training).model_fields)
        return cls(**{**{name: getattr(training, name) for name in names}, **changes})
