"""Quantities with units: written ones are read, printed ones read back, others are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError, UnitError
from joulemesh.base.units import (
    column,
    duration,
    energy,
    is_quantity,
    parse,
    si,
    unit_of,
)
from joulemesh.scenario.scenario import field_names

magnitude = st.floats(min_value=-14, max_value=12)
figure = st.builds(lambda power, sign: sign * 10.0**power, magnitude, st.sampled_from([1.0, -1.0]))


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("100 Wh", "J", 360_000.0),
        ("100Wh", "J", 360_000.0),
        (" 3.6 kJ ", "J", 3600.0),
        ("1.5 mJ", "J", 0.0015),
        ("1.5 MJ", "J", 1.5e6),
        ("2 kWh", "J", 7.2e6),
        ("3 joules", "J", 3.0),
        ("5 min", "s", 300.0),
        ("250 ms", "s", 0.25),
        ("12 ms", "s", 0.012),
        ("7 µs", "s", 7e-6),
        ("7 μs", "s", 7e-6),
        ("7 us", "s", 7e-6),
        ("1 h 56 min", "s", 6960.0),
        ("1h56min", "s", 6960.0),
        ("-1 min 30 s", "s", -90.0),
        ("2 days", "s", 172_800.0),
        ("2 GHz", "Hz", 2e9),
        ("20 MHz", "Hz", 20e6),
        ("2e3 MHz", "Hz", 2e9),
        ("10 Mbit/s", "bit/s", 10e6),
        ("10 Mbps", "bit/s", 10e6),
        ("10 MB/s", "bit/s", 80e6),
        ("500 m", "m", 500.0),
        ("0.5 km", "m", 500.0),
        ("-12.5 cm", "m", -0.125),
        ("30 dBm", "W", 1.0),
        ("0 dBm", "W", 0.001),
        ("-10 dBm", "W", 0.0001),
        ("3 dBW", "W", 10**0.3),
        ("20 mW", "W", 0.02),
        ("-174 dBm/Hz", "dBm/Hz", -174.0),
        ("8 dB", "dB", 8.0),
        ("42", "J", 42.0),
        ("-1e-3", "m", -0.001),
    ],
)
def test_what_people_write(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("5 min", "J", "this is a time; give an energy such as '100 Wh' or joules"),
        ("100 Wh", "s", "this is an energy; give a time such as '5 min' or seconds"),
        ("5 m", "s", "this is a length; give a time such as '5 min'"),
        ("20 MHz", "bit/s", "this is a frequency; give a rate such as '10 Mbit/s'"),
        ("10 Mbit", "bit/s", "this is an amount of data; give a rate"),
        ("8 dB", "W", "this is a ratio; give a power such as '23 dBm'"),
        ("23 dBm", "J", "this is a power; give an energy"),
        ("2500 mAh", "J", "this is a charge; multiply by its voltage: at 3.7 V, 33.3 kJ; give"),
        ("100 wh", "J", "the unit 'wh' is unknown; did you mean 'Wh'?"),
        ("20 mHz", "Hz", "the unit 'mHz' is unknown; did you mean 'MHz'?"),
        ("20 dbm", "W", "the unit 'dbm' is unknown; did you mean 'dBm'?"),
        ("5 parsec", "J", "the unit 'parsec' is unknown; give an energy"),
        ("3,6 kJ", "J", "write a decimal point, and no other marks: '3.6 kJ'"),
        ("1 Wh 5 J", "J", "only a time may have several parts"),
        ("much", "J", "this is not a number"),
        ("", "J", "this is not a number"),
        ("5 min 3", "s", "this is not a number"),
        ("nan J", "J", "this is not a number"),
        ("1e400 J", "J", "this is too large"),
        ("1e999999999 dBm", "W", "this is too large"),
    ],
)
def test_what_is_refused_and_why(text: str, unit: str, words: str) -> None:
    with pytest.raises(UnitError) as refusal:
        parse(text, unit)
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(f"{text!r}: ")
    assert isinstance(refusal.value, ScenarioError)


@given(st.text(max_size=30), st.sampled_from(["J", "s", "W", "Hz", "bit/s", "m", "dB"]))
def test_any_text_is_read_or_refused_in_one_line(text: str, unit: str) -> None:
    try:
        value, words = parse(text, unit), ""
    except UnitError as refusal:
        value, words = 0.0, str(refusal)
    assert math.isfinite(value)
    assert len(words.splitlines()) <= 1


def test_names_are_not_quantities() -> None:
    assert not any(
        map(is_quantity, ["battery", "energy_j", "4g", "2nd", "100", "", "1e9", "x 5 J"])
    )
    assert all(
        map(is_quantity, ["5 min", "5min", "-3 dBm", "100 WH", "3,6 kJ", "1 h 5 min", "5 q"])
    )


def test_units_of_fields() -> None:
    fields = ["deadline_s", "energy_j", "cpu_hz", "max_rate_bps", "area_m", "transmit_power_w"]
    assert [unit_of(field) for field in fields] == ["s", "J", "Hz", "bit/s", "m", "W"]
    assert unit_of("noise_dbm_per_hz") == "dBm/Hz"
    assert unit_of("shadowing_db") == "dB"
    assert unit_of("capacitance") is None


# Every field of a scenario whose name ends like a unit, and what it is measured in, by hand.
MEASURED = {
    "devices": "cpu_hz: Hz, step_s: s, step_j: J, transmit_power_w: W, send_j_per_bit: J/bit, "
    "receive_j_per_bit: J/bit, idle_w: W, overhead_s: s, x_m: m, y_m: m, harvest_w: W, "
    "capacity_j: J, receive_power_w: W, message_j: J, circuit_w: W, power_range_w: W, "
    "power_levels_w: W, power_drawn_w: W",
    "network": "area_m: m, bandwidth_hz: Hz, noise_dbm_per_hz: dBm/Hz, max_rate_bps: bit/s, "
    "path_loss_reference_db: dB, shadowing_db: dB, rician_k_db: dB, nakagami_m: none, "
    "interference_m: m, packet_s: s",
    "budget": "energy_j: J, deadline_s: s, total_s: s",
    "plan": "message_s: s",
}
ENDINGS = ("_hz", "_bps", "_bit", "_db", "_j", "_s", "_w", "_m")


def test_no_field_of_a_scenario_is_said_in_a_unit_that_it_does_not_have() -> None:
    """A name may end like a unit by chance, as the shape m of Nakagami fading does."""
    known = {
        f"{section}.{name}": unit
        for section, words in MEASURED.items()
        for name, unit in (one.split(": ") for one in words.split(", "))
    }
    wrong = {
        name: (unit_of(name), known.get(name, "not in MEASURED: say what it is measured in"))
        for name in field_names()
        if name.endswith(ENDINGS) and (unit_of(name) or "none") != known.get(name)
    }
    assert wrong == {}
    assert {name for name in field_names() if unit_of(name)} <= set(known)


# Printing --------------------------------------------------------------------------------------


@given(figure)
def test_printed_energies_read_back(joules: float) -> None:
    assert parse(energy(joules), "J") == pytest.approx(joules, rel=5.1e-3)


@given(figure)
def test_printed_durations_read_back(seconds: float) -> None:
    """Two parts keep one minute to half a second, one day to half an hour."""
    assert parse(duration(seconds), "s") == pytest.approx(seconds, rel=0.5 / 24)


@given(figure, st.sampled_from(["J", "s", "W", "m"]))
def test_printed_figures_read_back(value: float, unit: str) -> None:
    assert parse(si(value, unit), unit) == pytest.approx(value, rel=5.1e-3)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0, "0 s"),
        (1e-9, "1 ns"),
        (0.012, "12 ms"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (60.4, "1 min"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h"),
        (6960.0, "1 h 56 min"),
        (86_369.0, "23 h 59 min"),
        (86_371.0, "1 d"),
        (90_000.0, "1 d 1 h"),
        (-90.0, "-1 min 30 s"),
        (math.inf, "inf s"),
        (math.nan, "nan s"),
    ],
)
def test_durations_as_people_say_them(seconds: float, words: str) -> None:
    assert duration(seconds) == words


@pytest.mark.parametrize(
    ("joules", "words"),
    [
        (0.0, "0 J"),
        (6.0, "6 J"),
        (3590.0, "3.59 kJ"),
        (3599.0, "3.6 kJ"),
        (360_000.0, "360 kJ"),
        (3.6e6, "3.6 MJ"),
        (-7200.0, "-7.2 kJ"),
        (math.inf, "inf J"),
    ],
)
def test_energies_as_people_say_them(joules: float, words: str) -> None:
    assert energy(joules) == words


def test_a_small_figure_beside_a_large_one_is_not_shown_as_0() -> None:
    assert column([412.0, 0.31], "J") == ("J", ["412.0", "0.3"])
    assert column([4.12, 0.00031], "J") == ("J", ["4.1200", "0.0003"])
    assert column([4.12, 0.0000031], "J") == ("J", ["4.12000", "0.00000"])
