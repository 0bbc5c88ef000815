"""Gains from a trace: how its rows are read, what is refused, what a forecast may rest on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.planning.plan import Plan
from joulemesh.scenario import Scenario
from joulemesh.world.channel import Channel, build_channel
from joulemesh.world.links import link_costs
from joulemesh.world.topology import build_graph

LINKS = ((0, 1), (0, 2), (1, 2))
TRIANGLE = "t,i,j,gain\n" + "".join(f"{t},{i},{j},{t}{i}{j}\n" for t in (1, 2) for i, j in LINKS)


def channel(folder: Path, text: str, **network: Any) -> Channel:
    """A ring of three devices: links 0-1, 0-2 and 1-2."""
    path = folder / "trace.csv"
    path.write_text(text)
    scenario = Scenario(devices={"count": 3}, network={"fading": f"trace:{path}", **network})
    return build_channel(scenario, build_graph(scenario))


# Reading ---------------------------------------------------------------------------------------


def test_a_row_is_a_link_in_a_block(tmp_path: Path) -> None:
    made = channel(tmp_path, TRIANGLE)
    assert made.gain(0).tolist() == [101.0, 102.0, 112.0]
    assert made.gain(1).tolist() == [201.0, 202.0, 212.0]
    slow = channel(tmp_path, TRIANGLE, coherence_iterations=3)
    assert [slow.gain(t)[0] for t in range(6)] == [101.0] * 3 + [201.0] * 3


def test_rows_in_any_order_and_of_other_pairs(tmp_path: Path) -> None:
    head, *rows = TRIANGLE.splitlines()
    shuffled = "\n".join([head, *rows[::-1]]) + "\n"
    assert np.array_equal(channel(tmp_path, shuffled).gain(1), channel(tmp_path, TRIANGLE).gain(1))
    path = tmp_path / "wide.csv"
    lines = [(t, i, j) for t in (1, 2) for i in range(4) for j in range(i + 1, 4)]
    path.write_text("t,i,j,gain\n" + "".join(f"{t},{i},{j},{t}{i}{j}\n" for t, i, j in lines))
    scenario = Scenario(
        devices={"count": 4},
        network={"fading": f"trace:{path}", "topology": [[0, 1], [1, 3], [3, 2]]},
    )
    made = build_channel(scenario, build_graph(scenario))
    assert made.gain(1).tolist() == [201.0, 213.0, 223.0]


def test_relative_gains_multiply_the_mean(tmp_path: Path) -> None:
    made = channel(tmp_path, TRIANGLE.replace("gain", "relative_gain"))
    np.testing.assert_array_equal(made.gain(0), np.array([101.0, 102.0, 112.0]) * made.mean_gain)


def test_directions_differ_only_where_both_are_given(tmp_path: Path) -> None:
    made = channel(tmp_path, TRIANGLE + "2,1,0,7\n")
    assert made.gain(0).tolist() == [[101.0, 101.0], [102.0, 102.0], [112.0, 112.0]]
    assert made.gain(1).tolist() == [[201.0, 7.0], [202.0, 202.0], [212.0, 212.0]]
    # A single row of the other direction stands for both.
    backwards = channel(tmp_path, TRIANGLE.replace("2,0,1,201", "2,1,0,201"))
    assert np.array_equal(backwards.gain(1), channel(tmp_path, TRIANGLE).gain(1))
    twice = channel(tmp_path, TRIANGLE + "2,1,0,201\n2,0,1,201\n")
    assert twice.gain(1).tolist() == [201.0, 202.0, 212.0]


def test_each_direction_is_priced_at_its_own_gain() -> None:
    edges, power = np.array([[0, 1]]), np.array([1.0, 2.0])
    both = link_costs(edges, np.array([[3.0, 5.0]]), power, 1e6, 1e-6)
    there = link_costs(edges, np.array([3.0]), power, 1e6, 1e-6)
    back = link_costs(edges, np.array([5.0]), power, 1e6, 1e-6)
    assert (both.forward_s, both.forward_j) == (there.forward_s, there.forward_j)
    assert (both.backward_s, both.backward_j) == (back.backward_s, back.backward_j)
    # By hand: 1 + 1 x 3 / 1 = 4 and 1 + 2 x 5 / 1 = 11.
    assert 1 / both.forward_s[0] == pytest.approx(2e6)
    assert 1 / both.backward_s[0] == pytest.approx(1e6 * np.log2(11))


@pytest.mark.parametrize("scheme", ["tree", "ring", "gossip"])
def test_a_plan_charges_each_direction_at_its_own_gain(scheme: str, tmp_path: Path) -> None:
    """Message by message, from the file's own figures."""
    path, rng = tmp_path / "trace.csv", np.random.default_rng(1)
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    gain = {(t, i, j): 10 ** rng.uniform(-11, -8) for t in range(1, 7) for i, j in pairs}
    path.write_text(
        "t,i,j,gain\n" + "".join(f"{t},{i},{j},{g!r}\n" for (t, i, j), g in gain.items())
    )
    plan = joulemesh.plan(
        Scenario.preset("adaptive").override(
            {
                "devices.count": 4,
                "devices.transmit_power_w": [0.5, 2.0],
                "network.topology": "complete",
                "network.fading": f"trace:{path}",
                "plan.aggregation": scheme,
                "plan.gossip_rounds": 5,
                "plan.iterations": 6,
                "budget.energy_j": 50.0,
                "budget.deadline_s": 9.0,
            }
        )
    )
    power, network = plan.world.devices.transmit_power_w, plan.scenario.network
    noise_w = network.bandwidth_hz * 10 ** (network.noise_dbm_per_hz / 10) / 1000
    assert plan.exchanged.all()
    for t in range(1, 7):
        route, spent = plan.route(t), np.zeros(4)
        assert route is not None
        for _, i, j, bits in route.messages():
            rate = network.bandwidth_hz * np.log2(1 + power[i] * gain[t, i, j] / noise_w)
            spent[i] += power[i] * bits / rate
        np.testing.assert_allclose(plan.exchange_j[t - 1], spent, rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            TRIANGLE.replace("2,0,2,202\n", ""),
            "no gain for the link 0-2 at t = 2; add the row 2,0,2,GAIN",
        ),
        (TRIANGLE.replace("\n2,", "\n3,"), "no gain for the link 0-1 at t = 2"),
        (TRIANGLE.replace("\n2,", "\n9000000000000000,"), "no gain for the link 0-1 at t = 2"),
        (
            TRIANGLE.replace("\n2,", "\n0,").replace("0,1,2,212\n", ""),
            "no gain for the link 1-2 at t = 0",
        ),
        (
            TRIANGLE.replace("\n1,", "\n-1,").replace("\n2,", "\n0,"),
            "link 0-1 at t = 1; add the row 1,0,1",
        ),
        (TRIANGLE + "1,0,1,5\n", r"two gains from 0 to 1 at t = 1 \(101 and 5\)"),
        (TRIANGLE + "1,1,0,4\n1,1,0,5\n", r"two gains from 1 to 0 at t = 1 \(4 and 5\)"),
        (TRIANGLE.replace("2,1,2,212", "2.5,1,2,212"), r"row 7: t = 2.5 must be a whole number"),
        (TRIANGLE.replace("2,1,2,212", "1e300,1,2,212"), r"row 7: t = 1e\+300 must be a whole"),
        (TRIANGLE.replace("112", "0"), r"row 4: gain 0 must be greater than 0"),
        (TRIANGLE.replace("112", "nan"), r"row 4, column 'gain'"),
        (TRIANGLE.replace("gain", "power"), r"neither of the columns 'gain'.*'relative_gain'"),
        ("t,i,j,gain,relative_gain\n1,0,1,1,1\n", r"both of the columns 'gain'.*give one of them"),
        ("i,j,gain\n0,1,1\n", r"no column 't'"),
        ("t,i,j,gain\n1,0,3,1\n", r"row 2: link 0-3 must join two different devices of 0..2"),
    ],
)
def test_bad_traces_are_refused(text: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=wanted) as bad:
        channel(tmp_path, text)
    assert "\n" not in str(bad.value)


