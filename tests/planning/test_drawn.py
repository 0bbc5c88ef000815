"""Packets that are lost: what is expected in the plan, and what is drawn when it is carried out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import joulemesh
from joulemesh import Scenario
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.planning.export import load_plan
from joulemesh.planning.losses import carried_out, cut_off, drawn_prices, message_keys
from joulemesh.planning.plan import Plan
from joulemesh.registries import SCHEMES
from joulemesh.tolerance import left_of
from joulemesh.world.links import LinkCosts, Packets, expected_tries
from joulemesh.world.quantities import stream
from tests.samples import sample

FloatArray = NDArray[np.float64]


def _plan(**changes: Any) -> Plan:
    given = {name.replace("__", "."): value for name, value in changes.items()}
    return joulemesh.plan(Scenario.preset("adaptive").override(given))


# Expected ----------------------------------------------------------------------------------------


def test_expected_tries_by_hand() -> None:
    """p = 0.1, three tries: 1 + 0.1 + 0.01."""
    assert expected_tries(0.1, 3) == pytest.approx(1.11, rel=1e-15)
    assert expected_tries(0.0, 8) == 1.0
    assert expected_tries(0.5, 1) == 1.0


def test_every_joule_and_second_of_an_exchange_is_scaled() -> None:
    """All links lose alike, so that the tree is the same and its price 1.11 times as much."""
    without, lossy = _plan(), _plan(network__packet_error=0.1, network__tries=3)
    assert lossy.edges.tolist() == without.edges.tolist()
    np.testing.assert_allclose(lossy.exchange_j, 1.11 * without.exchange_j, rtol=1e-12)
    np.testing.assert_allclose(lossy.exchange_s, 1.11 * without.exchange_s, rtol=1e-12)
    assert (lossy.margin_j >= 0).all()


def test_probability_zero_is_today_bit_for_bit() -> None:
    plain, zero = (
        _plan(),
        _plan(network__packet_error=0.0, network__packet_bits=7, network__tries=1),
    )
    assert (zero.spent_j == plain.spent_j).all()
    assert (zero.latency_s == plain.latency_s).all()
    assert (zero.rounds == plain.rounds).all()
    assert carried_out(zero) is zero


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"network.packet_error": 1.0}, "probability below 1"),
        ({"network.packet_error": "often"}, "one of snr"),
        ({"network.packet_error": "snr"}, "network.max_rate_bps"),
        ({"network.packet_error": 0.1, "plan.physics": "paper"}, 'plan.physics = "paper"'),
        ({"network.packet_error": 0.1, "plan.timing": "paper"}, 'plan.timing = "paper"'),
        ({"network.packet_error": 0.1, "training.weights": "samples"}, "training.weights"),
        ({"network.packet_error": 0.1, "network.tries": 0}, "network.tries"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as refused:
        joulemesh.plan(Scenario.preset("adaptive").override(changes))
    assert "\n" not in str(refused.value)


def test_links_have_the_losses_that_were_measured(tmp_path: Path) -> None:
    """Three links of 1 Mbit/s: one loses every second packet from 0 to 1, and none back."""
    rows = ["i,j,rate_bps,loss", "0,1,1e6,0.5", "1,0,1e6,0", "1,2,1e6,0", "0,2,1e6,0.1"]
    (tmp_path / "links.csv").write_text("\n".join(rows) + "\n", "utf-8")
    scenario = Scenario(
        devices={"count": 3},
        network={"links": str(tmp_path / "links.csv"), "tries": 2},
        budget={"deadline_s": 10.0},
        plan={"iterations": 2},
    )
    world = joulemesh.plan(scenario).world
    ends = [tuple(link) for link in world.graph.edges.tolist()]
    costs = world.costs(world.channel.gain(0))
    assert costs.forward_s[ends.index((0, 1))] == pytest.approx(1.5e-6)
    assert costs.backward_s[ends.index((0, 1))] == pytest.approx(1e-6)
    np.testing.assert_allclose(costs.backward_j[ends.index((0, 2))], 1.1e-6)
    with pytest.raises(ScenarioError, match="leave out one of them"):
        joulemesh.plan(scenario.override({"network.packet_error": 0.1}))
    (tmp_path / "links.csv").write_text("i,j,rate_bps\n0,1,1e6\n1,2,1e6\n", "utf-8")
    with pytest.raises(ScenarioError, match="whose rates are measured"):
        joulemesh.plan(scenario.override({"network.packet_error": "snr"}))
    (tmp_path / "links.csv").write_text("i,j,rate_bps,loss\n0,1,1e6,1.5\n1,2,1e6,0\n", "utf-8")
    with pytest.raises(ScenarioError, match=r"loss = 1\.5; it must be the probability"):
        joulemesh.plan(scenario)


def test_error_from_the_snr_margin_falls_with_the_rate() -> None:
    """A radio at 1 Mbit/s loses nothing where the capacity is far above; one at capacity does."""
    slow, fast = (
        _plan(
            network__packet_error="snr",
            network__max_rate_bps=rate,
            budget__deadline_s=10.0,
            budget__energy_j=1000.0,
        )
        for rate in (1e6, 1e12)
    )
    gain = slow.world.channel.gain(0)
    np.testing.assert_allclose(slow.world.errors(gain), 0.0, atol=1e-12)
    at_capacity = fast.world.errors(gain)
    assert ((at_capacity > 0.4) & (at_capacity < 0.5)).all()


# Drawn -------------------------------------------------------------------------------------------


def test_transmissions_of_a_message_by_hand() -> None:
    """Two packets of 100 bits and one of 50, always lost: both tries of all, and the message."""
    rng = np.random.default_rng(0)
    bits = np.array([250.0, 250.0])
    times, lost = Packets(100.0, 2, 0.5).transmissions(bits, np.array([1.0, 0.0]), rng)
    assert times.tolist() == [2.0, 1.0]
    assert lost.tolist() == [True, False]


def test_what_a_packet_takes_besides_its_payload_is_sent_again_with_it() -> None:
    """Of packets of 100, 100 and 50 bits, each 20 more, one full one fails once: 310 and 120."""

    class OneFails:
        def binomial(self, count: NDArray[np.int64], error: FloatArray) -> NDArray[np.int64]:
            return np.minimum(count, 1) if count[0] == 2 else np.zeros_like(count)

    one: Any = OneFails()
    times, lost = Packets(100.0, 2, 0.5).transmissions(
        np.array([250.0]), np.array([0.5]), one, np.array([20.0])
    )
    assert times.tolist() == [pytest.approx((310 + 120) / 310)]
    assert not lost.any()


MESSAGES: dict[str, Any] = {
    "network__packet_bits": 8000,
    "network__header_bits": 720,
    "network__packet_s": 2e-5,
    "plan__message_s": 1e-4,
    "devices__message_j": 1e-5,
    "devices__receive_power_w": 0.2,
}


@pytest.mark.parametrize("scheme", SCHEMES.names())
def test_drawn_exchanges_cost_what_is_expected_of_them_on_average(scheme: str) -> None:
    """With packets and messages that cost something, over 300 exchanges of one plan."""
    plan = _plan(
        **MESSAGES,
        devices__count=5,
        network__packet_error=0.2,
        plan__aggregation=scheme,
        plan__gossip_rounds=4,
        plan__iterations=300,
        plan__rounds="uniform",
        budget__energy_j=1e4,
        budget__deadline_s=10.0,
    )
    drawn = carried_out(plan)
    found = (drawn.exchange_j, drawn.receive_j, plan.exchange_j, plan.receive_j)
    spent_j, heard_j, planned_j, expected_j = (
        np.broadcast_to(one, plan.rounds.shape).sum(axis=0) for one in found
    )
    np.testing.assert_allclose(spent_j, planned_j, rtol=0.02)
    np.testing.assert_allclose(heard_j, expected_j, rtol=0.02)


def test_drawn_transmissions_have_the_expected_mean_and_share_of_losses() -> None:
    """p = 0.3, two tries, three packets: 1.3 on average; a message is whole with (1 − 0.09)³."""
    many = 40_000
    times, lost = Packets(100.0, 2, 0.3).transmissions(
        np.full(many, 270.0), np.full(many, 0.3), np.random.default_rng(3)
    )
    assert times.mean() == pytest.approx(1.3, abs=0.01)
    assert lost.mean() == pytest.approx(1 - 0.91**3, abs=0.01)


def test_a_drawn_exchange_by_hand() -> None:
    """Three devices on a path, root 1. Bits cost 2 J and 1 s; of message k, ``often[k]`` times."""
    costs = LinkCosts(np.ones(2), np.ones(2), np.full(2, 2.0), np.full(2, 2.0))
    route = Route.build(
        "tree",
        edges=[[0, 1], [1, 2]],
        edge=[0, 1, 0, 1],
        forward=[True, False, False, True],
        step=[0, 0, 1, 1],
        bits=10.0,
        repeats=1,
        uses=2,
    ).rooted(1)
    pricer = _plan(devices__count=3).ground.pricer
    drawn = drawn_prices(pricer, route, costs, np.array([[1.0, 3.0, 2.0, 1.0]]))
    assert drawn.energy_j[0].tolist() == [20.0, 60.0, 60.0]
    assert drawn.seconds.tolist() == [50.0]  # 30 s up, 20 s down
    chunked = drawn_prices(
        pricer, route.in_chunks(2), costs, np.array([[1, 1, 1, 1], [1, 3, 1, 1]])
    )
    assert chunked.energy_j[0].tolist() == [20.0, 40.0, 40.0]
    assert chunked.seconds.tolist() == [25.0]  # 5 s and 15 s up to the root, 5 s down


MEDIA: list[dict[str, Any]] = [
    {},
    {"network__duplex": "half"},
    {"network__medium": "shared"},
    {"network__medium": "shared", "network__interference_m": 300.0, "network__broadcast": True},
    {"network__broadcast": True},
]


@pytest.mark.parametrize("medium", MEDIA)
@pytest.mark.parametrize("name", SCHEMES.names())
def test_messages_sent_as_often_as_expected_cost_the_plans_price(
    name: str, medium: dict[str, Any]
) -> None:
    plan = _plan(
        devices__count=7,
        network__topology="quasi-ring",
        **medium,
        plan__aggregation=name,
        plan__iterations=3,
        network__packet_error=0.2,
        budget__energy_j=500.0,
        budget__deadline_s=10.0,
    )
    route, costs = plan.route(1), plan.ground.costs(0)
    assert route is not None
    expected = plan.ground.pricer.beside(route, costs.scaled(1.0, 1.0))
    times = route.repeats * route.chunks
    drawn = drawn_prices(plan.ground.pricer, route, costs, np.ones((times, len(route.edge))))
    np.testing.assert_allclose(drawn.energy_j, expected.energy_j, rtol=1e-12)
    np.testing.assert_allclose(drawn.seconds, expected.seconds, rtol=1e-9)
    # A broadcast is expected to be repeated more often than for any one of its receivers.
    planned = plan.ground.pricer.beside(route, costs)
    assert (planned.energy_j >= expected.energy_j * (1 - 1e-12)).all()
    if not (plan.scenario.network.broadcast and route.same_to_all):
        np.testing.assert_array_equal(planned.energy_j, expected.energy_j)


@pytest.mark.parametrize("name", SCHEMES.names())
def test_where_hardly_anything_is_lost_the_plan_turns_out_as_expected(name: str) -> None:
    """With all that an exchange may cost: overhead, flooding, receiving and waiting."""
    plan = _plan(
        devices__count=6,
        devices__overhead_s=0.01,
        devices__idle_w=0.1,
        devices__receive_j_per_bit=1e-8,
        plan__aggregation=name,
        plan__coordination=True,
        plan__iterations=3,
        network__packet_error=1e-12,
        budget__energy_j=500.0,
        budget__deadline_s=10.0,
    )
    out = carried_out(plan)
    np.testing.assert_allclose(out.latency_s, plan.latency_s, rtol=1e-9)
    np.testing.assert_allclose(out.exchange_total_j, plan.exchange_total_j, rtol=1e-9)
    np.testing.assert_allclose(out.receive_total_j, plan.receive_total_j, rtol=1e-9)
    np.testing.assert_allclose(out.idle_total_j, plan.idle_total_j, rtol=1e-9)
    np.testing.assert_allclose(out.spent_j, plan.spent_j, rtol=1e-9)


def test_draws_belong_to_the_world_and_to_their_iteration() -> None:
    """Another seed draws otherwise; a longer plan draws the same in the iterations of both."""
    lossy = {"network__packet_error": 0.3, "network__tries": 2, "budget__energy_j": 100.0}
    short, long = (carried_out(_plan(plan__iterations=n, **lossy)) for n in (10, 20))
    assert short.drawn is not None
    assert long.drawn is not None
    for one, other in zip(short.drawn.lost, long.drawn.lost, strict=False):
        assert one.tolist() == other.tolist()
    np.testing.assert_array_equal(short.exchange_j, long.exchange_j[:10])
    again = carried_out(replace(_plan(plan__iterations=10, **lossy), notes=()))
    np.testing.assert_array_equal(again.exchange_j, short.exchange_j)
    assert stream(0, "loss", 1).random() != stream(1, "loss", 1).random()


def test_messages_are_in_the_order_of_the_route() -> None:
    for name in SCHEMES.names():
        plan = _plan(
            devices__count=5, plan__aggregation=name, plan__iterations=2, budget__energy_j=200.0
        )
        route = plan.route(1)
        assert route is not None
        keys = set(zip(*(part.tolist() for part in message_keys(route)), strict=True))
        assert keys == {message[:3] for message in route.messages()}
        assert len(keys) == route.count


def test_a_carried_out_plan_is_kept_and_read_again(tmp_path: Any) -> None:
    plan = _plan(network__packet_error=0.2, network__tries=2, plan__iterations=20)
    out = carried_out(plan)
    out.save(tmp_path / "plan.npz")
    again = load_plan(tmp_path / "plan.npz", plan.scenario)
    np.testing.assert_array_equal(again.exchange_j, out.exchange_j)
    assert again.drawn is not None
    assert again.drawn.figures(again) == out.drawn.figures(out)  # type: ignore[union-attr]
    assert again.planned.spent_j.tolist() == plan.spent_j.tolist()
    assert again.notes[-1].startswith("packets are lost: exchanges took")


@pytest.mark.parametrize("accounting", ["transmitter", "both-ends"])
@pytest.mark.parametrize("medium", MEDIA)
def test_what_is_cut_off_is_what_cannot_be_paid_for(
    medium: dict[str, Any], accounting: str
) -> None:
    """With half of the joules some messages go, some are cut off, and nobody pays more."""
    for name in SCHEMES.names():
        plan = _plan(
            devices__count=5,
            **({} if accounting == "both-ends" else {"devices__receive_j_per_bit": 2e-8}),
            network__topology="complete",
            network__packet_error=0.2,
            **medium,
            plan__aggregation=name,
            plan__accounting=accounting,
            plan__iterations=2,
            budget__energy_j=500.0,
            budget__deadline_s=10.0,
        )
        route, costs, pricer = plan.route(1), plan.ground.costs(0), plan.ground.pricer
        assert route is not None
        rng = np.random.default_rng(1)
        often = rng.uniform(0.8, 1.5, size=(route.repeats * route.chunks, len(route.edge)))
        whole = drawn_prices(pricer, route, costs, often).energy_j[0]
        less, cut = cut_off(pricer, route, costs, often, 0.5 * whole)
        assert 0 < cut.sum() < len(cut)
        assert (less.ravel()[~cut] == often.ravel()[~cut]).all()
        assert (less <= often).all()
        if accounting == "both-ends" and pricer.medium.broadcast:
            continue  # a price for whole broadcasts, also to those who stopped listening
        assert (drawn_prices(pricer, route, costs, less).energy_j[0] <= 0.5 * whole + 1e-12).all()
        assert not cut_off(pricer, route, costs, often, whole * (1 + 1e-9))[1].any()


# No battery is overdrawn -------------------------------------------------------------------------


def _random(rng: np.random.Generator) -> dict[str, Any]:
    fading = str(rng.choice(["none", "none", "rayleigh"]))
    recharged = {"devices.harvest_w": 0.5, "devices.capacity_j": 3.5} if rng.random() < 0.3 else {}
    receiving: dict[str, Any] = {"devices.receive_j_per_bit": 1e-7}
    if rng.random() < 0.5:
        receiving = {"plan.accounting": "both-ends"}
    return {
        "seed": int(rng.integers(1000)),
        "devices.count": int(rng.integers(3, 9)),
        "devices.idle_w": float(rng.choice([0.0, 0.05, 0.3])),
        **receiving,
        **recharged,
        "network.topology": str(rng.choice(["ring", "quasi-ring", "complete"])),
        **{name.replace("__", "."): value for name, value in MEDIA[rng.integers(5)].items()},
        "network.fading": fading,
        "network.packet_error": float(rng.uniform(0.05, 0.7)),
        "network.packet_bits": int(rng.choice([500, 12_000, 200_000])),
        "network.tries": int(rng.integers(1, 9)),
        "plan.aggregation": str(rng.choice(list(SCHEMES.names()))),
        "plan.iterations": int(rng.integers(3, 15)),
        "plan.rounds": str(rng.choice(["theorem4", "spread"])),
        "plan.coordination": bool(rng.integers(2)),
        "plan.on_depletion": str(rng.choice(["refuse", "leave"])),
        "budget.energy_j": [float(rng.uniform(0.05, 1.0)), 3.0],
        "budget.deadline_s": 1.0,
    }


def _left_j(plan: Plan) -> FloatArray:
    """[n, N]: what the batteries hold at the end of each exchange."""
    rest = [plan.idle_j(row) for row in range(plan.iterations)]
    spent = np.cumsum(plan.compute_j + plan.exchange_j + rest, axis=0)
    stored = plan.timeline.exchange.harvested_j
    gained = np.cumsum(stored, axis=0) - stored
    return left_of(plan.energy_budget_j + gained, spent)


def _overdrawn(cases: int, seed: int) -> tuple[int, int, int]:
    """Plans carried out, devices overdrawn, messages that were cut off."""
    rng = np.random.default_rng(seed)
    plans = overdrawn = unpaid = 0
    while plans < cases:
        try:
            out = carried_out(joulemesh.plan(Scenario.preset("adaptive").override(_random(rng))))
        except JoulemeshError:
            continue
        assert out.drawn is not None
        paid = (_left_j(out.planned) >= 0).all(axis=0)  # by what was planned
        overdrawn += int((_left_j(out) < 0)[:, paid].sum())
        overdrawn += int((out.margin_j < 0)[paid].sum())
        assert (out.exchange_j >= out.receive_j).all()
        assert (out.receive_j >= 0).all()
        plans, unpaid = plans + 1, unpaid + int(out.drawn.unpaid.sum())
    return plans, overdrawn, unpaid


def test_no_battery_is_overdrawn_by_what_is_drawn() -> None:
    plans, overdrawn, unpaid = _overdrawn(12, 0)
    assert (plans, overdrawn) == (12, 0)
    assert unpaid > 0  # some could not pay for what was drawn, or the test would show nothing


def test_waiting_longer_than_planned_is_paid_for_or_slept_through() -> None:
    """Devices that have joules to spare pay for whole iterations; the last one has none."""
    asked: dict[str, Any] = {
        "devices__count": 6,
        "devices__idle_w": 0.5,
        "network__packet_error": 0.4,
        "plan__aggregation": "metropolis",
        "plan__gossip_rounds": 2,
        "plan__rounds": "fixed",
        "plan__iterations": 20,
        "budget__deadline_s": 1.0,
    }
    enough = _plan(**asked, budget__energy_j=40.0).spent_j[5] * (1 + 1e-6)
    plan = _plan(**asked, budget__energy_j=[40.0] * 5 + [float(enough)])
    out = carried_out(plan)
    awake = out.timeline.awake_s
    assert awake is not None
    assert out.latency_s.sum() > 1.02 * plan.latency_s.sum()  # the slowest of many is awaited
    idle = np.array([out.idle_j(row) for row in range(out.iterations)])
    np.testing.assert_allclose(idle, 0.5 * awake)
    np.testing.assert_allclose(out.idle_total_j, idle.sum(axis=0))
    np.testing.assert_allclose(awake[:, :5], np.tile(out.latency_s[:, None], (1, 5)))
    assert awake[:, 5].sum() < 0.999 * out.latency_s.sum()
    assert (awake[:, 5] >= np.minimum(plan.latency_s, out.latency_s) - 1e-12).all()
    assert (out.margin_j >= 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("seed", sample(range(1, 5), 1))
def test_no_battery_is_overdrawn_in_many_scenarios(seed: int) -> None:
    assert _overdrawn(40, seed)[1] == 0
