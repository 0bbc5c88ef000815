"""Which scheme, and why, if joules and seconds both count: ``plan.aggregation = "auto"``.

Theorem 3 looks at joules alone. An exchange that takes fewer seconds leaves time for training, or
for more exchanges, so ``auto`` takes the exact scheme with the least joules × seconds (the
energy-delay product): a scheme that costs 1 % more joules must be 1 % faster to be taken. The rule
has no weight to set, and does not depend on budgets.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulemesh.aggregation.choose import Choice, choose
from joulemesh.aggregation.scheme import Conditions, SchemeKind
from joulemesh.errors import InfeasibleError
from joulemesh.planning.pricing.scheme import Pricer
from joulemesh.registries import SCHEMES
from joulemesh.units import duration, energy

__all__ = ["choose_scheme"]


@dataclass(frozen=True)
class _Weighed:
    """A scheme with the joules of all devices and the seconds of one of its exchanges."""

    choice: Choice
    joules: float
    seconds: float
    detail: str = ""

    @property
    def product(self) -> float:
        return self.joules * self.seconds

    def says(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        cost = f"{energy(self.joules)} in {duration(self.seconds)}"
        return f"{self.choice.kind.name} {cost}{more}"


def choose_scheme(conditions: Conditions, pricer: Pricer) -> Choice:
    """The scheme that ``plan.aggregation`` asks for, or that ``"auto"`` finds.

    Args:
        conditions: for which it is chosen.
        pricer: what an exchange costs.

    Raises:
        InfeasibleError: the graph cannot carry the scheme that is asked for.

    >>> import joulemesh
    >>> scenario = joulemesh.Scenario.preset("adaptive").override({"plan.aggregation": "auto"})
    >>> plan = joulemesh.plan(scenario)
    >>> print(plan.scheme, "because it has", plan.reason[:50])
    tree-chunked because it has the least joules × seconds of an exchange: tree-ch
    """
    if conditions.options.aggregation != "auto":
        return choose(conditions)
    weighed = _weigh(conditions, pricer)
    if not weighed:
        rest = choose(conditions, "theorem3")
        return Choice(rest.kind, f"no exact scheme can be weighed; {rest.reason}", rest.fit)
    best, *others = sorted(weighed, key=lambda one: one.product)
    said = [f"the least joules × seconds of an exchange: {best.says()}"]
    said += [one.says() for one in others]
    if not conditions.channel_known:
        said.append("the channel is unknown, so that trees cannot be chosen by their price")
    return Choice(best.choice.kind, "; ".join(said), best.choice.fit)


def _weigh(conditions: Conditions, pricer: Pricer) -> list[_Weighed]:
    """The schemes that the graph can carry, those first that it carries in any case."""
    found: list[_Weighed] = []
    kinds = (kind for kind in SCHEMES if kind.exact and kind.advised)
    for kind in sorted(kinds, key=lambda kind: kind.least is not None):
        if kind.floods_costs and not conditions.channel_known:
            continue
        if kind.least is not None and found:
            joules, seconds = kind.least(conditions)
            if min(one.product for one in found) <= joules * seconds:
                continue  # whichever way the graph carries it, it cannot win
        one = _weighed(kind, conditions, pricer)
        if one is not None:
            found.append(one)
    return found


def _weighed(kind: SchemeKind, conditions: Conditions, pricer: Pricer) -> _Weighed | None:
    """A scheme's price; None if the graph cannot carry it."""
    try:
        choice = choose(conditions, kind.name)
    except InfeasibleError:
        return None
    scheme = Choice(kind, "", choice.fit).ready(conditions)
    prices = pricer.scheme(scheme, conditions.costs, 0, 1)
    joules, seconds = float(prices.exchange_j.sum()), float(prices.seconds[0])
    return _Weighed(choice, joules, seconds, conditions.reason(choice.fit))
