"""Messages of 16 bits: training does what the devices of a fleet do, message by message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh.aggregation.contract import execute
from joulemesh.aggregation.peer import rounded
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, from_arrays
from joulemesh.methods import build as build_method
from joulemesh.methods.setting import Setting
from joulemesh.models import build
from joulemesh.planning.losses import carried_out
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES
from joulemesh.training import DivergedError
from joulemesh.training.arrays import half
from joulemesh.training.exchange import Context, Exchange, entering
from joulemesh.training.from_plan import schedule_of
from joulemesh.training.jax.engine import Engine
from joulemesh.training.jax.platform import precision_scope
from joulemesh.training.prepare import partitions
from joulemesh.training.reference import run_reference
from joulemesh.training.schedule import Options, Schedule
from tests.samples import sample

HALF = np.dtype("float16")


def data() -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 5)).astype(np.float32)
    return from_arrays(x[:90], np.arange(90) % 3, x[90:], np.arange(30) % 3)


def plan_of(scheme: str, devices: int, changes: dict[str, Any] | None = None) -> Plan:
    wanted = {
        "devices.count": devices,
        "plan.aggregation": scheme,
        "plan.iterations": 3,
        "plan.epsilon": 0.3,
        "network.bits_per_parameter": 16,
        "budget.energy_j": [2.0, 4.0],
        "budget.deadline_s": 0.5,
        "training.batch_size": 4,
        "training.precision": "float64",
        "training.eval_every": 1,
        **(changes or {}),
    }
    scenario = joulemesh.Scenario.preset("adaptive").override(wanted)
    return joulemesh.plan(scenario, parameters=build("mlp", (5,), 3, (7,)).parameters)


def engine_of(plan: Plan, machine: Machine | None = None, **options: Any) -> Engine:
    samples, model = data(), build("mlp", (5,), 3, (7,))
    held = partitions(plan.scenario, samples, (0,), plan.work.round_samples)
    chosen = Options.from_scenario(plan.scenario.training, **options)
    return Engine(model, samples, held, schedule_of(plan), chosen, (0,), machine=machine)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_rounding_equals_that_of_numpy_for_every_exponent_and_at_ties(precision: str) -> None:
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = np.sort(every[np.isfinite(every)]).astype(precision)
    ties = (every[1:] + every[:-1]) / 2
    near = [np.nextafter(ties, np.inf), np.nextafter(ties, -np.inf)]
    values = np.concatenate([every, ties, *near])
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=100_000) * 10.0 ** rng.uniform(-9, 6, 100_000)
    values = np.concatenate([values, drawn.astype(precision), [65519.0, 65520.0, np.inf]])
    with precision_scope(precision), np.errstate(over="ignore"):
        found = np.asarray(jax.jit(half)(jnp.asarray(values, precision)))
        wanted = values.astype(precision).astype(HALF).astype(precision)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("devices", "precision"),
    [
        (11, "float32"),
        *(
            pytest.param(devices, precision, marks=pytest.mark.slow)
            for devices, precision in sample(((3, "float32"), (3, "float64"), (11, "float64")), 1)
        ),
    ],
)
@pytest.mark.parametrize("scheme", SCHEMES.built_in)
def test_an_exchange_ends_with_the_bits_that_devices_end_with(
    scheme: str, devices: int, precision: str
) -> None:
    changes: dict[str, Any] = {"plan.chunks": 4} if scheme == "tree-chunked" else {}
    plan = plan_of(scheme, devices, {"budget.deadline_s": 5.0, **changes})
    schedule = schedule_of(plan)
    assert (schedule.kind, schedule.wire) == ("messages", "float16")
    values = np.random.default_rng(devices).normal(size=(devices, 67)).astype(precision)
    every = exchanged(schedule, values, precision)
    for t, found in enumerate(every):
        route = plan.route(t + 1)
        assert route is not None
        by_hand = execute(plan.scheme_at(t + 1), route, values, wire=HALF)
        np.testing.assert_array_equal(found, by_hand)
        np.testing.assert_array_equal(found, found.astype(HALF).astype(precision))
        if plan.timeline.scheme.exact:
            assert (found == found[0]).all()
            assert 0 < np.abs(found[0] - values.mean(axis=0)).max() < 2e-3


def exchanged(schedule: Schedule, values: NDArray[Any], precision: str) -> list[NDArray[Any]]:
    """What the engine's exchange of each iteration makes of parameters [N, P]."""
    from joulemesh.training.jax.inputs import chunk_schedule
    from joulemesh.training.jax.layout import Layout
    from joulemesh.training.jax.mixing import MixingInputs, in_steps
    from joulemesh.training.schedule import RoundedExchanges

    assert isinstance(schedule.mixing, RoundedExchanges)
    layout = Layout.deal(np.arange(len(values)), 1, 1)
    longest = np.ones(schedule.iterations, np.int64)
    kept: dict[str, Any] = {"chunk": 3, "stride": 0, "dtype": precision}
    chunk, _, _ = chunk_schedule(schedule, layout, longest, 0, 3, **kept)
    apply = in_steps(schedule.mixing.registers, schedule.wire).apply
    with precision_scope(precision):
        nothing: Any = None

        def once(flat: jax.Array, steps: Any) -> jax.Array:
            context = MixingInputs(nothing, nothing, steps)
            leaves = {"a": flat[:, None, :30], "b": flat[:, None, 30:]}  # as one vector: parts
            made: Any = apply(leaves, context, ())[0]
            return jnp.concatenate([made["a"][:, 0], made["b"][:, 0]], axis=1)

        compiled, last = jax.jit(once), len(chunk.mixing.target) - 1

        def steps_at(t: int) -> Any:
            return jax.tree.map(lambda column: jnp.asarray(column[min(t, last)]), chunk.mixing)

        every = range(schedule.iterations)
        return [np.asarray(compiled(jnp.asarray(values), steps_at(t))) for t in every]


