"""Methods whose iterations differ: neighbours mix in most, and in some all devices average exactly.

Gossip-PGA, a single final merge and SkipTrain are such patterns. An exact average goes by the
scheme of ``plan.aggregation`` where that is exact, and otherwise by the exact scheme of least
joules; either way it is priced by the common ledger, the flooding of link costs included
(notes: methods-beside-the-baselines).
"""

from __future__ import annotations

__all__ = ["Pattern", "Rounds", "exact_scheme", "steady"]

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.choose import choose
from joulemesh.aggregation.scheme import Conditions, Scheme
from joulemesh.aggregation.spectrum import metropolis_weights
from joulemesh.errors import InfeasibleError
from joulemesh.ledger import Ledger, charge
from joulemesh.methods.base import Contender, IntArray
from joulemesh.methods.horizon import notes_on, run_length
from joulemesh.methods.losses import neighbours, with_losses
from joulemesh.methods.moment import Act, Mixings, Moment, first_mixing
from joulemesh.methods.schemed import Schemed
from joulemesh.methods.setting import Setting
from joulemesh.methods.walk import walk
from joulemesh.registries import SCHEMES
from joulemesh.tolerance import within
from joulemesh.training.schedule import Schedule

BoolArray = NDArray[np.bool_]
Rounds = Callable[[int, int], IntArray]
"""(start, stop) -> the rounds of iterations start..stop−1 (from 0), int [stop − start, N]."""


def exact_scheme(setting: Setting) -> tuple[Scheme, str]:
    """The scheme of a method's exact averages, and which one it is, in words.

    Args:
        setting: the terms of the comparison.

    Returns:
        The scheme of ``plan.aggregation``, if it is exact; otherwise the exact one of least
        joules, and of several as cheap the fastest.

    >>> from joulemesh import Scenario
    >>> gossip = Scenario.preset("adaptive").override({"plan.aggregation": "gossip"})
    >>> scheme, words = exact_scheme(Setting(gossip))
    >>> scheme.exact, words
    (True, 'averages exactly along a tree in chunks, the exact scheme of least joules')
    """
    ground = setting.ground
    own = ground.choice
    if own.kind.exact:
        words = f"averages exactly {own.kind.words}, the scheme of plan.aggregation"
        return own.ready(ground.conditions), words
    scheme = _cheapest(setting, ground.conditions)
    return scheme, f"averages exactly {scheme.kind.words}, the exact scheme of least joules"


def _exact_among(now: Moment) -> Scheme:
    """The same among those who take part, where that changes."""
    ground = now.setting.ground
    conditions = ground.conditions_among(now.who, now.forecast, now.battery_j, 1, cut=now.cut)
    if ground.choice.kind.exact:
        with suppress(InfeasibleError):  # a ring breaks when somebody is away
            return choose(conditions, ground.choice.kind.name).ready(conditions)
    return _cheapest(now.setting, conditions)


def _cheapest(setting: Setting, conditions: Conditions) -> Scheme:
    """The exact scheme of least joules; of several as cheap the fastest."""
    ground = setting.ground
    found: list[tuple[float, float, Scheme]] = []
    for kind in SCHEMES:
        if not kind.exact:
            continue
        try:
            scheme = choose(conditions, kind.name).ready(conditions)
        except InfeasibleError:  # a ring, on a graph without one
            continue
        priced = ground.pricer.route(scheme.route(conditions.costs, 0), conditions.costs)
        found.append((float(priced.energy_j.sum()), float(priced.seconds[0]), scheme))
    if not found:
        raise InfeasibleError(
            "no exact scheme fits this graph: add links, or register one", code="topology"
        )
    least_j = min(joules for joules, _, _ in found)
    cheap = [(seconds, one) for joules, seconds, one in found if within(least_j, joules)]
    return min(cheap, key=lambda pair: pair[0])[1]


