"""Rules of the physical world at numbers that are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from joulemesh import Scenario, ScenarioError
from joulemesh.scenario import Network
from joulemesh.world import redraw
from joulemesh.world.channel import path_gain
from joulemesh.world.devices import round_energy_j, round_latency_s
from joulemesh.world.links import (
    Framing,
    LinkCosts,
    Packets,
    expected_tries,
    packets_of,
    seconds_per_bit,
    snr_error,
)
from joulemesh.world.quantities import (
    deviation,
    require_usable,
    resolve,
    stream,
    usable,
    widest,
    z_value,
)
from joulemesh.world.topology import links_at, require_room, topology_of
from joulemesh.world.traces import Timed, build_traces

ONE = np.ones(1)
PAIR = np.array([[0, 1]])


def test_a_round() -> None:
    assert round_latency_s(2000 * ONE, 3000 * ONE, 2e9 * ONE).tolist() == [0.003]
    joules = round_energy_j(1e-27 * ONE, 2000 * ONE, 3000 * ONE, 2e9 * ONE)
    assert joules == pytest.approx([0.024])


def test_rates() -> None:
    """SNR 3: two bits per hertz, unless the radio is slower."""
    assert 1 / seconds_per_bit(ONE, 3 * ONE, 1e6, 1e-6) == pytest.approx([2e6])
    assert 1 / seconds_per_bit(ONE, 3 * ONE, 1e6, 1e-6, 5e5) == pytest.approx([5e5])
    loss_db = -10 * np.log10(path_gain(np.array([100.0]), Network()))
    assert loss_db == pytest.approx([128.1 + 37.6 * np.log10(0.1)])


def test_packets_and_messages() -> None:
    assert packets_of([1.0, 100.0, 101.0], 100.0).tolist() == [1.0, 1.0, 2.0]
    framing = Framing(100.0, header_bits=10.0, packet_s=5.0, message_s=30.0)
    of_150 = LinkCosts(ONE, ONE, 2 * ONE, 2 * ONE).framed(PAIR, framing).for_messages(150.0)
    assert 150 * of_150.forward_s == pytest.approx([150 + 2 * (10 + 5) + 30])
    assert 150 * of_150.forward_j == pytest.approx([2 * (150 + 2 * (10 + 5))])
    zigbee = Framing.of(Scenario(network={"profile": "zigbee"}))
    assert zigbee is not None
    assert zigbee.header_bits == 136.0


def test_joules_of_both_ends() -> None:
    costs = LinkCosts(ONE, ONE, 2 * ONE, 3 * ONE, 0.5 * ONE, ONE)
    assert [part.tolist() for part in costs.both_ends_j()] == [[2.5], [4.0]]
    assert costs.device_j(PAIR, 2).tolist() == [3.0, 3.5]
    assert LinkCosts(*[ONE] * 6).scaled(2.0, 3.0).backward_receive_j == pytest.approx([3.0])


def test_losses() -> None:
    assert expected_tries([0.0, 0.1, 0.5], 2) == pytest.approx([1.0, 1.1, 1.5])
    packets, half = Packets(100.0, 2, 0.5), np.full(4, 0.5)
    arrive = packets.arrival(np.array([100.0, 150.0]), half[:2])
    assert arrive.tolist() == [0.75, 0.5625]
    rates = np.array([1.0, 0.98, 0.9]) * 20e6  # of the capacity, 20 Mbit/s
    lost = snr_error(np.ones(3), rates, 20e6, 12000.0)
    assert lost == pytest.approx([0.4803, 0.0343, 0.0], abs=5e-5)
    drawn = packets.transmissions(np.full(4, 50.0), half, np.random.default_rng(0))
    assert [part.tolist() for part in drawn] == [[2, 1, 1, 1], [True, False, False, False]]


def test_intervals() -> None:
    columns = {"step_s_low": ["1.8", ""], "step_s_high": ["2.2", ""]}
    spread = deviation(columns, "step_s", np.array([2.0, 3.0]), "devices.csv")
    assert spread == pytest.approx([0.102, 0.0], abs=1e-3)
    assert widest(np.array([0.1, 0.0]), np.array([2.0, 3.0])) == pytest.approx(0.098, abs=1e-3)
    assert [z_value(0.95, k) for k in (1, 60)] == pytest.approx([1.645, 3.144], abs=1e-3)


def test_figures_that_cannot_be_computed_with() -> None:
    assert usable(np.array([1.0, 0.0, np.inf, np.nan])).tolist() == [True, False, False, False]
    with pytest.raises(ScenarioError, match=r"device 1 has a round of 1e\+300 J, beyond 1e-100"):
        require_usable(np.array([1.0, 1e300]), "a round of {} J", "devices.capacitance")
    require_room(Scenario())
    with pytest.raises(ScenarioError, match="1000000000000 with 1000000000000 links takes"):
        require_room(Scenario(devices={"count": 10**12}))


def test_figures_over_time() -> None:
    time, device = np.array([1.0, 3.0]), np.zeros(2, np.int64)
    rows, nothing = np.array([[5.0], [7.0]]), np.zeros((2, 1))
    watts = Timed("w.csv", False, time, device, rows, nothing, "repeat")
    # The last row lasts as long as the one before it.
    assert [watts.at(t)[:, 0].tolist() for t in (1, 2, 3, 5)] == [[5, 0], [5, 0], [7, 0], [5, 0]]
    seconds = Timed("w.csv", True, np.array([0.0, 2.0]), device, rows, nothing[:1])
    assert seconds.integral(1.0, 4.0).tolist() == [[19.0]]
    assert not build_traces(Scenario(), np.ones(20), np.zeros((20, 2))).any


def test_topologies() -> None:
    triangle = links_at(Scenario(devices={"count": 3}), np.zeros((3, 2)))
    assert triangle.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert topology_of(Network()).name == "ring"
    assert topology_of(Network(topology=[[0, 1]])).name == "the 1 listed links"


def test_streams_of_chance() -> None:
    assert stream(0, "positions").random() == stream(0, "positions").random()
    assert stream(0, "fading", 1).random() != stream(0, "fading", 2).random()
    assert resolve(Scenario(devices={"count": 3}), "cpu_hz", 2e9).tolist() == [2e9] * 3


def test_worlds() -> None:
    assert redraw.world_seeds(7, 3) == (7, 1000007, 2000007)
    assert [one.seed for one in redraw.worlds_of(Scenario(), 2, 5)] == [0, 1000000]
    drawn = ("placement", "gains", "batteries", "processors")
    assert redraw.redrawn(Scenario()) == drawn
    rician = Scenario(network={"fading": "rician"})
    assert redraw.redrawn(rician) == (*drawn[:2], "fading", *drawn[2:])
    assert redraw.redrawn(Scenario(network={"packet_error": 0.1}))[-1] == "lost packets"
    words = "worlds differ in placement, gains, batteries and processors"
    assert redraw.redrawn_words(Scenario()) == words
