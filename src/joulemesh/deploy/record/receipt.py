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
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.deploy.record.costs import QUANTITIES, Costs, by_iteration, mean_iteration_s, metered
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
