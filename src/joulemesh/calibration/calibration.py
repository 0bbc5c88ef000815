"""What a calibration has found."""

from __future__ import annotations

__all__ = ["FORMAT", "Calibration", "Work"]

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from joulemesh.calibration.blocks import Block
from joulemesh.calibration.conditions import Conditions
from joulemesh.calibration.figure import WIDE, Figure
from joulemesh.calibration.method import Method

FORMAT = 1


@dataclass(frozen=True)
class Work:
    """What was trained.

    Attributes:
        model: its name, or the user's learner.
        dataset: the samples.
        batch_size: samples of one step.
        steps_per_round: training steps in one local round.
        precision: in which it is computed.
    """

    model: str
    dataset: str
    batch_size: int
    steps_per_round: int = 1
    precision: str = ""


@dataclass(frozen=True)
class Calibration:
    """Seconds and joules of a training step, watts at rest, and how they were measured.

    Attributes:
        name: of the device.
        work: what was trained.
        step_s: seconds of a training step.
        step_j: joules of a training step above rest; None if nothing measures joules.
        step_total_j: joules of a training step in all, rest included.
        idle_w: watts at rest.
        train_w: watts while training, in all.
        overhead_s: seconds of a call of the learner beyond its steps: what an iteration takes even
            if its rounds are few. Saving and framing come on top where a fleet is deployed.
        meter: where joules come from, and why this meter; empty without one.
        method: how much was measured.
        rounds: local rounds in one call of the learner.
        blocks: all of them, in the order of time.
        conditions: the device at that time.
        notes: what a reader should know, one line each.
    """

    name: str
    work: Work
    step_s: Figure
    step_j: Figure | None
    step_total_j: Figure | None
    idle_w: Figure | None
    train_w: Figure | None
    overhead_s: Figure
    meter: str
    method: Method
    rounds: int
    blocks: tuple[Block, ...]
    conditions: Conditions
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, Figure]:
        """The figures that a scenario takes, by the names of its fields."""
        named = {
            "step_s": self.step_s,
            "step_j": self.step_j,
            "idle_w": self.idle_w,
            "overhead_s": self.overhead_s,
        }
        return {name: figure for name, figure in named.items() if figure is not None}

    @property
    def row(self) -> dict[str, str]:
        """Cells of the device's row in a table: each figure, its interval and its source."""
        cells = {"name": self.name}
        for name, figure in self.figures.items():
            cells[name] = f"{figure.mean:.6g}"
            cells[f"{name}_low"], cells[f"{name}_high"] = f"{figure.low:.6g}", f"{figure.high:.6g}"
            cells[f"{name}_source"] = figure.source
        return cells

    @property
    def wide(self) -> tuple[str, ...]:
        """Figures whose interval is wide, and what to do, one line each."""
        said = []
        for name, figure in self.figures.items():
            if figure.wide and figure is not self.overhead_s:  # which is small beside the rest
                said.append(
                    f"{name} is uncertain by {_percent(figure.relative)}, more than {WIDE:.0%}: "
                    f"{self._advice(name)}"
                )
        return tuple(said)

    def _advice(self, name: str) -> str:
        if name == "step_s" or self.step_s.wide:
            return (
                "something else uses the machine, or its clock changes: stop other programs, set "
                "the governor to performance, or measure longer (--samples, --block)"
            )
        return "measure longer (--block 30s --samples 16), and stop other programs"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"format": FORMAT, **asdict(self)}

    def to_json(self) -> str:
        """As JSON, with all blocks."""
        return json.dumps(self.to_dict(), indent=1) + "\n"


def _percent(share: float) -> str:
    return f"±{share:.0%}" if math.isfinite(share) else "an unknown amount"
