"""What a message costs besides its bits: headers, channel access and handling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.aggregation.air import HALF_DUPLEX, ORTHOGONAL, Medium, on_air
from joulemesh.aggregation.play import exchange_latency_s, exchange_parts_j
from joulemesh.aggregation.route import Route
from joulemesh.base.errors import ScenarioError
from joulemesh.methods import Setting, build, names
from joulemesh.registries import SCHEMES
from joulemesh.world.links import Framing, LinkCosts, expected_tries

# A bit takes 1 µs and draws 2 W to send and 0.5 W to receive.
BIT = np.full(2, 1e-6)
PLAIN = LinkCosts(BIT, BIT, 2 * BIT, 2 * BIT, 0.5 * BIT, 0.5 * BIT)
EDGES = np.array([[0, 1], [1, 2]])
FRAMING = Framing(1000.0, 100.0, 1e-3, 5e-3, np.array([1e-3, 2e-3, 4e-3]))
COSTS = PLAIN.framed(EDGES, FRAMING)
PATH = Route.build(
    "tree",
    edges=EDGES,
    edge=[0, 1, 1, 0],
    forward=[True, True, False, False],
    step=[0, 1, 2, 3],
    bits=2500.0,
    repeats=1,
    uses=2,
).rooted(2)


def test_a_message_by_hand() -> None:
    """2,500 bits are 3 packets: 2,800 bits on the air, 3 ms of channel access, 5 ms of handling."""
    assert PATH.seconds(COSTS).tolist() == pytest.approx([10.8e-3] * 4)
    for medium in (ORTHOGONAL, HALF_DUPLEX, Medium(shared=True)):
        seconds = exchange_latency_s(PATH, COSTS, 3, "critical-path", medium, 2500.0)
        assert seconds == pytest.approx(4 * 10.8e-3)
    sent, heard = exchange_parts_j(PATH, COSTS, 3, "transmitter")
    sends, receives = 2 * 5.8e-3, 0.5 * 5.8e-3
    assert heard.tolist() == pytest.approx(
        [receives + 1e-3, 2 * (receives + 2e-3), receives + 4e-3]
    )
    assert sent.tolist() == pytest.approx([sends + 1e-3, 2 * (sends + 2e-3), sends + 4e-3])


def test_chunks_by_hand() -> None:
    """5 chunks of 500 bits, a packet each: 600 µs, 1 ms and 5 ms; 4 hops and 4 more chunks."""
    route = PATH.in_chunks(5)
    seconds = exchange_latency_s(route, COSTS, 3, "critical-path", ORTHOGONAL, 2500.0)
    assert seconds == pytest.approx((4 + 4) * 6.6e-3)
    sent, heard = exchange_parts_j(route, COSTS, 3, "transmitter")
    assert sent[0] + heard[0] == pytest.approx(5 * (2.5 * 1.6e-3 + 2 * 1e-3))


def test_what_is_lost_is_sent_again_with_its_header() -> None:
    """A broadcast of one device to two, whose packets are lost with 0.1 and 0.3."""
    error, tries = np.array([0.1, 0.3]), 2
    once = LinkCosts(BIT * [1, 3], BIT, 2 * BIT * [1, 3], 2 * BIT).framed(EDGES, FRAMING)
    costs = once.scaled(expected_tries(error, tries), 1.0).expected(error, error, tries)
    route = Route.build(
        "star", edges=EDGES, edge=[0, 1], forward=True, step=0, bits=2500.0, repeats=1, uses=1
    )
    apart = on_air(route, costs, broadcast=False)
    assert apart.seconds.tolist() == pytest.approx([1.1 * 10.8e-3, 1.3 * 16.4e-3])
    star = Route.build(
        "star",
        edges=[[0, 1], [0, 2]],
        edge=[0, 1],
        forward=True,
        step=0,
        bits=2500.0,
        repeats=1,
        uses=1,
    ).for_all()
    until_both = 2 - 0.9 * 0.7  # the second try is made unless both have the first
    assert on_air(star, costs, broadcast=True).seconds.tolist() == pytest.approx(
        [until_both * 16.4e-3]
    )


def test_a_chunked_ring_of_38_steps_takes_38_times_the_handling() -> None:
    fields = {"plan.aggregation": "ring-chunked", "plan.message_s": "5ms", "budget.deadline_s": 1.0}
    plan = joulemesh.plan(Scenario.preset("adaptive").override({"devices.count": 20, **fields}))
    assert plan.exchange_s.min() >= 0.19


DEAR: dict[str, dict[str, Any]] = {
    "headers": {"network.header_bits": 5000},
    "channel access": {"network.packet_s": 1e-3},
    "handling": {"plan.message_s": 1e-3, "devices.message_j": 1e-4},
}
AMPLE = {
    "devices.count": 6,
    "network.topology": "ring",
    "plan.iterations": 4,
    "plan.gossip_rounds": 2,
    "budget.deadline_s": 10.0,
    "budget.energy_j": 50.0,
}


@pytest.mark.parametrize("dear", DEAR)
@pytest.mark.parametrize("scheme", SCHEMES.names())
def test_no_scheme_is_spared(scheme: str, dear: str) -> None:
    base = Scenario.preset("adaptive").override({**AMPLE, "plan.aggregation": scheme})
    free, paid = (joulemesh.plan(base.override(fields)) for fields in ({}, DEAR[dear]))
    assert (paid.exchange_s > free.exchange_s).all()
    assert (paid.exchange_j.sum(axis=-1) > free.exchange_j.sum(axis=-1)).all()


@pytest.mark.parametrize("dear", DEAR)
@pytest.mark.parametrize("name", names())
def test_no_method_is_spared(name: str, dear: str) -> None:
    base = Scenario.preset("adaptive").override(AMPLE)
    found = []
    for fields in ({}, DEAR[dear]):
        setting = Setting(base.override(fields))
        made = build(name, setting)
        trains_s = (made.schedule.rounds[:4] * setting.world.devices.round_latency_s).max(axis=1)
        ledger = made.ledger()
        joules, seconds = ledger.exchange_j[:4].sum(axis=1), ledger.seconds[:4] - trains_s
        found.append((joules, seconds, ledger.bits[:4] > 0))
    (free_j, free_s, sends), (paid_j, paid_s, _) = found
    assert sends.any()
    assert (paid_j > free_j)[sends].all()
    assert (paid_s > free_s)[sends].all()


def test_nothing_given_costs_nothing() -> None:
    free = joulemesh.plan(Scenario.preset("adaptive"))
    zeros = {
        "network.header_bits": 0,
        "network.packet_s": 0.0,
        "plan.message_s": 0.0,
        "devices.message_j": 0.0,
        "devices.receive_power_w": 0.0,
        "network.packet_bits": 7,
    }
    same = joulemesh.plan(Scenario.preset("adaptive").override(zeros))
    assert same.world.framing is None
    assert (same.spent_j == free.spent_j).all()
    assert (same.latency_s == free.latency_s).all()


# A receiver's power, and what goes together -------------------------------------------------------


def test_a_receivers_power_is_its_price_per_bit_times_the_rate() -> None:
    base = Scenario.preset("adaptive").override({"devices.count": 5})
    plan = joulemesh.plan(base.override({"devices.receive_power_w": [0.1, 0.2, 0.3, 0.4, 0.5]}))
    free = joulemesh.plan(base)
    route, costs = plan.timeline.route, free.ground.forecast
    heard = np.zeros(5)
    np.add.at(heard, route.receiver, route.seconds(costs) * (route.receiver + 1) / 10)
    np.testing.assert_allclose(np.broadcast_to(plan.receive_j, (100, 5))[0], heard, rtol=1e-12)


def test_two_prices_of_receiving_are_refused_and_a_given_one_replaces_the_profiles() -> None:
    both = {"receive_j_per_bit": 1e-8, "receive_power_w": 0.2}
    with pytest.raises(
        ScenarioError, match=r"receive_j_per_bit and devices\.receive_power_w are two"
    ):
        Scenario(devices=both)
    mine = Scenario(devices={"receive_j_per_bit": 1e-8}, network={"profile": "wifi"})
    assert mine.devices.receive_power_w is None
    assert mine.devices.receive_j_per_bit == 1e-8


def test_a_radio_that_is_named_where_both_ends_pay_is_refused_with_a_remedy_that_helps() -> None:
    ample = {"budget.deadline_s": 100.0, "budget.energy_j": 1e5, "network.area_m": 50.0}
    asked = Scenario.preset("paper").override({"network.profile": "wifi", **ample})
    with pytest.raises(ScenarioError, match=r"or set devices\.receive_power_w = 0") as no:
        joulemesh.plan(asked)
    assert "receive_power_w gives receiving its own price" in str(no.value)
    helped = asked.override({"devices.receive_power_w": 0.0})
    assert joulemesh.plan(helped).receive_total_j.sum() > 0  # both ends pay


def test_measured_rates_contain_a_presets_headers(tmp_path: Path) -> None:
    links = tmp_path / "links.csv"
    links.write_text("i,j,rate_bps,receive_j_per_bit\n0,1,1e6,1e-8\n1,2,1e6,1e-8\n")
    ample = {"budget.deadline_s": 9.0, "budget.energy_j": 1e4}
    named = Scenario.preset("adaptive").override({"devices.count": 3, **ample})
    measured = named.override({"network.links": str(links)})
    assert joulemesh.plan(measured).world.framing is None
    given = measured.override({"network.header_bits": 100})
    assert joulemesh.plan(given).world.framing is not None
    with pytest.raises(ScenarioError, match=r"a column .* and devices\.receive_power_w is given"):
        joulemesh.plan(measured.override({"devices.receive_power_w": 0.1}))
