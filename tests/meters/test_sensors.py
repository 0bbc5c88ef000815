"""Every sensor on a recorded tree: what it counts, and what it refuses."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pytest

from joulemesh.meters import METERS, Meter, MeterError, MeterOptions, choose, meter, open_meter
from tests.meters.trees import planted, write

PACKAGE = "sys/class/powercap/intel-rapl:0/energy_uj"
BATTERY = "sys/class/power_supply/BAT0"


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def at(tmp_path: Path, clock: Clock) -> Callable[[str], MeterOptions]:
    """Options for the machine of a recorded tree."""

    def options(tree: str) -> MeterOptions:
        return MeterOptions(root=planted(tmp_path, tree), clock=clock, threads=False)

    return options


def after(clock: Clock, seconds: float, meter: Meter) -> float:
    clock.now += seconds
    return meter.joules()


TREES = {
    "powercap-client": ("powercap", "package-0, dram of package-0"),
    "powercap-server": ("powercap", "package-0, package-1, dram of package-0, dram of package-1"),
    "powercap-amd": ("powercap", "package-0"),
    "jetson-orin-nano": ("jetson", "VDD_IN"),
    "jetson-agx-orin": ("jetson", "VDD_GPU_SOC, VDD_CPU_CV, VIN_SYS_5V0"),
    "jetson-nano": ("jetson", "POM_5V_IN"),
    "jetson-tx2": ("jetson", "VDD_IN, VDD_MUX"),
    "jetson-thor": ("jetson", "VIN"),
    "pi5": ("pi5", "PMIC"),
    "battery-energy": ("battery", "BAT0"),
    "battery-charge": ("battery", "BAT1"),
}


@pytest.mark.parametrize("tree", TREES)
def test_the_right_meter_is_chosen_with_its_reason(
    at: Callable[[str], MeterOptions], tree: str
) -> None:
    name, parts = TREES[tree]
    chosen = choose(at(tree))
    assert chosen.kind is METERS[name]
    assert parts in chosen.reason
    assert chosen.kind.sees in chosen.reason


@pytest.mark.parametrize("tree", TREES)
def test_a_recorded_figure_is_never_called_measured(
    at: Callable[[str], MeterOptions], tree: str
) -> None:
    name, parts = TREES[tree]
    meter = open_meter(name, at(tree))
    assert meter.name == name
    assert meter.source.startswith("recorded from ")
    assert "measured" not in meter.source
    assert parts in meter.source
    assert meter.joules() == 0.0
    meter.close()
    meter.close()


def test_no_meter_says_what_to_give(tmp_path: Path) -> None:
    chosen = choose(MeterOptions(root=tmp_path))
    assert chosen.kind is None
    assert "--watts" in chosen.reason
    assert ".csv" in chosen.reason
    with pytest.raises(MeterError, match="no meter can be read"):
        open_meter("auto", MeterOptions(root=tmp_path))


# powercap -------------------------------------------------------------------------------------


def test_packages_and_memory_are_summed_and_wrap(
    at: Callable[[str], MeterOptions], clock: Clock
) -> None:
    options = at("powercap-client")
    meter = open_meter("powercap", options)
    write(options.root, PACKAGE, 262_143_328_850 - 1_000_000)  # 2.32885 J more
    write(options.root, "sys/class/powercap/intel-rapl:0:2/energy_uj", 1_500_000)
    assert after(clock, 1.0, meter) == pytest.approx(2.32885 + 0.5)
    write(options.root, PACKAGE, 4_000_000)  # it starts again: 1 J to the end, 4 J since
    assert after(clock, 1.0, meter) == pytest.approx(2.32885 + 0.5 + 5.0)


def test_two_sockets_are_summed(at: Callable[[str], MeterOptions], clock: Clock) -> None:
    options = at("powercap-server")
    meter = open_meter("powercap", options)
    write(options.root, PACKAGE, 11_000_000)
    write(options.root, "sys/class/powercap/intel-rapl:1/energy_uj", 22_000_000)
    write(options.root, "sys/class/powercap/intel-rapl:1:0/energy_uj", 2_250_000)
    assert after(clock, 1.0, meter) == pytest.approx(10 + 20 + 0.25)


def test_the_platform_is_counted_alone(at: Callable[[str], MeterOptions], clock: Clock) -> None:
    options = at("powercap-client")
    meter = open_meter("psys", options)
    write(options.root, PACKAGE, 262_143_000_000)
    write(options.root, "sys/class/powercap/intel-rapl:1/energy_uj", 35_000_000)
    assert after(clock, 1.0, meter) == pytest.approx(30.0)
    assert meter.source.endswith("powercap psys")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("-5", "negative"),
        ("nan", "no number"),
        ("much", "says 'much', which is no number"),
        ("", "no number"),
        ("3000000", "jumped from .* it was reset"),  # back, and not by wrapping: 259 kJ in 1 s
        ("262143328849", None),
    ],
)
def test_nonsense_in_a_counter_is_refused(
    at: Callable[[str], MeterOptions], clock: Clock, content: str, words: str | None
) -> None:
    options = at("powercap-client")
    write(options.root, PACKAGE, 10_000_000)
    if words is None:
        words = "jumped from 10 J"  # ahead by 262 kJ in 1 s
    else:
        write(options.root, PACKAGE, 5_000_000_000)
    meter = open_meter("powercap", options)
    write(options.root, PACKAGE, content)
    with pytest.raises(MeterError, match=words):
        after(clock, 1.0, meter)


def test_a_zone_that_vanishes_is_named(at: Callable[[str], MeterOptions], clock: Clock) -> None:
    options = at("powercap-amd")
    meter = open_meter("powercap", options)
    (options.root / PACKAGE).unlink()
    with pytest.raises(MeterError, match=r"energy_uj is not there \(any more\)"):
        after(clock, 1.0, meter)


def locked(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the system refuse files of a name, as it refuses them to all but root."""
    real = meter.open_file

    def refuse(path: Path) -> IO[str]:
        if path.name == name:
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(meter, "open_file", refuse)


