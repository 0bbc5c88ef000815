"""Quantised averages: training does what the devices of a fleet do, message by message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from joulemesh.aggregation.bits import WIDTHS, quantised
from joulemesh.aggregation.contract import execute_quantised
from joulemesh.base.machine import Machine
from joulemesh.planning.plan import Plan
from joulemesh.training.arrays import quantise
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.reference import run_reference
from tests.training.test_rounded import engine_of, plan_of

EXACT = ("tree", "tree-chunked", "ring", "ring-chunked")


def planned(
    scheme: str, bits: int, devices: int = 6, changes: dict[str, Any] | None = None
) -> Plan:
    more = {"plan.chunks": 4} if scheme == "tree-chunked" else {}
    wanted = {"network.bits_per_parameter": 32, "plan.bits": bits, **more, **(changes or {})}
    return plan_of(scheme, devices, wanted)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("bits", WIDTHS)
def test_jax_quantises_as_numpy_does(bits: int, precision: str) -> None:
    rng = np.random.default_rng(bits)
    scales = 10.0 ** rng.uniform(-42, 34, (40, 1))
    values = (rng.normal(size=(40, 200)) * scales).astype(precision)
    values[3] = 0.0
    values[4] = 2.0 ** rng.integers(-30, 30, 200)  # ties
    values[5, 70] = np.nan
    values[6, 130] = np.inf
    with precision_scope(precision), np.errstate(over="ignore"):
        found = np.asarray(jax.jit(lambda x: quantise(x, bits))(jnp.asarray(values, precision)))
    np.testing.assert_array_equal(found, quantised(values, bits))


class Hops:
    """Exchanges carried hop by hop, with what devices remember."""

    def __init__(self, plan: Plan, bits: int, start: NDArray[Any]) -> None:
        self.plan, self.bits, self.agreed = plan, bits, start[0]
        self.owed = np.zeros_like(start)

    def __call__(self, t: int, values: NDArray[Any]) -> NDArray[Any]:
        route = self.plan.route(t + 1)
        assert route is not None
        scheme, kept = self.plan.scheme_at(t + 1), (self.agreed, self.owed)
        after, self.owed = execute_quantised(scheme, route, values, self.bits, *kept, packed=True)
        here = scheme.graph.members
        assert (after[here] == after[here[0]]).all()
        self.agreed = after[here[0]]
        return after


def vectors(engine: Engine, params: Any) -> NDArray[Any]:
    """[N, P] of the first seed."""
    return np.concatenate(
        [leaf[0].reshape(len(leaf[0]), -1) for leaf in jax.tree.leaves(params)], 1
    )


@pytest.mark.parametrize(
    ("scheme", "bits"),
    [("tree", 4), ("tree-chunked", 8), ("ring", 8), ("ring-chunked", 4), ("tree", 16)],
)
def test_the_engine_equals_the_reference_and_messages_carried_hop_by_hop(
    unevaluated: Callable[[Engine], Engine], scheme: str, bits: int
) -> None:
    plan = planned(scheme, bits)
    schedule = schedule_of(plan)
    assert (schedule.kind, schedule.wire) == ("messages", f"int{bits}")
    engine = unevaluated(engine_of(plan))
    hops = Hops(plan, bits, vectors(engine, engine.params(engine.begin())))
    *_, (state, _) = engine.train()
    fast = vectors(engine, engine.params(state))
    for slow in (run_reference(engine, exchange=hops)[0], run_reference(engine)[0]):
        rows = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)]) for one in slow]
        np.testing.assert_allclose(fast, rows, rtol=0, atol=1e-10)
    np.testing.assert_allclose(np.asarray(state.exchange.owed)[0], hops.owed, rtol=0, atol=1e-10)
    assert (fast == fast[0]).all()


def test_it_does_not_depend_on_the_number_of_processors(
    machine: Machine, unevaluated: Callable[[Engine], Engine]
) -> None:
    plan = planned("tree-chunked", 8, 5, {"budget.energy_j": [1.0, 4.0]})
    found = []
    for engine in (engine_of(plan, machine), engine_of(plan)):
        *_, (state, _) = unevaluated(engine).train()
        found.append((engine.params(state), state.exchange.owed))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), *found)
