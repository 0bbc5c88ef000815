"""Three devices whose every joule and second is worked out here, on paper, in the comments.

The radio: B = 1 MHz and N_0 = -30 dBm/Hz, so B N_0 = 10^6 Hz x 10^-6 W/Hz = 1 W and a 1 W sender
has SNR = gain. Gains are 2^k - 1, so that log2(1 + SNR) = k and rates are k Mbit/s:

    link 0-1: gain 7, 3 Mbit/s      link 1-2: gain 3, 2 Mbit/s      link 0-2: gain 1, 1 Mbit/s

The model: 375 parameters x 16 bits = 6,000 bits. Whole vectors take, and cost at 1 W,

    link 0-1: 2 ms, 2 mJ            link 1-2: 3 ms, 3 mJ            link 0-2: 6 ms, 6 mJ

The processors: 1 GHz, 10 samples a round; 1, 2 and 4 x 10^5 cycles a sample make 1, 2 and 4 x 10^6
cycles a round: 1, 2 and 4 ms. At theta = 10^-27 that is 10^-27 x 10^6 x (10^9)^2 = 1, 2 and 4 mJ.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import Edit
from joulemesh.planning.plan import Plan

MILLI = 1e-3
PARAMETERS = 375


def make(folder: Path, gains: tuple[float, float, float] = (7.0, 3.0, 1.0), **more: Any) -> Plan:
    """A plan of the three devices; ``more`` holds fields as section__field."""
    file = folder / "gains.csv"
    g01, g12, g02 = gains
    file.write_text(f"i,j,gain\n0,1,{g01}\n2,1,{g12}\n0,2,{g02}\n")
    fields: dict[str, Any] = {
        "devices.count": 3,
        "devices.cpu_hz": 1e9,
        "devices.cycles_per_sample": [1e5, 2e5, 4e5],
        "devices.capacitance": 1e-27,
        "devices.transmit_power_w": 1.0,
        "network.topology": "ring",
        "network.gains": str(file),
        "network.bandwidth_hz": 1e6,
        "network.noise_dbm_per_hz": -30.0,
        "network.bits_per_parameter": 16,
        "budget.energy_j": 1.0,
        "budget.deadline_s": 0.1,
        "plan.iterations": 4,
        "plan.rounds": "uniform",
        "training.batch_size": 10,
    }
    fields |= {name.replace("__", "."): value for name, value in more.items()}
    return joulemesh.plan(
        joulemesh.Scenario.preset("adaptive").override(fields), parameters=PARAMETERS
    )


def test_the_price_of_a_round_and_of_a_link(tmp_path: Path) -> None:
    world = make(tmp_path).world
    assert world.devices.round_latency_s == pytest.approx([1e-3, 2e-3, 4e-3], rel=1e-12)
    assert world.devices.round_energy_j == pytest.approx([1e-3, 2e-3, 4e-3], rel=1e-12)
    costs = world.costs(world.channel.gain(0))
    assert world.graph.edges.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert 1 / costs.forward_s == pytest.approx([3e6, 1e6, 2e6], rel=1e-12)
    assert 6000 * costs.backward_j == pytest.approx([2e-3, 6e-3, 3e-3], rel=1e-12)


# scheme and options; millijoules of the devices and milliseconds of one exchange.
EXCHANGES: dict[str, tuple[dict[str, Any], tuple[float, ...], float]] = {
    # Tree 0-1-2, root 1. Everybody sends once over each of its tree links: 2 | 2+3 | 3.
    # Up: max(2, 3) = 3 ms, down the same: 6 ms (roots 0 and 2 would take 2 x 5 ms).
    "tree": ({"plan__aggregation": "tree"}, (2, 5, 3), 6),
    # Both ends pay for both directions: twice the above.
    "tree, both ends": (
        {"plan__aggregation": "tree", "plan__accounting": "both-ends"},
        (4, 10, 6),
        6,
    ),
    # One link at a time. Root 1: up 2 + 3, down 3 + 2: 10 ms. Root 0: up 3 then 2, down 2 then 3.
    "tree, half duplex": ({"plan__aggregation": "tree", "network__duplex": "half"}, (2, 5, 3), 10),
    # Eq. tcp: K = 2 times the slowest link of the tree: 2 x 3 ms. Both ends pay (eq. ecp).
    "tree, paper": ({"plan__aggregation": "tree", "plan__physics": "paper"}, (4, 10, 6), 6),
    # Ring 0 -> 1 -> 2 -> 0, N-1 = 2 times: 2 x 2 | 2 x 3 | 2 x 6 mJ; the link 2-0 is always busy.
    "ring": ({"plan__aggregation": "ring"}, (4, 6, 12), 12),
    # Each device pays for its two links, twice: 2(2+6) | 2(2+3) | 2(3+6).
    "ring, both ends": (
        {"plan__aggregation": "ring", "plan__accounting": "both-ends"},
        (16, 10, 18),
        12,
    ),
    # Three links that pairwise share a device take turns: 2 + 3 + 6 = 11 ms, twice.
    "ring, half duplex": ({"plan__aggregation": "ring", "network__duplex": "half"}, (4, 6, 12), 22),
    # Eq. tcp: K = N-1 = 2 times 6 ms.
    "ring, paper": ({"plan__aggregation": "ring", "plan__physics": "paper"}, (16, 10, 18), 12),
    # Thirds of the vector, 2(N-1) = 4 times: 4/3 of 2 | 3 | 6 mJ, 4/3 of 6 ms.
    "ring-chunked": ({"plan__aggregation": "ring-chunked"}, (8 / 3, 4, 8), 8),
    "ring-chunked, both ends": (
        {"plan__aggregation": "ring-chunked", "plan__accounting": "both-ends"},
        (32 / 3, 20 / 3, 12),
        8,
    ),
    "ring-chunked, half duplex": (
        {"plan__aggregation": "ring-chunked", "network__duplex": "half"},
        (8 / 3, 4, 8),
        44 / 3,
    ),
    "ring-chunked, paper": (
        {"plan__aggregation": "ring-chunked", "plan__physics": "paper"},
        (32 / 3, 20 / 3, 12),
        8,
    ),
    # Two rounds in which everybody sends to both others: 2(2+6) | 2(2+3) | 2(3+6); 2 x 6 ms.
    "metropolis": (
        {"plan__aggregation": "metropolis", "plan__gossip_rounds": 2},
        (16, 10, 18),
        12,
    ),
    # The receivers pay as much again.
    "metropolis, both ends": (
        {
            "plan__aggregation": "metropolis",
            "plan__gossip_rounds": 2,
            "plan__accounting": "both-ends",
        },
        (32, 20, 36),
        12,
    ),
    # Every link carries two messages a round and the three links take turns: 2 x 2(2+3+6).
    "metropolis, half duplex": (
        {
            "plan__aggregation": "metropolis",
            "plan__gossip_rounds": 2,
            "network__duplex": "half",
        },
        (16, 10, 18),
        44,
    ),
    # The paper's gossip: K = ceil(ln 20) = 3 uses of all links: 3(2+6) | 3(2+3) | 3(3+6); 3 x 6 ms.
    "gossip, paper": (
        {"plan__aggregation": "gossip", "plan__physics": "paper", "plan__epsilon": 0.05},
        (24, 15, 27),
        18,
    ),
    # The same K uses when only transmitters pay: everybody sends to all neighbours K times.
    "gossip, paper, transmitter": (
        {
            "plan__aggregation": "gossip",
            "plan__physics": "paper",
            "plan__accounting": "transmitter",
        },
        (24, 15, 27),
        18,
    ),
    # A clock alone: the tree under eq. tcp, charged to transmitters.
    "tree, paper clock": (
        {"plan__aggregation": "tree", "plan__timing": "paper"},
        (2, 5, 3),
        6,
    ),
}


@pytest.mark.parametrize("name", EXCHANGES)
def test_every_joule_and_second_of_an_exchange(name: str, tmp_path: Path) -> None:
    options, millijoules, milliseconds = EXCHANGES[name]
    plan = make(tmp_path, **options)
    wanted_j = np.broadcast_to(np.array(millijoules) * MILLI, (4, 3))
    assert np.broadcast_to(plan.exchange_j, (4, 3)) == pytest.approx(wanted_j, rel=1e-12)
    assert plan.exchange_s == pytest.approx([milliseconds * MILLI] * 4, rel=1e-12)
    assert plan.scheme == options["plan__aggregation"]


def test_the_whole_plan_by_hand(tmp_path: Path) -> None:
    # The exchange takes 6 ms of 20, so 14 ms are left: 14, 7 and 3 rounds fit.
    # Batteries 30.1, 100 and 70 mJ; four exchanges take 8, 20 and 12 mJ:
    #   device 0: 22.1 mJ for rounds of 1 mJ: 22 rounds, fewer than 4 x 14: its battery binds;
    #   device 1: 80 mJ for rounds of 2 mJ: 40 rounds, but only 4 x 7 = 28 fit: the deadline binds;
    #   device 2: 58 mJ for rounds of 4 mJ: 14 rounds, but only 4 x 3 = 12 fit: the deadline binds.
    # Backfill gives device 0 one round each, and the other 18 from the end: 13 to make 14, then 5.
    plan = make(
        tmp_path,
        budget__energy_j=[0.0301, 0.100, 0.070],
        budget__deadline_s=0.020,
        plan__rounds="backfill",
    )
    assert plan.scheme == "tree"
    assert "Theorem 3, case 1" in plan.reason
    assert plan.edges.tolist() == [[0, 1], [1, 2]]
    assert plan.timeline.route.root == 1
    assert plan.iterations == 4
    assert plan.rounds.tolist() == [[1, 7, 3], [1, 7, 3], [6, 7, 3], [14, 7, 3]]
    assert np.issubdtype(plan.rounds.dtype, np.integer)
    compute_j = MILLI * np.array([[1, 14, 12], [1, 14, 12], [6, 14, 12], [14, 14, 12]])
    assert plan.compute_j == pytest.approx(compute_j, rel=1e-12)
    # Training takes max(tau_0 x 1, 14, 12) = 14 ms in every iteration, the exchange 6 ms.
    assert plan.latency_s == pytest.approx([0.020] * 4, rel=1e-12)
    assert plan.spent_j == pytest.approx([0.030, 0.076, 0.060], rel=1e-12)
    assert plan.margin_j == pytest.approx([0.0001, 0.024, 0.010], abs=1e-12)
    assert plan.margin_s == pytest.approx([0.0] * 4, abs=1e-12)
    assert plan.energy_budget_j.tolist() == [0.0301, 0.100, 0.070]
    assert plan.deadline_s == 0.020
    assert plan.binding.tolist() == ["energy", "deadline", "deadline"]


def test_the_policies_by_hand(tmp_path: Path) -> None:
    # Device 0 has 22 rounds for 4 iterations: evenly 5.5, and ties go to later iterations.
    budget: dict[str, Any] = {
        "budget__energy_j": [0.0301, 0.100, 0.070],
        "budget__deadline_s": 0.020,
    }
    uniform = make(tmp_path, plan__rounds="uniform", **budget)
    assert uniform.rounds[:, 0].tolist() == [5, 5, 6, 6]
    fixed = make(tmp_path, plan__rounds="fixed", plan__fixed_rounds=3, **budget)
    assert fixed.rounds.tolist() == [[3, 3, 3]] * 4
    # 3 rounds take 3, 6 and 12 ms and cost 3, 6 and 12 mJ: device 2 still fills its deadline.
    assert fixed.latency_s == pytest.approx([0.018] * 4, rel=1e-12)
    assert fixed.spent_j == pytest.approx([0.020, 0.044, 0.060], rel=1e-12)
    assert fixed.binding.tolist() == ["policy", "policy", "deadline"]
    # zeta = n = 4: weights 1/4, 1/3, 1/2, 1 (sum 25/12). Of 22 rounds: 2.64, 3.52, 5.28, 10.56;
    # floors leave 2, to the largest remainders .64 and .56.
    theorem4 = make(tmp_path, plan__rounds="theorem4", plan__zeta=4.0, **budget)
    assert theorem4.rounds[:, 0].tolist() == [3, 3, 5, 11]
    inverse = make(tmp_path, plan__rounds="inverse", plan__zeta=4.0, **budget)
    assert inverse.rounds[:, 0].tolist() == [11, 5, 3, 3]


def test_unequal_powers_by_hand(tmp_path: Path) -> None:
    # All gains 1, powers 1, 3 and 7 W: SNR 1, 3 and 7, so a sender's own rate is 1, 2 or 3 Mbit/s
    # and a vector takes it 6, 3 or 2 ms and 6, 9 or 14 mJ. Links both ways: 0-1 15 mJ, 0-2 20 mJ,
    # 1-2 23 mJ: the tree is 1-0-2. Device 0 sends twice: 12 | 9 | 14 mJ.
    # Root 0: up max(3, 2), down 6: 9 ms. Root 1: up 2 + 6, down 3 + 6: 17. Root 2: 3 + 6 + 2 + 6.
    powers: dict[str, Any] = {"devices__transmit_power_w": [1.0, 3.0, 7.0]}
    plan = make(tmp_path, (1.0, 1.0, 1.0), **powers)
    assert plan.edges.tolist() == [[0, 1], [0, 2]]
    assert plan.timeline.route.root == 0
    assert plan.exchange_j[0] == pytest.approx([0.012, 0.009, 0.014], rel=1e-12)
    assert plan.exchange_s == pytest.approx([0.009] * 4, rel=1e-12)
    # Both ends: device 0 also pays for what 1 and 2 send it: 12+9+14 | 9+6 | 14+6.
    both = make(tmp_path, (1.0, 1.0, 1.0), plan__accounting="both-ends", **powers)
    assert both.exchange_j[0] == pytest.approx([0.035, 0.015, 0.020], rel=1e-12)
    # Half duplex, root 0: up 2 + 3, down 6 + 6: 17 ms, and the other roots are no better.
    half = make(tmp_path, (1.0, 1.0, 1.0), network__duplex="half", **powers)
    assert half.exchange_s == pytest.approx([0.017] * 4, rel=1e-12)


def test_coordination_by_hand(tmp_path: Path) -> None:
    # Three link reports of 64 bits, 192 bits, pass every link both ways, once, before the tree.
    # Rates 3, 1 and 2 Mbit/s (links 0-1, 0-2, 1-2): 64, 192 and 96 us; and as many uJ a direction.
    # Device 0: 64 + 192, device 1: 64 + 96, device 2: 192 + 96 uJ; the slowest link takes 192 us.
    plan = make(tmp_path, plan__coordination=True)
    plain = np.array([2e-3, 5e-3, 3e-3])
    assert plan.exchange_j[0] == pytest.approx(
        plain + np.array([256e-6, 160e-6, 288e-6]), rel=1e-12
    )
    assert plan.exchange_j[1:] == pytest.approx(np.tile(plain, (3, 1)), rel=1e-12)
    assert plan.exchange_s == pytest.approx([6.192e-3, 6e-3, 6e-3, 6e-3], rel=1e-12)


def test_longest_by_hand(tmp_path: Path) -> None:
    # One iteration takes at least 2+1 | 5+2 | 3+4 mJ; batteries of 70 mJ pay 23, 10 and 10 times.
    plan = make(tmp_path, plan__iterations="longest", budget__energy_j=0.070)
    assert plan.iterations == 10
    assert plan.rounds[:, 1:].tolist() == [[1, 1]] * 10
    with pytest.raises(joulemesh.InfeasibleError, match="at most 10, or"):
        make(tmp_path, plan__iterations=11, budget__energy_j=0.070)


def test_refusals_by_hand(tmp_path: Path) -> None:
    # Exchange 6 ms and a round of 4 ms on device 2: 10 ms is the least deadline.
    with pytest.raises(joulemesh.InfeasibleError) as late:
        make(tmp_path, budget__deadline_s=0.0099)
    assert late.value.device == 2
    assert late.value.code == "deadline"
    assert late.value.remedies == ((Edit("budget.deadline_s", 0.01, "raise"),),)
    assert make(tmp_path, budget__deadline_s=0.010).rounds[:, 2].tolist() == [1] * 4
    # Four iterations take at least 12 | 28 | 28 mJ.
    with pytest.raises(joulemesh.InfeasibleError) as poor:
        make(tmp_path, budget__energy_j=[0.1, 0.0279, 0.1])
    assert poor.value.device == 1
    assert poor.value.code == "energy"
    assert poor.value.remedies[:2] == (
        (Edit("budget.energy_j", 0.028, "raise"),),
        (Edit("plan.iterations", 3, "lower"),),
    )
    assert make(tmp_path, budget__energy_j=[0.1, 0.028, 0.1]).rounds[:, 1].tolist() == [1] * 4


def test_a_departure_by_hand(tmp_path: Path) -> None:
    # Device 2 owns 15 mJ: two iterations at 3+4 mJ, and 1 mJ is left: it leaves before the third.
    # 0 and 1 go on along 0-1 alone: 2 mJ each and 2 + 2 = 4 ms.
    plan = make(tmp_path, budget__energy_j=[1.0, 1.0, 0.015], plan__on_depletion="leave")
    assert plan.active.tolist() == [[True] * 3] * 2 + [[True, True, False]] * 2
    assert plan.rounds[:, 2].tolist() == [1, 1, 0, 0]
    wanted = MILLI * np.array([[2, 5, 3], [2, 5, 3], [2, 2, 0], [2, 2, 0]])
    assert plan.exchange_j == pytest.approx(wanted, rel=1e-12)
    assert plan.exchange_s == pytest.approx([6e-3, 6e-3, 4e-3, 4e-3], rel=1e-12)
    assert plan.binding[2] == "left"
    assert [(e.iteration, e.kind, e.devices) for e in plan.events] == [(3, "depleted", (2,))]
