"""Methods with an exchange of their own: PyTorch gives the numbers of JAX, whatever is sent."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.data import Dataset, partition
from joulemesh.methods import Contender, build
from joulemesh.models import from_functions, from_torch
from joulemesh.scenario import Scenario
from joulemesh.training import Engine, Exchange, Options, Trace
from joulemesh.training.arrays import tree_leaves
from joulemesh.training.reference import run_reference
from tests.methods.test_contract import OWN
from tests.samples import sample

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.training.torch.learner import TorchLearner  # noqa: E402

FORMS = (
    *OWN,
    "balanced:tau1=1,tau2=2,compress=randk:0.1",
    "balanced:tau1=1,tau2=2,compress=qsgd:8",
)
LOSSY = {"network.packet_error": 0.2, "network.tries": 2}
HALF = {"network.bits_per_parameter": 16}
QUANTISED = {"plan.bits": 8, "plan.aggregation": "tree-chunked", "plan.chunks": 3}
AWAY = {"budget.energy_j": 50.0, "devices.availability": "away.csv"}
CHURN = "t,device,available\n3,1,0\n6,1,1\n4,4,0\n5,4,1\n"
SEEDS = (4, 9)


class Logistic(torch.nn.Module):  # type: ignore[misc, name-defined, unused-ignore]
    """Logistic regression; its parameters are random, so that none are the same by symmetry."""

    def __init__(self) -> None:
        super().__init__()
        self.b = torch.nn.Parameter(0.1 * torch.randn(10))
        self.w = torch.nn.Parameter(0.1 * torch.randn(64, 10))

    def forward(self, x: Any) -> Any:
        return x.flatten(1) @ self.w + self.b


def _applied(params: Any, x: Any) -> Any:
    return x.reshape(len(x), -1) @ params["w"] + params["b"]


def learners(contender: Contender, digits: Dataset, **options: Any) -> tuple[Engine, TorchLearner]:
    """Learners of the same model, on the same data.

    Pixels are made to differ: equal ones have equal gradients, and rounding then decides which of
    them a message holds.
    """
    noise = np.random.default_rng(0).random(digits.x_train.shape)
    x_train, x_test = (digits.x_train + noise).astype(np.float32), digits.x_test.astype(np.float32)
    digits = replace(digits, x_train=x_train, x_test=x_test)
    held = [
        partition(digits.y_train, contender.schedule.devices, kind="quantity", seed=s)
        for s in SEEDS
    ]
    usual: dict[str, Any] = {"precision": "float64", "batch_size": 16, "chunk_iterations": 4}
    common = (digits, held, contender.schedule, Options(**{**usual, **options}), SEEDS)
    own = contender.exchange
    module = from_torch(Logistic)
    first = {name: leaf.numpy() for name, leaf in module.initial(0).items()}
    object.__setattr__(
        module, "initial", lambda seed: {n: torch.tensor(x) for n, x in first.items()}
    )
    model = from_functions(lambda key: jax.tree.map(jnp.asarray, first), _applied)
    engine = Engine(model, *common, own_exchange=own)
    return engine, TorchLearner(module, *common, own_exchange=own)


def ended(learner: Any) -> tuple[dict[str, Any], Trace]:
    states, traces = zip(*learner.train(), strict=True)
    return learner.params(states[-1]), Trace.join(traces)


def agree(engine: Engine, learner: TorchLearner) -> None:
    (wanted, one), (given, other) = ended(engine), ended(learner)
    for name, leaf in wanted.items():
        assert np.ptp(leaf, axis=1).max() > 1e-9  # devices differ
        np.testing.assert_allclose(given[name], leaf, atol=1e-9, rtol=0, err_msg=name)
    for name in one._columns():
        np.testing.assert_allclose(other.curve(name), one.curve(name), atol=1e-8, err_msg=name)
    for mine, theirs in zip(tree_leaves(other.sent), tree_leaves(one.sent), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("name", FORMS)
def test_the_numbers_are_those_of_jax(small: Scenario, digits: Dataset, name: str) -> None:
    few = small.override({"plan.iterations": 7, "network.topology": "complete"})
    agree(*learners(build(name, few), digits))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "changes"), sample(product(OWN, [LOSSY, HALF, AWAY]), 6))
def test_where_messages_are_lost_or_rounded_or_devices_away(
    small: Scenario,
    digits: Dataset,
    name: str,
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("away.csv").write_text(CHURN)
    few = small.override({"plan.iterations": 7, **changes})
    agree(*learners(build(name, few), digits))


@pytest.mark.parametrize(
    "changes", [{}, {"training.weights": "samples"}, {"plan.aggregation": "ring"}, AWAY]
)
def test_quantised_averages_are_those_of_jax(
    small: Scenario,
    digits: Dataset,
    changes: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("away.csv").write_text(CHURN)
    few = small.override({"plan.iterations": 7, **QUANTISED, **changes})
    engine, learner = learners(build("adaptive", few), digits, weights=few.training.weights)
    assert engine.schedule.wire == "int8"
    (wanted, _), (given, _) = ended(engine), ended(learner)
    for name, leaf in wanted.items():
        np.testing.assert_allclose(given[name], leaf, atol=1e-9, rtol=0, err_msg=name)
    for number, devices in enumerate(run_reference(engine)):
        for device, params in enumerate(devices):
            for name, leaf in params.items():
                mine = wanted[name][number, device]
                np.testing.assert_allclose(mine, leaf, atol=1e-9, rtol=0, err_msg=name)


def test_quantised_averages_are_saved_with_what_devices_owe(
    small: Scenario, digits: Dataset
) -> None:
    few = small.override({"plan.iterations": 7, **QUANTISED})
    each: tuple[Any, ...] = learners(build("adaptive", few), digits)
    for learner in each:
        state, _ = learner.advance(learner.begin())
        arrays = {name: np.array(one) for name, one in learner.save(state).items()}
        shapes = {key: (one.shape, one.dtype) for key, one in arrays.items()}
        assert shapes == learner.saved_shapes()
        assert sum(np.ptp(one) > 0 for name, one in arrays.items() if "exchange" in name) == 2
        wanted, _ = learner.advance(state)
        given, _ = learner.advance(learner.load(arrays))
        for key, leaf in learner.save(wanted).items():
            np.testing.assert_array_equal(learner.save(given)[key], leaf, err_msg=key)


@pytest.mark.parametrize("name", OWN)
def test_loaded_in_the_middle_it_ends_with_the_same_bits(
    small: Scenario, digits: Dataset, name: str
) -> None:
    _, learner = learners(build(name, small.override({"plan.iterations": 7})), digits)
    state, _ = learner.advance(learner.begin())
    arrays = learner.save(state)
    assert {key: (one.shape, one.dtype) for key, one in arrays.items()} == learner.saved_shapes()
    wanted, _ = learner.advance(state)
    given, _ = learner.advance(learner.load(arrays))
    for key, leaf in learner.save(wanted).items():
        np.testing.assert_array_equal(learner.save(given)[key], leaf, err_msg=key)


def test_an_exchange_written_for_the_other_library_is_an_error_before_training(
    small: Scenario, digits: Dataset
) -> None:
    def apply(params: Any, state: Any, key: Any, context: Any) -> Any:
        return {name: leaf.at[0].set(0) for name, leaf in params.items()}, state, ()

    made = build("led:3", small.override({"plan.iterations": 3}))
    changed = replace(made, exchange=Exchange(lambda params: (), apply))
    with pytest.raises(AttributeError, match="at"):
        learners(changed, digits)[1].begin()
