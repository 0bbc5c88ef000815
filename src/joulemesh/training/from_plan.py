"""The schedule that carries out a plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from joulemesh.aggregation.contract import lossy_mixing
from joulemesh.aggregation.gossip import metropolis_mixing
from joulemesh.aggregation.patterned import Patterned
from joulemesh.base.errors import ScenarioError
from joulemesh.scenario.scenario import rounded_to
from joulemesh.training.recorded import rounded_exchanges
from joulemesh.training.schedule import Mixing, Schedule

if TYPE_CHECKING:
    from joulemesh.aggregation.gossip import SparseMatrix
    from joulemesh.aggregation.route import Route
    from joulemesh.aggregation.scheme import Scheme
    from joulemesh.planning.losses import Drawn, Outcome
    from joulemesh.planning.plan import Plan

MOST_ENTRIES = 500_000_000  # of the matrices of one compiled call
_DENSE = 1000  # devices; beyond, a static mixing matrix is applied as a sparse one


def schedule_of(plan: Plan) -> Schedule:
    """What the engine plays: the plan's rounds, presence and mixing."""
    lossy = plan.drawn is not None and plan.drawn.lost_messages.any()
    if lossy or _wire_of(plan):
        return _by_messages(plan, plan.drawn if lossy else None)
    mixing, rounds = _mixing(plan)
    # Only a plan whose exchanges change has exact means among other matrices.
    changes = callable(mixing) or isinstance(plan.timeline.scheme, Patterned)
    exact = [plan.scheme_at(t + 1).exact_at(t) for t in range(plan.iterations)] if changes else ()
    return Schedule(
        plan.rounds,
        someone(plan.active),
        plan.exchanged,
        mixing=mixing,
        mixing_rounds=rounds,
        exact=np.array(exact, bool),
        gifts=plan.timeline.gifts,
    )


