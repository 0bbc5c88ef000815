"""The constants of a PyTorch module are those of the same model of JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.data import from_arrays, partition
from joulemesh.theory.measured import DeviceLosses, estimate_constants

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")

from joulemesh.models import from_functions, from_torch  # noqa: E402
from joulemesh.theory.measured import TorchLosses  # noqa: E402


def data() -> Any:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(90, 4)).astype(np.float32), draw.integers(3, size=90)
    x[np.arange(90), y] += 1.0
    return from_arrays(x[:70], y[:70], x[70:], y[70:])


@pytest.mark.parametrize("l2", [0.01, 0.1])
def test_the_constants_are_those_of_the_same_model_of_jax(l2: float) -> None:
    found = data()
    held = partition(found.y_train, 3, kind="dirichlet")
    module = torch.nn.Linear(4, 3)
    ours = TorchLosses(from_torch(module, l2=l2), found, held)
    w = ours.start(0)
    names = sorted(name for name, _ in module.named_parameters())
    assert names == ["bias", "weight"]

    def apply(params: Any, x: Any) -> Any:
        return x @ params["weight"].T + params["bias"]

    def init(key: Any) -> Any:
        return {"bias": np.zeros(3, np.float32), "weight": np.zeros((3, 4), np.float32)}

    theirs = DeviceLosses(from_functions(init, apply, l2=l2), found, held)
    wanted, given = (estimate_constants(one, w, 8) for one in (theirs, ours))
    for name, value in wanted.items():
        assert given[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name


def test_what_vmap_cannot_trace_is_measured_sample_by_sample() -> None:
    class Branching(torch.nn.Linear):  # type: ignore[misc, name-defined, unused-ignore]
        def forward(self, x: Any) -> Any:
            made = super().forward(x)
            return made if made.sum() > -1e9 else 2 * made

    found = data()
    held = partition(found.y_train, 3, kind="iid")
    torch.manual_seed(1)
    plain, branching = torch.nn.Linear(4, 3), Branching(4, 3)
    branching.load_state_dict(plain.state_dict())
    losses = [TorchLosses(from_torch(one), found, held) for one in (plain, branching)]
    one, other = (each.moments(each.start(0), 8) for each in losses)
    np.testing.assert_allclose(other.second, one.second, rtol=1e-12)


def test_a_module_is_estimated_through_the_front_door() -> None:
    small = joulemesh.Scenario().override({"devices.count": 3})
    found = joulemesh.estimate(small, model=torch.nn.Linear(4, 3), data=data())
    assert found["smoothness"] > 0
    assert found["initial_gap"] > 0
