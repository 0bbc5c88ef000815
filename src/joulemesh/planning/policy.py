"""What a rounds policy is: how a device's local rounds are spread over the iterations.

A `Policy` is the record in the registry `POLICIES`. ``total`` comes from the battery (the paper's
eq. `stau`), ``cap`` from the deadline (eq. `tau`). What a policy gives is checked, so that no
policy can overdraw a battery or miss a deadline.
"""

from __future__ import annotations

__all__ = [
    "Allocate",
    "Fit",
    "Policy",
    "allocate",
    "count_iterations",
    "policy_of",
    "weighted",
]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.errors import ScenarioError
from joulemesh.own_code import place_of
from joulemesh.planning.waterfill import water_fill
from joulemesh.registries import POLICIES
from joulemesh.scenario import PlanOptions

IntArray = NDArray[np.int64]

Allocate = Callable[[int, int, ArrayLike, ArrayLike, PlanOptions], IntArray]
"""(start, iterations n, total, cap, options) -> rounds of iterations start..n, counted from 1.

``total`` [N] is what each device can afford from ``start`` on, ``cap`` [N] or [n−start+1, N] the
most that fits an iteration; the rounds are whole numbers [n−start+1, N].
"""

Fit = Callable[[int, IntArray, NDArray[np.float64], float], IntArray]
"""(iterations n, most [N], round_s [N], time_s) -> rounds [N] of each device in all, at most
``most``, which the policy allocates so that the slowest training of each iteration, added up over
the n iterations, takes no longer than ``time_s``.
"""


def _one(options: PlanOptions) -> int:
    return 1


@dataclass(frozen=True)
class Policy:
    """A rounds policy, as the registry `POLICIES` knows it.

    Attributes:
        name: as the scenario writes it (``plan.rounds``).
        description: one line.
        allocate: gives the rounds; see `Allocate`.
        parameters: fields of the scenario's section ``plan`` that it takes. With ``"zeta"``, no
            more than ζ + 1 iterations are planned.
        least: rounds that every device runs in each iteration at the least, 1 unless given. A plan
            pays for these first.
        spends: ``"all"``: every device's rounds sum to its total, or to its caps if these are
            less; ``"least"``: to n times ``least``; ``"at-most"``: to no more than its total.
        causal: can the rest of a plan be allocated anew in any iteration? Fading and departures
            need that.
        zeros: may it give an iteration no round? A plan takes that if ``least`` is 0, so that a
            device that does not train averages and relays; otherwise it refuses the rounds.
        fit: how it keeps a total time, see `Fit`. Without it, every iteration has the same share
            of that time for training, which ``cap`` then respects.
    """

    name: str
    description: str
    allocate: Allocate
    parameters: tuple[str, ...] = ()
    least: Callable[[PlanOptions], int] = _one
    spends: Literal["all", "least", "at-most"] = "all"
    causal: bool = True
    zeros: bool = False
    fit: Fit | None = None

    @property
    def uses_zeta(self) -> bool:
        """Does the paper's ζ decide its rounds?"""
        return "zeta" in self.parameters


def weighted(
    name: str,
    description: str,
    weights: Callable[[int, PlanOptions], ArrayLike],
    *,
    parameters: tuple[str, ...] = (),
) -> Policy:
    """A policy by weights: rounds are proportional to them, within 1 and the cap (water-filling).

    Args:
        name: as the scenario writes it.
        description: one line.
        weights: (n, options) -> [n], one positive weight for each iteration of the whole plan.
        parameters: fields of the scenario's section ``plan`` that it takes.

    >>> grows = weighted("grows", "rounds grow linearly", lambda n, options: np.arange(1, n + 1))
    >>> grows.allocate(1, 4, 20, 9, PlanOptions())
    array([2, 4, 6, 8])
    """

    def spread(
        start: int, iterations: int, total: ArrayLike, cap: ArrayLike, options: PlanOptions
    ) -> IntArray:
        count_iterations(iterations, start)
        shares = np.asarray(weights(iterations, options), np.float64)
        if shares.shape != (iterations,) or not (np.isfinite(shares) & (shares > 0)).all():
            raise ScenarioError(
                f'the weights of plan.rounds = "{name}" ({place_of(weights)}) must be {iterations} '
                "positive numbers, one for each iteration"
            )
        return water_fill(shares[start - 1 :], total, cap, start=start)

    return Policy(name, description, spread, parameters)