@pytest.mark.parametrize(
    ("scheme", "changes"),
    [
        ("tree-chunked", {"plan.chunks": 4}),
        *(
            pytest.param(scheme, changes, marks=pytest.mark.slow)
            for scheme, changes in (
                ("ring-chunked", {}),
                ("gossip", {}),
                ("metropolis", {}),
                ("tree", {"plan.exchange": {"every": 2, "between": "neighbours"}}),
            )
        ),
        ("tree", {"network.packet_error": 0.2, "network.packet_bits": 300, "network.tries": 1}),
    ],
)
def test_the_engine_equals_the_reference_and_messages_carried_hop_by_hop(
    unevaluated: Callable[[Engine], Engine], scheme: str, changes: dict[str, Any]
) -> None:
    plan = plan_of(scheme, 6, changes)
    if "network.packet_error" in changes:
        plan = carried_out(plan)
        assert plan.drawn is not None
        assert plan.drawn.lost_messages.any()
    engine = unevaluated(engine_of(plan))

    def hop(t: int, values: NDArray[Any]) -> NDArray[Any]:
        route = plan.route(t + 1)
        assert route is not None
        lost = frozenset() if plan.drawn is None else plan.drawn.lost_in(t, route)
        return execute(plan.scheme_at(t + 1), route, values, lost, HALF)

    *_, (state, _) = engine.train()
    fast = engine.params(state)
    for slow in (run_reference(engine, exchange=hop)[0], run_reference(engine)[0]):
        for device, params in enumerate(slow):
            for name, leaf in params.items():
                np.testing.assert_allclose(fast[name][0, device], leaf, rtol=0, atol=1e-10)
    plain = plan_of(scheme, 6, {**changes, "network.bits_per_parameter": 32})
    *_, (state, _) = unevaluated(whole := engine_of(plain)).train()
    assert apart(whole.params(state), fast) > 1e-6  # something was rounded


def apart(one: Any, other: Any) -> float:
    """The largest difference of two trees."""
    gaps = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), one, other)
    return float(max(jax.tree.leaves(gaps)))


def test_it_does_not_depend_on_the_number_of_processors(
    machine: Machine, unevaluated: Callable[[Engine], Engine]
) -> None:
    plan = plan_of("tree", 5, {"budget.energy_j": [1.0, 4.0]})
    found = []
    for engine in (engine_of(plan, machine), engine_of(plan)):
        *_, (state, _) = unevaluated(engine).train()
        found.append(engine.params(state))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12), *found)


