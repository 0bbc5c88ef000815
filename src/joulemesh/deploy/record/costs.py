"""Joules and seconds of every device and iteration: by the plan, by simulation, by meters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.device.continuation import Replanner
from joulemesh.deploy.record.history import History, Seen
from joulemesh.deploy.view import FINISHED, UNHELD, View
from joulemesh.planning.plan import Plan
from joulemesh.planning.walk import Continuation
from joulemesh.world.devices import DeviceArrays

FloatArray = NDArray[np.float64]

QUANTITIES = ("rounds", "train_j", "exchange_j", "train_s", "exchange_s")


@dataclass(frozen=True, eq=False)
class Costs:
    """What iterations cost, by one source; NaN where a device takes no part or nothing is known."""

    source: str  # where the figures come from, in words
    rounds: FloatArray  # float64 [n, N], local rounds
    train_j: FloatArray  # float64 [n, N], joules of local training
    # float64 [n, N], joules of the exchange, and of what a device draws at rest while the iteration
    # lasts
    exchange_j: FloatArray
    train_s: FloatArray  # float64 [n, N], seconds of local training
    # float64 [n, N], seconds from the end of a device's own training to the end of the iteration:
    # the exchange, and the wait for slower devices
    exchange_s: FloatArray

    @property
    def joules(self) -> FloatArray:
        return self.train_j + self.exchange_j

    @property
    def seconds(self) -> FloatArray:
        return self.train_s + self.exchange_s

    def only(self, device: int) -> Costs:
        figures = {name: getattr(self, name)[:, [device]] for name in QUANTITIES}
        return replace(self, **figures)


def _empty(source: str, iterations: int, devices: int) -> Costs:
    shape = (iterations, devices)
    return Costs(source, *(np.full(shape, np.nan) for _ in QUANTITIES))


def planned(plan: Plan) -> Costs:
    active = plan.active
    train_s = plan.rounds * plan.world.devices.round_latency_s
    figures = (
        plan.rounds.astype(np.float64),
        plan.compute_j,
        plan.exchange_j + _rest_j(plan.world.devices, plan.latency_s[:, None]),
        train_s,
        plan.latency_s[:, None] - train_s,
    )
    return Costs("the plan", *(np.where(active, one, np.nan) for one in figures))


def _rest_j(devices: DeviceArrays, seconds: FloatArray | float) -> FloatArray:
    return np.asarray(0.0 if devices.idle_w is None else devices.idle_w * seconds)


def continued(plan: Continuation, iterations: int) -> Costs:
    made = _empty("the plan of a view", iterations, plan.timeline.rounds.shape[1])
    devices = plan.ground.world.devices
    for t in range(plan.start, min(plan.last, iterations) + 1):
        rounds, active = plan.rounds(t), plan.active(t)
        train_s = rounds * devices.round_latency_s
        iteration_s = plan.training_s(t) + plan.exchange_s(t)
        figures = (
            rounds,
            rounds * devices.round_energy_j,
            plan.exchange_j(t) + _rest_j(devices, iteration_s),
            train_s,
            iteration_s - train_s,
        )
        for name, figure in zip(QUANTITIES, figures, strict=True):
            getattr(made, name)[t - 1] = np.where(active, figure, np.nan)
    return made


def simulated(first: Costs, later: Sequence[tuple[View, Costs]]) -> Costs:
    made = {name: getattr(first, name).copy() for name in QUANTITIES}
    for view, costs in later:
        absent = np.ones(first.rounds.shape[1], dtype=np.bool_)
        absent[list(view.members)] = False
        for name, figures in made.items():
            figures[view.start - 1 :] = np.nan
            rows = getattr(costs, name)[view.start - 1 : len(figures)]
            figures[view.start - 1 : view.start - 1 + len(rows)] = rows
            figures[view.start - 1 :, absent] = np.nan
    count = "1 view change" if len(later) == 1 else f"{len(later):,} view changes"
    views = f", planned again for {count}" if later else ""
    return Costs(f"simulation of the scenario{views}", **made)


def metered(histories: Sequence[History], iterations: int) -> Costs:
    figures = (by_iteration(histories, iterations, name) for name in QUANTITIES)
    return Costs("meters of the devices, from their journals", *figures)


def by_iteration(histories: Sequence[History], iterations: int, figure: str) -> FloatArray:
    """float64 [n, N]: one of the `FIGURES`; NaN where a journal has none."""
    made = np.full((iterations, len(histories)), np.nan)
    for place, history in enumerate(histories):
        known = (history.iterations >= 1) & (history.iterations <= iterations)
        made[history.iterations[known] - 1, place] = history.column(figure)[known]
    return made


def iteration_seconds(histories: Sequence[History]) -> tuple[float, ...]:
    ends: dict[int, list[float]] = {}
    told = [one for one in histories if len(one.iterations)]
    for one in told:
        for t, at in zip(one.iterations.tolist(), one.column("at").tolist(), strict=True):
            ends.setdefault(t, []).append(at)
    whole: dict[int, float] = {t: max(at) for t, at in ends.items() if len(at) == len(told)}
    ordered: NDArray[np.float64] = np.array([whole[t] for t in sorted(whole)])
    follows = np.diff(sorted(whole)) == 1
    return tuple(np.diff(ordered)[follows].tolist())


def mean_iteration_s(histories: Sequence[History], before: Costs) -> tuple[float, float]:
    """Mean seconds of an iteration after the first: planned, and measured; NaN if not known."""
    # Measured is from one iteration's end to the next one's, saving included; the first, in which
    # devices wait for each other's start, has none.
    measured = iteration_seconds(histories)
    rows = before.seconds[1:]
    known = rows[np.isfinite(rows).any(axis=1)]
    planned = float(np.nanmax(known, axis=1).mean()) if len(known) else float("nan")
    return planned, float(np.mean(measured)) if measured else float("nan")


_UNPLANNED = (FINISHED, UNHELD)  # digests of views that have no plan


def planned_again(
    plan: Plan, before: Costs, views: Sequence[Seen], reserve: float
) -> tuple[Costs, list[str]]:
    made, notes = [], []
    replanner = Replanner(plan.ground, 0, reserve)
    for view in (seen.view for seen in views):
        if view.digest in _UNPLANNED or view.start > plan.iterations:
            continue
        try:
            rest = replanner.plan(view)
        except JoulemeshError as refusal:
            notes.append(f"View {view.number} could not be planned again here: {refusal}")
            continue
        if rest.view.digest != view.digest:
            notes.append(
                f"View {view.number} gives another plan here ({rest.view.digest[:12]}) than on the "
                f"devices ({view.digest[:12]}): its simulated figures are those of this machine."
            )
        made.append((view, continued(rest.rest, plan.iterations)))
    return simulated(before, made), notes
