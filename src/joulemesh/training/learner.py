"""What trains: the protocol on the other side of `Schedule`, and what all that satisfy it share.

Whatever satisfies it can be run, compared, checkpointed and resumed: `train` drives it and nothing
else does.
"""

from __future__ import annotations

__all__ = [
    "Arrays",
    "DivergedError",
    "Learner",
    "Shapes",
    "State",
    "check_inputs",
    "mean_of",
    "sizes_of",
]

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, SupportsInt, TypeVar

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.data import Partition
from joulemesh.training.arrays import Tree, tree_map
from joulemesh.training.schedule import Members, Schedule
from joulemesh.training.tensors import Arrays, Shapes
from joulemesh.training.trace import Trace


class DivergedError(JoulemeshError):
    """Parameters are no longer finite.

    Attributes:
        iteration: the iteration (from 1) in which that was first seen.
        seed: the repetition seed.

    >>> print(DivergedError(3, 0, 0.5, "float16"))
    training diverged in iteration 3 (seed 0): parameters are not finite, or exceed 65,504, ...
    """

    def __init__(self, iteration: int, seed: int, learning_rate: float, wire: str = "") -> None:
        what, remedy = "are not finite", ""
        if wire:
            bits, most = np.dtype(wire).itemsize * 8, float(np.finfo(wire).max)
            what += f", or exceed {most:,.0f}, the most that a message of {bits} bits carries"
            remedy = ", or set network.bits_per_parameter = 32"
        super().__init__(
            f"training diverged in iteration {iteration} (seed {seed}): parameters {what}; "
            f"lower training.learning_rate (now {learning_rate:g}){remedy}"
        )
        self.iteration, self.seed = iteration, seed


class State(Protocol):
    """All that training carries from one iteration to the next."""

    @property
    def iteration(self) -> SupportsInt:
        """Iterations completed."""


S = TypeVar("S", bound=State)


class Learner(Protocol[S]):
    """Trains all devices of all seeds on a schedule, chunk by chunk.

    Attributes:
        seeds: the repetition seeds.
        schedule: rounds, presence and mixing.
        on_stage: told ``"training"`` or ``"evaluating"`` whenever one of them is begun.
    """

    on_stage: Callable[[str], None]

    @property
    def seeds(self) -> tuple[int, ...]:
        """The repetition seeds."""

    @property
    def schedule(self) -> Schedule:
        """Rounds, presence and mixing."""

    def begin(self) -> S:
        """The state before the first iteration."""

    def advance(self, state: S) -> tuple[S, Trace]:
        """Run one chunk of iterations.

        Args:
            state: before the chunk; it is consumed.

        Returns:
            The state after the chunk, and the evaluations made in it.

        Raises:
            DivergedError: parameters are no longer finite.
        """

    def evaluate(self, state: S) -> Trace:
        """Evaluate a state as it is; it is not consumed."""

    def mean_params(self, state: S) -> Tree:
        """The mean model of the active devices; with several seeds stacked [seeds, …]."""

    def saved_shapes(self) -> Shapes:
        """Names, shapes and types of the arrays that `save` gives."""

    def save(self, state: S) -> Arrays:
        """The state as named arrays, [seeds, devices, ...] where devices differ.

        With several processes all of them call this, and the leader gets the arrays.
        """

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> S:
        """The state that `save` gave; only the leader's arrays are looked at."""

    def identity(self) -> dict[str, str]:
        """Digests of all that decides the numbers, by name."""

    def digest(self) -> str:
        """One digest of `identity`."""


_TOGETHER = 64  # devices whose parameters are averaged at once


def check_inputs(
    partitions: Sequence[Partition], schedule: Schedule, seeds: Sequence[int], samples: int
) -> None:
    """Refuse parts that do not fit together."""
    members = isinstance(schedule, Members)
    repeated = not members and len(set(seeds)) < len(seeds)
    if not seeds or repeated or min(seeds) < 0 or max(seeds) >= 2**64:
        raise ScenarioError(f"seeds are {list(seeds)}: give different numbers from 0 to 2**64 - 1")
    if len(partitions) != len(seeds):
        raise ScenarioError(
            f"there are {len(partitions)} partitions for {len(seeds)} seeds: give one for each"
        )
    if isinstance(schedule, Members) and len(schedule.rates) != len(seeds):
        raise ScenarioError(
            f"there are {len(schedule.rates)} members for {len(seeds)} seeds: give one for each"
        )
    for partition in partitions:
        if partition.devices != schedule.devices:
            raise ScenarioError(
                f"the partition has {partition.devices} devices but the schedule "
                f"{schedule.devices}: make them equal"
            )
        if partition.sizes.min() < 1:
            raise ScenarioError(
                "{device} holds no samples: give each at least 1",
                device=int(partition.sizes.argmin()),
            )
        if partition.order.max() >= samples:
            raise ScenarioError(
                f"the partition refers to sample {partition.order.max()} of {samples}: "
                "partition this data set"
            )


def sizes_of(partitions: Sequence[Partition]) -> NDArray[np.int64]:
    """D_i of every seed: [S, N]."""
    return np.stack([partition.sizes for partition in partitions])


def mean_of(params: Tree, weights: NDArray[Any]) -> Tree:
    """The weighted mean of devices' parameters."""
    share = weights / weights.sum(axis=1, keepdims=True)

    def mean(leaf: NDArray[Any]) -> NDArray[Any]:
        if leaf.shape[1] == 1:  # all share one
            wide = leaf[:, 0]
        else:
            # Some devices at a time: a wider copy of all might not fit.
            parts = range(0, leaf.shape[1], _TOGETHER)
            cuts = [slice(first, first + _TOGETHER) for first in parts]
            wide = sum(np.einsum("sn,sn...->s...", share[:, c], leaf[:, c]) for c in cuts)
        return np.asarray(wide[0] if len(wide) == 1 else wide, leaf.dtype)

    return tree_map(mean, params)
