"""The receipt of a deployment: joules and seconds of every device and iteration, three times.

*Planned* is what the plan gave before anything began. *Simulated* is what the same physics gives
for what was to be done after every change of view. *Metered* is what the device's own meter says.
"""

from __future__ import annotations

__all__ = ["FORMAT", "KINDS", "QUANTITIES", "Costs", "Receipt", "metered", "planned", "simulated"]

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.history import History
from joulemesh.deploy.view import View

if TYPE_CHECKING:
    from joulemesh.planning.plan import Plan

FloatArray = NDArray[np.float64]

FORMAT = "joulemesh receipt 1"
KINDS = ("planned", "simulated", "metered")
QUANTITIES = ("rounds", "train_j", "exchange_j", "train_s", "exchange_s")


@dataclass(frozen=True, eq=False)
class Costs:
    """What iterations cost, by one source; NaN where a device takes no part or nothing is known.

    Attributes:
        source: where the figures come from, in words.
        rounds: float64 [n, N], local rounds.
        train_j: float64 [n, N], joules of local training.
        exchange_j: float64 [n, N], joules of the exchange.
        train_s: float64 [n, N], seconds of local training.
        exchange_s: float64 [n, N], seconds from the end of a device's own training to the end of
            the iteration: the exchange, and the wait for slower devices.
    """

    source: str
    rounds: FloatArray
    train_j: FloatArray
    exchange_j: FloatArray
    train_s: FloatArray
    exchange_s: FloatArray

    @property
    def joules(self) -> FloatArray:
        """float64 [n, N]: joules of training and exchange together."""
        return self.train_j + self.exchange_j

    @property
    def seconds(self) -> FloatArray:
        """float64 [n, N]: seconds of the whole iteration."""
        return self.train_s + self.exchange_s


def _empty(source: str, iterations: int, devices: int) -> Costs:
    shape = (iterations, devices)
    return Costs(source, *(np.full(shape, np.nan) for _ in QUANTITIES))


def planned(plan: Plan) -> Costs:
    """What a plan costs, by its own physics.

    >>> import joulemesh
    >>> made = joulemesh.plan(joulemesh.Scenario.preset("default"))
    >>> costs = planned(made)
    >>> bool(np.allclose(costs.joules.sum(axis=0), made.spent_j))
    True
    >>> bool(np.allclose(costs.seconds[:, 7], made.latency_s))
    True
    """
    active = plan.active
    train_s = plan.rounds * plan.world.devices.round_latency_s
    figures = (
        plan.rounds.astype(np.float64),
        plan.compute_j,
        np.broadcast_to(plan.exchange_j, active.shape),
        train_s,
        plan.latency_s[:, None] - train_s,
    )
    return Costs("the plan", *(np.where(active, one, np.nan) for one in figures))


def simulated(first: Costs, later: Sequence[tuple[View, Costs]]) -> Costs:
    """What was to be done, view after view, by the plan's physics.

    Args:
        first: the costs of the plan.
        later: each view that was installed, with the costs of the plan that follows from it; its
            rows before the view's start are not used.

    >>> one = Costs("the plan", *(np.ones((3, 2)) for _ in QUANTITIES))
    >>> two = Costs("the plan", *(np.full((3, 2), 5.0) for _ in QUANTITIES))
    >>> simulated(one, [(View(1, 3, (0,)), two)]).train_j.tolist()
    [[1.0, 1.0], [1.0, 1.0], [5.0, nan]]
    """
    made = {name: getattr(first, name).copy() for name in QUANTITIES}
    for view, costs in later:
        absent = np.ones(first.rounds.shape[1], dtype=np.bool_)
        absent[list(view.members)] = False
        for name, figures in made.items():
            figures[view.start - 1 :] = np.nan
            rows = getattr(costs, name)[view.start - 1 : len(figures)]
            figures[view.start - 1 : view.start - 1 + len(rows)] = rows
            figures[view.start - 1 :, absent] = np.nan
    views = f", planned again for {len(later)} view changes" if later else ""
    return Costs(f"simulation of the scenario{views}", **made)


def metered(histories: Sequence[History], iterations: int) -> Costs:
    """What the devices' meters say, from their journals."""
    made = _empty("meters of the devices, from their journals", iterations, len(histories))
    for place, history in enumerate(histories):
        known = (history.iterations >= 1) & (history.iterations <= iterations)
        rows = history.iterations[known] - 1
        for name in QUANTITIES:
            getattr(made, name)[rows, place] = history.column(name)[known]
    return made