def policy_of(options: PlanOptions) -> Policy:
    """The policy that a scenario asks for.

    >>> policy_of(PlanOptions(rounds="backfill")).spends
    'all'
    """
    return POLICIES[options.rounds]


def allocate(
    policy: Policy,
    iterations: int,
    total: ArrayLike,
    cap: ArrayLike,
    *,
    options: PlanOptions,
    start: int = 1,
) -> IntArray:
    """Rounds of iterations start..n by a policy, checked.

    Args:
        policy: the record.
        iterations: n of the whole plan.
        total: scalar or [N]: rounds affordable from ``start`` on.
        cap: scalar, [N] or [n−start+1, N]: most rounds per iteration.
        options: the scenario's section ``plan``.
        start: first iteration to allocate, from 1.

    Returns:
        int64 [n−start+1] or [n−start+1, N]: the rounds.

    Raises:
        InfeasibleError: a battery or the deadline does not allow the least rounds.
        ScenarioError: the policy is not defined here, or its rounds break its contract.

    >>> allocate(POLICIES["backfill"], 5, 6, 4, options=PlanOptions(), start=3)
    array([1, 1, 4])
    """
    count = count_iterations(iterations, start)
    rounds = np.asarray(policy.allocate(start, iterations, total, cap, options))
    _require_sound(policy, rounds, count, np.asarray(total), np.asarray(cap), options)
    return rounds.astype(np.int64, copy=False)


def _require_sound(
    policy: Policy,
    rounds: NDArray[Any],
    count: int,
    total: NDArray[Any],
    cap: NDArray[Any],
    options: PlanOptions,
) -> None:
    """Refuse rounds of another shape, or too few or too many of them."""
    said = f'plan.rounds = "{policy.name}" ({place_of(policy.allocate)}) gives'
    devices = np.broadcast_shapes(total.shape, cap.shape[-1:])
    if rounds.dtype.kind not in "iu" or rounds.shape != (count, *devices):
        raise ScenarioError(
            f"{said} {rounds.dtype} {list(rounds.shape)}; return whole numbers "
            f"{[count, *devices]}, one for each iteration and device"
        )
    least = 0 if policy.zeros else policy.least(options)
    for wrong, word, bound in (
        (rounds < least, "less than the least of", least),
        (rounds > cap, "more than the cap of", cap),
    ):
        if wrong.any():
            t, *device = (int(i) for i in np.argwhere(wrong)[0])
            limit = np.broadcast_to(bound, rounds.shape)[(t, *device)]
            who = "{device}" if device else "the device"
            raise ScenarioError(
                f"{{gives}} {who} {{rounds:round}} in row {{row}}, {word} {{limit}}; keep within "
                "the arguments of allocate",
                device=device[0] if device else None,
                figures={
                    "gives": said,
                    "rounds": rounds[(t, *device)],
                    "row": t + 1,
                    "limit": limit,
                },
            )
    over = np.atleast_1d(rounds.sum(axis=0) > total)
    if over.any():
        worst = int(np.argmax(over))
        most = np.broadcast_to(total, over.shape)[worst]
        raise ScenarioError(
            "{gives} {device} more rounds than the {most} that its battery pays for; let them sum "
            "to the total at most",
            device=worst,
            figures={"gives": said, "most": most},
        )


def count_iterations(iterations: int, start: int = 1) -> int:
    """Number of iterations from ``start`` to the end, both included.

    >>> count_iterations(5, 3)
    3
    """
    if not 1 <= start <= iterations:
        raise ScenarioError(
            f"iterations {start}..{iterations} do not exist; set plan.iterations to at least "
            f"{max(start, 1)}"
        )
    return iterations - start + 1
