"""How long `joulemesh deploy local` takes, and how far its result is from the simulation's."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.common import progress
from joulemesh.deploy.fleet.pack import DEVICES
from joulemesh.deploy.local.local import RUN
from joulemesh.deploy.record.history import read_history

SIZES = (8, 20)


def measure(place: Path) -> list[dict[str, Any]]:
    """The default scenario on 8 and on 20 devices."""
    return [_tried(place / str(devices), devices) for devices in SIZES]


def _tried(folder: Path, devices: int) -> dict[str, Any]:
    progress(f"local: {devices} devices")
    command = [sys.executable, "-m", "joulemesh", "deploy", "local", "--json"]
    begun, wall, used = time.monotonic(), time.time(), _cpu_s()
    said = subprocess.run(
        [*command, "--set", f"devices.count={devices}", "--out", str(folder)],
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds, came = time.monotonic() - begun, json.loads(said.stdout)
    cpu_s = _cpu_s() - used
    names = [one["name"] for one in came["devices"]]
    starts = [
        read_history(folder / DEVICES / name / RUN, device, name).first_at
        for device, name in enumerate(names)
    ]
    return {
        "devices": devices,
        "iterations": came["devices"][0]["iterations"],
        "complete": came["complete"],
        "seconds": seconds,
        "cpu_s": cpu_s,
        "started_s": max(starts) - wall,
        "difference": came["largest_difference"],
        "report": Path(came["report"]).stat().st_size,
    }


def _cpu_s() -> float:
    """CPU-seconds of all processes that have ended: these depend little on who else is here."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
