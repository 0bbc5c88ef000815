"""What a method is to whoever compares it, and how its parameters are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.citation import Citation
from joulemesh.base.registry import Registry
from joulemesh.ledger import Ledger
from joulemesh.tolerance import left_of
from joulemesh.training.arrays import tree_map
from joulemesh.training.schedule import Schedule

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan
    from joulemesh.training.exchange import Exchange

__all__ = [
    "AS_PLANNED",
    "Contender",
    "FloatArray",
    "IntArray",
    "Parameter",
    "choice",
    "entry",
    "number",
    "whole",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Contender:
    """A method made ready for one scenario.

    Attributes:
        name: as the user wrote it, for instance ``"fixed:3"``.
        schedule: what the engine plays.
        exchange: the method's own exchange; None for the schedule's mixing.
        reserve: what the iterations cost, known before training; for a method whose messages
            depend on the weights (``settle`` is given), what they cost at most.
        battery_j: float64 [N].
        notes: what a reader of the results should know, one line each.
        settle: what one repetition's ``sent`` (a pytree of [n, ...]) cost.
        plan: the plan that the schedule carries out from its beginning to its end, if there is one.
        traced: does it follow the traces of the scenario's devices?
        drawn: where packets are lost, are transmissions and lost messages drawn, and not merely
            priced as expected?
        variants: the same method with other values of a parameter that it chose itself, as a user
            would write them: they are tried where learning rates are.
    """

    name: str
    schedule: Schedule
    exchange: Exchange | None
    reserve: Ledger
    battery_j: FloatArray
    notes: tuple[str, ...] = ()
    settle: Callable[[Any], Ledger] | None = None
    plan: Plan | None = None
    traced: bool = False
    drawn: bool = False
    variants: tuple[str, ...] = ()

    @property
    def simulation_only(self) -> str:
        """Why real devices cannot carry it out, in a few words; empty if they can.

        They need to know what one of them does in an exchange, and to make the plan again when one
        of them fails.
        """
        if self.exchange is not None:
            return (
                "its exchange works on the parameters of all devices at once; choose one whose "
                "exchange is a scheme's"
            )
        if self.plan is not None:
            from joulemesh.planning.plan import digest_of
            from joulemesh.planning.static import plan_of

            if digest_of(plan_of(self.plan.ground)) == digest_of(self.plan):
                return ""
        return (
            "it has no plan that devices could make again when one of them fails; say what you "
            "want in the scenario (plan.rounds, plan.exchange, …)"
        )

    @property
    def deployable(self) -> bool:
        """Can real devices carry it out?"""
        return not self.simulation_only

    def ledger(self, sent: Any = None, seed: int = 0) -> Ledger:
        """Price a run.

        Args:
            sent: the trace's ``sent``, a pytree of [n, seeds, ...]; needed only where the
                messages depend on the weights. Without it the answer is the reserve.
            seed: which of the repetitions, by position.

        Returns:
            The ledger of that repetition.
        """
        if self.settle is None or sent is None:
            return self.reserve
        return self.settle(tree_map(lambda leaf: np.asarray(leaf)[:, seed], sent))

    def leftover_j(self, ledger: Ledger | None = None) -> FloatArray:
        """float64 [N]: what stays in the batteries; negative where they are overdrawn."""
        spent = (self.reserve if ledger is None else ledger).spent_j
        return left_of(self.battery_j, spent)


AS_PLANNED = "the adaptive plan's mean"
"""The number of rounds of a method that is given none (`Setting.rounds`)."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method.

    Attributes:
        read: makes the value of a text; ValueError for one that is out of range.
        what: what the text must be, in words.
        meaning: what it decides, in words.
        default: what holds if it is not given: a text that ``read`` takes, or words.
        words: all texts that may be given, if they can be listed.
        cites: publications that a value rests on, besides the method's own.
        example: a text that may be given, where they cannot be listed.
    """

    read: Callable[[str], Any]
    what: str
    meaning: str = ""
    default: str = ""
    words: tuple[str, ...] = ()
    cites: Callable[[Any], tuple[Citation, ...]] = lambda value: ()
    example: str = ""


def whole(least: int = 1, *, meaning: str = "", default: str = "") -> Parameter:
    """A whole number of at least ``least``."""

    def read(text: str) -> int:
        value = int(text)
        if value < least:
            raise ValueError(text)
        return value

    return Parameter(read, f"a whole number of at least {least}", meaning, default)


def number(most: float = 1.0, *, meaning: str = "", default: str = "") -> Parameter:
    """A number above 0, up to ``most``."""

    def read(text: str) -> float:
        value = float(text)
        if not 0 < value <= most:
            raise ValueError(text)
        return value

    return Parameter(read, f"a number above 0, at most {most:g}", meaning, default)


def entry(registry: Registry[Any], *, meaning: str = "", default: str = "") -> Parameter:
    """The name of an entry of a registry, built in or the user's own."""

    def read(text: str) -> str:
        if text not in registry:
            raise ValueError(text)
        return text

    words = registry.built_in
    return Parameter(read, f"one of {', '.join(words)}", meaning, default, words)


def choice(*words: str, meaning: str = "", default: str = "") -> Parameter:
    """One of some words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(text)
        return text

    return Parameter(read, f"one of {', '.join(words)}", meaning, default, words)
