"""CSV files, and the device table that fills a scenario's fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from joulemesh.scenario import Scenario
from joulemesh.tables import number_column, read_table
from joulemesh.world import DeviceArrays, build_world


def table(folder: Path, text: str, name: str = "devices.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def devices_of(scenario: Scenario) -> DeviceArrays:
    return build_world(scenario, np.full(scenario.devices.count, 32.0)).devices


# Reading ---------------------------------------------------------------------------------------


def test_columns_by_name_blanks_and_quotes(tmp_path: Path) -> None:
    path = table(tmp_path, '\ufeffname , cpu_hz\n"a, b",1e9\n\n c ,2e9\n')
    columns = read_table(path)
    assert columns == {"name": ["a, b", "c"], "cpu_hz": ["1e9", "2e9"]}
    assert number_column(columns, "cpu_hz", path).tolist() == [1e9, 2e9]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "no rows"),
        ("cpu_hz\n", "no rows"),
        ("a,a\n1,2\n", "names a column twice"),
        ("a,b\n1,2\n3\n", "row 3: 1 cells under 2 columns"),
    ],
)
def test_malformed_tables_are_refused(text: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=wanted) as refusal:
        read_table(table(tmp_path, text))
    assert "\n" not in str(refusal.value)


def test_what_is_no_csv_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(joulemesh.ScenarioError, match="is not a CSV file"):
        read_table(tmp_path / "b.csv")
    with pytest.raises(joulemesh.ScenarioError, match="cannot read"):
        read_table(tmp_path / "none.csv")
    with pytest.raises(joulemesh.ScenarioError, match="cannot read"):
        read_table(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "name;cpu_hz;energy_j\na;1,8e9;0,25\nb;2e9;10\n",
        "\ufeffname;cpu_hz;energy_j\r\na;1,8E+09;0,25\r\nb;2000000000;10,0\r\n",
        "name\tcpu_hz\tenergy_j\na\t1.8e9\t0.25\nb\t2e9\t10\n",
        "name\tcpu_hz\tenergy_j\na\t1,8e9\t,25\nb\t2e9\t10\n",
        "sep=;\nname;cpu_hz;energy_j\na;1,8e9;0,250\nb;2e9;10,000\n",
        "name;cpu_hz;energy_j\na;1.8e9;0.25\nb;2e9;10\n",
    ],
)
def test_separators_and_decimal_commas_of_spreadsheets(text: str, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes(text.encode())
    columns = read_table(tmp_path / "d.csv")
    assert columns["name"] == ["a", "b"]
    assert number_column(columns, "cpu_hz", "d.csv").tolist() == [1.8e9, 2e9]
    assert number_column(columns, "energy_j", "d.csv").tolist() == [0.25, 10.0]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a,b;c\n1,2;3\n4,5;6\n", "may be separated by commas or semicolons"),
        ("a,b;c\n1,2;3\n4\n", "may be separated by commas or semicolons"),
        ("a;b\n0,25;1.5\n", r"with a comma \('0,25'\) and with a point \('1.5'\)"),
        ("a;b\n1,500;2\n3,250;4\n", "'1,500' may mean 1.500 or 1500.*write 1.5000 or 1500"),
        ("a;b\n1.500;2\n3.250;4\n", "'1.500' may mean 1.500 or 1500"),
        ("a\tb\n1,500\t2\n", "'1,500' may mean"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(text: str, wanted: str, tmp_path: Path) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=wanted) as refusal:
        read_table(table(tmp_path, text))
    assert "\n" not in str(refusal.value)


def test_the_bad_cell_is_named_not_its_neighbours_with_commas(tmp_path: Path) -> None:
    columns = read_table(table(tmp_path, "a;b\n0,25;1\nn/a;2\n"))
    with pytest.raises(joulemesh.ScenarioError, match=r"row 3, column 'a': 'n/a'"):
        number_column(columns, "a", "t.csv")


@pytest.mark.parametrize("cell", ["nan", "inf", "2 GHz", ""])
def test_cells_that_are_no_finite_number_are_named(cell: str) -> None:
    with pytest.raises(joulemesh.ScenarioError, match=r"t\.csv, row 3, column 'a'"):
        number_column({"a": ["1", cell]}, "a", "t.csv")


# The device table ------------------------------------------------------------------------------

TABLE = "cpu_hz,energy_j,speed,x_m,y_m\n1e9,1,3e9,0,0\n2e9,2,4e9,3,4\n3e9,3,5e9,-10,0\n"


def test_columns_named_like_fields_are_taken_and_rows_are_devices(tmp_path: Path) -> None:
    scenario = Scenario(devices={"table": table(tmp_path, TABLE), "cycles_per_sample": 1000})
    assert scenario.devices.count == 3
    found = devices_of(scenario)
    assert found.energy_budget_j.tolist() == [1.0, 2.0, 3.0]
    assert found.round_latency_s == pytest.approx([32e-6, 16e-6, 32e-6 / 3], rel=1e-12)
    world = build_world(scenario, np.full(3, 32.0))
    assert world.graph.positions_m.tolist() == [[0, 0], [3, 4], [-10, 0]]


@pytest.mark.parametrize("header", ["cpu_hz|energy_j", "CPU,battery"])
def test_a_table_without_a_known_column_is_refused(header: str, tmp_path: Path) -> None:
    row = header.replace("cpu_hz", "1e9").replace("energy_j", "3").replace("CPU", "1")
    path = table(tmp_path, f"{header}\n{row}\n{row}\n{row}\n")
    with pytest.raises(joulemesh.ScenarioError) as refusal:
        Scenario(devices={"table": path})
    for name in (*header.split(","), "cpu_hz", "transmit_power_w", "energy_j"):
        assert name in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_column_that_only_a_field_names_is_known(tmp_path: Path) -> None:
    path = table(tmp_path, "speed,kind\n1e9,esp32\n2e9,esp32\n3e9,esp32\n")
    assert Scenario(devices={"table": path, "cpu_hz": "speed"}).devices.count == 3
    assert Scenario(devices={"table": path, "profile": "kind"}).devices.count == 3


def test_a_field_can_name_another_column(tmp_path: Path) -> None:
    text = TABLE.replace("cpu_hz", "name")
    scenario = Scenario(
        devices={"table": table(tmp_path, text), "cpu_hz": "speed", "cycles_per_sample": 1000}
    )
    assert 32e3 / devices_of(scenario).round_latency_s == pytest.approx([3e9, 4e9, 5e9])


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [("devices", "cpu_hz", 1e9), ("devices", "cpu_hz", "speed"), ("budget", "energy_j", 5.0)],
)
def test_a_column_and_a_value_for_one_field_conflict(
    section: str, field: str, value: Any, tmp_path: Path
) -> None:
    values: dict[str, Any] = {"devices": {"table": table(tmp_path, TABLE)}}
    values.setdefault(section, {})[field] = value
    with pytest.raises(
        joulemesh.ScenarioError, match=rf"{field} is given both .*{field} = "
    ) as bad:
        Scenario(**values)
    assert "\n" not in str(bad.value)
    values[section][field] = field
    assert Scenario(**values).devices.count == 3


def test_a_count_that_differs_from_the_rows_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path, TABLE)
    assert Scenario(devices={"table": path, "count": 3}).devices.count == 3
    with pytest.raises(joulemesh.ScenarioError, match=r"devices\.count is 4 .* 3 rows"):
        Scenario(devices={"table": path, "count": 4})


def test_a_table_replaces_the_presets_count_but_not_the_users_own(tmp_path: Path) -> None:
    change = {"devices.table": table(tmp_path, TABLE)}
    one = Scenario.preset("adaptive").override(change)
    assert (one.devices.count, one.budget.energy_j, one.devices.cpu_hz) == (3, "energy_j", "cpu_hz")
    assert one.devices.cycles_per_sample == Scenario.preset("adaptive").devices.cycles_per_sample
    own = Scenario.preset("adaptive").override({"devices.count": 4})
    (tmp_path / "four.toml").write_text("[devices]\ncount = 4\n")
    for count in (own, Scenario.load(tmp_path / "four.toml"), Scenario(devices={"count": 4})):
        with pytest.raises(joulemesh.ScenarioError, match=r"devices\.count is 4 .* 3 rows"):
            count.override(change)
    assert own.override({**change, "devices.count": 3}).devices.count == 3


@pytest.mark.parametrize(
    ("section", "field"), [("devices", "cpu_hz"), ("budget", "energy_j"), ("devices", "x_m")]
)
def test_a_missing_column_is_refused_with_the_field_and_the_fix(
    section: str, field: str, tmp_path: Path
) -> None:
    path = table(tmp_path, "transmit_power_w\n1\n1\n1\n")
    values: dict[str, Any] = {"devices": {"table": path, "y_m": 0.0, "x_m": 0.0}}
    values.setdefault(section, {})[field] = "speed"
    with pytest.raises(joulemesh.ScenarioError) as bad:
        joulemesh.plan(Scenario(**values))
    text = str(bad.value)
    assert f"{section}.{field}" in text
    assert "no column 'speed'" in text
    assert "add it or name another" in text
    assert "\n" not in text