@dataclass(frozen=True)
class Pattern:
    """Who trains how much in which iteration, and which exchange ends it.

    Attributes:
        setting: the terms of the comparison.
        rounds: of every iteration and device.
        every: in iterations P, 2P, … (from 1) all devices average exactly; None for never.
        final: whether the last iteration ends with an exact average, which is reserved from the
            start. In all others neighbours mix once, with Metropolis weights.
    """

    setting: Setting
    rounds: Rounds
    every: int | None = None
    final: bool = False

    @cached_property
    def _exact(self) -> tuple[Scheme, str]:
        return exact_scheme(self.setting)

    @property
    def notes(self) -> tuple[str, ...]:
        """How its exact averages are made, if it has any."""
        if self.every is None and not self.final:
            return ()
        end = ", in the last iteration, for which joules and seconds are reserved"
        return (f"{self._exact[1]}{end if self.final else ''}",)

    def exact_at(self, start: int, stop: int) -> BoolArray:
        """Whether iterations start..stop−1 (from 0) end with an exact average, if none is last."""
        if self.every is None:
            return np.zeros(stop - start, bool)
        return np.asarray(np.arange(start + 1, stop + 1) % self.every == 0)

    # What it costs ------------------------------------------------------------------------------

    def prices(self, start: int, stop: int) -> Ledger:
        """The ledger of iterations start..stop−1, if none of them is the last."""
        return self._ledger(self.rounds(start, stop), start, self.exact_at(start, stop))

    def last(self, t: int) -> Ledger:
        """The ledger of iteration t, if it is the last."""
        return self._ledger(self.rounds(t, t + 1), t, np.ones(1, bool))

    def _ledger(self, rounds: IntArray, start: int, exact: BoolArray) -> Ledger:
        setting, pricer = self.setting, self.setting.ground.pricer
        if setting.fading:
            each = [self._exchange(start + row, exact=flag) for row, flag in enumerate(exact)]
            sent = Ledger.joined(each)
        elif exact.all():
            sent = self._average.tiled(len(exact))
        else:
            sent = self._mixing.where(~exact)
            sent = sent + self._average.where(exact) if exact.any() else sent
        for row in np.flatnonzero(exact).tolist():
            if self._floods(start + row):
                flood = pricer.coordination(self._exact[0], setting.costs(start + row))
                sent = sent + flood.where(np.arange(len(exact)) == row)
        return charge(setting.world.devices, rounds, sent)

    @cached_property
    def _average(self) -> Ledger:
        """An exact average, where links do not change."""
        return self._exchange(0, exact=True)

    @cached_property
    def _mixing(self) -> Ledger:
        """A mixing with all neighbours, where links do not change."""
        return self._exchange(0, exact=False)

    def _exchange(self, t: int, *, exact: bool) -> Ledger:
        setting = self.setting
        if exact:
            route = self._exact[0].route(setting.ground.seen_costs(t), t)
        else:
            route = first_mixing(setting, setting.work.model_bits)
        return setting.pricer.route(route, setting.costs(t))

    def _floods(self, t: int) -> bool:
        """Are link costs flooded before the exact average of iteration t?

        They are before the first one, and again if the tree has changed since the one before.
        """
        ground = self.setting.ground
        if not ground.floods(self._exact[0]):
            return False
        before = 0 if self.every is None else t // self.every * self.every
        # ``before`` counts iterations up to the exact average before this one.
        return before == 0 or ground.tree_number(t) != ground.tree_number(before - 1)

    # The contender ------------------------------------------------------------------------------

    def contender(
        self, name: str, *, ledger: Ledger | None = None, notes: Sequence[str] = ()
    ) -> Contender:
        """Make a method ready that follows the pattern, for as long as it may.

        Args:
            name: as the user wrote it.
            ledger: of its iterations, if their number is decided already.
            notes: what a reader of the results should know.

        Raises:
            InfeasibleError: not even one iteration can be paid.
        """
        setting = self.setting
        if setting.world.traces.given:
            return self._followed(name)
        if ledger is None:
            last = self.last if self.final else None
            ledger = run_length(setting, name, self.prices, last)
        n = ledger.iterations
        exact = self.exact_at(0, n)
        exact[-1] |= self.final
        schedule = Schedule(
            self.rounds(0, n).astype(np.int32),
            exchanged=ledger.bits > 0,
            mixing=metropolis_weights(setting.world.graph.edges, setting.devices),
            exact=exact,
        )
        every = (*self.notes, *notes, *notes_on(setting, ledger))
        made = Contender(name, schedule, None, ledger, setting.battery_j, every)
        return with_losses(setting, made, lambda t: self._exact[0] if exact[t] else self._near)

    def _followed(self, name: str) -> Contender:
        """The method under traces, where who takes part in an iteration is known only then."""
        mixings, schemed = Mixings(self.setting.work.model_bits), Schemed(_exact_among)

        def rounds(now: Moment) -> IntArray:
            return np.where(now.who, self.rounds(now.t, now.t + 1)[0], 0)

        def follow(now: Moment) -> Act:
            if self.exact_at(now.t, now.t + 1)[0]:
                return schemed.act(now, rounds)
            return mixings.act(now, rounds(now), memory=now.memory)

        last = (lambda now: schemed.act(now, rounds)) if self.final else None
        walked = walk(self.setting, name, follow, last=last)
        missed = self.final and not walked.acts[-1].exact
        note = ("ends without its exact average, which has become too dear",) if missed else ()
        return walked.contender(name, notes=(*self.notes, *note))

    @cached_property
    def _near(self) -> Scheme:
        """One mixing with all neighbours."""
        return neighbours(self.setting)


def steady(setting: Setting, tau: int) -> Rounds:
    """The same rounds on every device in every iteration.

    >>> from joulemesh import Scenario
    >>> steady(Setting(Scenario.preset("adaptive")), 3)(5, 7).shape
    (2, 20)
    """

    def rounds(start: int, stop: int) -> IntArray:
        return np.full((stop - start, setting.devices), tau, np.int64)

    return rounds
