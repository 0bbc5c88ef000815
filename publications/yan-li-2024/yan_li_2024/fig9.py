"""Fig. 9: adaptive rounds against GL, Balanced DFL and PENS; 3, 5, 7 and 9 rounds per iteration.

(a)-(d) MNIST, MLP; (e)-(h) CIFAR-10, CNN. At equal iterations, as in the paper, and at equal
energy: batteries that just pay for the adaptive plan; every method runs until one is empty.

Full scale, 5 seeds, N = 20: at equal iterations (3 + 5 + 7 + 9) × 100 × 20 × 5 = 0.24 M
device-steps a method, four methods, for each model. At equal energy the adaptive runs are the same
ones; Balanced DFL pays for about 9 iterations, PENS for 36, GL's small messages for 300. In all
1.8 M MLP and 1.7 M CNN device-steps. Programs for each model: mean and dense (those of Figs. 4 and
8), GL's and PENS's exchanges.
"""

from __future__ import annotations

__all__ = [
    "CONFIG",
    "QUICK",
    "Arena",
    "Config",
    "calibrated",
    "contenders",
    "pictures",
    "run",
    "setup",
]

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.methods import Contender, Setting, build
from joulemesh.scenario import Scenario
from joulemesh.study.record import Entry
from yan_li_2024.claims import Finding, judge
from yan_li_2024.jobs import Job
from yan_li_2024.outcome import SHARE, Outcome, Panel, Picture, Row, band, lines
from yan_li_2024.runner import Runner
from yan_li_2024.sentences import claim
from yan_li_2024.stage import CIFAR, DIGITS, MNIST, Task, curve_rows, skew_words

ACCURACY = "device_accuracy_mean"  # methods that gossip leave the devices' models apart
ADAPTIVE = "adaptive"
EQUAL = ("iterations", "energy")