def test_a_trace_that_is_not_there_is_refused(tmp_path: Path) -> None:
    scenario = Scenario(network={"fading": f"trace:{tmp_path}/none.csv"})
    with pytest.raises(ScenarioError, match=r"cannot read .*none.csv"):
        joulemesh.plan(scenario)


# The end ---------------------------------------------------------------------------------------


def test_what_follows_the_last_row(tmp_path: Path) -> None:
    def first(end: str) -> list[float]:
        made = channel(tmp_path, TRIANGLE, trace_end=end, coherence_iterations=2)
        return [float(made.gain(t)[0]) for t in range(8)]

    assert first("hold") == [101.0] * 2 + [201.0] * 6
    assert first("repeat") == ([101.0] * 2 + [201.0] * 2) * 2
    refusing = channel(tmp_path, TRIANGLE, coherence_iterations=2)
    assert refusing.gain(3)[0] == 201.0
    with pytest.raises(ScenarioError, match=r"ends at t = 2, and t = 3 is wanted; .*trace_end"):
        refusing.gain(4)


def test_a_plan_longer_than_its_trace_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(ring(5, 4, np.ones((4, 5))))
    scenario = small(path)
    with pytest.raises(ScenarioError, match="ends at t = 4, and t = 5 is wanted"):
        joulemesh.plan(scenario)
    held = joulemesh.plan(scenario.override({"network.trace_end": "hold"}))
    assert held.iterations == 12
    assert joulemesh.plan(scenario.override({"network.coherence_iterations": 3})).iterations == 12


