"""Transmit powers of an exchange against Shannon's formula, brute force and a bound."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import lambertw

from joulemesh import Scenario
from joulemesh.aggregation.power import Units, least_exchange_j, lowered
from joulemesh.aggregation.route import Route
from joulemesh.planning.ground import Ground
from joulemesh.planning.pricing import Pricer
from joulemesh.registries import SCHEMES
from joulemesh.world.links import NO_MARGIN, LinkCosts, snr_error, snr_gap

MEDIA: dict[str, dict[str, Any]] = {
    "orthogonal": {},
    "half": {"network.duplex": "half"},
    "shared": {"network.medium": "shared"},
    "broadcast": {"network.broadcast": True},
    "shared broadcast": {"network.medium": "shared", "network.broadcast": True},
    "reach": {"network.medium": "shared", "network.interference_m": 60.0},
}
LIMIT_W = {"wifi": 0.66, "ideal": 1.0, "zigbee": 0.0574}


def drawn(seed: int, scheme: str, medium: str) -> dict[str, Any]:
    """A random world with everything that a power depends on."""
    rng = np.random.default_rng([seed, *map(ord, scheme + medium)])
    profile = str(rng.choice(list(LIMIT_W)))
    limit = LIMIT_W[profile]
    fields: dict[str, Any] = {
        "seed": int(rng.integers(1_000_000)),
        "devices.count": int(rng.integers(4, 9)),
        "network.topology": str(rng.choice(["ring", "complete", "quasi-ring"])),
        "network.profile": profile,
        "network.shadowing_db": float(rng.choice([0.0, 6.0])),
        "training.model": "logistic",
        "plan.aggregation": scheme,
        "plan.gossip_rounds": int(rng.integers(1, 8)),
        "plan.iterations": 3,
        "plan.power": "just-in-time",
        **MEDIA[medium],
    }
    if rng.random() < 0.4:
        low = limit * 10.0 ** rng.uniform(-3, 0, size=int(rng.integers(1, 5)))
        fields["devices.power_levels_w"] = sorted([*low.tolist(), limit])
    else:
        fields["devices.power_range_w"] = [limit * float(10 ** rng.uniform(-4, -0.5)), limit]
    if rng.random() < 0.6:
        fields["devices.circuit_w"] = limit * float(rng.uniform(0, 0.5))
    if rng.random() < 0.5:
        fields["devices.receive_power_w"] = limit * float(rng.uniform(0, 0.5))
    if rng.random() < 0.3:
        fields["network.packet_error"] = 0.1
    if scheme == "tree-chunked":
        fields["plan.chunks"] = int(rng.integers(1, 12))
    return fields


@cache
def setting(seed: int, scheme: str, medium: str) -> tuple[Ground, Route, LinkCosts]:
    ground = Ground.of(Scenario().override(drawn(seed, scheme, medium)))
    return ground, ground.ready(3).route(ground.forecast), ground.forecast


def at(ground: Ground, stretch: float | None) -> Pricer:
    return Pricer(ground.scenario, ground.world, ground.work.model_bits, stretch)


def by_formula(ground: Ground, route: Route, power_w: Any) -> tuple[Any, Any]:
    """Joules of each device to send and to receive, message by message from powers and gains."""
    network, devices = ground.scenario.network, ground.world.devices
    gain, noise_w = ground.world.channel.mean_gain, 10 ** (network.noise_dbm_per_hz / 10 - 3)
    count = ground.world.graph.devices
    sent: Any = np.zeros(count)
    heard: Any = np.zeros(count)
    error = network.packet_error
    tries = sum(error**k for k in range(network.tries))  # of a packet, expected
    once: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    messages: Any = (
        route.chunk_messages()
        if route.chunks > 1
        else ((step, 0, *rest) for step, *rest in route.messages())
    )
    links = {tuple(ends): k for k, ends in enumerate(ground.world.graph.edges.tolist())}
    for step, chunk, i, j, bits in messages:
        link = links[min(i, j), max(i, j)]
        watts = power_w[link, int(i > j)]
        snr = watts * gain[link] / (network.bandwidth_hz * noise_w)
        rate = min(network.bandwidth_hz * np.log2(1 + snr), network.max_rate_bps or np.inf)
        packets = np.ceil(bits / network.packet_bits * (1 - 1e-12))
        seconds = (bits + packets * network.header_bits) / rate + packets * network.packet_s
        circuit = 0.0 if devices.circuit_w is None else devices.circuit_w[i]
        joules = (watts + circuit) * seconds
        if devices.receive_power_w is not None:
            heard[j] += devices.receive_power_w[j] * seconds * tries
        shared = ground.pricer.medium.broadcast and route.same_to_all
        key = (step, chunk, i) if shared else (step, len(once), -1)
        once.setdefault(key, []).append((joules, i))
    lost = [1 - (1 - error**k) for k in range(network.tries)]
    for each in once.values():
        often = sum(1 - (1 - share) ** len(each) for share in lost)
        sent[each[0][1]] += max(joules for joules, _ in each) * often
    return sent, heard


CASES = [
    (seed, scheme, medium) for seed in range(2) for scheme in SCHEMES.built_in for medium in MEDIA
]


@pytest.mark.parametrize(("seed", "scheme", "medium"), CASES)
def test_an_exchange_costs_no_more_and_is_priced_by_its_powers(
    seed: int, scheme: str, medium: str
) -> None:
    ground, route, costs = setting(seed, scheme, medium)
    full, devices = at(ground, None).route(route, costs), ground.world.devices
    assert devices.lowest_w is not None
    for stretch in (1.0, 1.4):
        pricer = at(ground, stretch)
        made, sent = pricer.route(route, costs), pricer.sent(route, costs)
        assert made.seconds[0] <= stretch * full.seconds[0] * (1 + 1e-11)
        assert (made.exchange_j <= full.exchange_j * (1 + 1e-11)).all()
        power_w = np.broadcast_to(
            devices.transmit_power_w[ground.world.graph.edges], (len(costs.forward_s), 2)
        )
        power_w = power_w if sent.power_w is None else sent.power_w
        sender = ground.world.graph.edges
        assert (power_w >= devices.lowest_w[sender] * (1 - 1e-12)).all()
        assert (power_w <= devices.transmit_power_w[sender] * (1 + 1e-12)).all()
        if devices.levels_w is not None:
            assert np.isin(power_w, devices.levels_w[0, :, 0]).all()
        joules = by_formula(ground, route, power_w)
        assert np.allclose(made.transmit_j[0], joules[0], rtol=1e-9)
        assert np.allclose(made.receive_j[0], joules[1], rtol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_other_powers_cost_what_a_radio_of_that_power_does(seed: int) -> None:
    fields, share = drawn(seed, "tree", "orthogonal"), 0.37
    costs = setting(seed, "tree", "orthogonal")[2]
    low = {name: value for name, value in fields.items() if not name.startswith("devices.power")}
    watts = share * LIMIT_W[fields["network.profile"]]
    changed = {"devices.transmit_power_w": watts, "plan.power": "full"}
    other = Ground.of(Scenario().override(low | changed)).forecast
    assert costs.radio is not None
    radio = replace(costs.radio, levels_w=None)
    made = replace(costs, radio=radio).at_power(share * radio.highest_w)
    for name in (
        "forward_s",
        "backward_s",
        "forward_j",
        "backward_j",
        "packet",
        "forward_receive_j",
    ):
        mine, wanted = getattr(made, name), getattr(other, name)
        assert (mine is None) == (wanted is None)
        assert mine is None or np.allclose(mine, wanted, rtol=1e-12, atol=0), name


def line(power: str = "just-in-time", **more: Any) -> Ground:
    """Four devices in a row, with links of unlike gains, at Shannon's rate."""
    fields = {
        "devices.count": 4,
        "network.profile": "ideal",
        "network.topology": [[0, 1], [1, 2], [2, 3]],
        "network.gains": [2e-12, 4e-13, 8e-12],
        "network.bandwidth_hz": 1e6,
        "training.model": "logistic",
        "devices.power_range_w": [1e-3, 1.0],
        "plan.aggregation": "tree",
        "plan.power": power,
        **more,
    }
    return Ground.of(Scenario().override(fields))


