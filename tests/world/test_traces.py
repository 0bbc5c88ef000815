"""Tables of who is there, what is harvested and where devices are, over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.world import World, build_world
from tests.ideal import ideal


def world(folder: Path, text: str, field: str = "availability", **more: Any) -> World:
    path = folder / "trace.csv"
    path.write_text(text, "utf-8")
    scenario = ideal(devices={"count": 4, field: str(path), **more})
    return build_world(scenario, np.full(4, 32.0))


def presence(made: World, times: Any, *, seconds: bool = False) -> list[list[int]]:
    found = []
    for time in times:
        here = made.traces.present(0, time) if seconds else made.traces.present(time - 1, 0.0)
        assert here is not None
        found.append(here.astype(int).tolist())
    return found


def test_a_row_holds_until_the_devices_next(tmp_path: Path) -> None:
    made = world(tmp_path, "t,device,available\n3,1,0\n5,1,1\n4,2,0\n")
    assert presence(made, (1, 2, 3, 4, 5, 99)) == [
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 0, 1, 1],
        [1, 0, 0, 1],
        [1, 1, 0, 1],
        [1, 1, 0, 1],
    ]


def test_intervals_say_when_a_device_is_there_both_ends_included(tmp_path: Path) -> None:
    made = world(tmp_path, "device,from,to\n0,1,2\n0,3,3\n2,4,9\n")
    here = presence(made, (1, 3, 4, 9, 10))
    assert [row[0] for row in here] == [1, 1, 0, 0, 0]
    assert [row[2] for row in here] == [0, 0, 1, 1, 0]
    assert all(row[1] == row[3] == 1 for row in here)


def test_intervals_of_seconds_are_half_open(tmp_path: Path) -> None:
    made = world(tmp_path, "device,from_s,to_s\n0,0,2.5\n0,2.5,4\n")
    assert [row[0] for row in presence(made, (0.0, 2.5, 3.9, 4.0), seconds=True)] == [1, 1, 1, 0]


def test_devices_go_by_name_too(tmp_path: Path) -> None:
    table = tmp_path / "devices.csv"
    table.write_text("name,energy_j\nnorth,9\nsouth,9\neast,9\n1,9\n", "utf-8")
    trace = tmp_path / "trace.csv"
    trace.write_text("t,device,available\n2,south,0\n2,1,0\n2,0,0\n", "utf-8")
    scenario = ideal(devices={"table": str(table), "availability": str(trace)})
    made = build_world(scenario, np.full(4, 32.0))
    assert presence(made, (2,)) == [[0, 0, 1, 0]]  # device 3 is called 1


def test_repeated_rows_begin_again_after_the_last_has_lasted_as_long_as_the_one_before(
    tmp_path: Path,
) -> None:
    text = "t,device,available\n1,0,1\n3,0,0\n5,1,0\n"
    made = world(tmp_path, text, trace_end="repeat")
    here = presence(made, range(1, 14))
    assert [row[0] for row in here] == [1, 1, 0, 0, 0, 0] * 2 + [1]
    assert [row[1] for row in here] == [1, 1, 1, 1] + [0] * 9  # nothing ever says that it is back


def test_rows_that_end_are_refused_where_the_scenario_says_so(tmp_path: Path) -> None:
    made = world(tmp_path, "t,device,available\n1,0,0\n3,0,1\n", trace_end="refuse")
    assert presence(made, (4,))  # the last row lasts as long as the one before it
    with pytest.raises(ScenarioError, match="ends with t = 3, and t = 5 is wanted"):
        presence(made, (5,))


def test_a_short_file_of_watts_makes_no_constant_unless_told_so(tmp_path: Path) -> None:
    text = "t,watts\n1,2\n2,3\n"
    with pytest.raises(ScenarioError, match="t = 3 is wanted"):
        world(tmp_path, text, "harvest_w").traces.watts(2, 0.0)
    held = world(tmp_path, text, "harvest_w", trace_end="hold").traces.watts(2, 0.0)
    assert held is not None
    assert held.tolist() == [3.0] * 4


def test_watts_are_summed_over_an_iteration_by_the_clock(tmp_path: Path) -> None:
    made = world(tmp_path, "time_s,watts\n0,2\n10,0\n20,1\n", "harvest_w")
    gathered = made.traces.harvested_j(0, 8.0, 14.0)
    assert gathered is not None
    assert gathered.tolist() == [2 * 2 + 0 * 10 + 1 * 2] * 4


def test_a_day_of_watts_repeats(tmp_path: Path) -> None:
    made = world(tmp_path, "time_s,watts\n0,0\n6,3\n12,1\n18,0\n", "harvest_w", trace_end="repeat")
    gathered = made.traces.harvested_j(0, 23.0, 25.0)  # one second, a day less one, one second
    assert gathered is not None
    assert gathered.tolist() == [6 * 3 + 6 * 1] * 4


def test_watts_of_iterations_last_as_long_as_the_iteration(tmp_path: Path) -> None:
    made = world(tmp_path, "t,device,watts\n2,1,500 mW\n", "harvest_w")
    first, second = (made.traces.harvested_j(t, 0.0, 4.0) for t in (0, 1))
    assert first is not None
    assert second is not None
    assert first.tolist() == [0.0] * 4
    assert second.tolist() == [0.0, 2.0, 0.0, 0.0]


def test_a_steady_harvest_is_a_quantity() -> None:
    scenario = ideal(devices={"count": 3, "harvest_w": [0.1, 0.2, 0.0]})
    made = build_world(scenario, np.full(3, 32.0))
    gathered = made.traces.harvested_j(5, 7.0, 2.0)
    assert gathered is not None
    assert gathered.tolist() == [0.2, 0.4, 0.0]


def test_places_change_gains_and_links(tmp_path: Path) -> None:
    text = "t,device,x_m,y_m\n1,0,0,0\n1,1,10,0\n1,2,20,0\n1,3,30,0\n4,3,0,5\n"
    path = tmp_path / "trace.csv"
    path.write_text(text, "utf-8")
    scenario = ideal(
        devices={"count": 4, "positions": str(path)},
        network={"topology": "geometric", "area_m": 30, "mean_degree": 1},
    )
    made = build_world(scenario, np.full(4, 32.0))
    assert made.motion is not None
    assert made.graph.edges.tolist() == [[0, 1], [0, 3], [1, 2], [2, 3]]
    first, moved = made.motion.first, made.traces.snapshot(3, 0.0)
    assert made.motion.exists(first).tolist() == [True, False, True, True]
    assert made.motion.exists(moved).tolist() == [True, True, True, False]
    near, far = made.channel.gain(3, moved)[1], made.channel.gain(0, first)[0]
    assert near / far == pytest.approx(2**3.76)  # 5 m instead of 10, 3gpp-macro


def test_what_is_drawn_for_a_link_does_not_depend_on_places_to_come(tmp_path: Path) -> None:
    gains = []
    for last in ("0,0", "29,1"):
        path = tmp_path / "trace.csv"
        text = f"t,device,x_m,y_m\n1,0,0,0\n1,1,10,0\n1,2,20,0\n1,3,30,0\n9,3,{last}\n"
        path.write_text(text, "utf-8")
        scenario = ideal(
            devices={"count": 4, "positions": str(path)},
            network={
                "topology": "geometric",
                "area_m": 30,
                "mean_degree": 1,
                "fading": "rayleigh",
                "shadowing_db": 6.0,
            },
        )
        made = build_world(scenario, np.full(4, 32.0))
        assert made.motion is not None
        exists = made.motion.exists(made.motion.first)
        gains.append(made.channel.gain(2, made.motion.first)[exists].tolist())
    assert gains[0] == gains[1]


REFUSED = {
    "t,available\n1,1\n": "no column 'device'",
    "device,available\n1,1\n": "neither of the columns 't'",
    "t,time_s,device,available\n1,1,1,1\n": "both of the columns 't'",
    "t,device,available\n1.5,1,1\n": "t = 1.5 must be a whole number",
    "t,device,available\n1,9,1\n": "row 2: device '9' is not one of 0..3",
    "t,device,available\n1,north,1\n": "device 'north' is not one of 0..3",
    "t,device,available\n1,1,2\n": "available = 2 must be 0 or 1",
    "t,device,available\n1,1,0\n1,1,1\n": "says two things of device 1 at 1",
    "device,from,to\n1,5,3\n": "row 2: the interval from 5 ends before it begins",
    "device,from,to\n1,1,5\n1,4,9\n": "row 3: the interval of device 1 from 4 begins before",
    "device,from,to_s\n1,1,5\n": "one end of its intervals in iterations",
}


@pytest.mark.parametrize("text", REFUSED)
def test_availability_that_cannot_be_meant_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioError, match=REFUSED[text]) as refused:
        world(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_other_tables_are_refused_likewise(tmp_path: Path) -> None:
    for field, text, why in (
        ("harvest_w", "t,device,watts\n1,0,-1\n", "must be at least 0"),
        ("harvest_w", "t,device\n1,0\n", "no column 'watts'"),
        ("positions", "t,device,x_m\n1,0,0\n", "no column 'y_m'"),
        ("positions", "t,device,x_m,y_m\n1,0,1e300,0\n", "a place beyond"),
    ):
        with pytest.raises(ScenarioError, match=why):
            world(tmp_path, text, field)
    with pytest.raises(ScenarioError, match="needs rows of at least two times"):
        world(tmp_path, "t,device,available\n1,0,1\n", trace_end="repeat")


def test_a_battery_begins_with_no_more_than_it_holds() -> None:
    scenario = ideal(devices={"count": 3, "capacity_j": 5.0}, budget={"energy_j": [4.0, 6.0, 7.0]})
    with pytest.raises(ScenarioError, match=r"device 1 begins with 6 J .* holds 5 J"):
        build_world(scenario, np.full(3, 32.0))


def test_gains_of_a_file_do_not_move(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("t,device,x_m,y_m\n2,0,1,1\n", "utf-8")
    scenario = ideal(
        devices={"count": 3, "positions": str(path)},
        network={"topology": [[0, 1], [1, 2]], "gains": [1e-9, 1e-9]},
    )
    with pytest.raises(ScenarioError, match="leave one of the two out"):
        build_world(scenario, np.full(3, 32.0))


def test_a_scenario_file_names_tables_beside_it(tmp_path: Path) -> None:
    for name in ("away", "sun", "places"):
        (tmp_path / f"{name}.csv").write_text("t\n1\n", "utf-8")
    (tmp_path / "s.toml").write_text(
        '[devices]\navailability = "away.csv"\nharvest_w = "sun.csv"\npositions = "places.csv"\n',
        "utf-8",
    )
    devices = joulemesh.Scenario.load(tmp_path / "s.toml").devices
    found = (devices.availability, devices.harvest_w, devices.positions)
    assert found == tuple(str(tmp_path / f"{name}.csv") for name in ("away", "sun", "places"))