def test_from_32_bits_on_nothing_is_rounded() -> None:
    for bits in (32, 33, 64):
        schedule = schedule_of(plan_of("tree", 4, {"network.bits_per_parameter": bits}))
        assert (schedule.kind, schedule.wire) == ("mean", "")


@pytest.mark.parametrize("bits", [1, 2, 4, 8, 15, 17, 24, 31])
def test_other_widths_are_refused_in_one_line(bits: int) -> None:
    with pytest.raises(ScenarioError, match=rf"bits_per_parameter = {bits} .* use 16 or 32") as all:
        joulemesh.Scenario().override({"network.bits_per_parameter": bits})
    assert "\n" not in str(all.value)


def test_sums_that_are_weighed_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"training\.weights"):
        joulemesh.Scenario().override(
            {"network.bits_per_parameter": 16, "training.weights": "samples"}
        )


def test_a_number_too_large_for_a_message_stops_training_and_devices() -> None:
    plan = plan_of("tree", 4, {"training.learning_rate": 1e6})
    with pytest.raises(DivergedError, match=r"exceed 65,504.*network\.bits_per_parameter = 32"):
        engine_of(plan).run()
    # The sum overflows, not one of its terms.
    values, route = np.full((4, 3), 6e4), plan.route(1)
    assert route is not None
    with pytest.raises(ScenarioError, match=r"65,504; lower .*network\.bits_per_parameter = 32"):
        execute(plan.scheme_at(1), route, values, wire=HALF)
    engine = engine_of(plan_of("tree", 4, {"training.learning_rate": 1e-9}), eval_every=3)
    state = engine.begin()
    with engine.scope():
        large = state._replace(params=jax.tree.map(lambda leaf: 0 * leaf + 6e4, state.params))
    with pytest.raises(DivergedError, match="exceed 65,504"):
        engine.advance(large)


def test_own_exchanges_get_what_receivers_get() -> None:
    seen: list[Any] = []

    def apply(params: Any, state: Any, key: Any, context: Any) -> Any:
        seen.append(params)
        return params, state, ()

    own = entering(Exchange(lambda params: (), apply), "float16")
    values = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5)), jnp.float32)
    own.apply({"a": values}, (), jnp.zeros(0), Context(*[None] * 7))  # type: ignore[arg-type]
    wanted = rounded(np.asarray(values), HALF)
    np.testing.assert_array_equal(np.asarray(seen[0]["a"]), wanted)
    assert own.rounds


@pytest.mark.parametrize(
    "name",
    [
        "fixed:2", "fedavg", "balanced:tau1=2,tau2=1,compress=topk:0.3",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in sample((
                "adaptive", "spread", "inverse", "d-psgd", "gossip-pga", "merge", "skiptrain",
                "balanced:tau1=2,tau2=2", "balanced:tau1=2,tau2=1,compress=qsgd:8",
                "gossip-learning", "pens", "led",
            ), 4)
        ),
    ],
)  # fmt: skip
def test_every_method_rounds_what_it_sends(name: str) -> None:
    model, found = build("mlp", (5,), 3, (7,)), {}
    for bits in (16, 32):
        plan = plan_of("tree", 6, {"network.bits_per_parameter": bits, "plan.fixed_rounds": 2})
        setting = Setting(plan.scenario, "iterations", (0,), model=model, data=data())
        made = build_method(name, setting)
        assert made.schedule.wire == ("float16" if bits == 16 else "")
        held = partitions(plan.scenario, data(), (0,), plan.work.round_samples)
        options = Options.from_scenario(plan.scenario.training, eval_every=1000)
        short = Schedule(
            made.schedule.rounds[:1] * 0 + 2,
            mixing=made.schedule.mixing
            if not isinstance(made.schedule.mixing, np.ndarray)
            else made.schedule.mixing[:1],
            mixing_rounds=made.schedule.mixing_rounds,
            exact=made.schedule.exact[:1],
            wire=made.schedule.wire,
        )
        engine = Engine(model, data(), held, short, options, (0,), own_exchange=made.exchange)
        *_, (state, _) = engine.train()
        found[bits] = engine.params(state)
    difference = apart(found[16], found[32])
    assert (difference == 0) == ("qsgd" in name)  # whose messages have bits of their own
    assert difference < 5e-3
