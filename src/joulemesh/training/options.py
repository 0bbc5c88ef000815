"""How devices train: what the user may set, checked."""

from __future__ import annotations

__all__ = ["Options", "make_optimizer"]

import difflib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jax.typing import ArrayLike
from pydantic import BaseModel

from joulemesh.errors import ScenarioError

Precision = Literal["float32", "float64", "bfloat16"]


@dataclass(frozen=True)
class Options:
    """Settings of the engine; those of ``[training]`` under the same names.

    Attributes:
        batch_size: samples in one SGD step.
        learning_rate: η.
        optimizer: an optimiser of optax by name. Its state stays with each device across
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
            are evaluated on are reduced to meet it (see ``jax.evaluation.counts``). 0: never
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
    joulemesh.errors.ScenarioError: training.batch_size = 0 is out of range: use 1 or more
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
        make_optimizer(self.optimizer, self.learning_rate)

    @classmethod
    def from_scenario(cls, training: BaseModel, **changes: Any) -> Options:
        """Take the settings of a scenario's ``[training]`` section, with changes.

        >>> from joulemesh.scenario import Training
        >>> Options.from_scenario(Training(), eval_every=2).eval_every
        2
        """
        names = set(cls.__dataclass_fields__) & set(type(training).model_fields)
        return cls(**{**{name: getattr(training, name) for name in names}, **changes})


def make_optimizer(name: str, learning_rate: ArrayLike) -> optax.GradientTransformation:
    """Make an optimiser of optax by name.

    Args:
        name: for instance ``"sgd"`` or ``"adam"``.
        learning_rate: a number, or a traced scalar.

    Returns:
        The gradient transformation.

    Raises:
        ScenarioError: there is none of that name, or it needs more than gradients.

    >>> make_optimizer("sdg", 0.1)
    Traceback (most recent call last):
    ...
    joulemesh.errors.ScenarioError: training.optimizer = 'sdg' is not in optax: did you mean 'sgd'?
    """
    maker = getattr(optax, name, None)
    if not callable(maker):
        near = difflib.get_close_matches(name, dir(optax), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "use 'sgd' or 'adam'"
        raise ScenarioError(f"training.optimizer = {name!r} is not in optax: {hint}")
    try:
        optimizer = maker(learning_rate)
        toy = jnp.zeros(2)
        jax.eval_shape(lambda p: optimizer.update(p, optimizer.init(p), p), toy)
    except Exception as error:  # an optimiser may refuse in any way
        raise ScenarioError(
            f"training.optimizer = {name!r} does not work from a learning rate and gradients "
            "alone: use 'sgd' or 'adam'"
        ) from error
    return optimizer
