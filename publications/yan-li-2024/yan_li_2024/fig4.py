"""Fig. 4: accuracy against iterations under the aggregation schemes.

(a) MLP on Fashion-MNIST, 2-column grid; (b) CNN on CIFAR-10, ring; (c) the same on the complete
graph. The caption and the text name different graphs ("grid and completed", "grid" and "ring";
notes: figures-and-their-text): all are done. Tree and ring both give the exact mean:
one run serves both.

Full scale, 5 seeds: (a) 4 curves × 400 × 4 × 20 × 5 = 0.64 M MLP device-steps; (b), (c) 7 curves ×
200 × 4 × 20 × 5 = 0.56 M CNN device-steps. Programs: mean and dense for each model, all of 20
devices: those of Figs. 8 and 9.
"""

from __future__ import annotations

__all__ = ["CONFIG", "QUICK", "Case", "Config", "pictures", "run", "setup"]

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np

from joulemesh.methods import Setting
from joulemesh.scenario import Scenario
from joulemesh.study.record import Entry
from yan_li_2024.claims import Finding, judge
from yan_li_2024.jobs import Job, planned
from yan_li_2024.outcome import SHARE, Outcome, Panel, Picture, Row, band, lines
from yan_li_2024.runner import Runner
from yan_li_2024.sentences import claim
from yan_li_2024.stage import (
    CIFAR,
    DIGITS,
    FASHION,
    Task,
    curve_rows,
    skew_words,
)

ACCURACY = "device_accuracy_mean"
EXACT = "tree, ring (exact)"


@dataclass(frozen=True)
class Case:
    """One task on some graphs.

    Attributes:
        task: what is learned.
        topologies: the graphs.
        iterations: n; the paper leaves it open except for Fig. 7's 400.
        evaluations: points of a curve.
    """

    task: Task
    topologies: tuple[str, ...]
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        cases: see above.
        devices: N = 20 ("divided into 20 parts").
        rounds: τ in every iteration. The curves of the paper come from its adaptive scheme, whose
            budgets it does not give; fixed rounds let nothing but the aggregation differ.
        ticks: K_t of gossip, pairs that average in one exchange (notes: randomized-gossip); each
            device takes part in 2K/N of them. The paper's values are not given.
        partition: the text does not say non-i.i.d. here, as it does of Fig. 5.
        chunk: iterations in one call of the program.
    """

    cases: tuple[Case, ...] = (
        Case(FASHION, ("grid",), 400, 10),
        Case(CIFAR, ("ring", "complete"), 200, 8),
    )
    devices: int = 20
    rounds: int = 4
    ticks: tuple[int, ...] = (20, 60, 200)
    partition: str = "iid"
    chunk: int = 10


CONFIG = Config()
QUICK = Config(
    cases=(Case(DIGITS, ("grid",), 16, 4), Case(DIGITS, ("ring", "complete"), 16, 4)),
    devices=6,
    rounds=2,
    ticks=(3, 12),
    chunk=3,
)


def _gossip(k: int) -> str:
    return f"gossip, K = {k}"


def _place(case: Case, topology: str) -> str:
    return f"{case.task.title}, {topology}"


def _jobs(config: Config, number: int, case: Case) -> list[Job]:
    n = case.iterations
    rounds = np.full(n, config.rounds)

    def scenario(topology: str, **changes: Any) -> Scenario:
        return case.task.scenario(
            config.devices,
            topology=topology,
            partition=config.partition,
            eval_every=n // case.evaluations,
            chunk=config.chunk,
            **changes,
        )

    jobs = [planned(f"{number} {EXACT}", scenario(case.topologies[0]), rounds)]
    for topology, k in product(case.topologies, config.ticks):
        asked = scenario(topology, plan__aggregation="gossip", plan__gossip_rounds=k)
        mixing = Setting(asked).scheme.mixing(0, n)
        jobs.append(planned(f"{number} {topology} {_gossip(k)}", asked, rounds, mixing=mixing))
    return jobs


Curves = dict[tuple[str, str], Entry]
"""By panel (task and graph) and scheme."""


def _curves(config: Config, runner: Runner) -> Curves:
    jobs = [job for number, case in enumerate(config.cases) for job in _jobs(config, number, case)]
    found = runner.train(jobs)
    curves: Curves = {}
    for number, case in enumerate(config.cases):
        for topology in case.topologies:
            curves[_place(case, topology), EXACT] = found[f"{number} {EXACT}"]
            for k in config.ticks:
                label = f"{number} {topology} {_gossip(k)}"
                curves[_place(case, topology), _gossip(k)] = found[label]
    return curves


def _findings(config: Config, curves: Curves) -> tuple[Finding, ...]:
    all_panels = list(dict.fromkeys(panel for panel, _ in curves))
    final = {key: entry.final[ACCURACY] for key, entry in curves.items()}
    first = {key: entry.curves[ACCURACY][0] for key, entry in curves.items()}
    gossip = [_gossip(k) for k in config.ticks]
    return (
        judge(
            claim("fig4-converges"),
            {f"{scheme}, {panel}": final[panel, scheme] - first[panel, scheme]
             for panel, scheme in curves},
        ),
        judge(
            claim("fig4-exact-better"),
            {f"exact − {scheme}, {panel}": final[panel, EXACT] - final[panel, scheme]
             for panel, scheme in product(all_panels, gossip)},
        ),
        judge(
            claim("fig4-more-rounds"),
            {f"{more} − {less}, {panel}": final[panel, more] - final[panel, less]
             for panel in all_panels for less, more in pairwise(gossip)},
        ),
    )  # fmt: skip


def pictures(config: Config, rows: Sequence[Row]) -> tuple[Picture, ...]:
    """The figure, from its rows."""
    curves = lines(rows, ("panel", "scheme"), ACCURACY)
    all_panels = list(dict.fromkeys(panel for panel, _ in curves))
    panels = tuple(
        Panel(
            f"({letter})  {panel}",
            "iteration",
            "test accuracy, mean of devices",
            tuple(band(scheme, *line) for (here, scheme), line in curves.items() if here == panel),
            within=SHARE,
        )
        for letter, panel in zip("abcdefgh", all_panels, strict=False)
    )
    title = f"Aggregation schemes, {config.devices} devices, {config.rounds} rounds an iteration"
    return (Picture("fig4", title, panels, len(panels)),)


def setup(config: Config) -> str:
    """What was run, and what the paper leaves open."""
    cases = "; ".join(
        f"{case.task.title} on {' and '.join(case.topologies)}, {case.iterations} iterations"
        for case in config.cases
    )
    ticks = ", ".join(map(str, config.ticks))
    return (
        f"{cases}. {config.devices} devices, {skew_words(config.partition)} labels, "
        f"{config.rounds} rounds in every iteration, so that nothing but the averaging differs. "
        "Open in the paper: the number of iterations, the rounds, the values of K and the graph "
        f"of (b), which text and caption name differently. K = {ticks} pairs of neighbours "
        "average in one exchange. Accuracy is that of the devices' own models on 500 test samples."
    )


def run(config: Config, runner: Runner) -> Outcome:
    """Train the curves of the figure."""
    curves = _curves(config, runner)
    rows: list[Row] = []
    for (panel, scheme), entry in curves.items():
        rows += curve_rows({"panel": panel, "scheme": scheme}, entry, runner.seeds)
    notes = (
        "tree and ring both average exactly: one run serves both",
        "K counts ticks: one pair of neighbours averages",
    )
    drawn, findings = pictures(config, rows), _findings(config, curves)
    return Outcome("fig4", rows, drawn, findings, notes, setup(config))
