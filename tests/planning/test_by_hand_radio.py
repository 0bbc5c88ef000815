"""Three devices in a shared medium, with broadcast, loss, receiving and rest: all figures by hand.

Device 1 stands between 0 and 2. A message has 1,000 parameters of 32 bits, 32,000 bits. The link
0-1 carries 1 Mbit/s and 1-2 half as much, so that a message takes 32 ms and 64 ms. One packet in
ten is lost and is sent twice at most: 1.1 transmissions are expected of each. Every transmission
has device 1 at an end, so that no two are on the air at once.

Up the tree 0 and 2 send to 1, then 1 sends the mean to both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import joulemesh
from joulemesh import Plan, Scenario

N = 5
OFTEN = 1.1  # 1 + 0.1
TRAINING_S = 2 * 0.04  # two rounds on device 2, the slowest
UP_S = 0.032 * OFTEN + 0.064 * OFTEN  # 0 to 1, then 2 to 1: 0.1056


def planned(folder: Path, **more: Any) -> Plan:
    path = folder / "links.csv"
    path.write_text("i,j,rate_bps\n0,1,1e6\n1,2,5e5\n")
    fields = {
        "devices.count": 3,
        "devices.step_s": [0.01, 0.02, 0.04],
        "devices.step_j": [0.1, 0.2, 0.3],
        "devices.idle_w": [1.0, 0.5, 2.0],
        "devices.send_j_per_bit": [1e-6, 2e-6, 3e-6],
        "devices.receive_j_per_bit": [4e-7, 5e-7, 6e-7],
        "network.links": str(path),
        "network.medium": "shared",
        "network.packet_error": 0.1,
        "network.tries": 2,
        "plan.aggregation": "tree",
        "plan.rounds": "fixed",
        "plan.fixed_rounds": 2,
        "plan.iterations": N,
        "budget.energy_j": 20.0,
        "budget.deadline_s": 1.0,
    }
    return joulemesh.plan(Scenario().override({**fields, **more}), parameters=1000)


def test_each_message_by_itself(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    # Down: 1 sends to 0 (32 ms) and to 2 (64 ms), one after the other: 0.1056 s.
    exchange_s = UP_S + 0.1056
    assert plan.exchange_s == pytest.approx([0.2112] * N, rel=1e-12)
    assert exchange_s == pytest.approx(0.2112)
    # 0 sends one message: 32,000 × 1.1 × 1 uJ = 35.2 mJ; 2: 105.6 mJ; 1 sends two: 2 × 70.4 mJ.
    assert plan.transmit_total_j == pytest.approx([N * 0.0352, N * 0.1408, N * 0.1056], rel=1e-12)
    # 0 hears one: 32,000 × 1.1 × 0.4 uJ = 14.08 mJ; 2: 21.12 mJ; 1 hears two: 2 × 17.6 mJ.
    assert plan.receive_total_j == pytest.approx([N * 0.01408, N * 0.0352, N * 0.02112], rel=1e-12)
    # All wait 0.08 + 0.2112 = 0.2912 s in each of five iterations: 1.456 s.
    assert plan.time_s == pytest.approx(1.456, rel=1e-12)
    assert plan.idle_total_j == pytest.approx([1.456, 0.728, 2.912], rel=1e-12)
    assert plan.compute_total_j == pytest.approx([1.0, 2.0, 3.0], rel=1e-12)
    assert plan.spent_j == pytest.approx([2.7024, 3.608, 6.5456], rel=1e-12)
    assert plan.margin_j == pytest.approx([17.2976, 16.392, 13.4544], rel=1e-12)


def test_one_broadcast_serves_both_neighbours(tmp_path: Path) -> None:
    plan = planned(tmp_path, **{"network.broadcast": True})
    # Down: a packet goes out at the rate of device 2, and again unless both have it: with
    # probability 1 - 0.9 × 0.9. So 1.19 transmissions are expected: 64 ms × 1.19 = 76.16 ms.
    assert plan.exchange_s == pytest.approx([UP_S + 0.07616] * N, rel=1e-12)
    assert plan.exchange_s[0] == pytest.approx(0.18176, rel=1e-12)
    # 1 sends 32,000 × 1.19 × 2 uJ = 76.16 mJ; each neighbour hears its own 1.1 transmissions.
    assert plan.transmit_total_j == pytest.approx([N * 0.0352, N * 0.07616, N * 0.1056], rel=1e-12)
    assert plan.receive_total_j == pytest.approx([N * 0.01408, N * 0.0352, N * 0.02112], rel=1e-12)
    # Five iterations of 0.26176 s are 1.3088 s at rest.
    assert plan.time_s == pytest.approx(1.3088, rel=1e-12)
    assert plan.idle_total_j == pytest.approx([1.3088, 0.6544, 2.6176], rel=1e-12)
    # Computing 1, 2, 3 J; sending 0.176, 0.3808, 0.528 J; receiving 0.0704, 0.176, 0.1056 J.
    assert plan.spent_j == pytest.approx([2.5552, 3.2112, 6.2512], rel=1e-12)
    assert plan.binding.tolist() == ["policy"] * 3


def test_rest_alone_may_be_too_much_for_a_battery(tmp_path: Path) -> None:
    # Device 2 needs 3 J for training, 0.6336 J for the radio and 2.912 J at rest: 6.5456 J.
    assert planned(tmp_path, **{"budget.energy_j": 6.5457}).iterations == N
    with pytest.raises(joulemesh.InfeasibleError) as no:
        planned(tmp_path, **{"budget.energy_j": 6.5455})
    assert (no.value.device, no.value.code) == (2, "idle")
    assert no.value.figures["idle_j"] == pytest.approx(2.912)


def test_links_of_their_own_do_not_wait_for_each_other(tmp_path: Path) -> None:
    plan = planned(tmp_path, **{"network.medium": "orthogonal"})
    # 0 and 2 send at once, and 1 to both at once: 2 × 70.4 ms.
    assert plan.exchange_s == pytest.approx([0.1408] * N, rel=1e-12)
    assert plan.transmit_total_j == pytest.approx([N * 0.0352, N * 0.1408, N * 0.1056], rel=1e-12)
    assert plan.idle_total_j == pytest.approx([1.104, 0.552, 2.208], rel=1e-12)  # 5 × 0.2208 s
