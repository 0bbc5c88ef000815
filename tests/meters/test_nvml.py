"""NVIDIA GPUs, with a library of our own in the place of the driver's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from joulemesh.meters import METERS, MeterError, MeterOptions
from joulemesh.meters.sysfs import Nvml


class Driver:
    """What `pynvml` offers, of a machine with some GPUs."""

    class NVMLError(Exception):
        """As the library's own."""

    def __init__(self, gpus: int = 1, *, counter: bool = True) -> None:
        self.energy_mj = [1e9] * gpus
        self.power_mw = [100e3] * gpus
        self.counter, self.open, self.lost = counter, 0, False

    def nvmlInit(self) -> None:  # noqa: N802
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.energy_mj)

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802
        if number >= len(self.energy_mj):
            raise self.NVMLError("Invalid Argument")
        return number

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        return int(uuid.removeprefix("GPU-"))

    def nvmlDeviceGetName(self, handle: int) -> bytes | str:  # noqa: N802
        return b"Toy 100" if handle else "Toy 200"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> float:  # noqa: N802
        if self.lost or not self.counter:
            raise self.NVMLError("GPU is lost" if self.lost else "Not Supported")
        return self.energy_mj[handle]

    def nvmlDeviceGetClockInfo(self, handle: int, kind: int) -> int:  # noqa: N802
        assert kind == 1  # of the multiprocessors
        return 1980

    def nvmlDeviceGetTemperature(self, handle: int, kind: int) -> int:  # noqa: N802
        if self.lost:
            raise self.NVMLError("GPU is lost")
        return 41

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:  # noqa: N802
        return 0x4 | 0x40  # a power cap, which is no defect, and heat

    def nvmlDeviceGetPowerUsage(self, handle: int) -> float:  # noqa: N802
        if self.lost:
            raise self.NVMLError("GPU is lost")
        return self.power_mw[handle]


def meter(driver: Driver, seconds: list[float], visible: Any = None) -> Nvml:
    """A meter whose source says that nothing here is measured."""
    options = MeterOptions(root=Path("toy"), clock=iter(seconds).__next__, threads=False)
    return Nvml(options, driver, visible)


def test_the_counter_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = Driver()
    made = meter(driver, [0.0, 1.0])
    driver.energy_mj[0] += 2500
    assert made.joules() == pytest.approx(2.5)
    assert made.source == "recorded from NVML, energy counter of Toy 200"
    made.close()
    made.close()
    assert driver.open == 0


def test_without_a_counter_power_is_integrated() -> None:
    driver = Driver(counter=False)
    made = meter(driver, [0.0, 2.0], "0")
    driver.power_mw[0] = 300e3
    assert made.joules() == pytest.approx(2 * 200.0)
    assert "power of Toy 200" in made.source
    made.close()


@pytest.mark.parametrize(
    ("visible", "joules"), [(None, 3.0), ("1", 2.0), ("GPU-0", 1.0), ("0,1", 3.0)]
)
def test_the_gpus_that_the_process_may_use_are_summed(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, joules: float
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    driver = Driver(2)
    made = meter(driver, [0.0, 0.0, 1.0, 1.0], visible)
    driver.energy_mj = [1e9 + 1000, 1e9 + 2000]
    assert made.joules() == pytest.approx(joules)


@pytest.mark.parametrize("visible", ["", "-1", "7"])
def test_no_gpu_is_refused_and_the_driver_let_go(visible: str) -> None:
    driver = Driver()
    with pytest.raises(MeterError, match="NVML"):
        meter(driver, [0.0], visible)
    assert driver.open == 0


def test_a_gpu_that_is_lost_is_named() -> None:
    driver = Driver()
    made = meter(driver, [0.0, 1.0], "0")
    driver.lost = True
    with pytest.raises(MeterError, match="GPU is lost"):
        made.joules()


@pytest.mark.parametrize("change_mj", [-1000.0, 1e9, -2e9])
def test_a_counter_that_jumps_is_refused(change_mj: float) -> None:
    driver = Driver()
    made = meter(driver, [0.0, 1.0], "0")
    driver.energy_mj[0] += change_mj
    with pytest.raises(MeterError, match=r"jumped|negative"):
        made.joules()


def test_another_machines_copy_is_not_asked_for_this_machines_gpus(tmp_path: Path) -> None:
    assert not METERS["nvml"].find(MeterOptions(root=tmp_path)).ready


def test_a_gpu_without_the_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    found = METERS["nvml"].find(MeterOptions(root=tmp_path))
    assert (found.ready, found.remedy) == (False, "pip install 'joulemesh[meters]'")


def test_the_state_of_a_gpu_is_told_as_far_as_it_answers() -> None:
    driver = Driver()
    made = meter(driver, [0.0], "0")
    assert made.state() == {"clock_hz": 1.98e9, "temperature_c": 41.0, "throttled": float(0x40)}
    driver.lost = True
    assert made.state() == {"clock_hz": 1.98e9, "throttled": float(0x40)}
