"""Fig. 6: iterations to accuracy 0.5 with different numbers of devices, CNN on CIFAR-10.

(a) exact averaging: on a ring and on a quasi-ring every device ends with the same mean, so the two
panels of the paper are one and the same learning, done once. (b) ring and (c) quasi-ring with one
Metropolis round in place of the exact mean: there the topology matters.

Full scale, 5 seeds: (80 + 2 × 50) × 120 × 5 × 5 = 0.54 M CNN device-steps (1.0 M with padding).
One program serves all 11 curves: they are padded to 31 devices, and the exact mean is written as
a mixing matrix too.
"""

from __future__ import annotations

__all__ = ["CONFIG", "QUICK", "Config", "iterations_to", "pictures", "run", "setup"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.methods import Setting
from joulemesh.study.record import Entry
from yan_li_2024.claims import Finding, judge
from yan_li_2024.jobs import Job, planned
from yan_li_2024.outcome import SHARE, Outcome, Panel, Picture, Row, band, lines
from yan_li_2024.runner import Runner
from yan_li_2024.sentences import claim
from yan_li_2024.stage import CIFAR, DIGITS, Task, skew_words

ACCURACY = "test_accuracy"
EXACT = "exact averaging"


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        task: CNN on CIFAR-10.
        devices: N of exact averaging: the text has 5, 10, 15 and 20, the discussion 15 and 30
            (notes: figures-and-their-text).
        mixed_devices: N of the Metropolis curves.
        few, many: the two that the discussion compares.
        target: "converged after its test accuracy is more than 0.5".
        iterations: n, enough to reach it.
        rounds: τ in every iteration, fixed so that nothing but N and topology differ.
        mixings: Metropolis rounds of an exchange.
        partition: the paper does not say non-i.i.d. here.
        evaluations: points of a curve; the crossing is interpolated between them.
        chunk: iterations in one call of the program.
    """

    task: Task = CIFAR
    devices: tuple[int, ...] = (5, 10, 15, 20, 30)
    mixed_devices: tuple[int, ...] = (5, 15, 30)
    few: int = 15
    many: int = 30
    target: float = 0.5
    iterations: int = 120
    rounds: int = 5
    mixings: int = 1
    partition: str = "iid"
    evaluations: int = 12
    chunk: int = 10


CONFIG = Config()
QUICK = Config(
    task=DIGITS,
    devices=(3, 4, 6),
    mixed_devices=(4, 6),
    few=4,
    many=6,
    iterations=16,
    rounds=2,
    evaluations=4,
    chunk=3,
)

Curves = dict[tuple[str, int], Entry]
"""By averaging and N."""


def iterations_to(entry: Entry, target: float) -> NDArray[np.float64]:
    """Iterations after which each seed's accuracy first reaches a target, interpolated; [S].

    A seed that never does counts as the whole run, which is a lower bound. Training starts from
    an untrained model, taken to have accuracy 0.1.
    """
    x = np.concatenate([[0.0], entry.iteration])
    reached = []
    for curve in entry.curves[ACCURACY].T:
        y = np.concatenate([[0.1], curve])
        there = np.flatnonzero(y >= target)
        if np.isnan(y).any():
            reached.append(np.nan)
        elif not len(there):
            reached.append(x[-1])
        else:
            k = max(int(there[0]), 1)
            share = np.clip((target - y[k - 1]) / (y[k] - y[k - 1]), 0, 1) if y[k] > y[k - 1] else 1
            reached.append(x[k - 1] + share * (x[k] - x[k - 1]))
    return np.array(reached)


def _job(config: Config, averaging: str, devices: int) -> Job:
    changes: dict[str, Any] = {}
    if averaging != EXACT:
        changes = {
            "topology": averaging.split(",")[0],
            "plan__aggregation": "metropolis",
            "plan__gossip_rounds": config.mixings,
        }
    scenario = config.task.scenario(
        devices,
        partition=config.partition,
        eval_every=config.iterations // config.evaluations,
        chunk=config.chunk,
        device_samples=100,  # the mean model is looked at here
        **changes,
    )
    mixing = np.full((1, devices, devices), 1 / devices)
    if averaging != EXACT:
        mixing = Setting(scenario).scheme.mixing(0, 1)
    return planned(
        f"{averaging} N = {devices}",
        scenario,
        np.full(config.iterations, config.rounds),
        mixing=mixing,
        padded_to=max(config.devices) + 1,
    )


def _kinds(config: Config) -> dict[str, tuple[int, ...]]:
    mixed = f"{config.mixings} Metropolis round" + ("s" if config.mixings > 1 else "")
    return {
        EXACT: config.devices,
        f"ring, {mixed}": config.mixed_devices,
        f"quasi-ring, {mixed}": config.mixed_devices,
    }


def _findings(config: Config, curves: Curves) -> tuple[Finding, ...]:
    when = {key: iterations_to(entry, config.target) for key, entry in curves.items()}
    longer = {
        kind: when[kind, config.many] - when[kind, config.few]
        for kind, counts in _kinds(config).items()
        if {config.few, config.many} <= set(counts)
    }
    late = sum(int((times >= config.iterations).sum()) for times in when.values())
    note = f"{late} runs did not reach {config.target:g}" if late else ""
    run = {"few": config.few, "many": config.many, "target": config.target}
    exact = {EXACT: longer.pop(EXACT)}
    return (
        judge(claim("fig6-fewer-faster", **run), exact, note=note),
        judge(claim("fig6-fewer-faster-gossip", **run), longer, note=note),
    )


def pictures(config: Config, rows: Sequence[Row]) -> tuple[Picture, ...]:
    """The figure, from its rows."""
    kinds = _kinds(config)
    curves = lines(rows, ("averaging", "devices"), ACCURACY)
    panels = [
        Panel(
            f"({letter})  {kind}" + (" (ring, quasi-ring)" if kind == EXACT else ""),
            "iteration",
            "test accuracy, mean model",
            tuple(band(f"N = {n}", *curves[kind, str(n)]) for n in counts),
            level=config.target,
            within=SHARE,
        )
        for letter, (kind, counts) in zip("abc", kinds.items(), strict=True)
    ]
    needed = lines(rows, ("averaging", "devices"), "iterations_to_target")
    label = f"iterations to {config.target:g}"
    series = tuple(
        band(kind, counts, [needed[kind, str(n)][1][0] for n in counts])
        for kind, counts in kinds.items()
    )
    limits = (0.0, float(config.iterations))
    panels.append(Panel(f"(d)  {label}", "devices N", label, series, marks=True, within=limits))
    title = f"Iterations to accuracy {config.target:g}, {config.task.title}"
    bands = "bands and bars: 95 % t interval over seeds"
    return (Picture("fig6", title, tuple(panels), 2, bands=bands),)


def setup(config: Config) -> str:
    """What was run, and what the paper leaves open."""
    counts = ", ".join(map(str, config.devices))
    return (
        f"{config.task.title}, N = {counts}, {skew_words(config.partition)} labels, "
        f"{config.rounds} rounds in each of {config.iterations} iterations, one global data set "
        "shared out. The crossing is interpolated between evaluations; a run that never gets "
        f"there counts as {config.iterations} iterations, a lower bound. The text names N = 5 to "
        "20 and discusses 15 and 30; rounds and learning rate are open."
    )


def run(config: Config, runner: Runner) -> Outcome:
    """Train the curves of the figure."""
    keys = [(kind, devices) for kind, counts in _kinds(config).items() for devices in counts]
    jobs = [_job(config, *key) for key in keys]
    found = runner.train(jobs)
    curves: Curves = {key: found[job.label] for key, job in zip(keys, jobs, strict=True)}
    rows: list[Row] = []
    for (kind, devices), entry in curves.items():
        needed = iterations_to(entry, config.target)
        for s, seed in enumerate(runner.seeds):
            for k, iteration in enumerate(entry.iteration.tolist()):
                rows.append(
                    {
                        "averaging": kind,
                        "devices": devices,
                        "seed": seed,
                        "iteration": iteration,
                        ACCURACY: float(entry.curves[ACCURACY][k, s]),
                        "iterations_to_target": float(needed[s]),
                    }
                )
    notes = ("exact averaging makes ring and quasi-ring the same learning: it is run once",)
    drawn, findings = pictures(config, rows), _findings(config, curves)
    return Outcome("fig6", rows, drawn, findings, notes, setup(config))
