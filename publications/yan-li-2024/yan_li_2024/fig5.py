"""Fig. 5: accuracy against iterations with different numbers of devices, non-i.i.d. labels, MLP.

(a) MNIST, (b) Fashion-MNIST. The paper divides one global set among the devices, so that more
devices also hold fewer samples each; a second reading gives every device equally many whatever
their number (notes: number-of-devices). Both are drawn; the sentences are decided by the first,
because in the second fewer devices have less data in all.

Full scale, 5 seeds: 2 data sets × (5 + 10 + 20 + 40 + 5 + 10 + 20) × 400 × 5 × 5 = 2.2 M MLP
device-steps (5.7 M with padding); with the most devices both readings are the same run. One program
serves all curves: they are padded to 41 devices.
"""

from __future__ import annotations

__all__ = ["CONFIG", "QUICK", "Config", "pictures", "run", "setup"]

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from joulemesh.data.reading import spec
from joulemesh.study.record import Entry
from yan_li_2024.claims import Finding, judge
from yan_li_2024.jobs import Job, planned
from yan_li_2024.outcome import SHARE, Outcome, Panel, Picture, Row, band, lines
from yan_li_2024.runner import Runner
from yan_li_2024.sentences import claim
from yan_li_2024.stage import (
    DIGITS,
    FASHION,
    MNIST,
    Task,
    at,
    curve_rows,
    skew_words,
)

ACCURACY = "test_accuracy"
READINGS = {"global": "fixed global data", "local": "fixed data per device"}


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        tasks: those of the caption.
        devices: N; the paper's values are not legible from the text.
        iterations: n, large enough for the curves to flatten.
        rounds: τ in every iteration, fixed so that nothing but N differs.
        partition: "non-i.i.d." is all that the paper says: label skew by Dirichlet(0.1), within
            the range that is common (notes: open-settings).
        evaluations: points of a curve.
        chunk: iterations in one call of the program.
    """

    tasks: tuple[Task, ...] = (MNIST, FASHION)
    devices: tuple[int, ...] = (5, 10, 20, 40)
    iterations: int = 400
    rounds: int = 5
    partition: str = "dirichlet 0.1"
    evaluations: int = 10
    chunk: int = 10


CONFIG = Config()
QUICK = Config(tasks=(DIGITS,), devices=(3, 6), iterations=16, rounds=2, evaluations=4, chunk=3)

Curves = dict[tuple[str, str, int], Entry]
"""By task, reading and N."""


def _job(config: Config, task: Task, reading: str, devices: int) -> Job:
    share = spec(task.dataset).train // (devices if reading == "global" else max(config.devices))
    scenario = task.scenario(
        devices,
        partition=config.partition,
        each=share,
        eval_every=config.iterations // config.evaluations,
        chunk=config.chunk,
    )
    rounds = np.full(config.iterations, config.rounds)
    label = f"{task.title} {reading} N = {devices}"
    return planned(label, scenario, rounds, padded_to=max(config.devices) + 1)


def _curves(config: Config, runner: Runner) -> Curves:
    keys = list(product(config.tasks, READINGS, config.devices))
    jobs = [_job(config, *key) for key in keys]
    found = runner.train(jobs)
    return {
        (task.title, reading, devices): found[job.label]
        for (task, reading, devices), job in zip(keys, jobs, strict=True)
    }


def _findings(config: Config, curves: Curves) -> tuple[Finding, ...]:
    few, many = min(config.devices), max(config.devices)
    end = config.iterations

    def gaps(when: int) -> dict[str, NDArray[np.float64]]:
        # Of the reading with the same data in all: in the other, fewer devices have less data.
        ends = {n: {task.title: curves[task.title, "global", n] for task in config.tasks}
                for n in (few, many)}  # fmt: skip
        return {
            title: at(entry, ACCURACY, when) - at(ends[many][title], ACCURACY, when)
            for title, entry in ends[few].items()
        }

    late, half = gaps(end), gaps(end // 2)
    run = {"few": few, "many": many, "skew": skew_words(config.partition)}
    fewer = judge(claim("fig5-fewer", **run), late)
    stays = judge(
        claim("fig5-gap-stays", **run, end=end, half=end // 2),
        {key: late[key] - half[key] for key in late},
    )
    if fewer.verdict != "holds":  # what is not there cannot stay
        stays = replace(
            stays,
            verdict="undecided",
            detail=f"{stays.detail}; no gap is established to begin with",
        )
    return fewer, stays, judge(claim("noniid-damage-devices", **run), late)


def pictures(config: Config, rows: Sequence[Row]) -> tuple[Picture, ...]:
    """The figure, from its rows."""
    curves = lines(rows, ("task", "reading", "devices"), ACCURACY)
    panels = tuple(
        Panel(
            f"({letter})  {task.title}: {READINGS[reading]}",
            "iteration",
            "test accuracy",
            tuple(
                band(f"N = {devices}", *line)
                for (title, how, devices), line in curves.items()
                if (title, how) == (task.title, reading)
            ),
            within=SHARE,
        )
        for letter, (reading, task) in zip(
            "abcdefgh", product(READINGS, config.tasks), strict=False
        )
    )
    title = f"Number of devices N, {skew_words(config.partition)} labels"
    return (Picture("fig5", title, panels, len(config.tasks)),)


def setup(config: Config) -> str:
    """What was run, and what the paper leaves open."""
    tasks = " and ".join(task.title for task in config.tasks)
    counts = ", ".join(map(str, config.devices))
    shares = " and ".join(
        f"{spec(task.dataset).train // max(config.devices):,}" for task in config.tasks
    )
    return (
        f"{tasks}, N = {counts}, {skew_words(config.partition)} labels, exact averaging, "
        f"{config.rounds} rounds in each of {config.iterations} iterations. Open in the paper: N, "
        "the kind and degree of skew, rounds and iterations, and whether more devices share the "
        "same data or bring their own. Both readings are drawn: one global data set shared out, "
        f"and the same number of samples on each device whatever N ({shares}). The sentences are "
        "decided by the first: in the second fewer devices have less data in all."
    )


def run(config: Config, runner: Runner) -> Outcome:
    """Train the curves of the figure."""
    curves = _curves(config, runner)
    rows: list[Row] = []
    for (task, reading, devices), entry in curves.items():
        where = {"task": task, "reading": reading, "devices": devices}
        rows += curve_rows(where, entry, runner.seeds)
    drawn, findings = pictures(config, rows), _findings(config, curves)
    return Outcome("fig5", rows, drawn, findings, setup=setup(config))
