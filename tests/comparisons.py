"""A small scenario on a few digits, compared once for all tests that only look at the outcome."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import joulemesh
from joulemesh.data import Dataset, load
from joulemesh.scenario import Scenario
from joulemesh.study.compare import DEFAULT_METHODS
from joulemesh.study.comparison import Comparison
from joulemesh.study.sweep_result import Sweep
from joulemesh.training.jax import engine as learners
from joulemesh.training.jax.engine import Engine
from tests.ideal import ideal

SEEDS = (0, 1)


class Counting(Engine):
    """The engine, which remembers what was made of it."""

    made: list[Engine] = []  # noqa: RUF012

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        Counting.made.append(self)


@cache
def small_scenario() -> Scenario:
    """Five devices on a ring; 650 parameters; budgets in which every method can move."""
    return ideal(
        devices={"count": 5, "cycles_per_sample": (1e5, 3e5)},
        network={"topology": "ring"},
        budget={"energy_j": (0.5, 1.5), "deadline_s": 0.04},
        plan={"iterations": 8, "zeta": 400.0},
        training={
            "model": "logistic",
            "l2": 0.01,
            "batch_size": 16,
            "hidden": (),
            "partition": "iid",
            "eval_every": 2,
            "chunk_iterations": 4,
        },
    )


@cache
def few_digits() -> Dataset:
    """A few digits."""
    whole = load("digits")
    train, test = slice(240), slice(60)
    arrays = (whole.x_train[train], whole.y_train[train], whole.x_test[test], whole.y_test[test])
    return Dataset("few", *arrays, 10, mean=whole.mean, std=whole.std)


@cache
def _kept() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="joulemesh-kept-")


def kept_folder() -> Path:
    """Where the session's runs are kept; tests that spoil it take a copy."""
    return Path(_kept().name)


@cache
def seven_methods() -> tuple[Comparison, list[Engine]]:
    """Seven methods at two seeds on equal batteries, and the engines that it took."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learners, "Engine", Counting)
        patch.setattr(Counting, "made", [])
        found = joulemesh.compare(
            small_scenario(),
            DEFAULT_METHODS,
            "energy",
            SEEDS,
            data=few_digits(),
            cache=kept_folder(),
        )
        return found, list(Counting.made)


VARIED = {"budget.energy_j": [[0.5, 1.5], 1e-6], "training.learning_rate": [0.05, 0.1, 0.2]}


@cache
def _swept() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="joulemesh-swept-")


def swept_folder() -> Path:
    """Where the runs of the session's sweeps are kept."""
    return Path(_swept().name)


@cache
def small_sweep() -> Sweep:
    """Two methods at two seeds, three learning rates, and batteries of which one is too small."""
    return joulemesh.sweep(
        small_scenario(),
        VARIED,
        ["adaptive", "fixed:1"],
        seeds=SEEDS,
        data=few_digits(),
        cache=swept_folder(),
    )
