"""What a round costs at slower clocks: by hand, against brute force; tables that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulemesh import Scenario, ScenarioError
from joulemesh.world.clocks import Clocks, cubic, hull
from joulemesh.world.devices import build_devices


def mixed_j(points: list[tuple[float, float]], seconds: float) -> float:
    """The least joules of a round in so many seconds, at a point or at two of them in turn."""
    found = [joules for taken, joules in points if taken <= seconds]
    for fast in points:
        for slow in points:
            if fast[0] <= seconds < slow[0]:
                share = (slow[0] - seconds) / (slow[0] - fast[0])
                found.append(share * fast[1] + (1 - share) * slow[1])
    return min(found)


def random_points(rng: np.random.Generator) -> list[tuple[float, float]]:
    return [(float(s), float(j)) for s, j in rng.uniform(1.0, 5.0, (rng.integers(1, 6), 2))]


def curve_of(points: list[tuple[float, float]]) -> Clocks:
    return hull([(np.array([s for s, _ in points]), np.array([j for _, j in points]))])


def test_the_cubic_law_by_hand() -> None:
    curve = cubic(np.array([2.0, 1.0]), np.array([8.0, 3.0]), 0.5)
    taken_s = curve.stretched_s(np.array([[1, 1], [2, 0], [2, 2]]), np.array([3.0, 5.0, 9.0]))
    assert taken_s.tolist() == [[3.0, 2.0], [5.0, 0.0], [8.0, 4.0]]
    joules = curve.joules(np.array([[1, 1], [2, 0], [2, 2]]), taken_s)
    assert np.allclose(joules, [[8 * (2 / 3) ** 2, 0.75], [2 * 8 * (4 / 5) ** 2, 0.0], [4.0, 1.5]])
    # 1 J in 4 s: at half speed 0.5 rounds; 3 J in 2 s: at full speed 1 round costs 8 J.
    assert np.allclose(curve.most(np.array([1.0, 9.0]), 4.0), [0.5, (9 / 3 * 16) ** (1 / 3)])


def test_a_hull_is_the_best_mixture_of_points() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        points = random_points(rng)
        curve = curve_of(points)
        fastest = min(s for s, _ in points)
        assert curve.fastest_s[0] == fastest
        for seconds in rng.uniform(fastest, 6.0, 5).tolist():
            expected = mixed_j(points, seconds)
            assert np.isclose(curve.round_j(np.array([seconds]))[0], expected, rtol=1e-12)


@pytest.mark.parametrize("modelled", [True, False])
def test_most_rounds_are_the_largest_that_are_paid_for(modelled: bool) -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        curve = curve_of(random_points(rng))
        if modelled:
            round_s, round_j = rng.uniform(1.0, 5.0, (2, 1))
            curve = cubic(round_s, round_j, float(rng.uniform(0.1, 1.0)))
        joules, seconds = float(rng.uniform(0.0, 30.0)), float(rng.uniform(0.5, 30.0))
        most = float(curve.most(np.array([joules]), seconds)[0])
        assert paid(curve, most, joules, seconds)
        assert not paid(curve, most * (1 + 1e-6) + 1e-9, joules, seconds)


def paid(curve: Clocks, rounds: float, joules: float, seconds: float) -> bool:
    work, window_s = np.array([[rounds]]), np.array([seconds])
    taken_s = curve.stretched_s(work, window_s)
    spent_j = curve.joules(work, taken_s)[0, 0]
    return bool(taken_s[0, 0] <= seconds * (1 + 1e-9) and spent_j <= joules * (1 + 1e-9))


def test_training_costs_less_in_more_time_and_most_of_all_at_an_even_pace() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        curve = curve_of(random_points(rng))
        rounds = rng.integers(1, 5, (4, 1))
        window_s = (rounds * curve.slowest_s).max(axis=1) * rng.uniform(0.2, 1.2, 4)
        window_s = np.maximum(window_s, (rounds * curve.fastest_s).max(axis=1))
        taken_s = curve.stretched_s(rounds, window_s)
        spent = float(curve.joules(rounds, taken_s).sum())
        work, whole_s = rounds.sum(keepdims=True), np.array([window_s.sum()])
        even = float(curve.joules(work, curve.stretched_s(work, whole_s))[0, 0])
        assert even <= spent * (1 + 1e-12)
        longer = curve.joules(rounds, curve.stretched_s(rounds, 1.3 * window_s))
        assert float(longer.sum()) <= spent * (1 + 1e-12)


# Tables ------------------------------------------------------------------------------------------


def devices_of(folder: Path, table: str, **fields: object) -> Clocks:
    path = folder / "points.csv"
    path.write_text(table, "utf-8")
    given = {"count": 2, "operating_points": str(path), **fields}
    made = build_devices(Scenario(devices=given), np.full(2, 32.0))
    assert made.clocks is not None
    assert made.round_latency_s.tolist() == made.clocks.fastest_s.tolist()
    return made.clocks


def test_points_by_device_and_by_profile(tmp_path: Path) -> None:
    curve = devices_of(
        tmp_path,
        "device,name,step_s,step_j,source\n0,max,1,9,meter\n1,max,2 s,4 J,meter\n"
        "0,low,3 s,3,meter\n0,bad,4,5,\n",
    )
    assert curve.points_s.tolist() == [[1.0, 3.0], [2.0, 2.0]]
    assert curve.points_j.tolist() == [[9.0, 3.0], [4.0, 4.0]]
    assert (curve.dropped, curve.sources, curve.modelled) == (1, ("meter",), False)
    assert curve.round_j(np.array([2.0, 9.0])).tolist() == [6.0, 4.0]
    both = ["laptop", "esp32"]
    table = "profile,step_s,step_j\nlaptop,1,9\nesp32,5,1\n"
    curve = devices_of(tmp_path, table, profile=both)
    assert curve.points_s.tolist() == [[1.0], [5.0]]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("device,step_s,step_j\n0,1,9\n", "device 1 has no operating point"),
        ("device,step_s,step_j\n0,1,9\n1,-2,4\n", "row 3: step_s = -2 must be above 0"),
        (
            "device,step_s,step_j\n0,1,9\n1,2,\n",
            "row 3, column 'step_j' = '': this is not a number",
        ),
        ("device,step_s,step_j\n0,1,9\n1,2,0\n", "row 3: step_j = 0 must be above 0"),
        ("device,step_s,step_j\n0,1,9\n1,2,3\n7,2,3\n", "row 4: device '7' is not one of 0..1"),
        ("device,step_s\n0,1\n1,1\n", "no column 'step_j'"),
        ("name,step_s,step_j\na,1,2\n", "column 'device' .* or 'profile', and has neither"),
        ("device,profile,step_s,step_j\n0,esp32,1,2\n", "has both"),
        ("profile,step_s,step_j\nesp32,1,2\n", "device 0 has no operating point"),
    ],
)
def test_bad_tables_are_refused_with_row_and_figure(tmp_path: Path, table: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        devices_of(tmp_path, table)


@pytest.mark.parametrize(
    ("fields", "words", "edit"),
    [
        ({"devices.clock_range": [1.0, 0.3]}, "must rise within", [0.3, 1.0]),
        ({"devices.clock_range": [0.0, 1.0]}, "must rise within", [0.1, 1.0]),
        ({"devices.clock_range": [0.5, 1.5]}, "must rise within", [0.5, 1.0]),
        ({"devices.clock_range": [-0.5, 0.5]}, "must rise within", [0.1, 0.5]),
        ({"devices.clock_floor": 0.4}, "is the floor of a clock_range", [0.4, 1.0]),
        ({"plan.clock": "auto"}, "needs the speeds", [0.5, 1.0]),
        ({"plan.clock": "just-in-time"}, "needs the speeds", [0.5, 1.0]),
    ],
)
def test_bad_ranges_are_refused_with_an_edit_that_mends_them(
    fields: dict[str, object], words: str, edit: list[float]
) -> None:
    with pytest.raises(ScenarioError, match=words) as refused:
        Scenario().override(fields)
    change = refused.value.remedies[0][0]
    assert (change.field, change.value) == ("devices.clock_range", edit)
    Scenario().override({**fields, "devices.clock_range": edit})


def test_two_sources_of_speeds_are_refused(tmp_path: Path) -> None:
    both = {"devices.operating_points": "points.csv", "devices.clock_range": [0.5, 1.0]}
    with pytest.raises(ScenarioError, match="give either"):
        Scenario().override(both)


def test_a_range_below_full_speed_and_a_floor() -> None:
    full = build_devices(Scenario(), np.full(20, 32.0))
    given = {"clock_range": [0.25, 0.5], "clock_floor": 0.4}
    slower = build_devices(Scenario(devices=given), np.full(20, 32.0))
    assert np.allclose(slower.round_latency_s, 2 * full.round_latency_s)
    assert np.allclose(slower.round_energy_j, full.round_energy_j / 4)
    curve = slower.round_prices
    assert np.allclose(curve.slowest_s, full.round_latency_s / 0.4)
    assert np.allclose(curve.points_j[:, -1], 0.16 * full.round_energy_j)
