"""Curves to be trained: what the devices do, and paddings that let curves share a program."""

from __future__ import annotations

__all__ = ["Job", "pad", "planned"]

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from joulemesh.data import Partition
from joulemesh.ledger import Ledger
from joulemesh.methods import Contender
from joulemesh.scenario import Scenario
from joulemesh.training.schedule import Mixing, Schedule


@dataclass(frozen=True, eq=False)
class Job:
    """One curve.

    Attributes:
        label: its name within the figure.
        scenario: data, model, partition and the settings of training.
        contender: what the devices do.
        padded_to: pad to so many devices; 0 for none.
    """

    label: str
    scenario: Scenario
    contender: Contender
    padded_to: int = 0


def planned(
    label: str,
    scenario: Scenario,
    rounds: ArrayLike,
    *,
    mixing: Mixing = "mean",
    padded_to: int = 0,
) -> Job:
    """A curve that is given by its rounds, without a price.

    Args:
        label: its name.
        scenario: says what is learned.
        rounds: τ, [n] or [n, N].
        mixing: as the `Schedule`'s, of the scenario's N devices.
        padded_to: pad to so many devices.

    Returns:
        The job.
    """
    count = scenario.devices.count
    tau = np.asarray(rounds, np.int32)
    tau = np.broadcast_to(tau[:, None] if tau.ndim == 1 else tau, (len(tau), count))
    wide = max(padded_to, count)
    inside = np.broadcast_to(np.arange(wide) < count, (len(tau), wide))
    padded = np.zeros((len(tau), wide), np.int32)
    padded[:, :count] = tau
    if isinstance(mixing, np.ndarray) and wide > count:
        matrices = np.broadcast_to(np.eye(wide), (len(mixing), wide, wide)).copy()
        matrices[:, :count, :count] = mixing
        mixing = matrices
    n = len(tau)
    free = Ledger.of((n, wide))
    schedule = Schedule(padded, inside, mixing=mixing)
    return Job(
        label, scenario, Contender("planned", schedule, None, free, np.zeros(wide)), padded_to
    )


def pad(held: Partition, padded_to: int, least: int, length: int) -> Partition:
    """Add devices that never take part, so that every number of devices gives arrays of one size.

    Args:
        held: of the devices that do.
        padded_to: number of devices in the end; more than ``held`` has.
        least: samples of each that is added (they are never looked at).
        length: samples in the end; the last device takes what is missing.

    Returns:
        The partition.

    >>> made = pad(Partition(np.array([4, 0, 2]), np.array([0, 1, 3])), 4, 2, 9)
    >>> made.sizes, made.indices(1)
    (array([1, 2, 2, 4]), array([0, 2]))
    """
    added = np.full(padded_to - held.devices, least, np.int64)
    added[-1] += length - len(held.order) - int(added.sum())
    order = np.concatenate([held.order, np.zeros(int(added.sum()), np.int64)])
    sizes = np.concatenate([held.sizes, added])
    return Partition(order, np.concatenate([[0], np.cumsum(sizes)]))