@pytest.mark.parametrize("chunks", [1, 8])
@pytest.mark.parametrize("stretch", [1.02, 1.3, 2.0])
@pytest.mark.parametrize("circuit_w", [0.0, 0.1])
def test_powers_come_close_to_the_best_that_a_solver_finds(
    chunks: int, stretch: float, circuit_w: float
) -> None:
    fields: Any = {"plan.aggregation": "tree-chunked", "plan.chunks": chunks}
    ground = line(**fields | {"devices.circuit_w": circuit_w})
    pricer = at(ground, stretch)
    route = ground.ready(1).route(ground.forecast)
    one = pricer.exchange(route, ground.forecast)
    units = Units.of(one)
    allowed = stretch * one.seconds(one.costs)
    slowest = units.grid[:, -1]
    solve: Any = minimize

    def joules(log: Any) -> float:
        slower = np.exp(log)
        return float(units.joules(slower, units.power_w(slower)[1]).sum())

    best = min(
        solve(
            joules,
            np.log(np.minimum(slowest, start)),
            bounds=[(0.0, float(most)) for most in np.log(slowest)],
            constraints={
                "type": "ineq",
                "fun": lambda log: 1 - one.seconds(units.costs(np.exp(log))) / allowed,
            },
            method="SLSQP",
            options={"maxiter": 200},
        ).fun
        for start in (1.0, 1.01 * stretch)
    )
    found = one.device_j(lowered(one, stretch)).sum()
    assert found <= best * 1.05


