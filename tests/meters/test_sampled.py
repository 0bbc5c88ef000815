"""Meters that sample in a thread, and those of a user's own."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from joulemesh.base.optional import run_file
from joulemesh.meters import (
    METERS,
    Finding,
    MeterError,
    MeterKind,
    MeterOptions,
    choose,
    open_meter,
)
from joulemesh.meters.meter import Sampled

OWN = """
from joulemesh.meters import METERS, Finding, MeterKind


class Plug:
    name, source = "plug", "measured by a smart plug"

    def __init__(self, options):
        self.count = 0.0

    def joules(self):
        self.count += 1.5
        return self.count

    def close(self):
        pass


METERS.register(
    MeterKind("plug", "A smart plug.", lambda options: Finding(True, "plug 7"), Plug, "the plug")
)
"""


def test_the_thread_samples_between_calls_and_ends() -> None:
    enough, taken = threading.Event(), list[float]()

    def watts() -> float:
        taken.append(2.0)
        if len(taken) > 5:
            enough.set()
        return 2.0

    meter = Sampled("toy", "a toy", watts, MeterOptions(), period_s=0.001)
    assert enough.wait(30)
    assert meter.joules() > 0
    meter.close()
    count = len(taken)
    assert not [one for one in threading.enumerate() if one.name == "toy"]
    assert len(taken) == count


def test_a_failure_in_the_thread_is_told_at_the_next_call() -> None:
    failed, calls = threading.Event(), list[int]()

    def watts() -> float:
        calls.append(1)
        if len(calls) == 1:
            return 1.0
        if len(calls) > 4:
            failed.set()
        raise MeterError("the sensor is gone")

    meter = Sampled("toy", "a toy", watts, MeterOptions(), period_s=0.001)
    assert failed.wait(30)
    with pytest.raises(MeterError, match="the sensor is gone"):
        meter.joules()
    meter.close()


def test_a_users_own_meter_is_chosen_first(tmp_path: Path) -> None:
    file = tmp_path / "plug.py"
    file.write_text(OWN)
    with METERS.scoped():
        run_file(file, "--load plug.py")
        chosen = choose()
        assert chosen.kind is METERS["plug"]
        assert chosen.reason == "plug 7, which sees the plug"
        assert open_meter().joules() == 1.5
    assert "plug" not in METERS


def test_gpus_are_measured_only_where_they_train() -> None:
    with METERS.scoped():
        for name in ("nvml", "powercap"):
            kind = METERS[name]
            ready = MeterKind(
                name, "", lambda options: Finding(True, "here"), kind.open, "it", kind.suits
            )
            METERS.register(ready)
        assert choose(MeterOptions(accelerator=True)).kind is METERS["nvml"]
        assert choose(MeterOptions(accelerator=False)).kind is METERS["powercap"]
