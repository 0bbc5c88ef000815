"""What docs/reproduction/discussion.md says of the tables beside it, computed from them.

Differences are in percentage points, paired over seeds, with the half-width of their 95 % interval.
"""

from __future__ import annotations

__all__ = ["NAMES"]

from collections.abc import Sequence

from joulemesh.views.markdown import Markdown, escape, table
from tools.records import DOCS, Table, interval, mean, paired, read_table

OWN, MEAN = "device_accuracy_mean", "test_accuracy"
CNN, MLP = "CIFAR-10, CNN", "MNIST, MLP"
ADAPTIVE, OPTIMUM = "adaptive (theorem 4)", "optimum of (P42)"


def _rows(name: str) -> Table:
    return read_table(DOCS / "reproduction" / f"{name}.csv")


# Fig. 4: exact averaging and gossip


def gossip_lag(panel: str, ticks: int, column: str = OWN) -> tuple[float, float]:
    """Exact averaging minus gossip with that many ticks, at the end."""
    rows = _rows("fig4")(panel=panel)
    exact, gossip = (rows(scheme=s).last() for s in ("tree, ring (exact)", f"gossip, K = {ticks}"))
    return paired(exact, gossip, column)


def more_ticks(panel: str, fewer: int, more: int) -> tuple[float, float]:
    """Gossip with more ticks minus gossip with fewer, at the end."""
    rows = _rows("fig4")(panel=panel)
    second, first = (rows(scheme=f"gossip, K = {ticks}").last() for ticks in (more, fewer))
    return paired(second, first, OWN)


def mean_models(task: str) -> list[float]:
    """Final accuracy of the mean model, per cent, for every scheme of a task."""
    rows = _rows("fig4")
    return [
        100 * mean(rows(panel=panel, scheme=scheme).last().column(MEAN))
        for panel in rows.values("panel")
        if panel.startswith(task)
        for scheme in rows.values("scheme")
    ]


# Figs. 5 and 6: the number of devices


def fewest_over_most(task: str, reading: str) -> tuple[float, float]:
    """5 devices minus 40, at the end."""
    rows = _rows("fig5")(task=task, reading=reading)
    return paired(rows(devices=5).last(), rows(devices=40).last(), MEAN)


def to_target(devices: int) -> float:
    """Mean iterations to the target accuracy, exact averaging."""
    rows = _rows("fig6")(averaging="exact averaging", devices=devices).last()
    return mean(rows.column("iterations_to_target"))


def most_over_fewest() -> tuple[float, float]:
    """30 devices minus 5 after all iterations, exact averaging."""
    rows = _rows("fig6")(averaging="exact averaging")
    return paired(rows(devices=30).last(), rows(devices=5).last(), MEAN)


def metropolis_lag() -> float:
    """How far a curve of one Metropolis round is from that of exact averaging, at most."""
    rows = _rows("fig6")
    return max(
        abs(100 * (mean(one.column(MEAN)) - mean(exact.column(MEAN))))
        for averaging in rows.values("averaging")[1:]
        for devices in rows.values("devices")
        for iteration in rows.values("iteration")
        for one in [rows(averaging=averaging, devices=devices, iteration=iteration)]
        for exact in [rows(averaging="exact averaging", devices=devices, iteration=iteration)]
        if one.rows
    )


def never_there() -> int:
    """Runs that had not reached the target when they ended."""
    last = _rows("fig6").last()
    return sum(float(row["iterations_to_target"]) >= 120 for row in last.rows)


# Fig. 7: energy


def _worlds(physics: str) -> list[Table]:
    rows = _rows("fig7")(physics=physics)
    return [
        rows(topology=topology, devices=devices, world=world)
        for topology in rows.values("topology")
        for devices in rows.values("devices")
        for world in rows.values("world")
    ]


def energy_ratios(scheme: str) -> list[float]:
    """Joules of a scheme over the tree's, in every world; "gossip" is both its errors."""
    return _over_tree(scheme, "total_j")


def time_ratios(scheme: str) -> list[float]:
    """Seconds of a scheme's exchange over the tree's, in every world where they were followed."""
    return _over_tree(scheme, "exchange_s")


def _over_tree(scheme: str, column: str) -> list[float]:
    return [
        float(row[column]) / world(scheme="tree").one(column)
        for world in _worlds("physical")
        for row in world.rows
        if row["scheme"].partition(",")[0] == scheme and row[column]
    ]


