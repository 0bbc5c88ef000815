"""Small rules of meters, each on a case that can be checked by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from joulemesh.meters.external import External, _Wall, integral
from joulemesh.meters.meter import Counter, Declared, MeterOptions, Sampled, number_of
from joulemesh.meters.sysfs import Rail, chosen_rails, remedy, state_of, watts_of


def test_watts_become_joules(tmp_path: Path) -> None:
    assert integral(np.array([0.0, 2.0]), np.array([0.0, 4.0]), 1.0, 2.0) == 3.0
    log = tmp_path / "plug.csv"
    log.write_text("time,watts\n100,4\n102,4\n104,8\n106,8\n")
    meter = External(MeterOptions(file=log), _Wall(iter([101.0, 105.0]).__next__))
    assert meter.joules() == 24.0  # 1 s at 4 W, 2 s on the way to 8 W, 1 s at 8 W
    clock = iter([10.0, 12.0]).__next__
    assert Declared(MeterOptions(watts=6.5, clock=clock)).joules() == 13.0
    options = MeterOptions(clock=iter([0.0, 2.0]).__next__, threads=False)
    assert Sampled("toy", "a toy", iter([4.0, 6.0]).__next__, options).joules() == 10.0


def test_a_counter_may_start_again_once() -> None:
    readings, seconds = iter([90.0, 95.0, 3.0]), iter([0.0, 1.0, 2.0])
    counter = Counter("toy", readings.__next__, seconds.__next__, range_j=100.0)
    assert (counter.joules(), counter.joules()) == (5.0, 13.0)


def test_what_sensors_say(tmp_path: Path) -> None:
    (tmp_path / "energy_uj").write_text("1500000\n")
    assert number_of(tmp_path / "energy_uj") == 1.5e6
    text = " 3V3_SYS_A current(1)=0.5A\n 3V3_SYS_V volt(9)=3.3V\n EXT5V_V volt(24)=5.1V"
    assert watts_of(text) == pytest.approx(1.65)
    assert state_of("throttled=0x50005") == {"throttled": 5.0}
    assert state_of("throttled=0x50000") == {"throttled": 0.0}
    assert state_of("?") == {}
    rails = [Rail("VDD_IN", float), Rail("VDD_SOC", float)]
    assert [rail.label for rail in chosen_rails(rails)] == ["VDD_IN"]
    lines = remedy({"package-0": Path("/sys/class/powercap/intel-rapl:0")}).splitlines()
    assert lines[0] == "sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj"
