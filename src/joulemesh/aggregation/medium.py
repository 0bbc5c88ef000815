"""The radio medium: which transmissions may be on the air at once, and whom one of them serves.

Links are *orthogonal* unless said otherwise: each has its own share of the spectrum. In a *shared*
medium two transmissions conflict that have a device in common, or of which one's sender is within
interference range of a receiver of the other; what conflicts takes different slots
(`joulemesh.aggregation.slots`). With *broadcast* one transmission serves all receivers that are to
get the same bits in the same step (`joulemesh.aggregation.on_air`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.route import FloatArray, IntArray
from joulemesh.errors import ScenarioError
from joulemesh.scenario import Scenario

__all__ = ["HALF_DUPLEX", "ORTHOGONAL", "Medium", "Reach"]

_MOST_PAIRS = 100_000_000  # within interference range: 1.6 GB


@dataclass(frozen=True, eq=False)
class Reach:
    """Which devices are within interference range of each other.

    Attributes:
        devices: number of devices.
        starts: int64 [N + 1]: where each device's entries begin in ``others``.
        others: int64: the devices within range of each, in order; never the device itself.
        everyone: is every device within range of every other? ``others`` is empty then.
    """

    devices: int
    starts: IntArray
    others: IntArray
    everyone: bool = False

    @classmethod
    def of(cls, positions_m: FloatArray, range_m: float) -> Reach:
        """Whoever is at most so far away.

        >>> line = np.array([[0.0, 0.0], [3.0, 0.0], [7.0, 0.0]])
        >>> Reach.of(line, 4.0).lists()
        [[1], [0, 2], [1]]
        """
        count = len(positions_m)
        corners = positions_m.max(axis=0) - positions_m.min(axis=0)
        if float(np.hypot(*corners)) <= range_m:
            return cls(count, np.zeros(count + 1, np.int64), np.empty(0, np.int64), everyone=True)
        from scipy.spatial import KDTree  # takes long to import

        tree = KDTree(positions_m)
        pairs = (int(tree.count_neighbors(tree, range_m)) - count) // 2
        if pairs > _MOST_PAIRS:
            raise ScenarioError(
                f"network.interference_m = {range_m:g} puts {pairs:,} pairs of devices within "
                f"range of each other, more than {_MOST_PAIRS:,}; lower it, or raise it to "
                f"{np.hypot(*corners):.3g}, the extent of the network, where everybody interferes "
                "with everybody",
                field="network.interference_m",
            )
        return cls._from(count, tree.query_pairs(range_m, output_type="ndarray").astype(np.int64))

    @classmethod
    def _from(cls, count: int, pairs: IntArray) -> Reach:
        ends = np.concatenate([pairs, pairs[:, ::-1]])
        ends = ends[np.lexsort((ends[:, 1], ends[:, 0]))]
        return cls(count, np.searchsorted(ends[:, 0], np.arange(count + 1)), ends[:, 1])

    def lists(self) -> list[list[int]]:
        """The devices within range of each device."""
        if self.everyone:
            return [[j for j in range(self.devices) if j != i] for i in range(self.devices)]
        others = self.others.tolist()
        return [others[low:high] for low, high in pairwise(self.starts.tolist())]

    def among(self, members: IntArray) -> Reach:
        """The same among some of the devices, under their own numbers.

        >>> line = np.array([[0.0, 0.0], [3.0, 0.0], [7.0, 0.0]])
        >>> Reach.of(line, 4.0).among(np.array([1, 2])).lists()
        [[1], [0]]
        """
        count = len(members)
        if self.everyone:
            return Reach(count, np.zeros(count + 1, np.int64), self.others, everyone=True)
        number = np.full(self.devices, -1)
        number[members] = np.arange(count)
        owner = np.repeat(np.arange(self.devices), np.diff(self.starts))
        ends = np.stack([number[owner], number[self.others]], axis=1)
        return Reach._from(count, ends[(ends[:, 0] >= 0) & (ends[:, 0] < ends[:, 1])])


@dataclass(frozen=True, eq=False)
class Medium:
    """How transmissions share the air.

    Attributes:
        duplex: on orthogonal links: ``"orthogonal"``, or ``"half"`` if a device serves one link at
            a time. In a shared medium it takes part in one transmission at a time anyway.
        shared: do transmissions that conflict take different slots?
        broadcast: does one transmission serve all receivers of the same bits?
        reach: in a shared medium, who interferes with whom; None if nobody does, so that only
            transmissions with a device in common conflict.

    >>> ORTHOGONAL.duplex, HALF_DUPLEX.duplex, Medium(shared=True).turns
    ('orthogonal', 'half', True)
    """

    duplex: str = "orthogonal"
    shared: bool = False
    broadcast: bool = False
    reach: Reach | None = None

    @classmethod
    def of(cls, scenario: Scenario, positions_m: NDArray[np.float64]) -> Medium:
        """The medium of a scenario, with its devices where they are.

        >>> medium = Medium.of(Scenario(), np.zeros((20, 2)))
        >>> medium.shared, medium.broadcast
        (False, False)
        """
        network = scenario.network
        range_m = network.interference_m
        reach = None if range_m is None else Reach.of(positions_m, range_m)
        return cls(network.duplex, network.medium == "shared", network.broadcast, reach)

    @property
    def turns(self) -> bool:
        """Does a device take part in one transmission at a time?"""
        return self.shared or self.duplex == "half"

    def among(self, members: IntArray | None) -> Medium:
        """The medium of some of the devices, under their own numbers; None for all of them."""
        if members is None or self.reach is None:
            return self
        return replace(self, reach=self.reach.among(members))


ORTHOGONAL = Medium()
HALF_DUPLEX = Medium("half")