def test_counters_for_root_only_come_with_the_line_that_opens_them(
    at: Callable[[str], MeterOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = at("powercap-client")
    locked(monkeypatch, "energy_uj")
    found = METERS["powercap"].find(options)
    files = [
        options.root / "sys/class/powercap" / zone for zone in ("intel-rapl:0", "intel-rapl:0:2")
    ]
    assert not found.ready
    assert "only root may read" in found.what
    now, for_good = found.remedy.splitlines()
    assert now == f"sudo chmod a+r {files[0]}/energy_uj {files[1]}/energy_uj"
    assert 'SUBSYSTEM=="powercap"' in for_good
    chosen = choose(options)
    assert chosen.kind is None
    assert now in chosen.reason
    assert "\n" not in chosen.reason
    with pytest.raises(MeterError, match="may not be read by this user"):
        open_meter("powercap", options)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_seen(at: Callable[[str], MeterOptions]) -> None:
    options = at("powercap-amd")
    (options.root / PACKAGE).chmod(0)
    assert not METERS["powercap"].find(options).ready


# Jetson ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tree", "watts"),
    [
        ("jetson-orin-nano", 5.040 * 1.250),
        ("jetson-agx-orin", 0.843 * 6.170 + 0.780 * 3.437 + 4.968 * 0.953),
        ("jetson-nano", 2.2),
        ("jetson-tx2", 4.0 + 1.5),
        ("jetson-thor", 23.0),
    ],
)
def test_what_a_board_draws(
    at: Callable[[str], MeterOptions], clock: Clock, tree: str, watts: float
) -> None:
    meter = open_meter("jetson", at(tree))
    assert after(clock, 2.0, meter) == pytest.approx(2 * watts)
    assert after(clock, 8.0, meter) == pytest.approx(10 * watts)


def test_watts_between_samples_are_interpolated(
    at: Callable[[str], MeterOptions], clock: Clock
) -> None:
    options = at("jetson-nano")
    meter = open_meter("jetson", options)
    write(options.root, "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0/in_power0_input", 4200)
    assert after(clock, 1.0, meter) == pytest.approx((2.2 + 4.2) / 2)


@pytest.mark.parametrize("content", ["-5000000", "nan", "much", "1e30", None])
def test_a_board_that_fails_now_and_then_is_bridged_and_one_that_goes_on_is_refused(
    at: Callable[[str], MeterOptions], clock: Clock, content: str | None
) -> None:
    options, path = at("jetson-thor"), "sys/class/hwmon/hwmon2/power1_input"
    meter = open_meter("jetson", options)

    def fail() -> None:
        if content is None:
            (options.root / path).unlink(missing_ok=True)
        else:
            write(options.root, path, content)

    fail()
    assert after(clock, 1.0, meter) == 0.0  # not known yet
    write(options.root, path, 25_000_000)
    assert after(clock, 1.0, meter) == pytest.approx(2 * 24.0)
    fail()
    for _ in range(3):
        after(clock, 1.0, meter)
    with pytest.raises(MeterError, match=r"power1_input|W cannot be"):
        after(clock, 1.0, meter)


def test_a_rail_that_is_off_may_read_a_little_below_nothing(
    at: Callable[[str], MeterOptions], clock: Clock
) -> None:
    options = at("jetson-thor")
    (options.root / "sys/class/hwmon/hwmon2/name").unlink()  # leaves the rails of the INA3221
    meter = open_meter("jetson", options)
    assert after(clock, 1.0, meter) == pytest.approx(19 * 0.343 + 5 * 1.304)


def test_other_boards_with_such_a_sensor_are_left_alone(at: Callable[[str], MeterOptions]) -> None:
    options = at("jetson-thor")
    write(options.root, "proc/device-tree/model", "Somebody's Board")
    assert choose(options).kind is None


# Raspberry Pi ---------------------------------------------------------------------------------


def test_the_rails_of_a_raspberry_pi_are_summed(
    at: Callable[[str], MeterOptions], clock: Clock
) -> None:
    meter = open_meter("pi5", at("pi5"))
    # The cores 9.7614 W; then 3V3, 1V8, DDR, 1V1 and 0V8 in the order in which they are printed;
    # DAC, ADC and always-on 0.0072 W; HDMI 0.0693 W.
    others = 0.2065 + 0.2896 + 0.0086 + 0.1940 + 0.2632 + 0.0072 + 0.0693
    assert after(clock, 1.0, meter) == pytest.approx(9.7614 + others, abs=5e-4)


@pytest.mark.parametrize(
    "text",
    ["", "error=1 error_msg=\"Command not registered\"", "3V3_SYS_A current(1)=0.1A",
     "3V3_SYS_A current(1)=-0.1A\n3V3_SYS_V volt(9)=3.3V",
     "3V3_SYS_A current(1)=nanA\n3V3_SYS_V volt(9)=3.3V",
     "3V3_SYS_A current(1)=muchA\n3V3_SYS_V volt(9)=3.3V"],
)  # fmt: skip
def test_nonsense_from_vcgencmd_is_refused(at: Callable[[str], MeterOptions], text: str) -> None:
    options = at("pi5")
    write(options.root, "vcgencmd/pmic_read_adc", text)
    assert not METERS["pi5"].find(options).ready
    with pytest.raises(MeterError, match="vcgencmd"):
        open_meter("pi5", options)


def test_a_raspberry_pi_tells_whether_it_is_slowed_down(at: Callable[[str], MeterOptions]) -> None:
    options = at("pi5")
    meter: Any = open_meter("pi5", options)
    assert meter.state() == {}
    write(options.root, "vcgencmd/get_throttled", "throttled=0x50005")
    assert meter.state() == {"throttled": 5.0}


def test_earlier_boards_have_no_sensor(at: Callable[[str], MeterOptions]) -> None:
    options = at("pi5")
    write(options.root, "proc/device-tree/model", "Raspberry Pi 4 Model B Rev 1.4")
    assert "earlier ones have no sensor" in METERS["pi5"].find(options).what


# Battery --------------------------------------------------------------------------------------


def test_a_battery_counts_what_leaves_it(at: Callable[[str], MeterOptions], clock: Clock) -> None:
    options = at("battery-energy")
    meter = open_meter("battery", options)
    write(options.root, f"{BATTERY}/energy_now", 39_990_000)
    assert after(clock, 60.0, meter) == pytest.approx(36.0)
    write(options.root, f"{BATTERY}/energy_now", 39_995_000)  # the gauge thinks better of it
    assert after(clock, 60.0, meter) == pytest.approx(36.0)
    write(options.root, f"{BATTERY}/energy_now", 39_980_000)
    assert after(clock, 60.0, meter) == pytest.approx(72.0)


def test_a_sagging_voltage_is_no_energy(at: Callable[[str], MeterOptions], clock: Clock) -> None:
    options, supply = at("battery-charge"), "sys/class/power_supply/BAT1"
    meter = open_meter("battery", options)
    write(options.root, f"{supply}/voltage_now", 11_000_000)
    assert after(clock, 1.0, meter) == 0.0
    write(options.root, f"{supply}/charge_now", 3_999_000)  # 1 mAh at 11 V
    assert after(clock, 1.0, meter) == pytest.approx(1e-3 * 11 * 3600)


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
def test_a_battery_that_is_not_discharged_is_refused(
    at: Callable[[str], MeterOptions], clock: Clock, status: str
) -> None:
    options = at("battery-energy")
    meter = open_meter("battery", options)
    write(options.root, f"{BATTERY}/status", status)
    with pytest.raises(MeterError, match=f"{status}.*unplug the machine"):
        after(clock, 1.0, meter)
    found = METERS["battery"].find(options)
    assert (found.ready, found.remedy) == (False, "unplug the machine")


@pytest.mark.parametrize(
    ("content", "words"),
    [("-1", "use another"), ("nan", "no number"), ("much", "no number"), ("0", "jumped"),
     ("49000000", "jumped"), (None, "not there")],
)  # fmt: skip
def test_nonsense_in_a_battery_is_refused(
    at: Callable[[str], MeterOptions], clock: Clock, content: str | None, words: str
) -> None:
    options = at("battery-energy")
    meter = open_meter("battery", options)
    if content is None:
        (options.root / BATTERY / "energy_now").unlink()
    else:
        write(options.root, f"{BATTERY}/energy_now", content)
    with pytest.raises(MeterError, match=words):
        after(clock, 1.0, meter)
