"""The page of calibrations is what its records give, and says truly what covers what."""

from __future__ import annotations

from typing import Any

from benchmarks.calibration import PAGE, checks, page, records


def test_the_page_is_written_from_its_records() -> None:
    """`python -m benchmarks.calibration --page` writes it."""
    assert PAGE.read_text("utf-8") == page(records())


def run(mean: float, half: float, source: str = "measured", blocks: int = 8) -> dict[str, Any]:
    figure = {"mean": mean, "low": mean - half, "high": mean + half, "blocks": blocks}
    return {"step_s": {**figure, "source": source}, "step_j": None, "idle_w": None}


def test_an_interval_is_held_against_the_next_run() -> None:
    runs = [run(1.0, 0.1), run(1.05, 0.01), run(1.2, 0.1)]
    assert checks(runs) == [("step_s", 1, True), ("step_s", 2, False)]


def test_declared_watts_are_not_counted_twice() -> None:
    runs = [run(1.0, 0.1), run(1.05, 0.1)]
    for one in runs:
        one["step_j"] = {**one["step_s"], "source": "declared 6.5 W"}
        one["idle_w"] = {**one["step_s"], "blocks": 0}
    assert checks(runs) == [("step_s", 1, True)]