@dataclass(frozen=True, eq=False)
class Receipt:
    """Planned, simulated and metered costs of a fleet, each with its source.

    Attributes:
        fleet: what the fleet is called.
        plan: digest of its plan.
        devices: the devices' numbers.
        names: what the roster calls them.
        battery_j: float64 [N], joules that each may spend.
        planned: before the run.
        simulated: for the views that were installed.
        metered: by the devices.
        spent_j: float64 [N], all that each device's meter counted, what was lost and repeated
            included; NaN without a journal.
        meters: [N], where each device's joules come from.
        views: float64 [n, N], the view of each committed iteration.
    """

    fleet: str
    plan: str
    devices: tuple[int, ...]
    names: tuple[str, ...]
    battery_j: FloatArray
    planned: Costs
    simulated: Costs
    metered: Costs
    spent_j: FloatArray
    meters: tuple[str, ...]
    views: FloatArray

    @classmethod
    def of(
        cls,
        histories: Sequence[History],
        before: Costs,
        after: Costs,
        *,
        fleet: str,
        plan: str,
        battery_j: FloatArray,
    ) -> Receipt:
        """The receipt of devices with their histories.

        Args:
            histories: one for each device; an empty one where its journal is missing.
            before: the planned costs.
            after: the simulated costs.
            fleet: what the fleet is called.
            plan: digest of its plan.
            battery_j: joules that each device may spend.
        """
        iterations = len(before.rounds)
        views = np.full(before.rounds.shape, np.nan)
        for place, one in enumerate(histories):
            known = (one.iterations >= 1) & (one.iterations <= iterations)
            views[one.iterations[known] - 1, place] = one.column("view")[known]
        spent = [one.column("spent_j")[-1] if len(one.iterations) else np.nan for one in histories]
        return cls(
            fleet,
            plan,
            tuple(one.device for one in histories),
            tuple(one.name for one in histories),
            battery_j,
            before,
            after,
            metered(histories, iterations),
            np.array(spent),
            tuple(one.meter for one in histories),
            views,
        )

    @property
    def iterations(self) -> int:
        """How many the plan has."""
        return len(self.planned.rounds)

    @property
    def missing(self) -> NDArray[np.int64]:
        """int64 [N]: iterations of each device's own views of which its journal says nothing."""
        wanted = np.isfinite(self.simulated.rounds) & np.isnan(self.metered.rounds)
        return np.asarray(wanted.sum(axis=0))

    @property
    def outside_j(self) -> FloatArray:
        """float64 [N]: joules metered outside of committed iterations.

        Work that was lost in a crash and done again, messages sent twice, parameters given to
        others.
        """
        return np.asarray(self.spent_j - np.nansum(self.metered.joules, axis=0))

    def to_json(self) -> str:
        """As one JSON object: sources, totals, and each device's figures by iteration."""
        sources = {kind: getattr(self, kind).source for kind in KINDS}
        devices = [self._device(place) for place in range(len(self.names))]
        record = {
            "format": FORMAT,
            "fleet": self.fleet,
            "plan": self.plan,
            "sources": sources,
            "devices": devices,
        }
        return json.dumps(record, allow_nan=False) + "\n"

    def _device(self, place: int) -> dict[str, Any]:
        figures: dict[str, Any] = {
            name: {
                kind: [_plain(v) for v in getattr(getattr(self, kind), name)[:, place].tolist()]
                for kind in KINDS
            }
            for name in QUANTITIES
        }
        totals = {
            kind: {
                "joules": _total(getattr(self, kind).joules[:, place]),
                "seconds": _total(getattr(self, kind).seconds[:, place]),
            }
            for kind in KINDS
        }
        return {
            "device": self.devices[place],
            "name": self.names[place],
            "battery_j": float(self.battery_j[place]),
            "meter": self.meters[place],
            "spent_j": _plain(self.spent_j[place]),
            "missing_iterations": int(self.missing[place]),
            "totals": totals,
            "iteration": list(range(1, self.iterations + 1)),
            "view": [_whole(v) for v in self.views[:, place].tolist()],
            **figures,
        }

    def to_csv(self) -> str:
        """One row for each device and iteration; the sources stand in its last columns."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = [f"{kind}_{name}" for name in QUANTITIES for kind in KINDS]
        writer.writerow(
            ["device", "name", "iteration", "view", *heads, *(f"{kind}_source" for kind in KINDS)]
        )
        writer.writerows(self._rows())
        return text.getvalue()

    def _rows(self) -> Iterator[list[Any]]:
        sources = [self.planned.source, self.simulated.source]
        for place, name in enumerate(self.names):
            columns = [
                getattr(getattr(self, kind), quantity)[:, place].tolist()
                for quantity in QUANTITIES
                for kind in KINDS
            ]
            views = self.views[:, place].tolist()
            for t, (view, *figures) in enumerate(zip(views, *columns, strict=True), start=1):
                cells = ["" if math.isnan(one) else f"{one:.9g}" for one in (view, *figures)]
                last = [*sources, self.meters[place] or "no journal"]
                yield [self.devices[place], name, t, *cells, *last]


def _plain(value: float) -> float | None:
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _whole(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None


def _total(values: FloatArray) -> float | None:
    return _plain(float(np.nansum(values))) if np.isfinite(values).any() else None
