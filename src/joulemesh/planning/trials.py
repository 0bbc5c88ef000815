"""Changes that might help a plan, and what each of them would bring.

Each candidate changes one thing: a limit of time, the batteries, the number of iterations, or a
setting. Budgets are tried at up to four times what they are, and no further than they are of use,
so that their gains can be compared. A candidate is measured by planning again. Large plans are
computed from their own prices instead, which comes to the same where all exchanges are alike; so
are plans that walk through the iterations one by one, for which it is an estimate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.errors import JoulemeshError
from joulemesh.planning.budget import rounds_total
from joulemesh.planning.clock import TimeLimits
from joulemesh.planning.ground import Ground
from joulemesh.planning.horizon import longest, longest_in_time, zeta_limit
from joulemesh.planning.plan import Plan
from joulemesh.planning.policy import policy_of
from joulemesh.planning.static import plan_of
from joulemesh.planning.trial import BUDGET, FACTOR, ONE_DEVICE, SETTING, Trial, up, with_field
from joulemesh.registries import SCHEMES
from joulemesh.units import counted, duration, energy

__all__ = ["Prospects"]

FloatArray = NDArray[np.float64]

_MOST_ENTRIES = 200_000  # of rounds [n, N], in plans that are made again: some tenths of a second
_DOMINATES = 0.5


@dataclass(frozen=True)
class Prospects:
    """A plan, and what stands in the way of more."""

    plan: Plan

    @cached_property
    def asks_longest(self) -> bool:
        """Is the number of iterations to be the largest?"""
        return bool(self.plan.scenario.plan.iterations == "longest")

    @property
    def measure(self) -> str:
        """What is counted: ``"iterations"`` where most are asked for; otherwise ``"rounds"``."""
        return "iterations" if self.asks_longest else "rounds"

    @property
    def amount(self) -> int:
        """How much of it the plan has."""
        return self.plan.iterations if self.asks_longest else int(self.plan.rounds.sum())

    @cached_property
    def static(self) -> bool:
        """Is everything planned at once?"""
        return not self.plan.world.changes and bool(self.plan.active.all())

    @cached_property
    def alike(self) -> bool:
        """Do prices give the rounds exactly, because all exchanges cost the same?"""
        policy = self.plan.ground.policy
        exact = policy.spends != "at-most" and not (policy.fit and self.plan.total_s)
        exact = exact and self.plan.world.devices.idle_w is None
        return self.static and len(self.plan.exchange_j) == 1 and exact

    @cached_property
    def least(self) -> int:
        """Rounds that every device runs in each iteration at the least."""
        return self.plan.ground.least

    @cached_property
    def exchange_j(self) -> FloatArray:
        """float64 [N]: joules of an exchange and of an iteration at rest, on average."""
        fixed_j = self.plan.exchange_total_j + self.plan.idle_total_j
        return np.asarray(fixed_j / self.plan.iterations)

    @cached_property
    def exchange_s(self) -> float:
        """Seconds of the longest exchange."""
        return float(self.plan.exchange_s.max())

    @cached_property
    def iteration_j(self) -> FloatArray:
        """float64 [N]: joules of the least rounds and an exchange."""
        return self.least * self._round_j + self.exchange_j

    @cached_property
    def lasts(self) -> FloatArray:
        """float64 [N]: iterations for which each battery lasts."""
        with np.errstate(divide="ignore"):  # an exchange without a round may cost nothing
            return np.asarray(self.plan.energy_budget_j / self.iteration_j)

    @cached_property
    def lasts_s(self) -> float:
        """Iterations for which the total time lasts; infinite without one."""
        if self.plan.total_s is None:
            return math.inf
        exchange_s = float(self.plan.exchange_s.mean())
        return self.plan.total_s / (self.least * float(self._round_s.max()) + exchange_s)

    @cached_property
    def dominated_j(self) -> bool:
        """Do exchanges take most of the joules?"""
        return float(self.plan.exchange_total_j.sum()) > _DOMINATES * float(self.plan.spent_j.sum())

    @cached_property
    def dominated_s(self) -> bool:
        """Do exchanges take most of the time?"""
        if self.plan.deadline_s is not None:
            return self.exchange_s > _DOMINATES * self.plan.deadline_s
        return float(self.plan.exchange_s.sum()) > _DOMINATES * (self.plan.total_s or math.inf)

    @property
    def _round_j(self) -> FloatArray:
        return self.plan.world.devices.round_energy_j

    @property
    def _round_s(self) -> FloatArray:
        return self.plan.world.devices.round_latency_s

    # What a change brings -----------------------------------------------------------------------

    def measured(self, trial: Trial) -> tuple[int, bool] | None:
        """How much there would be with a change, and whether that is exact.

        None if the change cannot be carried out.
        """
        if not self.again(trial):
            now = self._from_prices(self._as_is)
            amount = round(self.amount * self._from_prices(trial) / now) if now else 0
            return (amount, self.alike) if now else None
        devices = replace(self.plan.world.devices, energy_budget_j=trial.battery_j)
        try:
            made = plan_of(
                Ground(trial.scenario, self.plan.work, replace(self.plan.world, devices=devices))
            )
        except JoulemeshError:
            return None
        return (made.iterations if self.asks_longest else int(made.rounds.sum())), True

    def again(self, trial: Trial) -> bool:
        """Is a candidate planned again, and not computed from the plan's prices?"""
        wanted = trial.scenario.plan.iterations
        n = wanted if isinstance(wanted, int) else self._from_prices(trial)
        return self.static and n * len(trial.battery_j) <= _MOST_ENTRIES

    def _from_prices(self, trial: Trial) -> int:
        """Iterations or rounds that batteries and deadline allow at the plan's mean prices."""
        options, price_j = trial.scenario.plan, self.exchange_j
        if self.asks_longest:
            most = longest(trial.battery_j, price_j, self._round_j, self.least)
            if (total_s := trial.scenario.budget.total_s) is not None:
                each_s = float(self.plan.exchange_s.mean())
                slow_s = float(self._round_s.max())
                most = min(most, longest_in_time(total_s, each_s, slow_s, self.least))
            return min(most, zeta_limit(options) or most)
        n = int(options.iterations)
        policy = policy_of(options)
        if policy.spends == "least":
            return n * len(price_j) * policy.least(options)
        total = rounds_total(trial.battery_j, n * price_j, self._round_j)
        exchange_s = np.array([self.exchange_s])
        cap = TimeLimits.of(trial.scenario).caps(exchange_s, self._round_s, n)[0]
        return int(np.clip(np.minimum(total, n * cap), 0, None).sum())

    # Candidates ---------------------------------------------------------------------------------

    @cached_property
    def _as_is(self) -> Trial:
        """No change; n stays what it is unless it is to be the largest."""
        scenario = self.plan.scenario
        if not self.asks_longest:  # the n that is best for the bound is not sought again
            scenario = with_field(scenario, "plan.iterations", self.plan.iterations)
        return Trial("", None, "", SETTING, scenario, self.plan.energy_budget_j)

    def _set(self, field: str, value: Any, words: str, cost: int = SETTING) -> Trial:
        scenario = with_field(self._as_is.scenario, field, value)
        return replace(
            self._as_is, field=field, value=value, words=words, cost=cost, scenario=scenario
        )

    def _charge(self, value: float, words: str, cost: int, battery_j: FloatArray) -> Trial:
        return replace(
            self._as_is,
            field="budget.energy_j",
            value=value,
            words=words,
            cost=cost,
            battery_j=battery_j,
        )

    def candidates(self) -> Iterator[Trial]:
        """Changes that are worth trying, in no order."""
        if self.asks_longest:
            yield from self._zeta()
            yield from self._weakest()
            yield self._batteries(FACTOR)
            yield from self._longer(
                float(self.lasts.min()) / self.lasts_s * (self.plan.total_s or 0)
            )
        else:
            yield from self._policy()
            yield from self._deadline()
            yield from self._total_time()
            yield from self._more_battery()
            yield from self._iterations()
        yield from self._exchange()

    def _deadline(self) -> Iterator[Trial]:
        bound = self.plan.binding == "deadline"
        if bound.any() and self.plan.deadline_s is not None:
            each_s = np.ceil(self.plan.timeline.total / self.plan.iterations) * self._round_s
            enough = self.exchange_s + float(each_s[bound].max())  # then the battery binds
            value = up(min(enough, FACTOR * self.plan.deadline_s))
            words = f"a deadline of {duration(value)} in place of {duration(self.plan.deadline_s)}"
            yield self._set("budget.deadline_s", value, words, BUDGET)

    def _total_time(self) -> Iterator[Trial]:
        """More time for all iterations together."""
        bound, total_s = self.plan.binding == "time", self.plan.total_s
        if total_s is not None and bound.any():
            each_s = np.ceil(self.plan.timeline.total / self.plan.iterations) * self._round_s
            yield from self._longer(self.plan.iterations * (self.exchange_s + each_s[bound].max()))

    def _longer(self, enough_s: float) -> Iterator[Trial]:
        """A longer total time, if one is given; no longer than is of use."""
        total_s = self.plan.total_s
        if total_s is not None and (value := up(min(enough_s, FACTOR * total_s))) > total_s:
            words = f"a total time of {duration(value)} in place of {duration(total_s)}"
            yield self._set("budget.total_s", value, words, BUDGET)

    def _more_battery(self) -> Iterator[Trial]:
        bound = np.isin(self.plan.binding, ("energy", "left"))
        if not bound.any():
            return
        cap = self.plan.timeline.cap
        most = cap.sum(axis=0) * (self.plan.iterations if len(cap) == 1 else 1)
        full_j = self.plan.exchange_total_j + self.plan.idle_total_j + most * self._round_j
        enough = float((full_j / self.plan.energy_budget_j)[bound].max())  # then the deadline binds
        if enough > 1:
            yield self._batteries(up(min(enough, FACTOR)))

    def _batteries(self, factor: float) -> Trial:
        words = f"batteries {factor:g} times as large"
        return self._charge(factor, words, BUDGET, self.plan.energy_budget_j * factor)

    def _weakest(self) -> Iterator[Trial]:
        """Raise the one battery that ends the plan until the next one would."""
        if len(self.lasts) < 2:
            return
        device, following = (int(i) for i in np.argsort(self.lasts, kind="stable")[:2])
        value = up(math.floor(self.lasts[following]) * float(self.iteration_j[device]), 3)
        battery_j = self.plan.energy_budget_j.copy()
        before, battery_j[device] = float(battery_j[device]), value
        words = (
            f"{energy(value, beside=before)} in the battery of {self.plan.name(device)} "
            f"in place of {energy(before, beside=value)}"
        )
        yield self._charge(value, words, ONE_DEVICE, battery_j)

    def _iterations(self) -> Iterator[Trial]:
        """More of them where batteries would last; half of them where exchanges eat the energy."""
        n, most = self.plan.iterations, math.floor(min(self.lasts.min(), self.lasts_s))
        most = min(most, zeta_limit(self.plan.scenario.plan) or most, round(FACTOR * n))
        if (self.plan.binding == "deadline").any() and most > n:
            yield self._set("plan.iterations", most, counted(most, "iteration"), BUDGET)
        if self.dominated_j and n > 1:
            half = f"{counted(n // 2, 'iteration')} in place of {n:,}"
            yield self._set("plan.iterations", n // 2, half)

    def _exchange(self) -> Iterator[Trial]:
        """Cheaper exchanges, where they matter."""
        if not (self.dominated_j or self.dominated_s):
            return
        if not (self.again(self._as_is) and self.plan.timeline.scheme.exact):
            return  # what another scheme costs is not known from this one
        known = self.plan.scenario.network.channel_known
        for kind in SCHEMES:
            possible = kind.advised and (known or not kind.floods_costs)
            if possible and kind.name != self.plan.scheme:
                yield self._set("plan.aggregation", kind.name, f'plan.aggregation = "{kind.name}"')

    def _policy(self) -> Iterator[Trial]:
        """As many rounds as fit, where a policy leaves some out."""
        options = self.plan.scenario.plan
        if policy_of(options).spends != "all":
            yield self._set("plan.rounds", "theorem4", 'plan.rounds = "theorem4"')
        if "fixed_rounds" in policy_of(options).parameters:
            total = self.plan.timeline.total // self.plan.iterations
            most = int(np.minimum(self.plan.timeline.cap.min(axis=0), total).min())
            if most > options.fixed_rounds:
                yield self._set("plan.fixed_rounds", most, f"plan.fixed_rounds = {most}")

    def _zeta(self) -> Iterator[Trial]:
        if zeta_limit(self.plan.scenario.plan) == self.plan.iterations:
            yield self._set("plan.zeta", "auto", 'plan.zeta = "auto"')
