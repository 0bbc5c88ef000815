"""A scenario with the figures of this machine in the place of modelled ones: files to keep."""

from __future__ import annotations

__all__ = ["SCENARIO", "Outcome", "calibrate_fleet"]

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.links.figures import Rule
from joulemesh.deploy.links.table import row_of, update_links
from joulemesh.deploy.links.whole import LinkFigures
from joulemesh.deploy.local.rehearsal import (
    Measures,
    Pace,
    Watch,
    measures_of,
    rehearse,
    rehearsed,
)
from joulemesh.errors import JoulemeshError
from joulemesh.files import make_folder, write_text
from joulemesh.machine import cpus
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan as make_plan
from joulemesh.scenario import Scenario
from joulemesh.scenario.measured import REPLACED
from joulemesh.tables import read_table
from joulemesh.units import duration

SCENARIO, DEVICES, LINKS = "scenario.toml", "devices.csv", "links.csv"
_FEW = 1
_ITERATIONS = 24
_TRAINING_S = 0.4  # that the many rounds should take: what noise there is shall be small beside it
_FEWEST, _MOST = 8, 2000
_LONGER, _MORE = 3, 8  # times as long they must take, or else they are so many times more


@dataclass(frozen=True)
class Outcome:
    """What was measured, and the scenario that has it.

    Attributes:
        scenario: with the measured figures.
        path: of its file.
        measures: of the fleet on this machine.
        overhead_s: seconds of an iteration besides rounds and messages.
        notes: what to know about the figures, in sentences.
    """

    scenario: Scenario
    path: Path
    measures: Measures
    overhead_s: float
    notes: tuple[str, ...]


def calibrate_fleet(
    scenario: Scenario,
    folder: Path,
    *,
    code: Sequence[Path] = (),
    watch: Watch = lambda standings: None,
    say: Callable[[str], None] = lambda words: None,
) -> Outcome:
    """Measure a fleet of processes on this machine, and write a scenario with what was found.

    Joules stay as the scenario has them: processes of one machine have no battery of their own.

    Args:
        scenario: to be calibrated.
        folder: for the rehearsals and the files; a new one.
        code: the user's own files.
        watch: shown how all devices stand.
        say: told of each step.

    Raises:
        JoulemeshError: a device could not carry out its part, or the machine was too busy.
    """
    make_folder(folder)
    bits = make_plan(rehearsed(scenario, _FEW, 1)).work.model_bits
    rule = Rule(int(-(-bits // 8)), within=0.1, seconds=1.5)
    few, links = rehearse(
        scenario,
        folder / "few",
        rounds=_FEW,
        iterations=_ITERATIONS,
        code=code,
        watch=watch,
        rule=rule,
    )
    say(f"an iteration with {_FEW} round takes {duration(few.mean_s)}; links are measured")
    rounds = int(np.clip(round(_TRAINING_S / _expected_s(folder / "few")), _FEWEST, _MOST))
    while True:
        place = folder / f"many-{rounds}"
        many, _ = rehearse(
            scenario, place, rounds=rounds, iterations=_ITERATIONS, code=code, watch=watch
        )
        say(f"an iteration with {rounds} rounds takes {duration(many.mean_s)}")
        if many.mean_s > _LONGER * few.mean_s or rounds >= _MOST:
            return _outcome(scenario, folder, few, many, links)
        rounds = min(_MORE * rounds, _MOST)


def _expected_s(folder: Path) -> float:
    """About how long a round takes while all devices train, by a few rounds of one device here."""
    from joulemesh.deploy.device.simulated import simulated_learner

    fleet = Fleet.load(folder)
    learner, rounds = simulated_learner(fleet, 0), 16
    learner.prepare()
    taken = []
    for iteration in range(1, 7):
        begun = time.perf_counter()
        learner.train(iteration, rounds)
        learner.parameters()  # waits for it
        taken.append(time.perf_counter() - begun)
    return min(taken) / rounds * max(1.0, len(fleet.names) / cpus())


def _outcome(
    scenario: Scenario, folder: Path, few: Pace, many: Pace, links: Sequence[LinkFigures]
) -> Outcome:
    lost = next((one for one in links if one.trouble), None)
    if lost is not None:
        raise JoulemeshError(f"the link {lost.i}-{lost.j} was not measured: {lost.trouble}")
    found = measures_of(few, many)
    update_links(folder / LINKS, [row_of(one, "alone") for one in links])
    _write_devices(scenario, folder / DEVICES, few.plan, found, 0.0)
    path = _write_scenario(scenario, folder)
    # What messages take at the measured rates is the plan's own business; the rest is overhead.
    exchange_s = float(np.mean(make_plan(rehearsed(Scenario.load(path), _FEW, 2)).exchange_s))
    overhead_s = max(0.0, found.rest_s - exchange_s)
    _write_devices(scenario, folder / DEVICES, few.plan, found, overhead_s)
    path = _write_scenario(scenario, folder)
    notes = []
    if found.step_half_s > 0.1 * found.step_s:
        notes.append(
            f"a step takes {duration(found.step_s)} ± {duration(found.step_half_s)}, a wide "
            "interval: calibrate again while nothing else runs on this machine"
        )
    if exchange_s > found.rest_s:
        notes.append(
            f"messages alone take {duration(exchange_s)} at the measured rates, more than the "
            f"{duration(found.rest_s)} that an iteration took besides its rounds"
        )
    return Outcome(Scenario.load(path), path, found, overhead_s, tuple(notes))


def _write_devices(
    scenario: Scenario, path: Path, plan: Plan, found: Measures, overhead_s: float
) -> None:
    """The table of devices: what it was, with the measured columns."""
    world, count = plan.ground.world.devices, scenario.devices.count
    steps = np.ones(count)
    if scenario.training.local_round == "epoch":
        steps = np.ceil(plan.work.round_samples / scenario.training.batch_size)
    table = scenario.devices.table
    columns: dict[str, list[str]] = {} if table is None else dict(read_table(table))
    for name in ("cycles_per_sample", "cpu_hz", "capacitance", "profile"):
        columns.pop(name, None)
    source = f"measured, {count} processes at once"
    figures: dict[str, tuple[Any, Any, str]] = {
        "step_s": (found.step_s / steps, found.step_half_s / steps, source),
        "step_j": (world.round_energy_j / steps, None, "as modelled"),
    }
    if overhead_s > 0:
        figures["overhead_s"] = (np.full(count, overhead_s), found.rest_half_s, source)
    for name, (values, half, words) in figures.items():
        columns[name] = [f"{one:.6g}" for one in values]
        if half is not None:
            halves = np.broadcast_to(half, count)
            low, high = np.maximum(values - halves, values / 10), values + halves
            columns[f"{name}_low"] = [f"{one:.6g}" for one in low]
            columns[f"{name}_high"] = [f"{one:.6g}" for one in high]
        columns[f"{name}_source"] = [words] * count
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    write_text(path, text.getvalue())


def _write_scenario(scenario: Scenario, folder: Path) -> Path:
    """The scenario with the measured files in the place of what they replace."""
    values: dict[str, Any] = scenario.model_dump(mode="json", exclude_defaults=True)
    for field in REPLACED:
        section, _, name = field.partition(".")
        values.get(section, {}).pop(name, None)
    values.setdefault("network", {}).pop("topology", None)
    home = folder.absolute()
    values.setdefault("devices", {}).pop("count", None)
    values["devices"]["table"] = str(home / DEVICES)
    values["network"]["links"] = str(home / LINKS)
    path = folder / SCENARIO
    text = Scenario(**values).to_toml()
    write_text(path, text.replace(f'"{home}/', '"'))
    return path
