"""Fig. 8: training loss and test accuracy of adaptive, fixed and inverse rounds, CNN on CIFAR-10.

(a) T = 400 and 4 rounds on average: adaptive (Theorem 4, corrected), fixed 4, inverse, and the
exact optimum of (P42), backfill. (b) τ_total = 300: adaptive, fixed 3 (100 iterations), fixed 6
(50), and backfill and inverse. The uniform policy with these totals is the fixed one: one run.
Both with i.i.d. data, and with label skew.

Full scale, 5 seeds: 2 partitions × (4 × 1600 + 5 × 300) × 20 × 5 = 1.58 M CNN device-steps. One
program (exact mean, 20 devices) serves all 18 curves: rounds are traced.
"""

from __future__ import annotations

__all__ = ["CONFIG", "QUICK", "Budget", "Config", "pictures", "run", "setup"]

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.planning.policy import allocate
from joulemesh.registries import POLICIES
from joulemesh.scenario import PlanOptions
from joulemesh.study.record import Entry
from yan_li_2024.claims import Finding, judge
from yan_li_2024.jobs import Job, planned
from yan_li_2024.outcome import SHARE, Outcome, Panel, Picture, Row, band, lines
from yan_li_2024.runner import Runner
from yan_li_2024.sentences import claim
from yan_li_2024.stage import CIFAR, DIGITS, Task, curve_rows, skew_words

ACCURACY, LOSS = "test_accuracy", "train_loss"
ADAPTIVE, INVERSE, OPTIMUM = "adaptive (theorem 4)", "inverse", "optimum of (P42)"