@pytest.mark.parametrize(("seed", "scheme", "medium"), CASES[::5])
def test_the_bound_is_below_all_powers_that_are_in_time(
    seed: int, scheme: str, medium: str
) -> None:
    ground, route, costs = setting(seed, scheme, medium)
    one = at(ground, 1.0).exchange(route, costs)
    units, rng = Units.of(one), np.random.default_rng(seed)
    for _ in range(20):
        slower = units.grid[:, -1] ** rng.uniform(0, 1, len(units.worst))
        made = units.costs(slower)
        assert (least_exchange_j(one, one.seconds(made)) <= one.device_j(made) * (1 + 1e-9)).all()
    made = lowered(one)
    assert (least_exchange_j(one, one.seconds(made)) <= one.device_j(made) * (1 + 1e-9)).all()


def test_one_hop_takes_the_power_of_its_seconds() -> None:
    """By hand: at twice the seconds a link of SNR 15 needs an SNR of 3."""
    fields: Any = {
        "devices.count": 2,
        "network.topology": [[0, 1]],
        "network.bandwidth_hz": 1e6,
        "network.noise_dbm_per_hz": -170.0,  # 1e-14 W in 1 MHz
        "network.gains": [15e-14],
    }
    ground = line(**fields)
    scheme = ground.ready(1)
    made = at(ground, 2.0).sent(scheme.route(ground.forecast), ground.forecast)
    assert made.power_w == pytest.approx(np.array([[0.2, 0.2]]), rel=1e-9)
    assert made.forward_s == pytest.approx(2 * ground.forecast.forward_s, rel=1e-9)
    assert made.forward_j == pytest.approx(0.4 * ground.forecast.forward_j, rel=1e-9)


@pytest.mark.parametrize("circuit_w", [0.01, 0.1, 1.0])
def test_the_thriftiest_seconds_are_those_of_the_closed_form(circuit_w: float) -> None:
    """By Lambert's W: e^y (y - 1) = k - 1 with k circuits over the power of SNR 1."""
    fields: Any = {"devices.circuit_w": circuit_w}
    ground = line(**fields)
    one = at(ground, 1.0).exchange(ground.ready(1).route(ground.forecast), ground.forecast)
    units, radio = Units.of(one), ground.forecast.radio
    assert radio is not None
    noise_w = radio.noise_w[units.worst[:, 0], units.worst[:, 1]]
    solve: Any = lambertw
    y = 1 + solve((circuit_w / noise_w - 1) / np.e).real
    seconds = np.log(2) / (radio.bandwidth_hz * y)
    slower = seconds / radio.least_s[units.worst[:, 0], units.worst[:, 1]]
    assert np.allclose(units.thriftiest, np.clip(slower, 1.0, units.grid[:, -1]), rtol=0.01)


def test_a_radio_that_sends_no_faster_sends_at_the_power_of_its_rate() -> None:
    fields: Any = {"devices.count": 2, "network.topology": [[0, 1]], "network.gains": [2e-12]}
    ground = line(**fields | {"network.max_rate_bps": 2e6})
    route = ground.ready(1).route(ground.forecast)
    made = at(ground, 1.0).sent(route, ground.forecast)
    noise_w = ground.forecast.radio.noise_w  # type: ignore[union-attr]
    assert made.power_w == pytest.approx(3 * noise_w, rel=1e-9)  # 2 bit/s in a hertz
    assert made.forward_s == pytest.approx(ground.forecast.forward_s, rel=1e-12)


def test_slower_links_lose_no_more_packets() -> None:
    rng = np.random.default_rng(0)
    bandwidth, bits = 20e6, 12_000.0
    snr = 10.0 ** rng.uniform(-1, 4, 400)
    rate = np.minimum(bandwidth * np.log2(1 + snr), 65e6)
    every = snr_gap(snr, rate, bandwidth, bits)
    assert (every >= 1).all()
    snr, rate, gap = (part[every >= NO_MARGIN] for part in (snr, rate, every))
    assert len(gap) > 100
    full = snr_error(snr, rate, bandwidth, bits)
    assert (gap <= snr / np.expm1(np.log(2) * rate / bandwidth) * 1.001).all()
    for slower in (1.0, 1.1, 2.0, 10.0, 100.0):
        lower = gap * np.expm1(np.log(2) * rate / slower / bandwidth)
        now = snr_error(lower, rate / slower, bandwidth, bits)
        assert (now <= full * (1 + 1e-6) + 1e-11).all()


def test_no_powers_without_a_choice() -> None:
    ground = line("full")
    route = ground.ready(1).route(ground.forecast)
    assert ground.pricer.sent(route, ground.forecast).power_w is None