def test_a_trace_beside_its_scenario_is_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "trace.csv").write_text(ring(5, 3, np.ones((3, 5))))
    file = tmp_path / "scenario.toml"
    file.write_text(small("trace.csv").to_toml())
    monkeypatch.chdir("/")
    loaded = Scenario.load(file)
    assert loaded.network.fading == f"trace:{(tmp_path / 'trace.csv').resolve()}"
    assert joulemesh.plan(loaded.override({"network.trace_end": "hold"})).iterations == 12


# The forecast ----------------------------------------------------------------------------------


def ring(devices: int, blocks: int, power: Any, start: int = 1) -> str:
    """A trace of relative gains [blocks, devices] on a ring, in the order of its links."""
    edges = sorted(tuple(sorted((i, (i + 1) % devices))) for i in range(devices))
    rows = [
        f"{t + start},{i},{j},{power[t][k]}\n"
        for t in range(blocks)
        for k, (i, j) in enumerate(edges)
    ]
    return "t,i,j,relative_gain\n" + "".join(rows)


def small(path: Path | str, **changes: Any) -> Scenario:
    return Scenario.preset("adaptive").override(
        {
            "devices.count": 5,
            "devices.cycles_per_sample": [1e3, 3e3],  # exchanges cost more than training
            "network.fading": f"trace:{path}",
            "plan.iterations": 12,
            "budget.energy_j": 0.05,
            "budget.deadline_s": 0.2,
            **{name.replace("__", "."): value for name, value in changes.items()},
        }
    )


def single(folder: Path, values: list[float], *, start: int = 1, known: bool = True) -> Channel:
    """All three links with the same absolute gains."""
    rows = [f"{t},{i},{j},{v}\n" for t, v in enumerate(values, start) for i, j in LINKS]
    return channel(folder, "t,i,j,gain\n" + "".join(rows), channel_known=known)


