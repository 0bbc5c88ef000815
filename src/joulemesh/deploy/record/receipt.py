"""The receipt of a deployment: joules and seconds of every device and iteration, side by side.

*Planned* is what the plan gave before anything began. *Simulated* is what the same physics gives
for what was to be done after every change of view. What the device's own meter says is *charged*
where the meter is a model, which counts what the device did at the plan's prices, and *measured*
where it is a meter of the machine. Rounds and seconds are always measured.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any

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
    train_s = plan.training_s
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
        train_s, train_j = plan.trained(t)
        iteration_s = plan.training_s(t) + plan.exchange_s(t)
        figures = (
            rounds,
            train_j,
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


FORMAT = "joulemesh receipt 2"
KINDS = ("planned", "simulated", "metered")
_JOULES = ("planned", "simulated", "charged", "measured")
COLUMNS = {
    name: _JOULES if name.endswith("_j") else ("planned", "simulated", "measured")
    for name in QUANTITIES
}
"""The columns of each quantity in the files; a device's joules are in one of the last two."""


@dataclass(frozen=True, eq=False)
class Receipt:
    """Planned, simulated and metered costs of a fleet, each with its source."""

    histories: Sequence[History]  # one for each device; an empty one where its journal is missing
    planned: Costs
    simulated: Costs  # for the views that were installed
    _: KW_ONLY
    fleet: str
    plan: str  # digest of its plan
    battery_j: FloatArray  # float64 [N], joules that each may spend
    # seconds that the scenario allows to an iteration; None without a limit
    deadline_s: float | None = None
    reserve: float = 0.0  # share of each battery that plans made after a fault leave alone

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.histories)

    @cached_property
    def metered(self) -> Costs:
        return metered(self.histories, self.iterations)

    @cached_property
    def spent_j(self) -> FloatArray:
        """float64 [N], all that meters counted, also what was lost; NaN without a journal."""
        return np.array([one.spent_j for one in self.histories])

    @cached_property
    def views(self) -> FloatArray:
        """float64 [n, N], the view of each committed iteration."""
        return by_iteration(self.histories, self.iterations, "view")

    @cached_property
    def meters(self) -> tuple[str, ...]:
        """[N], where each device's joules come from."""
        return tuple(one.meter for one in self.histories)

    @property
    def charged(self) -> NDArray[np.bool_]:
        """bool [N]: whose joules are charged at the plan's prices, and not measured."""
        return np.array([meter.startswith("modelled") for meter in self.meters], np.bool_)

    @property
    def word(self) -> str:
        """What the joules of the devices' meters are: charged, measured, or some of both."""
        known = np.isfinite(self.spent_j)
        charged = bool((self.charged & known).any())
        measured = bool((~self.charged & known).any())
        if charged and measured:
            return "charged or measured"
        return "measured" if measured else "charged"

    @property
    def iterations(self) -> int:
        return len(self.planned.rounds)

    @property
    def missing(self) -> NDArray[np.int64]:
        """int64 [N]: iterations of each device's views of which its journal says nothing."""
        # They were not carried out, or not written down: a crash may do either.
        wanted = np.isfinite(self.simulated.rounds) & np.isnan(self.metered.rounds)
        return np.asarray(wanted.sum(axis=0))

    @property
    def outside_j(self) -> FloatArray:
        # Work that was lost in a crash and done again, messages sent twice, parameters given to
        # others.
        return np.asarray(self.spent_j - np.nansum(self.metered.joules, axis=0))

    def deadline(self, place: int) -> dict[str, float | int | None] | None:
        """How a device kept the deadline of an iteration; None without one."""
        # Figures: the ``deadline_s``, how many ``iterations`` were timed, how many of them were
        # ``late``, and how many times the deadline the ``worst`` took.
        if self.deadline_s is None:
            return None
        took_s = self.metered.train_s[:, place] + self.metered.exchange_s[:, place]
        took_s = took_s[np.isfinite(took_s)]
        return {
            "deadline_s": self.deadline_s,
            "iterations": len(took_s),
            "late": int((took_s > self.deadline_s).sum()),
            "worst": _plain(float(took_s.max(initial=0.0) / self.deadline_s)),
        }

    def to_json(self) -> str:
        """As one JSON object: sources, totals, and each device's figures by iteration."""
        sources = {
            "planned": self.planned.source,
            "simulated": self.simulated.source,
            "charged": "what devices did, at the plan's prices, from their journals",
            "measured": "meters and clocks of the devices, from their journals",
        }
        devices = [self._device(place) for place in range(len(self.names))]
        record = {
            "format": FORMAT,
            "fleet": self.fleet,
            "plan": self.plan,
            "sources": sources,
            "iteration_s": self._pace(),
            "devices": devices,
        }
        return json.dumps(record, allow_nan=False) + "\n"

    def _pace(self) -> dict[str, float | None]:
        planned, measured = mean_iteration_s(self.histories, self.planned)
        ratio = measured / planned if planned > 0 else math.nan
        named = {"planned": planned, "measured": measured, "ratio": ratio}
        return {name: _plain(value) for name, value in named.items()}

    def _device(self, place: int) -> dict[str, Any]:
        history = self.histories[place]
        view = self.views[:, place].tolist()
        figures: dict[str, Any] = {
            name: {kind: _figures(self._column(kind, name, place)) for kind in kinds}
            for name, kinds in COLUMNS.items()
        }
        totals = {
            kind: {
                unit: _total(
                    self._column(kind, f"train_{unit[0]}", place)
                    + self._column(kind, f"exchange_{unit[0]}", place)
                )
                for unit in ("joules", "seconds")
            }
            for kind in _JOULES
        }
        return {
            "device": history.device,
            "name": history.name,
            "battery_j": float(self.battery_j[place]),
            "reserve_j": float(self.reserve * self.battery_j[place]),
            "meter": history.meter,
            "trained_by": history.trained_by,
            "spent_j": _plain(self.spent_j[place]),
            "missing_iterations": int(self.missing[place]),
            "deadline": self.deadline(place),
            "totals": totals,
            "iteration": list(range(1, self.iterations + 1)),
            "view": [int(one) if math.isfinite(one) else None for one in view],
            **figures,
        }

    def _column(self, kind: str, name: str, place: int) -> FloatArray:
        """float64 [n]: a quantity of a device by one of the kinds; NaN where it has none."""
        if kind in ("planned", "simulated"):
            return np.asarray(getattr(getattr(self, kind), name)[:, place])
        found = getattr(self.metered, name)[:, place]
        by_model = bool(self.charged[place]) and name.endswith("_j")
        return np.asarray(found if by_model == (kind == "charged") else np.full_like(found, np.nan))

    def to_csv(self) -> str:
        """One row for each device and iteration; ``meter`` says where the joules come from."""
        named = [(kind, name) for name, kinds in COLUMNS.items() for kind in kinds]
        heads = [f"{kind}_{name}" for kind, name in named]
        lines = [",".join(["device", "name", "iteration", "view", *heads, "meter"])]
        shape = ",".join(["%d", "%.9g", *["%.9g"] * len(heads)])
        for place, history in enumerate(self.histories):
            first = f"{history.device},{_cell(history.name)},"
            last = f",{_cell(history.meter or 'no journal')}"
            rows = np.column_stack(
                [
                    np.arange(1, self.iterations + 1),
                    self.views[:, place],
                    *(self._column(kind, quantity, place) for kind, quantity in named),
                ]
            )
            lines += [
                first + (shape % tuple(row)).replace("nan", "") + last for row in rows.tolist()
            ]
        return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _figures(values: FloatArray) -> list[float | None]:
    known = np.isfinite(values) & (values != 0)
    scale = 10.0 ** (8 - np.floor(np.log10(np.abs(np.where(known, values, 1.0)))))
    short = np.where(known, np.rint(values * scale) / scale, 0.0)
    return [
        one if there else None
        for one, there in zip(short.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


def _plain(value: float) -> float | None:
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _total(values: FloatArray) -> float | None:
    return _plain(float(np.nansum(values))) if np.isfinite(values).any() else None
