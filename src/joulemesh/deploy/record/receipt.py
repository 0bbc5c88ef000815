"""The receipt of a deployment: joules and seconds of every device and iteration, side by side.

*Planned* is what the plan gave before anything began. *Simulated* is what the same physics gives
for what was to be done after every change of view. What the device's own meter says is *charged*
where the meter is a model, which counts what the device did at the plan's prices, and *measured*
where it is a meter of the machine. Rounds and seconds are always measured.
"""

from __future__ import annotations

__all__ = ["COLUMNS", "FORMAT", "KINDS", "Receipt"]

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.costs import QUANTITIES, Costs, mean_iteration_s, metered
from joulemesh.deploy.record.history import History

FloatArray = NDArray[np.float64]

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
        iteration_s: mean seconds of an iteration of the fleet, planned and measured; NaN where
            they are not known.
        trained_by: [N], the library that trained on each device, with its version.
        deadline_s: seconds that the scenario allows to an iteration; None without a limit.
        reserve: share of each battery that plans made after a fault leave alone.
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
    iteration_s: tuple[float, float] = (math.nan, math.nan)
    trained_by: tuple[str, ...] = ()
    deadline_s: float | None = None
    reserve: float = 0.0

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
        deadline_s: float | None = None,
        reserve: float = 0.0,
    ) -> Receipt:
        """The receipt of devices with their histories.

        Args:
            histories: one for each device; an empty one where its journal is missing.
            before: the planned costs.
            after: the simulated costs.
            fleet: what the fleet is called.
            plan: digest of its plan.
            battery_j: joules that each device may spend.
            deadline_s: seconds that the scenario allows to an iteration.
            reserve: share of each battery that plans made after a fault leave alone.
        """
        iterations = len(before.rounds)
        views = np.full(before.rounds.shape, np.nan)
        for place, one in enumerate(histories):
            known = (one.iterations >= 1) & (one.iterations <= iterations)
            views[one.iterations[known] - 1, place] = one.column("view")[known]
        return cls(
            fleet,
            plan,
            tuple(one.device for one in histories),
            tuple(one.name for one in histories),
            battery_j,
            before,
            after,
            metered(histories, iterations),
            np.array([one.spent_j for one in histories]),
            tuple(one.meter for one in histories),
            views,
            mean_iteration_s(histories, before),
            tuple(one.trained_by for one in histories),
            deadline_s,
            reserve,
        )

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
        """How many the plan has."""
        return len(self.planned.rounds)

    @property
    def missing(self) -> NDArray[np.int64]:
        """int64 [N]: iterations of each device's views of which its journal says nothing.

        They were not carried out, or not written down: a crash may do either.
        """
        wanted = np.isfinite(self.simulated.rounds) & np.isnan(self.metered.rounds)
        return np.asarray(wanted.sum(axis=0))

    @property
    def outside_j(self) -> FloatArray:
        """float64 [N]: joules metered outside of committed iterations.

        Work that was lost in a crash and done again, messages sent twice, parameters given to
        others.
        """
        return np.asarray(self.spent_j - np.nansum(self.metered.joules, axis=0))

    def deadline(self, place: int) -> dict[str, float | int | None] | None:
        """How a device kept the deadline of an iteration; None without one.

        Figures: the ``deadline_s``, how many ``iterations`` were timed, how many of them were
        ``late``, and how many times the deadline the ``worst`` took.
        """
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
        """Mean seconds of an iteration of the fleet, and measured over planned."""
        planned, measured = self.iteration_s
        ratio = measured / planned if planned > 0 else math.nan
        named = {"planned": planned, "measured": measured, "ratio": ratio}
        return {name: _plain(value) for name, value in named.items()}

    def _device(self, place: int) -> dict[str, Any]:
        figures: dict[str, Any] = {
            name: {kind: _figures(self._column(kind, name, place)) for kind in kinds}
            for name, kinds in COLUMNS.items()
        }
        totals = {
            kind: {
                "joules": _total(
                    self._column(kind, "train_j", place) + self._column(kind, "exchange_j", place)
                ),
                "seconds": _total(
                    self._column(kind, "train_s", place) + self._column(kind, "exchange_s", place)
                ),
            }
            for kind in _JOULES
        }
        return {
            "device": self.devices[place],
            "name": self.names[place],
            "battery_j": float(self.battery_j[place]),
            "reserve_j": float(self.reserve * self.battery_j[place]),
            "meter": self.meters[place],
            "trained_by": self.trained_by[place] if self.trained_by else "",
            "spent_j": _plain(self.spent_j[place]),
            "missing_iterations": int(self.missing[place]),
            "deadline": self.deadline(place),
            "totals": totals,
            "iteration": list(range(1, self.iterations + 1)),
            "view": [_whole(v) for v in self.views[:, place].tolist()],
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
        for place, name in enumerate(self.names):
            first = f"{self.devices[place]},{_cell(name)},"
            last = f",{_cell(self.meters[place] or 'no journal')}"
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
    """A text as a cell of a CSV file."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([text])
    return line.getvalue()


def _figures(values: FloatArray) -> list[float | None]:
    """Figures with nine digits; None where there is none.

    >>> _figures(np.array([1 / 3, np.nan, 0.0, 12345.678901234]))
    [0.333333333, None, 0.0, 12345.6789]
    """
    known = np.isfinite(values) & (values != 0)
    scale = 10.0 ** (8 - np.floor(np.log10(np.abs(np.where(known, values, 1.0)))))
    short = np.where(known, np.rint(values * scale) / scale, 0.0)
    return [
        one if there else None
        for one, there in zip(short.tolist(), np.isfinite(values).tolist(), strict=True)
    ]


def _plain(value: float) -> float | None:
    return float(f"{value:.9g}") if math.isfinite(value) else None


def _whole(value: float) -> int | None:
    return int(value) if math.isfinite(value) else None


def _total(values: FloatArray) -> float | None:
    return _plain(float(np.nansum(values))) if np.isfinite(values).any() else None
