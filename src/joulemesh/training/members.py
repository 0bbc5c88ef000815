"""Runs that share a program: members of the seed axis that differ in rounds and learning rate."""

from __future__ import annotations

__all__ = ["Members"]

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import ScenarioError
from joulemesh.training.digests import digest
from joulemesh.training.schedule import Schedule


@dataclass(frozen=True, eq=False)
class Members(Schedule):
    """A schedule of S members; presence and mixing are the same for all of them.

    To the engine a member is what a seed is in other schedules, and seeds may repeat. A member
    whose parameters cease to be finite goes on beside the others, without an error: its losses
    say so. Members may be of different length only where every iteration ends with the exact
    mean of all devices: one without rounds then leaves the parameters as they are.

    Attributes:
        each: integers [n, N, S], every member's rounds, 0 after its end; ``rounds`` are the most
            of any member.
        rates: float64 [S], every member's learning rate.

    >>> short, long = Schedule(np.full((2, 3), 5)), Schedule(np.full((4, 3), 1))
    >>> both = Members.of([short, long], [0.1, 0.2], seeds=2)
    >>> both.iterations, both.each.shape, both.rates.tolist(), both.rounds[:, 0].tolist()
    (4, (4, 3, 4), [0.1, 0.1, 0.2, 0.2], [5, 5, 1, 1])
    """

    each: NDArray[np.integer[Any]] = field(default_factory=lambda: np.zeros((0, 0, 0), np.int32))
    rates: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of(cls, schedules: Sequence[Schedule], rates: Sequence[float], seeds: int) -> Members:
        """Put schedules side by side, each with a learning rate, at as many seeds each.

        Raises:
            ScenarioError: they differ in more than rounds.
        """
        longest = max(schedules, key=lambda one: one.iterations)
        n = longest.iterations
        even = all(one.iterations == n for one in schedules)
        alike = all(cls.alike(one) for one in schedules)
        same = {cls.mixing_digest(one) for one in schedules} if even else set()
        if not alike and len(same) != 1:
            raise ScenarioError(
                "schedules of one program differ in their length or exchanges: train them one by "
                "one, or give all of them the exact mean in every iteration"
            )
        each = np.zeros((n, longest.devices, len(schedules) * seeds), np.int32)
        for k, one in enumerate(schedules):
            each[: one.iterations, :, k * seeds : (k + 1) * seeds] = one.rounds[..., None]
        common = {f.name: getattr(longest, f.name) for f in fields(Schedule)}
        common["rounds"] = each.max(axis=2)
        return cls(**common, each=each, rates=np.repeat(np.asarray(rates, np.float64), seeds))

    @staticmethod
    def alike(schedule: Schedule) -> bool:
        """Does every iteration end with the exact mean of all devices?"""
        everyone = bool(schedule.active.all() and schedule.exchanged.all())
        return everyone and (schedule.kind == "mean" or bool(schedule.exact.all()))

    @staticmethod
    def mixing_digest(schedule: Schedule) -> str:
        """A digest of all but the rounds: presence and mixing."""
        nothing = np.zeros_like(schedule.rounds)
        common = {f.name: getattr(schedule, f.name) for f in fields(Schedule)}
        return Schedule(**{**common, "rounds": nothing}).digest()

    def digest(self) -> str:
        """A digest of the whole schedule, with every member's rounds and rate."""
        return digest(self._all())

    def _all(self) -> Iterator[bytes | memoryview]:
        yield from self._parts()
        yield np.ascontiguousarray(self.each.astype(np.int32)).data
        yield np.ascontiguousarray(self.rates).data