def gossip_below_ring() -> int:
    """Comparisons in which, by the paper's equations, gossip costs less than its ring."""
    return sum(
        float(row["total_j"]) < world(scheme="ring").one("total_j")
        for world in _worlds("paper")
        for row in world.rows
        if row["scheme"].startswith("gossip")
    )


def smaller_error() -> list[float]:
    """By how many per cent ε = 0.05 costs more than 0.06, in every world."""
    found = []
    for world in _worlds("physical"):
        less, more = (world(scheme=f"gossip, ε = {e}").one("total_j") for e in ("0.05", "0.06"))
        found.append(100 * (less / more - 1))
    return found


def energy_table() -> Markdown:
    """Joules of 400 exchanges and seconds of one, means over placements."""
    lines = [
        ("tree", "tree", "physical"),
        ("ring, whole vectors (the paper's)", "ring", "physical"),
        ("Ring-AllReduce in chunks", "ring-chunked", "physical"),
        ("gossip, ε = 0.05, K by the spectral gap", "gossip, ε = 0.05", "physical"),
        ("gossip, ε = 0.05, the paper's equations", "gossip, ε = 0.05", "paper"),
        ("ring, the paper's equations", "ring", "paper"),
    ]
    header = ["scheme", "grid, N = 10", "grid, N = 50", "quasi-ring, N = 50"]
    header += ["one exchange, grid, N = 50"]
    columns = (("grid", 10), ("grid", 50), ("quasi-ring", 50))
    cells = []
    for words, scheme, physics in lines:
        rows = _rows("fig7")(physics=physics, scheme=scheme)
        found = [rows(topology=topology, devices=devices) for topology, devices in columns]
        joules = [f"{mean(one.column('total_j')):,.0f} J" for one in found]
        cells.append([words, *joules, _seconds(found[1]) if physics == "physical" else ""])
    return table(header, cells)


def _seconds(rows: Table) -> str:
    if all(row["exchange_s"] for row in rows.rows):
        return f"{mean(rows.column('exchange_s')):.2f} s"
    return f"not followed ({mean(rows.column('rounds')):,.0f} ticks)"


# Fig. 8: the order of the rounds


def order(first: str, second: str, partition: str, total: int = 1600) -> tuple[float, float]:
    """One scheme minus another at the end."""
    rows = _rows("fig8")(tau_total=total, partition=partition)
    return paired(rows(scheme=first).last(), rows(scheme=second).last(), MEAN)


def half_way(scheme: str) -> float:
    """Accuracy in per cent at iteration 200 of 400, i.i.d."""
    rows = _rows("fig8")(tau_total=1600, partition="iid", scheme=scheme, iteration=200)
    return 100 * mean(rows.column(MEAN))


def skew() -> tuple[float, float]:
    """What skewed labels cost the fixed scheme."""
    rows = _rows("fig8")(tau_total=1600, scheme="fixed 4")
    return paired(rows(partition="iid").last(), rows(partition="dirichlet 0.1").last(), MEAN)


def order_table() -> Markdown:
    """Final accuracy by schedule, per cent."""
    names = {"iid": "i.i.d.", "dirichlet 0.1": "Dirichlet(0.1)"}
    cells = []
    for total, fixed in ((1600, ("fixed 4",)), (300, ("fixed 3", "fixed 6"))):
        for partition, words in names.items():
            rows = _rows("fig8")(tau_total=total, partition=partition)
            note = " (fixed: 3; 6)" if len(fixed) > 1 and partition == "iid" else ""
            shown = [_final(rows, [s]) for s in (ADAPTIVE, "inverse", OPTIMUM)]
            shown.insert(1, _final(rows, fixed))
            cells.append([f"{total:,} rounds, {words}{note}", *shown])
    return table(["", "adaptive", "fixed", "inverse", OPTIMUM], cells)


def _final(rows: Table, schemes: Sequence[str]) -> str:
    ends = [rows(scheme=scheme).last().column(MEAN) for scheme in schemes]
    found = [interval([100 * value for value in end]) for end in ends]
    return "; ".join(f"{middle:.1f} ± {half:.1f}" for middle, half in found)


# Fig. 9: the baselines


def lead(task: str, method: str, equal: str, rounds: int, column: str = OWN) -> tuple[float, float]:
    """Adaptive minus a baseline, at the end of each."""
    rows = _rows("fig9")(task=task, rounds=rounds, equal=equal)
    return paired(rows(method="adaptive").last(), rows(method=method).last(), column)


