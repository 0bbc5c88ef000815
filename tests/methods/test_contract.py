"""What must hold for every method: budgets, prices message by message, the same result twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from joulemesh.base.errors import InfeasibleError
from joulemesh.methods import EQUAL, Ledger, Setting, build, lookup, names
from joulemesh.methods.gossip_learning import GossipLearning
from joulemesh.methods.sampling import neighbours_of
from joulemesh.methods.walk import exact_scheme
from joulemesh.scenario import Scenario
from joulemesh.tolerance import within
from joulemesh.training import Trace
from joulemesh.training.exchange import key_words
from joulemesh.world.topology import build_graph

Message = tuple[int, int, float]

PLANNED = ("adaptive", "adaptive:backfill", "inverse")
STEADY = (
    "fixed:3",
    "gossip-learning:0.1,tau=3",
    "gossip-learning:form=partitioned,parts=4,tau=3",
    "balanced:tau1=3,tau2=2",
    "balanced:tau1=3,tau2=2,compress=topk:0.1",
    "pens:sampled=2,top=1,phase1=5,tau=3",
    "d-psgd",
    "fedavg:3",
    "gossip-pga:4",
    "led:3",
)
# What they do in an iteration depends on how many there are.
PACED = ("merge", "skiptrain:2,sync=3,tau=3")
OWN = [
    name
    for name in STEADY
    if name.startswith(("gossip-learning", "pens", "led")) or "compress" in name
]
BITS = 650 * 32.0


@pytest.mark.parametrize("name", [*PLANNED, *STEADY, *PACED])
@pytest.mark.parametrize("equal", EQUAL)
def test_equal_terms(small: Scenario, name: str, equal: str) -> None:
    setting = Setting(small, equal)
    contender, ledger = build(name, setting), build(name, setting).ledger()
    n = contender.schedule.iterations
    assert ledger.compute_j.shape == ledger.exchange_j.shape == (n, 6)
    assert ledger.seconds.shape == ledger.bits.shape == ledger.server_j.shape == (n,)
    np.testing.assert_allclose(contender.leftover_j(), setting.battery_j - ledger.spent_j)
    if equal == "iterations":
        assert n == 24
    if equal in ("batteries", "budget"):
        assert within(setting.battery_j, ledger.spent_j).all()
    if equal in ("time", "budget"):
        assert ledger.seconds.sum() <= setting.reference.latency_s.sum() * (1 + 1e-9)
    overdrawn = (ledger.spent_j > setting.battery_j * (1 + 1e-9)).any()
    assert any("overdraws" in note for note in contender.notes) == overdrawn


@pytest.mark.parametrize("name", [*STEADY, "merge"])
@pytest.mark.parametrize("topology", ["ring", "complete"])
@pytest.mark.parametrize("equal", ["batteries", "time", "budget"])
def test_stops_one_iteration_before_overspending(
    small: Scenario, name: str, topology: str, equal: str
) -> None:
    scenario = small.override({"network.topology": topology})
    made = build(name, scenario, equal=equal)
    n = made.schedule.iterations
    longer = build(name, scenario.override({"plan.iterations": n + 1})).ledger()
    alike = n - 1 if name == "merge" else n  # its last iteration is another
    np.testing.assert_allclose(longer.exchange_j[:alike], made.ledger().exchange_j[:alike])
    np.testing.assert_allclose(longer.compute_j[:alike], made.ledger().compute_j[:alike])
    overdrawn = bool((longer.spent_j > made.battery_j).any())
    late = bool(longer.seconds.sum() > Setting(scenario).reference.latency_s.sum())
    assert {"batteries": overdrawn, "time": late, "budget": overdrawn or late}[equal]


@pytest.mark.parametrize("share", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("name", ["adaptive", *STEADY, *PACED])
def test_an_equal_budget_is_that_of_the_scenario(small: Scenario, name: str, share: float) -> None:
    """Within every battery and within budget.total_s, exactly, with or without a deadline."""
    total_s = share * Setting(small).clock_s
    for deadline in ({}, {"budget.deadline_s": None}):
        setting = Setting(small.override({"budget.total_s": total_s, **deadline}), "budget")
        assert setting.limit_s == total_s
        try:
            ledger = build(name, setting).ledger()
        except InfeasibleError:
            if name != "adaptive":  # whose 24 iterations may not fit
                raise
            continue
        assert sum(map(Fraction, ledger.seconds.tolist())) <= Fraction(total_s)
        for device, battery in enumerate(setting.battery_j.tolist()):
            assert sum(map(Fraction, ledger.energy_j[:, device].tolist())) <= Fraction(battery)


def test_a_total_time_too_short_is_refused_by_name(small: Scenario) -> None:
    with pytest.raises(InfeasibleError, match=r"one iteration of d-psgd takes .* budget.total_s"):
        build("d-psgd", small.override({"budget.total_s": 1e-6}), equal="budget")


@pytest.mark.parametrize("name", [*STEADY, *PACED])
def test_one_iteration_too_dear(small: Scenario, name: str) -> None:
    with pytest.raises(InfeasibleError, match=r"cannot pay for one iteration.*raise budget") as no:
        build(name, small.override({"budget.energy_j": 1e-4}), equal="energy")
    need = float(str(no.value).rsplit(" ", 1)[-1])
    made = build(name, small.override({"budget.energy_j": 1e3 * need}), equal="energy")
    assert made.schedule.iterations >= 1


def test_deadlines_are_noted(small: Scenario) -> None:
    made = build("fixed:9", small.override({"budget.deadline_s": 0.02}), equal="energy")
    assert any("exceed the deadline of 20 ms" in note for note in made.notes)


# Message by message ------------------------------------------------------------------------------


def _from_routes(setting: Setting, t: int) -> Iterator[Message]:
    route = setting.scheme.route(setting.costs(t), t)
    yield from ((i, j, bits) for _, i, j, bits in route.messages())


def _from_plan(setting: Setting, t: int) -> Iterator[Message]:
    route = setting.reference.route(t + 1)
    if route is not None:
        yield from ((i, j, bits) for _, i, j, bits in route.messages())


def _periodic(setting: Setting, t: int) -> Iterator[Message]:
    if (t + 1) % 4:
        yield from _mixings(setting, 1, BITS)
    else:
        yield from _merged(setting, t)


def _merged(setting: Setting, t: int) -> Iterator[Message]:
    """An exact average in iteration t."""
    route = exact_scheme(setting)[0].route(setting.ground.seen_costs(t), t)
    yield from ((i, j, bits) for _, i, j, bits in route.messages())


def _mixings(setting: Setting, mixings: int, bits: float) -> Iterator[Message]:
    for _ in range(mixings):
        for i, j in setting.world.graph.edges.tolist():
            yield i, j, bits
            yield j, i, bits


@cache
def _coordinates(t: int, **form: Any) -> Any:
    """What six devices send: it does not depend on who their neighbours are."""
    ring = neighbours_of(build_graph(Scenario(devices={"count": 6})))
    method = GossipLearning(ring, 0, 650, 3, 16, "step", **form)
    return np.asarray(method._coordinates(key_words(jax.random.key(9)), jnp.uint32(t)))


def _gossip(setting: Setting, t: int, **form: Any) -> Iterator[Message]:
    """Count the coordinates that the exchange itself would send."""
    method = GossipLearning(neighbours_of(setting.world.graph), 0, 650, 3, 16, "step", **form)
    sent, to = _coordinates(t, **form), method.partners(np.array([t], np.uint32))
    index_bits = 0 if "parts" in form else 10  # 650 < 2**10
    for i in range(6):
        coordinates = sent[i][sent[i] < 650]
        assert len(np.unique(coordinates)) == len(coordinates)
        yield i, int(to[i]), len(coordinates) * (32 + index_bits) + 32


EXPECTED: dict[str, Callable[[Setting, int], Iterator[Message]]] = {
    "adaptive": _from_plan,
    "fixed:3": _from_routes,
    "gossip-learning:0.1,tau=3": _gossip,
    "gossip-learning:form=partitioned,parts=4,tau=3": lambda s, t: _gossip(s, t, parts=4),
    "balanced:tau1=3,tau2=2": lambda s, t: _mixings(s, 2, BITS),
    "balanced:tau1=3,tau2=2,compress=topk:0.1": lambda s, t: _mixings(s, 2, 65 * 42.0),
    "balanced:tau1=3,tau2=1,compress=randk:0.1": lambda s, t: _mixings(s, 1, 65 * 32.0),
    "balanced:tau1=3,tau2=1,compress=qsgd:8": lambda s, t: _mixings(s, 1, 650 * 5 + 2 * 32.0),
    "d-psgd": lambda s, t: _mixings(s, 1, BITS),
    "gossip-pga:4": _periodic,
    "merge": lambda s, t: _merged(s, t) if t == 23 else _mixings(s, 1, BITS),
    "skiptrain": lambda s, t: _mixings(s, 1, BITS),
    "led:3": lambda s, t: _mixings(s, 1, BITS),
}

CASES: tuple[dict[str, Any], ...] = (
    {},
    {"network.topology": "complete", "devices.transmit_power_w": (0.5, 2.0)},
    {"plan.accounting": "both-ends", "plan.aggregation": "ring-chunked"},
    {"network.fading": "rayleigh", "budget.energy_j": 50.0, "budget.deadline_s": 1.0},
    {"network.fading": "rician", "budget.energy_j": 50.0, "budget.deadline_s": 1.0},
    {"plan.aggregation": "gossip", "plan.gossip_rounds": 9, "plan.gossip_mode": "matchings"},
    {
        "network.packet_bits": 3000,
        "network.header_bits": 720,
        "network.packet_s": 2e-5,
        "plan.message_s": 1e-4,
        "devices.message_j": 1e-5,
        "devices.receive_power_w": 0.2,
        "budget.energy_j": 50.0,
        "budget.deadline_s": 1.0,
    },
)


def _check(setting: Setting, ledger: Ledger, t: int, messages: list[Message]) -> None:
    world, network, devices = setting.world, setting.scenario.network, setting.scenario.devices
    costs = world.costs(world.channel.gain(t))
    link = {tuple(edge): k for k, edge in enumerate(world.graph.edges.tolist())}
    spent, slowest = np.zeros(6), 0.0
    for i, j, bits in messages:
        k = link[min(i, j), max(i, j)]
        seconds = float(costs.forward_s[k] if i < j else costs.backward_s[k])
        packets = math.ceil(bits / network.packet_bits)
        on_air_s = seconds * (bits + packets * network.header_bits) + packets * network.packet_s
        slowest = max(slowest, on_air_s + setting.scenario.plan.message_s)
        handling_j = devices.message_j or 0.0
        joules = float(world.devices.transmit_power_w[i]) * on_air_s + handling_j
        spent[i] += joules
        spent[j] += handling_j + on_air_s * (devices.receive_power_w or 0.0)
        if setting.scenario.plan.pays == "both-ends":
            spent[j] += joules
    np.testing.assert_allclose(ledger.exchange_j[t], spent, rtol=1e-12)
    np.testing.assert_allclose(ledger.bits[t], sum(bits for _, _, bits in messages), rtol=1e-12)
    assert ledger.seconds[t] >= slowest * (1 - 1e-12)


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("name", EXPECTED)
def test_ledger_is_the_sum_of_its_messages(small: Scenario, name: str, case: int) -> None:
    setting = Setting(small.override(CASES[case]))
    ledger = build(name, setting).ledger()
    for t in (0, 1, 7, 23):
        _check(setting, ledger, t, list(EXPECTED[name](setting, t)))


@pytest.mark.parametrize(
    ("name", "first"),
    [*((name, 0) for name in PLANNED), ("fixed:3", 0), ("gossip-pga:4", 3), ("merge", 23)],
)
def test_coordination_is_on_the_air(small: Scenario, name: str, first: int) -> None:
    plain, told = (
        build(name, small.override({"plan.coordination": on})).ledger() for on in (False, True)
    )
    # Six links, each carries six reports of 64 bits in both directions, once.
    np.testing.assert_allclose(told.bits - plain.bits, 2 * 6 * 6 * 64.0 * (np.arange(24) == first))
    assert (told.exchange_j[first] > plain.exchange_j[first]).all()
    rest = np.arange(24) != first
    np.testing.assert_allclose(told.exchange_j[rest], plain.exchange_j[rest])


# Twice the same, whatever it is batched with -----------------------------------------------------


@pytest.mark.slow
def test_same_seed_same_result(small: Scenario, train: Callable[..., tuple[Any, Trace]]) -> None:
    contender = build("gossip-learning:0.1,tau=2", small.override({"plan.iterations": 4}))
    both, trace = train(contender, seeds=(3, 5))
    again, _ = train(contender, seeds=(3, 5))
    np.testing.assert_array_equal(both, again)
    assert np.abs(both[0] - both[1]).max() > 1e-3
    assert np.isfinite(trace.test_loss).all()


@pytest.mark.parametrize("name", OWN)
def test_exchanges_are_pure(small: Scenario, play: Callable[..., Any], name: str) -> None:
    four = play(build(name, small))
    two = four(seeds=(3, 5))
    np.testing.assert_array_equal(two, four(seeds=(3, 5)))
    np.testing.assert_allclose(two[1], four(seeds=(5, 4))[0], rtol=1e-6)
    assert np.abs(two[0] - two[1]).max() > 1e-3


# What is said of a method ------------------------------------------------------------------------

SAID = {  # parameters that only have a meaning beside another
    ("gossip-learning", "parts"): "form=partitioned,",
    ("balanced", "gamma"): "compress=topk:0.1,",
}


@pytest.mark.parametrize("name", names())
def test_every_method_says_what_it_is_and_where_it_comes_from(name: str) -> None:
    method = lookup(name)
    assert method.built_in
    assert method.description.endswith(".")
    assert "\n" not in method.description
    if name == "spread":  # our own
        assert method.citation is None
    else:
        assert method.citation is not None
        assert method.citation.authors
        assert method.citation.title
        assert 1990 < (method.citation.year or 0) < 2100
        assert method.citation.url is not None
    for key, parameter in method.parameters.items():
        assert parameter.meaning, key
        assert parameter.default, key
        assert parameter.what, key
    assert method.main is None or method.main in method.parameters


@pytest.mark.parametrize(
    ("name", "key"), [(name, key) for name in names() for key in lookup(name).parameters]
)
def test_the_default_that_is_named_is_the_one_that_holds(
    small: Scenario, name: str, key: str
) -> None:
    """Where the default is a value; others depend on the scenario."""
    parameter = lookup(name).parameters[key]
    try:
        parameter.read(parameter.default)
    except ValueError:
        return
    setting, beside = Setting(small, "energy"), SAID.get((name, key), "")
    without = build(f"{name}:{beside}".rstrip(":,"), setting)
    given = build(f"{name}:{beside}{key}={parameter.default}", setting)
    np.testing.assert_array_equal(without.ledger().energy_j, given.ledger().energy_j)
    np.testing.assert_array_equal(without.ledger().bits, given.ledger().bits)


@pytest.mark.parametrize("name", [*PLANNED, *STEADY, *PACED])
def test_only_what_has_a_plan_and_its_schemes_own_messages_is_deployable(
    small: Scenario, name: str
) -> None:
    contender = build(name, Setting(small, "batteries"))
    assert contender.deployable == (contender.exchange is None and contender.plan is not None)
    assert contender.deployable == (not contender.simulation_only)
    if name in OWN:
        assert contender.simulation_only.startswith("its exchange works on the parameters of all")
