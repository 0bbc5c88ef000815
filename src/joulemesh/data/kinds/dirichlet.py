"""Label skew by Dirichlet mixes: device i's label mix is a draw of Dirichlet(alpha).

Reference:
    Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
    Classification", arXiv:1909.06335.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from joulemesh.citation import Citation
from joulemesh.data.held import Ints, Partition, regroup
from joulemesh.data.kinds.shares import log_mixes, require_alpha
from joulemesh.data.partition import PartitionKind
from joulemesh.registries import PARTITIONS


def _deal(
    labels: Ints, devices: int, rng: np.random.Generator, sizes: Ints | None, *, alpha: float
) -> Partition:
    require_alpha(alpha)
    pool = rng.permutation(len(labels))
    # A stable sort of a shuffled pool: label order, random within a label.
    pool = pool[np.argsort(labels[pool], kind="stable")]
    if sizes is None:
        owner = _owners(rng, labels[pool], devices, alpha)
    else:
        owner = _owners_sized(rng, labels[pool], alpha, sizes)
    return regroup(owner, devices, rng, pool=pool)


def _owners(rng: np.random.Generator, sorted_labels: Ints, devices: int, alpha: float) -> Ints:
    """Share each class out in proportion to the devices' mixes."""
    counts = np.bincount(sorted_labels)
    log_mix = log_mixes(rng, alpha, devices, len(counts))
    weight = np.exp(log_mix - log_mix.max(axis=0))
    edge = np.cumsum(weight, axis=0)
    cut = np.rint(edge / edge[-1] * counts).astype(np.int64)
    dealt = np.diff(cut, axis=0, prepend=0)
    return np.repeat(np.tile(np.arange(devices), len(counts)), dealt.T.ravel())


def _owners_sized(
    rng: np.random.Generator, sorted_labels: Ints, alpha: float, wanted: Ints
) -> Ints:
    """Fill every device's slots with labels drawn from its mix, while each class lasts.

    A slot whose label has run out draws again among the classes that are left; each pass
    exhausts a class or ends, so there are at most as many passes as classes.
    """
    supply = np.bincount(sorted_labels)
    first = np.cumsum(supply) - supply
    log_mix = log_mixes(rng, alpha, len(wanted), len(supply))
    owner = np.full(len(sorted_labels), -1, dtype=np.int64)
    slots = np.repeat(np.arange(len(wanted)), wanted)
    while len(slots):
        drawn = _draw_labels(rng, log_mix, slots, supply > 0)
        shuffled = rng.permutation(len(slots))
        by_label = shuffled[np.argsort(drawn[shuffled], kind="stable")]
        label = drawn[by_label]
        demand = np.bincount(label, minlength=len(supply))
        rank = np.arange(len(label)) - (np.cumsum(demand) - demand)[label]
        served = rank < supply[label]
        owner[first[label[served]] + rank[served]] = slots[by_label[served]]
        taken = np.minimum(demand, supply)
        first, supply = first + taken, supply - taken
        slots = slots[by_label[~served]]
    return owner


def _draw_labels(
    rng: np.random.Generator,
    log_mix: NDArray[np.float64],
    slots: Ints,
    left: NDArray[np.bool_],
) -> Ints:
    """One label per slot from its device's mix restricted to the classes that are ``left``."""
    choices = np.flatnonzero(left)
    logits = log_mix[:, choices]
    cdf = np.cumsum(np.exp(logits - logits.max(axis=1, keepdims=True)), axis=1)
    # One search serves all rows: row i's distribution function runs from i to i + 1.
    ladder = (cdf / cdf[:, -1:] + np.arange(len(cdf))[:, None]).ravel()
    found = np.searchsorted(ladder, slots + rng.random(len(slots)), side="right")
    column = np.minimum(found - slots * len(choices), len(choices) - 1)
    label: Ints = choices[column]
    return label


PARTITIONS.register(
    PartitionKind(
        "dirichlet",
        "label mixes drawn from Dirichlet(alpha); classes are shared out by them, so sizes differ",
        _deal,
        ("alpha",),
        phrase="labels are split among the devices by Dirichlet({alpha:g}) draws",
        citation=Citation(
            "Hsu, Qi, Brown",
            "Measuring the Effects of Non-Identical Data Distribution for Federated Visual "
            "Classification",
            2019,
            arxiv="1909.06335",
            names="Hsu, Tzu-Ming Harry and Qi, Hang and Brown, Matthew",
        ),
    )
)