def leads(task: str, method: str, equal: str, column: str = OWN) -> list[float]:
    """The same for 3, 5, 7 and 9 rounds, without intervals."""
    return [lead(task, method, equal, rounds, column)[0] for rounds in (3, 5, 7, 9)]


def above_zero(methods: Sequence[str]) -> int:
    """How many differences at equal iterations exclude 0 and favour adaptive."""
    found = [
        lead(task, method, "iterations", rounds)
        for task in (CNN, MLP)
        for method in methods
        for rounds in (3, 5, 7, 9)
    ]
    return sum(middle > half for middle, half in found)


def spent(task: str, method: str, equal: str, rounds: int = 3) -> float:
    """Joules of a run of a baseline."""
    rows = _rows("fig9")(task=task, rounds=rounds, equal=equal, method=method)
    return float(rows.rows[0]["total_energy_j"])


def lengths(task: str, method: str) -> list[int]:
    """Iterations that a baseline affords from equal batteries, with 3, 5, 7 and 9 rounds."""
    rows = _rows("fig9")(task=task, equal="energy", method=method)
    return [
        max(int(row["iteration"]) for row in rows(rounds=rounds).rows) for rounds in (3, 5, 7, 9)
    ]


def gap(task: str, rounds: int) -> float:
    """Adaptive minus the mean of the baselines, equal iterations."""
    return mean([lead(task, m, "iterations", rounds)[0] for m in ("GL", "PENS", "balanced DFL")])


def accuracy(task: str, rounds: int, column: str) -> float:
    """Final accuracy of adaptive, per cent, equal iterations."""
    rows = _rows("fig9")(task=task, rounds=rounds, equal="iterations", method="adaptive")
    return 100 * mean(rows.last().column(column))


def lead_table() -> Markdown:
    """Adaptive minus each baseline, for 3 to 9 rounds; bold where the baseline is ahead in all."""
    cells = []
    for equal, words in (("iterations", "equal iterations"), ("energy", "equal batteries")):
        for task in (CNN, MLP):
            found = [leads(task, method, equal) for method in ("GL", "PENS", "balanced DFL")]
            cells.append([f"{words}, {task.partition(',')[0]}", *map(_listed, found)])
    return table(["", "GL", "PENS", "Balanced DFL"], cells)


def _listed(values: Sequence[float]) -> Markdown:
    shown = (f"{value:+.1f}" if abs(value) >= 0.05 else "0.0" for value in values)
    text = escape(", ".join(shown).replace("-", "−"))
    return Markdown(f"**{text}**") if max(values) < 0 else text


# Table I and Theorem 4


def excess(policy: str) -> list[float]:
    """By how many per cent a policy exceeds the least value of (P42), in every setting."""
    return [v for v in _theorem(policy).column_given("excess_percent") if v]


def unused(policy: str) -> list[float]:
    """Per cent of the rounds that a policy leaves, in every setting where it is defined."""
    rows = [row for row in _theorem(policy).rows if row["rounds_used"]]
    return [100 * (1 - int(row["rounds_used"]) / int(row["tau_total"])) for row in rows]


def undefined(policy: str) -> int:
    """Settings in which a policy is not defined."""
    return sum(not row["rounds_used"] for row in _theorem(policy).rows)


def _theorem(policy: str) -> Table:
    return _rows("table1")(part="theorem 4", policy=policy)


def sentences(verdict: str = "", parts: Sequence[str] = ()) -> int:
    """How many sentences of the paper have that verdict, or any; of some parts or of all."""
    rows = [row for row in _rows("claims").rows if not parts or row["figure"] in parts]
    return len({r["sentence"] for r in rows if verdict in ("", r["sentence_verdict"])})


def effect(claim: str, column: str = "effect") -> float:
    """A figure of claims.csv."""
    return _rows("claims")(id=claim).one(column)


NAMES = {
    function.__name__: function
    for function in (
        above_zero, accuracy, effect, energy_ratios, energy_table, excess, fewest_over_most, gap,
        gossip_below_ring, gossip_lag, half_way, lead, lead_table, leads, lengths, mean_models,
        metropolis_lag, more_ticks, most_over_fewest, never_there, order, order_table, sentences,
        skew, smaller_error, spent, time_ratios, to_target, undefined, unused,
    )
} | {"ADAPTIVE": ADAPTIVE, "CNN": CNN, "MLP": MLP, "MEAN": MEAN}  # fmt: skip
