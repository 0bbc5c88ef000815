"""Theorem 3: which scheme, and why.

The channel is known and constant within an exchange: the minimum spanning tree. Otherwise a ring,
if the graph contains one. Otherwise gossip. Each scheme's `SchemeKind` holds its own case.
"""

from __future__ import annotations

from dataclasses import dataclass

from joulemesh.aggregation.scheme import Conditions, Fit, Scheme, SchemeKind
from joulemesh.errors import InfeasibleError
from joulemesh.registries import SCHEMES

__all__ = ["RULES", "Choice", "choose"]

RULES = ("auto", "theorem3")
"""Values of ``plan.aggregation`` that are no scheme but choose one."""


@dataclass(frozen=True)
class Choice:
    """A kind of scheme that the graph can carry, and the reason for it."""

    kind: SchemeKind
    reason: str
    fit: Fit

    def ready(self, conditions: Conditions) -> Scheme:
        """The scheme itself, on the graph for which it was chosen.

        Raises:
            InfeasibleError: it would need more gossip rounds than can be planned.
        """
        return self.kind.ready(conditions, self.fit, self.reason)


def choose(conditions: Conditions, wanted: str | None = None) -> Choice:
    """Pick a kind of scheme, or check that the graph can carry the wanted one.

    Args:
        conditions: for which it is chosen.
        wanted: ``"theorem3"`` or a scheme's name; ``plan.aggregation`` unless given. What
            ``"auto"`` chooses depends on prices (`joulemesh.planning.pricing.weigh`).

    Raises:
        InfeasibleError: the graph cannot carry the wanted scheme: it contains no ring, say, or none
            was found within the limit.
    """
    graph, options = conditions.graph, conditions.options
    wanted = options.aggregation if wanted is None else wanted
    if wanted == "theorem3":
        return _theorem3(conditions)
    kind = SCHEMES[wanted]
    fit = kind.fit(graph, options)
    if not fit.possible:
        raise InfeasibleError(
            f'plan.aggregation = "{wanted}" {fit.refusal or fit.reason}',
            code="topology",
            device=None if fit.device is None else int(graph.members[fit.device]),
            remedies=fit.remedies,
        )
    why = conditions.reason(fit)
    return Choice(kind, f"asked for; {why}" if why else "asked for", fit)


def _theorem3(conditions: Conditions) -> Choice:
    cases = sorted(
        ((kind.case, kind) for kind in SCHEMES if kind.case is not None),
        key=lambda pair: pair[0].number,
    )
    before = ""
    for case, kind in cases:
        if case.channel_known and not conditions.channel_known:
            continue
        fit = kind.fit(conditions.graph, conditions.options)
        if fit.possible:
            because = case.because.format(fit=conditions.reason(fit), before=before)
            return Choice(kind, because, fit)
        before = conditions.reason(fit)
    raise InfeasibleError(
        'plan.aggregation = "theorem3" finds no scheme that this graph can carry: '
        f"{before}; add links",
        code="topology",
        field="plan.aggregation",
    )
