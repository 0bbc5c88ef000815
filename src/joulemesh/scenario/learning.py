"""The sections of a scenario about learning: training, and the constants of the bounds."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from joulemesh.registries import LOSSES, METRICS, MODELS, PARTITIONS
from joulemesh.scenario.fields import (
    Constant,
    Count,
    LossName,
    MetricNames,
    ModelName,
    NonNegative,
    PartitionName,
    Positive,
    ScoreName,
    Unit,
)
from joulemesh.scenario.section import Section

__all__ = ["Bounds", "Training"]


class Training(Section):
    """What is learned, and how."""

    dataset: str = Field(
        "digits",
        description="digits | mnist | fashion-mnist | cifar-10 | diabetes | verses | hf:NAME | "
        "path of a .csv, .tsv, .parquet or .npz file, or of x_train.npy or train.arrow (on disk) "
        "| folder:PATH, a shard per device",
    )
    data_dir: str | None = Field(None, description="folder with the data set's original files")
    label: str | None = Field(
        None, description="table: column of labels; unset: label, class, target or y"
    )
    test_dataset: str | None = Field(None, description="table: a second file with the test samples")
    test_fraction: Unit = Field(
        0.2, description="table: share held out to test on, where no file or column split says it"
    )
    ignore_columns: tuple[str, ...] = Field((), description="table: columns to leave out")
    normalize: bool = Field(
        False, description="standardise own data by the training samples' mean and deviation"
    )
    partition: PartitionName = Field(
        "dirichlet",
        description=f"{' | '.join(PARTITIONS.built_in)} | natural, the data's own shards | "
        "column:NAME, as that column says",
    )
    alpha: Positive = Field(0.5, description="dirichlet and quantity: concentration")
    shards_per_device: Count = Field(2, description="shards: label shards per device")
    model: ModelName = Field("mlp", description=f"model to train: {' | '.join(MODELS.built_in)}")
    hidden: tuple[Count, ...] = Field(
        (64,), description="mlp, token-mlp: sizes of the hidden layers"
    )
    l2: NonNegative = Field(0.0, description="L2 regularisation (logistic needs more than 0)")
    loss: LossName = Field(
        "cross-entropy",
        description=f"what is minimised: {' | '.join(LOSSES.built_in)} | FILE.py:NAME",
    )
    batch_size: Count = Field(32, description="samples in one SGD step")
    learning_rate: Positive = Field(0.1, description="learning rate eta")
    optimizer: str = Field("sgd", description="sgd, or any optimiser of optax by name")
    local_round: Literal["step", "epoch"] = Field(
        "step", description="a round is one SGD step, or one pass over the device's samples"
    )
    weights: Literal["uniform", "samples"] = Field(
        "uniform", description="weights of the mean: 1/N, or by samples"
    )
    eval_every: Count = Field(5, description="iterations between evaluations")
    eval_device_samples: Count = Field(
        1000, description="test samples for the devices' own models where they differ, at most"
    )
    score: ScoreName = Field(
        "auto", description="metric that runs are compared by: auto, the loss's own, or its name"
    )
    metrics: MetricNames = Field(
        (), description=f"besides score and loss: {' | '.join(METRICS.built_in[2:])}"
    )
    precision: Literal["float32", "float64", "bfloat16"] = Field(
        "float32", description="arithmetic; bfloat16 keeps float32 parameters"
    )
    chunk_iterations: Count = Field(20, description="iterations in one compiled call")


class Bounds(Section):
    """Constants of the convergence bounds: numbers, or "estimate"."""

    strong_convexity: Constant = Field("estimate", description="m")
    smoothness: Constant = Field("estimate", description="M")
    gradient_variance: Constant = Field("estimate", description="sigma")
    gradient_bound: Constant = Field("estimate", description="G")
    divergence: Constant = Field("estimate", description="delta")
    initial_gap: Constant = Field("estimate", description="mean of F_i(w_1) - F_i*")

    @property
    def known(self) -> bool:
        """True when every constant is a number."""
        return "estimate" not in self.model_dump().values()