@dataclass(frozen=True)
class Budget:
    """One half of the figure.

    Attributes:
        total: τ_total, the same for all devices.
        cap: τ_0. Open in the paper (notes: open-settings).
        fixed: rounds of the fixed schemes; each runs total/rounds iterations.
        iterations: n of the others. In (b) the adaptive scheme's is not stated: that of the first
            fixed scheme.
        evaluations: points of a curve.
    """

    total: int
    cap: int
    fixed: tuple[int, ...]
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        task: CNN on CIFAR-10.
        devices: N = 20.
        halves: (a) and (b).
        zeta: ζ = 400 (the text). With T = 400 eq. `optt` is 0/0, and its limit is harmonic (notes:
            water-filling).
        partitions: the paper does not say which; i.i.d., and label skew (notes: open-settings).
        chunk: iterations in one call of the program.
    """

    task: Task = CIFAR
    devices: int = 20
    halves: tuple[Budget, ...] = (
        Budget(1600, 20, (4,), 400, 8),
        Budget(300, 10, (3, 6), 100, 5),
    )
    zeta: float = 400.0
    partitions: tuple[str, ...] = ("iid", "dirichlet 0.1")
    chunk: int = 10


CONFIG = Config()
QUICK = Config(
    task=DIGITS,
    devices=6,
    halves=(Budget(48, 8, (3,), 16, 4), Budget(24, 6, (2, 4), 12, 3)),
    chunk=3,
)

Curves = dict[tuple[int, str, str], Entry]
"""By half, partition and scheme."""


def _fixed(rounds: int) -> str:
    return f"fixed {rounds}"


def schedules(config: Config, half: Budget) -> dict[str, NDArray[np.int64]]:
    """The rounds [n] of every scheme.

    >>> made = schedules(CONFIG, CONFIG.halves[1])
    >>> {name: (len(rounds), int(rounds.sum())) for name, rounds in made.items()}["fixed 6"]
    (50, 300)
    """

    def policy(name: str) -> NDArray[np.int64]:
        options = PlanOptions(zeta=config.zeta)
        return allocate(POLICIES[name], half.iterations, half.total, half.cap, options=options)

    made = {ADAPTIVE: policy("theorem4")}
    made |= {_fixed(rounds): np.full(half.total // rounds, rounds) for rounds in half.fixed}
    return made | {INVERSE: policy("inverse"), OPTIMUM: policy("backfill")}


def _curves(config: Config, runner: Runner) -> Curves:
    keys, jobs = [], list[Job]()
    for (number, half), partition in product(enumerate(config.halves), config.partitions):
        for scheme, rounds in schedules(config, half).items():
            scenario = config.task.scenario(
                config.devices,
                partition=partition,
                eval_every=max(1, len(rounds) // half.evaluations),
                chunk=config.chunk,
            )
            keys.append((number, partition, scheme))
            jobs.append(planned(f"{'ab'[number]} {partition} {scheme}", scenario, rounds))
    found = runner.train(jobs)
    return {key: found[job.label] for key, job in zip(keys, jobs, strict=True)}


def _findings(config: Config, curves: Curves) -> tuple[Finding, ...]:
    def better(
        half: int, one: str, others: list[str], partitions: Any, what: str = ACCURACY
    ) -> Any:
        sign = -1 if what == LOSS else 1
        return {
            f"{one} against {other}, {partition}": sign
            * (
                curves[half, partition, one].final[what]
                - curves[half, partition, other].final[what]
            )
            for partition, other in product(partitions, others)
        }

    plain, every = config.partitions[:1], config.partitions
    first = _fixed(config.halves[0].fixed[0])
    three, six = (_fixed(rounds) for rounds in config.halves[1].fixed)
    rivals = [first, INVERSE]
    damage = {
        f"{first}, {skewed}": curves[0, plain[0], first].final[ACCURACY]
        - curves[0, skewed, first].final[ACCURACY]
        for skewed in every[1:]
    }
    skew = " and ".join(map(skew_words, every[1:]))
    run = {"n": config.halves[0].iterations, "skew": skew}
    one, other = (f"{r} rounds × {config.halves[1].total // r}" for r in config.halves[1].fixed)
    totals = {"first": f"{one} iterations", "second": other, "skew": skew}
    return (
        judge(claim("fig8-adaptive-best", **run), better(0, ADAPTIVE, rivals, plain)),
        judge(claim("fig8-adaptive-best-skewed", **run), better(0, ADAPTIVE, rivals, every[1:])),
        judge(claim("fig8-adaptive-loss", **run), better(0, ADAPTIVE, rivals, every, LOSS)),
        judge(claim("fig8-inverse-worse", **run), better(0, first, [INVERSE], every)),
        judge(claim("fig8-excessive", **totals), better(1, three, [six], every)),
        judge(
            claim("fig8-adaptive-300", n=config.halves[1].iterations, **totals),
            better(1, ADAPTIVE, [three, six], every),
        ),
        judge(claim("noniid-damage", fixed=first, **run), damage),
    )


def pictures(config: Config, rows: Sequence[Row]) -> tuple[Picture, ...]:
    """The figure, from its rows."""
    labels = {LOSS: "training loss", ACCURACY: "test accuracy"}
    curves = {what: lines(rows, ("tau_total", "partition", "scheme"), what) for what in labels}
    cases = product(config.partitions, config.halves, labels)
    panels = []
    for letter, (partition, budget, what) in zip("abcdefgh", cases, strict=False):
        series = tuple(
            band(scheme, *line)
            for (total, how, scheme), line in curves[what].items()
            if (total, how) == (str(budget.total), partition)
        )
        title = f"({letter})  Στ = {budget.total}, {skew_words(partition)}"
        within = SHARE if what == ACCURACY else (0.0, np.inf)
        panels.append(Panel(title, "iteration", labels[what], series, within=within))
    title = f"Allocation of local rounds, {config.task.title}, ζ = {config.zeta:g}"
    return (Picture("fig8", title, tuple(panels), 4, share="col"),)


def setup(config: Config) -> str:
    """What was run, and what the paper leaves open."""
    first, second = config.halves
    kinds = " and with ".join(f"{skew_words(kind)} labels" for kind in config.partitions)
    return (
        f"{config.task.title}, {config.devices} devices, exact averaging, with {kinds}. "
        f"Left: {first.total:,} rounds over {first.iterations} iterations, at most {first.cap} in "
        f"one. Right: {second.total} rounds, at most {second.cap} in one; the fixed schemes run "
        "as many iterations as that pays for. ζ is the paper's. Open in the paper: the caps, the "
        "labels, the adaptive scheme's number of iterations on the right (here "
        f"{second.iterations}). Theorem 4 is used as corrected; the optimum of (P42) is drawn too."
    )


def run(config: Config, runner: Runner) -> Outcome:
    """Train the curves of the figure."""
    curves = _curves(config, runner)
    rows: list[Row] = []
    for (number, partition, scheme), entry in curves.items():
        half = config.halves[number]
        where = {"tau_total": half.total, "partition": partition, "scheme": scheme}
        rows += curve_rows(where, entry, runner.seeds)
    notes = ("the uniform policy with these totals is the fixed scheme",)
    drawn, findings = pictures(config, rows), _findings(config, curves)
    return Outcome("fig8", rows, drawn, findings, notes, setup(config))
