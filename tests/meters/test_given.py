"""Meters that need no sensor: declared watts, and an external meter's CSV file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.meters import METERS, MeterError, MeterOptions, choose, open_meter
from joulemesh.meters.external import External, _Wall


def test_declared_watts_count_seconds() -> None:
    times = iter([100.0, 101.0, 110.0])
    meter = open_meter("declared", MeterOptions(watts=6.5, clock=lambda: next(times)))
    assert [meter.joules(), meter.joules()] == [6.5, 65.0]
    assert (meter.name, meter.source) == ("declared", "declared 6.5 W")
    meter.close()


@pytest.mark.parametrize("watts", [0.0, -1.0, float("nan"), float("inf"), 1e9, None])
def test_watts_that_are_none_are_refused(watts: float | None) -> None:
    with pytest.raises(ScenarioError, match=r"--watts"):
        open_meter("declared", MeterOptions(watts=watts))


def wall(*moments: float, grow: Callable[[], None] = lambda: None) -> _Wall:
    """The time of day, one value a call; waiting lets the file grow."""
    return _Wall(iter(moments).__next__, lambda seconds: grow())


def log(folder: Path, *lines: str) -> MeterOptions:
    file = folder / "plug.csv"
    file.write_text("\n".join(lines) + "\n")
    return MeterOptions(file=file)


def test_a_file_is_integrated_between_the_calls(tmp_path: Path) -> None:
    options = log(tmp_path, "time,watts", "0,10", "2,10", "4,30", "6,30")
    meter = External(options, wall(1.0, 2.0, 4.0, 6.0))
    assert [meter.joules() for _ in range(3)] == [10.0, 50.0, 110.0]
    assert meter.source == "measured by an external meter (plug.csv)"


def test_times_may_be_iso_and_columns_may_have_units(tmp_path: Path) -> None:
    lines = ["Timestamp;Power", "1970-01-01T00:00:10+00:00;5 W", "1970-01-01T00:00:12Z;5000 mW"]
    meter = External(log(tmp_path, *lines), wall(10.0, 12.0))
    assert meter.joules() == 10.0


def test_a_file_that_grows_is_waited_for(tmp_path: Path) -> None:
    options = log(tmp_path, "time,watts", "0,10", "1,10")
    assert options.file is not None

    def rows() -> Iterator[str]:
        yield "2,10\n3,1"  # the last line is being written: it will be 3,100
        yield "00\n"

    growth = rows()

    def grow() -> None:
        with options.file.open("a") as file:  # type: ignore[union-attr]
            file.write(next(growth))

    assert External(options, wall(0.0, 3.0, grow=grow)).joules() == 20.0 + 55.0


def test_a_moment_can_be_marked_and_asked_for_later(tmp_path: Path) -> None:
    options = log(tmp_path, "time,watts", "0,10", "1,10")
    meter = External(options, wall(0.0, 2.0, 4.0))
    first, last = meter.mark(), meter.mark()
    log(tmp_path, "time,watts", "0,10", "1,10", "3,20", "5,20")  # the logger has caught up
    assert (first(), last()) == (10 + 12.5, 10 + 30 + 20)


def test_a_logger_that_stops_is_named(tmp_path: Path) -> None:
    meter = External(log(tmp_path, "time,watts", "0,10", "1,10"), wall(0.0, 9.0))
    with pytest.raises(MeterError, match=r"no row later than 8 s before .* keep the logger"):
        meter.joules()


def test_a_gap_and_a_late_beginning_are_refused(tmp_path: Path) -> None:
    options = log(tmp_path, "time,watts", "5,10", "6,10", "16,10", "17,10")
    with pytest.raises(MeterError, match=r"no row for 10\.0 s"):
        External(options, wall(5.0, 17.0)).joules()
    with pytest.raises(MeterError, match=r"begins 4\.0 s after"):
        External(options, wall(1.0, 6.0)).joules()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["time,watts", "0,-3", "1,2"], "-3 W is negative"),
        (["time,watts", "0,nan", "1,2"], "not a finite number"),
        (["time,watts", "0,much", "1,2"], "column 'watts'"),
        (["time,watts", "1,3", "0,2"], "row 3: its time is not after"),
        (["time,watts", "noon,3", "1,2"], "'noon' is no time"),
        (["time,watts", "2026-01-31T12:00:00,3", "1,2"], "with its zone"),
        (["time,watts", "inf,3", "1,2"], "no time"),
        (["when,watts", "0,3"], "no column 'time'"),
        (["time,volts", "0,3"], "no column 'watts'"),
        (["time,watts"], "no rows"),
    ],
)
def test_nonsense_in_a_file_is_refused_when_it_is_opened(
    tmp_path: Path, lines: list[str], words: str
) -> None:
    with pytest.raises(JoulemeshError, match=words):
        External(log(tmp_path, *lines), wall(0.0))


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot read"):
        open_meter(str(tmp_path / "none.csv"))
    with pytest.raises(ScenarioError, match="needs a file"):
        open_meter("csv")


def test_what_the_user_gives_is_chosen(tmp_path: Path) -> None:
    given = choose(MeterOptions(watts=2.0))
    assert given.kind is METERS["declared"]
    assert given.reason == "2 W are declared"
    assert choose(MeterOptions(file=tmp_path / "plug.csv")).kind is METERS["csv"]


def test_an_unknown_meter_is_refused() -> None:
    with pytest.raises(ScenarioError, match="meter 'declard' is unknown; did you mean 'declared'"):
        open_meter("declard")
