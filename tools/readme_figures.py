"""Where the figures in README.md come from, beside it so that its text stays plain.

A phrase stands in the README once, whatever the line breaks; each `{}` in it is a figure, written
from the expression in the same place (`tools/records.py` says what names there are). `GIVEN` are
phrases with numbers that no file of results holds.
"""

from __future__ import annotations

__all__ = ["FIGURES", "GIVEN"]


def _lead(scenario: str, method: str, equal: str = "plans-budget", sign: int = -1) -> str:
    return f'found("{scenario}", "{equal}", "{method}", "accuracy_difference", {100 * sign})'


def _to_target(scenario: str) -> str:
    return f'found("{scenario}", "joules", "fixed:3", "energy_to_target_j_difference", -1)'


def _peer(name: str, field: str = "device_steps_per_s") -> str:
    return f'peers.contenders("{name}").{field}'


def _faster(radio: str, duplex: str) -> str:
    return f'1 / trees.found("{radio}")("{duplex}").all.tree_s[1]'


def _packets(method: str) -> tuple[str, str]:
    case = f'in_medium("fashion-ring-0.1, orthogonal, Wi-Fi packets", "{method}"'
    return f"{case})", f'{case}, "accuracy_ci95")'


def _ahead_with_packets(scenario: str) -> str:
    case = f'in_medium("{scenario}, orthogonal, Wi-Fi packets", "'
    return f'{case}spread") - {case}adaptive")'


_OVERDRAWN = '"fashion-grid-1.0", "plans-overdrawn", "d-psgd"'

FIGURES: tuple[tuple[str, ...], ...] = (
    (
        "leads the paper's plan by {} to {} points on Fashion-MNIST",
        _lead("fashion-ring-1.0", "adaptive"),
        _lead("fashion-geometric-50", "adaptive"),
    ),
    (
        "the nearest rival on CIFAR-10 by {}. In all seven",
        _lead("cifar-ring-0.1", "skiptrain:tau=1"),
    ),
    (
        "over ideal links, each with a band of its own, {} times as fast in the median of [{} "
        "graphs](docs/benchmarks/trees.md), with the packets of Wi-Fi {} times, and in half duplex "
        "{} and {} times",
        _faster("ideal", "orthogonal"),
        "trees.graphs",
        _faster("wifi", "orthogonal"),
        _faster("ideal", "half"),
        _faster("wifi", "half"),
    ),
    (
        "level on the ring with strong skew ({} ± {} % against {} ± {} %)",
        *_packets("spread"),
        *_packets("adaptive"),
    ),
    (
        "`spread` leads by {} points on the grid, {} with equal batteries and {} on CIFAR-10",
        *(
            _ahead_with_packets(name)
            for name in ("fashion-grid-0.1", "fashion-ring-equal", "cifar-ring-0.1")
        ),
    ),
    (
        'the rule that `iterations = "auto"` had then is {} points behind 100 iterations',
        'auto_lag("fashion-geometric-50, orthogonal, Wi-Fi packets")',
    ),
    (
        "`d-psgd` then leads by {} ± {} points in one scenario",
        f'found({_OVERDRAWN}, "accuracy_difference", 100)',
        f'found({_OVERDRAWN}, "accuracy_difference_ci95", 100)',
    ),
    (
        "at equal batteries it leads every rival by {} to {} points of accuracy",
        '-max(apart("batteries", without="inverse"))',
        '-min(apart("batteries"))',
    ),
    (
        "its own reversal, which is within {} points",
        'max(abs(x) for x in apart("batteries", only="inverse"))',
    ),
    (
        "`d-psgd` beats it on Fashion-MNIST by {} to {} points",
        'min(apart("time", "fashion", only="d-psgd"))',
        'max(apart("time", "fashion", only="d-psgd"))',
    ),
    (
        "it needs {} to {} J more than `fixed:3`",
        _to_target("fashion-grid-0.1"),
        _to_target("fashion-ring-0.1"),
    ),
    (
        "Of {} sentences of the paper that can be tested [{} hold, {} do not, {} depend on a case "
        "or a constant that it leaves open, and {} are undecided]",
        "sentences()",
        'sentences("holds")',
        'sentences("does not hold")',
        'sentences("depends")',
        'sentences("undecided")',
    ),
    (
        "([measured](docs/benchmarks/peers.md)) | {} | {} | {} | {} | not tried",
        _peer("Joulemesh"),
        _peer("Flower"),
        _peer("gossipy"),
        _peer("pfl-research"),
    ),
    ("a plain PyTorch loop reaches {}.", _peer("PyTorch loop")),
    ("the lead over that loop shrinks to {} times", "training.side_by_side[1].torch_ratio"),
    (
        "the first step costs {} (MLP) to {} s (CNN) of compilation",
        "training.starts.mlp.first.first_step_s",
        "training.starts.cnn.first.first_step_s",
    ),
    (
        "| {} times a plain PyTorch loop, {} pfl-research, {} gossipy, {} Flower |",
        *(
            _peer(name, "ours_is_times")
            for name in ("PyTorch loop", "pfl-research", "gossipy", "Flower")
        ),
    ),
    (
        "20, 100, 1,000, 100,000 devices | {}, {}, {}, {} M device-steps/s",
        *(f'steps("mlp:{count}") / 1e6' for count in (20, 100, 1000, 100000)),
    ),
    (
        "20, 10,000 devices | {}, {} device-steps/s; bfloat16 at 20 devices {} |",
        *(f'significant(steps("cnn:{case}"), 3)' for case in ("20", "10000", "20:bfloat16")),
    ),
    (
        "2 CPU cores | {} µs per device-step, {} MiB (1,000 devices: {} MiB)",
        "1e6 * scale.runs(devices=100000).train_s / (6 * 100000)",
        "scale.runs(devices=100000).peak_mib",
        "scale.runs(devices=1000).peak_mib",
    ),
    (
        "a plan of 100,000 devices and {} links | {} s, {} MiB",
        "planner.scale(devices=100000).links",
        "planner.scale(devices=100000).planning_s",
        "planner.scale(devices=100000).peak_mib",
    ),
    (
        "the paper's whole evaluation, 5 seeds, one H200 | {} s",
        "sum(one.wall_s for one in timings.figures)",
    ),
)

GIVEN = ("CUDA's libraries: 6 GB in all", "PyTorch for CPUs instead: 2 GB")