@dataclass(frozen=True)
class Arena:
    """One row of the figure.

    Attributes:
        task: what is learned.
        iterations: n of the adaptive plan; open in the paper.
        evaluations: points of a curve.
    """

    task: Task
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        arenas: MNIST and CIFAR-10.
        devices: N = 20.
        rounds: 3, 5, 7, 9 (the caption); the adaptive plan has the same total.
        topology: open in the paper; the 2-column grid of Section V-A, where PENS has neighbours to
            choose from (on a ring there are two; notes: baselines-of-fig-9).
        cap: τ_0 of the slowest device, in multiples of the rounds; open in the paper.
        fraction: s of GL; its authors' configuration (notes: baselines-of-fig-9).
        mixings: τ_2 of Balanced DFL; open in the paper (notes: baselines-of-fig-9).
        phase1: iterations in which PENS looks for partners; its authors' 20 (notes:
            baselines-of-fig-9).
        partition: the paper does not say non-i.i.d. here.
        chunk: iterations in one call of the program.
    """

    arenas: tuple[Arena, ...] = (Arena(MNIST, 100, 10), Arena(CIFAR, 100, 5))
    devices: int = 20
    rounds: tuple[int, ...] = (3, 5, 7, 9)
    topology: str = "grid"
    cap: float = 2.0
    fraction: float = 0.1
    mixings: int = 4
    phase1: int = 20
    partition: str = "iid"
    chunk: int = 10


CONFIG = Config()
QUICK = Config(
    arenas=(Arena(DIGITS, 8, 2), Arena(replace(DIGITS, title="digits again, MLP"), 6, 2)),
    devices=6,
    rounds=(2, 4),
    mixings=1,
    phase1=2,
    chunk=3,
)


def methods(config: Config, rounds: int) -> dict[str, str]:
    """Label and name of every method.

    >>> methods(CONFIG, 3)["balanced DFL"]
    'balanced:tau1=3,tau2=4'
    """
    return {
        ADAPTIVE: "adaptive",
        "GL": f"gossip-learning:s={config.fraction:g},tau={rounds}",
        "balanced DFL": f"balanced:tau1={rounds},tau2={config.mixings}",
        "PENS": f"pens:phase1={config.phase1},tau={rounds}",
    }


def calibrated(config: Config, arena: Arena, rounds: int) -> Scenario:
    """A scenario whose batteries just pay for n iterations of so many rounds, on the tree."""
    base = arena.task.scenario(
        config.devices,
        topology=config.topology,
        partition=config.partition,
        chunk=config.chunk,
        plan__iterations=arena.iterations,
    )
    setting = Setting(base)
    price = setting.pricer.scheme(setting.scheme, setting.costs(0), 0, 1)
    devices = setting.world.devices
    # Half a round to spare: what is affordable must not hang on rounding.
    steps_j = (arena.iterations * rounds + 0.5) * devices.round_energy_j
    battery_j = steps_j + arena.iterations * price.exchange_j[0]
    slowest_s = float(devices.round_latency_s.max())
    deadline_s = float(price.seconds[0]) + (config.cap * rounds + 0.5) * slowest_s
    return base.override(
        {"budget.energy_j": {"values": battery_j.tolist()}, "budget.deadline_s": deadline_s}
    )


def contenders(config: Config, scenario: Scenario, rounds: int, equal: str) -> dict[str, Contender]:
    """Every method, made ready; mixing matrices in one shape, so that they share a program."""
    setting = Setting(scenario, equal)
    made = {label: build(name, setting) for label, name in methods(config, rounds).items()}
    return {label: _wide(contender) for label, contender in made.items()}


def _wide(contender: Contender) -> Contender:
    """Give every iteration its own mixing matrix, as gossip has."""
    schedule, mixing = contender.schedule, contender.schedule.mixing
    if not isinstance(mixing, np.ndarray):
        return contender
    each = np.broadcast_to(mixing, (schedule.iterations, *mixing.shape[1:]))
    return replace(contender, schedule=replace(schedule, mixing=each))


Key = tuple[int, int, str, str]
"""Number of the arena, rounds, what is equal, method."""


def _jobs(config: Config) -> dict[Key, Job]:
    """Every curve. Of each data set's GL (and PENS) runs the first one's exchange serves all.

    PENS's exchange does not know the rounds. GL's counts them as ages, of which only ratios
    matter, and those are the same for any number of rounds.
    """
    jobs: dict[Key, Job] = {}
    exchanges: dict[tuple[str, str, str], Any] = {}
    for (number, arena), rounds in product(enumerate(config.arenas), config.rounds):
        scenario = calibrated(config, arena, rounds)
        for equal in EQUAL:
            for label, made in contenders(config, scenario, rounds, equal).items():
                if made.exchange is not None:
                    learned = (arena.task.dataset, arena.task.model, label)
                    shared = exchanges.setdefault(learned, made.exchange)
                    made = replace(made, exchange=shared)
                every = max(1, made.schedule.iterations // arena.evaluations)
                asked = scenario.override({"training.eval_every": every})
                # Equal energy is what the adaptive plan's batteries hold: one run serves both.
                terms = "iterations" if label == ADAPTIVE else equal
                name = f"{arena.task.title}, {rounds} rounds, equal {terms}, {label}"
                jobs[number, rounds, equal, label] = Job(name, asked, made)
    return jobs


def _gap(finals: dict[Key, NDArray[np.float64]], config: Config, number: int, rounds: int) -> Any:
    """Adaptive minus the mean of the baselines, at equal iterations; [S]."""
    rivals = [label for label in methods(config, rounds) if label != ADAPTIVE]
    baselines = [finals[number, rounds, "iterations", label] for label in rivals]
    return finals[number, rounds, "iterations", ADAPTIVE] - np.mean(baselines, axis=0)


def _findings(config: Config, curves: dict[Key, Entry]) -> tuple[Finding, ...]:
    finals = {key: entry.final[ACCURACY] for key, entry in curves.items()}
    titles = [arena.task.title for arena in config.arenas]
    few, many = min(config.rounds), max(config.rounds)

    def ahead(equal: str) -> dict[str, NDArray[np.float64]]:
        return {
            f"against {label}, {titles[number]}, {rounds} rounds": finals[
                number, rounds, equal, ADAPTIVE
            ]
            - finals[number, rounds, equal, label]
            for number, rounds, terms, label in curves
            if terms == equal and label != ADAPTIVE
        }

    narrows = {
        title: _gap(finals, config, number, few) - _gap(finals, config, number, many)
        for number, title in enumerate(titles)
    }
    pronounced = {
        f"{rounds} rounds": _gap(finals, config, 1, rounds) - _gap(finals, config, 0, rounds)
        for rounds in config.rounds
    }
    more = {
        title: finals[number, many, "iterations", ADAPTIVE]
        - finals[number, few, "iterations", ADAPTIVE]
        for number, title in enumerate(titles)
    }
    rounds_run = {"few": few, "many": many}
    tasks = {"simpler": titles[0], "harder": titles[1]}
    return (
        judge(claim("fig9-outperforms"), ahead("iterations")),
        judge(claim("fig9-outperforms-energy"), ahead("energy")),
        judge(claim("fig9-gap-narrows", **rounds_run), narrows),
        judge(claim("fig9-complex-tasks", **tasks), pronounced),
        judge(claim("more-rounds-help", **rounds_run), more),
    )


def pictures(config: Config, rows: Sequence[Row]) -> tuple[Picture, ...]:
    """Both figures, from the rows."""
    return tuple(_picture(config, rows, equal) for equal in EQUAL)


def _picture(config: Config, rows: Sequence[Row], equal: str) -> Picture:
    along = {"iterations": "iteration", "energy": "mean_energy_j"}[equal]
    curves = lines(rows, ("task", "rounds", "equal", "method"), ACCURACY, along)
    panels = []
    for letter, (arena, rounds) in zip(
        "abcdefgh", product(config.arenas, config.rounds), strict=False
    ):
        series = tuple(
            band(label, *curves[arena.task.title, str(rounds), equal, label])
            for label in methods(config, rounds)
        )
        label = "iteration" if equal == "iterations" else "energy of all devices [J]"
        title = f"({letter})  {arena.task.title}, {rounds} rounds"
        height = "test accuracy, mean of devices"
        panels.append(Panel(title, label, height, series, within=SHARE))
    name = "fig9" if equal == "iterations" else f"fig9-{equal}"
    title = "Methods at equal iterations"
    if equal == "energy":
        title = "Methods on equal batteries, until one is empty"
    return Picture(name, title, tuple(panels), len(config.rounds), share="row")


def setup(config: Config) -> str:
    """What was run, and what the paper leaves open."""
    tasks = " and ".join(arena.task.title for arena in config.arenas)
    rounds = ", ".join(map(str, config.rounds))
    return (
        f"{tasks}, {config.devices} devices on a {config.topology}, {skew_words(config.partition)} "
        f"labels, {rounds} rounds an iteration; adaptive has the same total over "
        f"{config.arenas[0].iterations} iterations and averages along the tree. GL sends a "
        f"fraction {config.fraction:g} of the coordinates to one neighbour; Balanced DFL mixes "
        f"{config.mixings} times; PENS looks for partners for {config.phase1} iterations. All of "
        "that is open in the paper: these are the baselines' own papers' settings. Batteries of "
        "the second figure are sized, device by device, to what the adaptive plan needs. Accuracy "
        "is that of the devices' own models on 500 test samples."
    )


def run(config: Config, runner: Runner) -> Outcome:
    """Train the curves of the figure."""
    jobs = _jobs(config)
    once = {job.label: job for job in jobs.values()}
    found = runner.train(list(once.values()))
    curves = {key: found[job.label] for key, job in jobs.items()}
    rows: list[Row] = []
    notes: dict[str, None] = {}
    for key, entry in curves.items():
        rows += _rows(config, key, entry, runner.seeds)
        notes |= {f"{key[-1]}: {note}": None for note in entry.notes if "degenerate" in note}
    drawn, findings = pictures(config, rows), _findings(config, curves)
    return Outcome("fig9", rows, drawn, findings, tuple(notes), setup(config))


def _rows(config: Config, key: Key, entry: Entry, seeds: Sequence[int]) -> list[Row]:
    """A curve's rows, with the joules spent so far: the mean over seeds, as they are drawn."""
    number, rounds, equal, label = key
    where = {
        "task": config.arenas[number].task.title,
        "rounds": rounds,
        "equal": equal,
        "method": label,
        "total_energy_j": float(np.nanmean(entry.total_energy_j)),
        "total_time_s": float(np.nanmean(entry.total_time_s)),
    }
    spent_j = np.tile(np.nanmean(entry.energy_j, axis=1), len(seeds))
    made = curve_rows(where, entry, seeds)
    return [{**row, "mean_energy_j": float(j)} for row, j in zip(made, spent_j, strict=True)]
