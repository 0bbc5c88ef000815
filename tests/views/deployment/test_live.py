"""A fleet at work, shown while it works."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from joulemesh.deploy.operator.standing import Standing
from joulemesh.views.fleet import FleetDisplay


def fleet(iteration: int, devices: int = 2) -> list[Standing]:
    return [
        Standing(device, f"node-{device}", "training", 0, iteration, 9) for device in range(devices)
    ]


def test_in_a_file_lines_come_now_and_then_and_the_last_always(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = iter([0.0, 0.0, 1.0, 6.0, 6.0, 7.0, 7.0]).__next__
    console = Console(file=io.StringIO())
    with FleetDisplay(clock=clock, console=console) as display:
        for iteration in (1, 2, 3, 4):  # at 0, 1, 6 and 7 s
            display.show(fleet(iteration))
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition("iteration ")[2][:6] for line in lines] == ["1 of 9", "3 of 9", "4 of 9"]


def test_in_a_terminal_the_table_stays_at_its_last_state() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=100, height=12, _environ={})
    with FleetDisplay(console=console) as display:
        display.show(fleet(1, devices=20))
        display.show(fleet(9, devices=20))
    shown = file.getvalue()
    assert "9 / 9" in shown.rpartition("1 / 9")[2]
    assert "14 more devices, not shown" in shown


def test_quiet_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with FleetDisplay(quiet=True) as display:
        display.show(fleet(1))
    assert capsys.readouterr() == ("", "")