def someone(active: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Who is active; in an iteration that passes without anybody, those of the one before.

    Nobody trains or exchanges anything then: it decides only whose models an evaluation looks at.
    """
    empty = np.flatnonzero(~active.any(axis=1))
    if not len(empty):
        return active
    held = active.copy()
    for t in empty.tolist():
        held[t] = held[t - 1] if t else True
    return held


def _by_messages(plan: Plan, drawn: Drawn | None) -> Schedule:
    """The plan's schedule where messages are lost, or rounded."""
    routes = [plan.route(t + 1) if plan.exchanged[t] else None for t in range(plan.iterations)]
    active, gifts = someone(plan.active), plan.timeline.gifts
    whole = Schedule(plan.rounds, active, plan.exchanged, gifts=gifts)
    return schedule_by_messages(
        whole,
        routes,
        lambda t: plan.scheme_at(t + 1),
        None if drawn is None else drawn.outcome,
        chunk_iterations=plan.scenario.training.chunk_iterations,
        wire=_wire_of(plan),
    )


def _wire_of(plan: Plan) -> str:
    """The type in which a plan's numbers travel; empty if they do as they are."""
    width = plan.timeline.scheme.width
    return rounded_to(plan.scenario.network.bits_per_parameter) if width is None else width.wire


def schedule_by_messages(
    schedule: Schedule,
    routes: Sequence[Route | None],
    scheme_at: Callable[[int], Scheme],
    drawn: Outcome | None,
    *,
    chunk_iterations: int,
    wire: str = "",
) -> Schedule:
    """A schedule where messages are lost or rounded, with what every exchange then does."""
    if wire:
        lost_in = None if drawn is None else drawn.lost_in
        exchanges = rounded_exchanges(schedule, routes, scheme_at, wire, lost_in)
        inexact = np.zeros(schedule.iterations, bool)
        return replace(schedule, mixing=exchanges, mixing_rounds=1, exact=inexact, wire=wire)
    assert drawn is not None
    devices = schedule.devices
    parts = _parts_of(routes, scheme_at, drawn)
    require_room(chunk_iterations, devices, parts)

    def mixing(t: int) -> NDArray[np.float64]:
        route, scheme = routes[t], scheme_at(t)
        if route is None:
            matrices = np.eye(devices)[None]
        elif len(drawn.lost[t]):
            matrices = lossy_mixing(scheme, route, devices, drawn.lost_in(t, route))
        else:
            matrices = embedded(scheme, t, devices)[None]
        return matrices[0] if parts == 1 else np.broadcast_to(matrices, (parts, devices, devices))

    inexact = np.zeros(schedule.iterations, bool)
    return replace(schedule, mixing=mixing, mixing_rounds=1, exact=inexact, parts=parts)


def require_room(chunk_iterations: int, devices: int, parts: int = 1) -> None:
    """Refuse mixing matrices, one for every iteration, that are too large to hold."""
    if chunk_iterations * parts * devices**2 > MOST_ENTRIES:
        raise ScenarioError(
            f"messages are lost, and {chunk_iterations} mixing matrices of {devices} devices in "
            f"{parts} parts are more than {MOST_ENTRIES:,} numbers; lower "
            "training.chunk_iterations, raise network.tries, or use fewer devices or chunks"
        )


def _parts_of(
    routes: Sequence[Route | None], scheme_at: Callable[[int], Scheme], drawn: Outcome
) -> int:
    """Number of parts of the parameters that have matrices of their own."""
    counts = {
        scheme_at(t).parts(route)
        for t, route in enumerate(routes)
        if route is not None and len(drawn.lost[t])
    } - {1}
    if len(counts) > 1:
        raise ScenarioError(
            f"messages are lost in exchanges of {' and '.join(map(str, sorted(counts)))} chunks, "
            "which one training cannot mix; use a scheme without chunks, for instance "
            'plan.aggregation = "tree"'
        )
    return max(counts, default=1)


def mixing_of(scheme: Scheme) -> tuple[Mixing, int]:
    """What a scheme's exchanges do to the parameters of all devices."""
    if scheme.exact:
        return "mean", 1
    if isinstance(scheme, Patterned):
        return _patterned(scheme)
    if scheme.random:
        return lambda t: scheme.mixing(t, t + 1)[0], 1
    weights = scheme.round_weights
    return (scheme.mixing(0, 1), 1) if weights is None else power_mixing(weights, scheme.rounds)


def _patterned(scheme: Patterned) -> tuple[Mixing, int]:
    """The neighbours' sparse matrix, whose place the exact mean takes in some iterations."""
    between = scheme.between
    if not scheme.average.exact:
        return lambda t: scheme.mixing(t, t + 1)[0], 1
    if between is None:
        return "mean", 1  # where nothing is sent, the exchange is skipped
    weights = between.round_weights
    if weights is None:
        return lambda t: scheme.mixing(t, t + 1)[0], 1
    return weights, between.rounds


def power_mixing(weights: SparseMatrix, rounds: int) -> tuple[Mixing, int]:
    """What some rounds of one mixing matrix do."""
    if weights.shape[0] > _DENSE:
        return weights, rounds
    return metropolis_mixing(weights, rounds)[None], 1


def _mixing(plan: Plan) -> tuple[Mixing, int]:
    schemes = [scheme for _, scheme in plan.timeline.schemes]
    first, devices = schemes[0], plan.rounds.shape[1]
    if all(scheme.exact for scheme in schemes):
        return "mean", 1
    if len(schemes) == 1 and first.graph.devices == devices:
        return mixing_of(first)
    return lambda t: embedded(plan.scheme_at(t + 1), t, devices), 1


def embedded(scheme: Scheme, t: int, devices: int) -> NDArray[np.float64]:
    """[N, N]: the scheme's matrix on its members; departed devices keep what they have."""
    members = scheme.graph.members
    matrix = np.eye(devices)
    matrix[np.ix_(members, members)] = scheme.mixing(t, t + 1)[0]
    return matrix
