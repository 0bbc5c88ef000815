"""`joulemesh doctor`: which meters there are, and the line that makes one readable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from joulemesh import meters
from joulemesh.cli.main import app
from joulemesh.meters import MeterOptions, meter
from tests.meters.trees import planted


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recorded machine in the place of this one."""
    root, real = planted(tmp_path, "powercap-client"), meters.findings
    monkeypatch.setattr(meters, "findings", lambda: real(MeterOptions(root=root)))
    return root


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["doctor", "--quick", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_a_meter_that_can_be_read_is_listed(machine: Path) -> None:
    assert "meters     powercap: package-0, dram of package-0; psys: psys" in said()


def test_the_line_that_makes_powercap_readable(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = meter.open_file

    def for_root_only(path: Path) -> IO[str]:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(meter, "open_file", for_root_only)
    lines = said().splitlines()
    assert "meters     none (calibrate with --watts W or --meter FILE.csv)" in lines
    zones = machine / "sys/class/powercap"
    chmod = f"sudo chmod a+r {zones}/intel-rapl:0/energy_uj {zones}/intel-rapl:0:2/energy_uj"
    assert any(line.strip() == chmod for line in lines)
    assert any("/etc/udev/rules.d/70-powercap.rules" in line for line in lines)
    found = json.loads(said("--json"))["meters"]["powercap"]
    assert found["ready"] is False
    assert found["remedy"].splitlines()[0] == chmod
