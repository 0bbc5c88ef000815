"""What `deploy local` and `deploy emulate` share: a fleet of processes, seen to its end."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from joulemesh.base.printable import say

if TYPE_CHECKING:
    from joulemesh.deploy.fleet.fleet import Fleet
    from joulemesh.deploy.local.local import LocalFleet
    from joulemesh.planning.plan import Plan
    from joulemesh.scenario import Scenario

__all__ = ["Wanted", "carry_out"]

_INCOMPLETE, _INTERRUPTED = 3, 130
_EQUAL = 1e-5  # in float32, where sums are made in another order
_START_S = 10.0  # of each device, where all share a few cores


@dataclass(frozen=True)
class Wanted:
    """A fleet that is to be carried out on this machine.

    Attributes:
        folder: of the fleet.
        fleet: what it holds.
        plan: what it carries out.
        code: the user's own files.
    """

    folder: Path
    fleet: Fleet
    plan: Plan
    code: Sequence[Path]

    @classmethod
    def of(
        cls,
        scenario: Scenario,
        folder: Path,
        *,
        patience: str,
        on_failure: Literal["go-on", "stop"],
        code: Sequence[Path],
        slow_down: float = 1.0,
    ) -> Wanted:
        """Plan a scenario and pack it, or take up the fleet that is there."""
        from joulemesh.base.units import parse
        from joulemesh.deploy.local.local import open_fleet
        from joulemesh.deploy.settings import Settings
        from joulemesh.planning.static import plan

        usual = Settings()
        settings = replace(
            usual,
            patience_s=parse(patience, "s"),
            on_failure=on_failure,
            slack=usual.slack * slow_down,  # deadlines of messages count in the plan's seconds
            starting_s=max(usual.starting_s, _START_S * scenario.devices.count),
        )
        made = plan(scenario)
        fleet, there = open_fleet(folder, made, settings=settings, code=code)
        say(f"{'goes on with' if there else 'packed'} {folder}: {made!r}", err=True)
        return cls(folder, fleet, made, code)


def carry_out(
    wanted: Wanted, running: LocalFleet, *, report: bool, as_json: bool, more: Any = None
) -> None:
    """Run a fleet, show it, report on it, and say what came of it.

    Args:
        wanted: the fleet.
        running: its processes.
        report: whether to simulate the plan and write the page.
        as_json: print the outcome as JSON.
        more: makes further figures of the outcome, by name, and prints them unless ``as_json``.
    """
    from joulemesh.views.deployment.tables import FleetDisplay

    begun = time.monotonic()
    with FleetDisplay(quiet=as_json) as display:
        running.run(display.show)
    outcome = _outcome(running, time.monotonic() - begun)
    if report and any(one["iteration"] for one in outcome["devices"]):
        outcome.update(_reported(wanted, simulate=running.learner is None))
    if more is not None:
        outcome.update(more(not as_json))
    if as_json:
        print(json.dumps(outcome, allow_nan=False))
    else:
        _tell(outcome, running)
    if not running.complete:
        raise typer.Exit(_INTERRUPTED if running.supervisor.stopping else _INCOMPLETE)


def _outcome(running: LocalFleet, seconds: float) -> dict[str, Any]:
    standings = running.standings()
    states = [process.state for process in running.processes]
    return {
        "folder": str(running.folder),
        "complete": running.complete,
        "seconds": round(seconds, 3),
        "charged_j": sum(one.spent_j for one in standings),
        "planned_j": float(running.plan.spent_j.sum()),
        "planned_s": running.plan.time_s,
        "iteration_s": _pace(running),
        "restarts": sum(process.restarts for process in running.processes),
        "devices": [
            {**asdict(one), "process": state} for one, state in zip(standings, states, strict=True)
        ],
    }


def _pace(running: LocalFleet) -> dict[str, float | None]:
    """Mean seconds of an iteration, planned and on this machine."""
    from joulemesh.deploy.record.costs import planned
    from joulemesh.deploy.record.pace import mean_iteration_s

    both = mean_iteration_s(running.histories(), planned(running.plan))
    found = dict(zip(("planned", "measured"), both, strict=True))
    found["ratio"] = found["measured"] / found["planned"] if found["planned"] else math.nan
    return {name: one if math.isfinite(one) else None for name, one in found.items()}


def _reported(wanted: Wanted, *, simulate: bool) -> dict[str, Any]:
    """The report, and how far the parameters are from the simulated ones."""
    from joulemesh.deploy.local.equality import largest_difference
    from joulemesh.study.deployment import SIMULATED, report_of_fleet

    made = report_of_fleet(wanted.folder, simulate=simulate)
    model = wanted.folder / SIMULATED / "model.safetensors"
    apart = largest_difference(wanted.folder, wanted.fleet, model) if model.is_file() else None
    return {
        "report": str(made.page),
        "sentence": made.sentence,
        "notes": list(made.notes),
        "largest_difference": apart,
    }


def _tell(outcome: dict[str, Any], running: LocalFleet) -> None:
    from joulemesh.base.units import duration, energy

    charged, planned = outcome["charged_j"], outcome["planned_j"]
    say(
        f"{energy(charged)} charged, {energy(planned)} planned; "
        f"the devices ran for {duration(outcome['seconds'])} here, their start included, and "
        f"{duration(outcome['planned_s'])} on the plan's clock"
    )
    pace = outcome["iteration_s"]
    if pace["ratio"] is not None:
        say(
            f"a mean iteration took {duration(pace['measured'])} here and "
            f"{duration(pace['planned'])} on the plan's clock: {pace['ratio']:.3g} times"
        )
    apart = outcome.get("largest_difference")
    if apart is not None:
        equal = "equal" if apart <= _EQUAL else "not equal"
        say(f"mean parameters {equal} to the simulated ones: the largest difference is {apart:.1e}")
    if "report" in outcome:
        for words in (outcome["sentence"], *outcome["notes"], f"wrote {outcome['report']}"):
            say(words)
    for one in running.processes:
        if one.state in ("lost", "refused", "ended"):
            say(f"{one.job.name}: {one.last_words()} (see {one.job.log})", err=True)
    if not outcome["complete"]:
        again = shlex.join(["joulemesh", *sys.argv[1:]])
        say(f"stopped before the end; to go on: {again}", err=True)