def test_the_forecast_is_a_quantile_of_what_has_been_seen(tmp_path: Path) -> None:
    values = [8.0, 4.0, 6.0, 2.0, 1.0, 1.0, 1.0, 1.0, 9.0]
    made = single(tmp_path, values)
    # Seen in iteration t: t + 1 blocks; used: the largest power of two of these.
    worst = [min(values[: 2 ** int(np.log2(t + 1))]) for t in range(9)]
    assert worst == [8.0, 4.0, 4.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    assert [made.quantile_gain(0.99, t)[0] for t in range(9)] == worst
    assert [made.quantile_gain(0.5, t)[0] for t in (0, 1, 3, 7)] == [8.0, 4.0, 4.0, 1.0]
    assert [made.edition(t) for t in range(9)] == [1, 2, 2, 4, 4, 4, 4, 8, 8]


def test_who_cannot_see_the_channel_has_seen_one_block_less(tmp_path: Path) -> None:
    made = single(tmp_path, [8.0, 4.0, 6.0, 2.0], known=False)
    assert np.array_equal(made.quantile_gain(0.9), made.mean_gain)  # nothing seen yet
    assert [made.quantile_gain(0.99, t)[0] for t in (1, 2, 3)] == [8.0, 4.0, 4.0]


def test_rows_before_the_start_are_known_from_the_start(tmp_path: Path) -> None:
    made = single(tmp_path, [3.0, 5.0, 7.0, 1.0], start=-2, known=False)  # t = -2, -1, 0 and 1
    assert made.gain(0)[0] == 1.0
    assert made.quantile_gain(0.99)[0] == 3.0
    assert made.quantile_gain(0.5)[0] == 5.0


# Causality -------------------------------------------------------------------------------------


@given(
    data=st.data(),
    known=st.booleans(),
    leave=st.booleans(),
    scheme=st.sampled_from(["tree", "ring", "gossip"]),
    policy=st.sampled_from(["theorem4", "backfill", "uniform", "inverse", "fixed"]),
    coherence=st.integers(1, 3),
    quantile=st.sampled_from([0.5, 0.9]),
    energy=st.floats(0.01, 0.3),
)
@settings(max_examples=60, deadline=None)
def test_changing_the_future_of_a_trace_never_changes_earlier_decisions(
    data: st.DataObject,
    known: bool,
    leave: bool,
    scheme: str,
    policy: str,
    coherence: int,
    quantile: float,
    energy: float,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    powers = st.lists(st.floats(1e-3, 10), min_size=5, max_size=5)
    blocks = -(-12 // coherence)
    one = data.draw(st.lists(powers, min_size=blocks, max_size=blocks))
    split = data.draw(st.integers(0, blocks - 1))
    other = one[:split] + data.draw(
        st.lists(powers, min_size=blocks - split, max_size=blocks - split)
    )
    folder = tmp_path_factory.mktemp("trace")
    ended: list[Plan | str] = []
    for name, power in (("one.csv", one), ("other.csv", other)):
        (folder / name).write_text(ring(5, blocks, power))
        scenario = small(
            folder / name,
            network__channel_known=known,
            network__coherence_iterations=coherence,
            plan__aggregation=scheme,
            plan__rounds=policy,
            plan__fixed_rounds=1,
            plan__on_depletion="leave" if leave else "refuse",
            plan__fade_quantile=quantile,
            budget__energy_j=energy,
        )
        try:
            ended.append(joulemesh.plan(scenario))
        except joulemesh.InfeasibleError as refusal:
            ended.append(str(refusal))
    # Who sees the channel decides the first iteration, and the refusal, by the first block.
    if split == 0 and known:
        return
    plain, changed = ended
    if isinstance(plain, str) or isinstance(changed, str):
        assert plain == changed
        return
    for plan in (plain, changed):
        assert (plan.margin_j >= 0).all()
        assert plan.deadline_s is not None
        assert (plan.latency_s <= plan.deadline_s * (1 + 1e-9)).all()
    t = min(split * coherence, plain.iterations)
    np.testing.assert_array_equal(plain.rounds[:t], changed.rounds[:t])
    np.testing.assert_array_equal(plain.exchange_j[:t], changed.exchange_j[:t])
    np.testing.assert_array_equal(plain.exchanged[:t], changed.exchanged[:t])
    np.testing.assert_array_equal(plain.active[:t], changed.active[:t])
    assert [e for e in plain.events if e.iteration <= t] == [
        e for e in changed.events if e.iteration <= t
    ]
    if not known and not leave and t < 12:  # rounds are fixed before the channel shows itself
        np.testing.assert_array_equal(plain.rounds[t], changed.rounds[t])


def test_a_worse_trace_than_the_first_block_promised_overspends_nothing(tmp_path: Path) -> None:
    """The least battery that the first block allows; then every link fades by 20 dB."""
    path = tmp_path / "trace.csv"
    power = np.ones((12, 5))
    path.write_text(ring(5, 12, power))
    # Rounds are dear beside exchanges: who spent the last on these could not train any more.
    options = {"devices__cycles_per_sample": 1e5, "plan__aggregation": "tree"}
    with pytest.raises(joulemesh.InfeasibleError) as refusal:
        joulemesh.plan(small(path, budget__energy_j=1e-4, **options))
    found = re.search(r"budget\.energy_j to at least ([\d.e+-]+)", str(refusal.value))
    assert found is not None
    options |= {"budget__energy_j": float(found[1].rstrip(","))}
    assert joulemesh.plan(small(path, **options)).exchanged.all()
    power[1:] = 0.01
    path.write_text(ring(5, 12, power))
    for known in (True, False):
        bad = joulemesh.plan(small(path, network__channel_known=known, **options))
        assert (bad.margin_j >= 0).all()
        assert (bad.rounds >= 1).all()
        assert bad.exchanged[0]
        assert not bad.exchanged.all()


def test_a_planner_learns_from_the_trace(tmp_path: Path) -> None:
    """Blocks that turn out good free the reserve: more rounds than with the first forecast kept."""
    path = tmp_path / "trace.csv"
    power = np.ones((12, 5))
    power[0] = 1e-3
    path.write_text(ring(5, 12, power))
    options = {"network__channel_known": False, "plan__aggregation": "tree"}
    plan = joulemesh.plan(small(path, budget__energy_j=0.04, plan__fade_quantile=0.5, **options))
    channel = plan.world.channel
    assert (channel.quantile_gain(0.5, 1) < channel.quantile_gain(0.5, 0)).all()
    # After eight blocks, the median is a good one again.
    assert (channel.quantile_gain(0.5, 8) > channel.quantile_gain(0.5, 1)).all()
    assert plan.rounds[8].sum() > plan.rounds[1].sum()
