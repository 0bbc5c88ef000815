"""CHOCO's default step: devices really come together, about as fast as with the best step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from benchmarks.consensus import GRAPHS, MULTIPLES, rates
from joulemesh.methods import build as build_method
from joulemesh.methods.choco import compressor
from tests.samples import sample

AT_LEAST = 0.5
"""Of the rate of the best step of the grid: what the documentation promises."""


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize(
    ("text", "devices", "size"),
    [
        *((text, 9, 600) for text in ("qsgd:4", "topk:0.1", "randk:0.1")),
        *(
            pytest.param(text, 16, 25_000, marks=pytest.mark.slow)
            for text in sample(
                ("qsgd:1", "qsgd:4", "qsgd:16", "topk:0.01", "topk:0.1", "randk:0.5"), 2
            )
        ),
    ],
)
def test_devices_come_together_half_as_fast_as_with_the_best_step_or_faster(
    text: str, graph: str, devices: int, size: int
) -> None:
    squeeze = compressor(text)
    grid = np.minimum(squeeze.passes(size) * np.array(MULTIPLES), 1.0)
    default, *others = rates(squeeze, graph, devices, size, [squeeze.step(size), *grid])
    assert default > 0
    assert default >= AT_LEAST * max(others)


@pytest.mark.parametrize("text", ["qsgd:4", "qsgd:8", "topk:0.1", "randk:0.1"])
def test_the_step_does_not_depend_on_the_number_of_parameters(text: str) -> None:
    squeeze = compressor(text)
    steps = [squeeze.step(size) for size in (1_000, 25_000, 10_000_000)]
    assert max(steps) < 1.05 * min(steps)
    assert min(steps) > 0.05


@pytest.mark.parametrize("levels", [1, 4, 8])
def test_quantised_messages_are_a_contraction_in_every_size(levels: int) -> None:
    import jax.numpy as jnp

    from joulemesh.methods.choco import compress

    squeeze = compressor(f"qsgd:{levels}")
    for size in (3, 511, 512, 513, 25_000):
        x = np.random.default_rng(size).normal(size=(40, size)).astype(np.float32)
        keys = (jnp.arange(40, dtype=jnp.uint32), jnp.zeros(40, jnp.uint32))
        left = np.linalg.norm(x - np.asarray(compress(squeeze, jnp.asarray(x), keys)), axis=1) ** 2
        share = (left / np.linalg.norm(x, axis=1) ** 2).mean()
        assert share <= 1 - squeeze.passes(size) * 0.8


def test_the_step_is_tuned_where_rates_are_at_the_same_effort(tmp_path: Path) -> None:
    changes = {
        "devices.count": 4,
        "plan.iterations": 4,
        "budget.deadline_s": 1.0,
        "training.model": "logistic",
    }
    scenario = joulemesh.Scenario.preset("adaptive").override(changes)
    methods = ("fixed:1", "balanced:tau1=1,tau2=1,compress=topk:0.1")
    terms: dict[str, Any] = {
        "seeds": 1,
        "tune_lr": "0.01,0.05,0.1,0.2",
        "tune_seeds": 1,
        "cache": tmp_path,
    }
    study = joulemesh.compare(scenario, methods, **terms)
    assert study.computed == 2 * (4 + 1)  # as many trials of each method, and one result
    plain, compressed = study.entries
    assert [entry.name for entry in study.entries] == list(methods)
    assert plain.tuned is not None
    assert compressed.tuned is not None
    assert len(plain.tuned.grid) == 4
    assert len(compressed.tuned.grid) == 2  # and half and twice the default step
    said = " ".join(compressed.all_notes)
    assert "gamma=0.1" in said
    assert "gamma=0.4" in said
    assert not plain.tuned.own
    assert joulemesh.compare(scenario, methods, **terms).computed == 0  # runs are kept apart


def test_a_step_that_is_given_is_not_tuned() -> None:
    scenario = joulemesh.Scenario.preset("adaptive").override({"devices.count": 4})
    given = "balanced:tau1=1,tau2=1,compress=topk:0.1"
    assert build_method(given, scenario).variants
    assert not build_method(f"{given},gamma=0.3", scenario).variants
    assert not build_method("balanced:tau1=1,tau2=1", scenario).variants
