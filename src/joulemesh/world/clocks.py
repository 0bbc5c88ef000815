"""What a round costs each device by how fast its processor runs: joules against seconds.

At the relative clock a, a round takes l/a seconds and e a² joules above rest (E = θ C D f²): the
cubic law of power, which is a model. Where a table of operating points was measured, the curve is
its lower convex hull: between two neighbouring points a device runs part of its work at the one and
the rest at the other. On both curves joules fall while seconds grow, and at a constant clock some
rounds within some seconds cost least, since the curves are convex (notes: clocks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.units import unit_of
from joulemesh.scenario import Scenario
from joulemesh.scenario.sections import Devices
from joulemesh.tables import number_column, read_table

__all__ = ["Clocks", "cubic", "hull", "measured"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Clocks:
    """The price of a round on N devices, joules against seconds: convex, and falling.

    Attributes:
        points_s: float64 [N, P]: seconds of a round at each point, from the fastest on; a device
            with fewer points repeats its last.
        points_j: float64 [N, P]: its joules.
        modelled: between two points joules follow the cubic law; otherwise they are mixed.
        dropped: measured points that are of no use.
        sources: where measured points come from.

    >>> pair = cubic(np.array([1.0]), np.array([8.0]), 0.5)
    >>> pair.round_j(np.array([1.0, 2.0, 4.0])[:, None]).ravel().tolist()
    [8.0, 2.0, 2.0]
    >>> pair.most(np.array([8.0]), 2.0).round(6).tolist()  # 2 rounds at full clock cost 16 J
    [1.587401]
    """

    points_s: FloatArray
    points_j: FloatArray
    modelled: bool = True
    dropped: int = 0
    sources: tuple[str, ...] = ()

    @property
    def fastest_s(self) -> FloatArray:
        """float64 [N]: seconds of a round at full clock."""
        return np.asarray(self.points_s[:, 0])

    @property
    def slowest_s(self) -> FloatArray:
        """float64 [N]: seconds of a round beyond which its joules no longer fall."""
        return np.asarray(self.points_s[:, -1])

    def round_j(self, seconds: FloatArray) -> FloatArray:
        """Joules [..., N] of a round that may take so many seconds."""
        if self.modelled:
            clock = self.fastest_s / np.clip(seconds, self.fastest_s, self.slowest_s)
            return np.asarray(self.points_j[:, 0] * clock**2)
        held = np.clip(seconds, self.fastest_s, self.slowest_s)
        joules = np.broadcast_to(self.points_j[:, -1], held.shape)
        for base, slope in self._lines():  # a convex curve is the highest of its chords
            joules = np.maximum(joules, base + slope * held)
        return joules

    def stretched_s(self, rounds: ArrayLike, window_s: FloatArray) -> FloatArray:
        """Seconds [n, N] in which devices train some rounds, if they have window_s [n] for them."""
        work = np.asarray(rounds, np.float64)
        longest = np.minimum(window_s[:, None], work * self.slowest_s)
        return np.asarray(np.maximum(longest, work * self.fastest_s))

    def joules(self, rounds: ArrayLike, training_s: FloatArray) -> FloatArray:
        """Joules [n, N] of some rounds, which may be fractions, in so many seconds."""
        work = np.asarray(rounds, np.float64)
        each_s = np.divide(training_s, work, out=np.zeros_like(training_s), where=work > 0)
        return np.asarray(work * self.round_j(each_s))

    def most(self, joules: FloatArray, seconds: ArrayLike) -> FloatArray:
        """The most rounds [N], fractions included, for some joules [N] in some seconds.

        They are trained at one clock throughout, or at a mixture of two points, which is the best
        that can be done with them.
        """
        held_j, time_s = np.maximum(joules, 0.0), np.maximum(np.asarray(seconds, float), 0.0)
        rounds = np.minimum(time_s / self.fastest_s, held_j / self.points_j[:, -1])
        if self.modelled:
            square = held_j / self.points_j[:, 0] * (time_s / self.fastest_s) ** 2
            return np.asarray(np.minimum(rounds, np.cbrt(square)))
        for base, slope in self._lines():
            spared = np.where(slope < 0, -slope * np.where(slope < 0, time_s, 0.0), 0.0)
            rounds = np.minimum(rounds, (held_j + spared) / base)
        return np.asarray(rounds)

    def _lines(self) -> list[tuple[FloatArray, FloatArray]]:
        """Joules at zero seconds, and joules per second, of the chords between points; [N] each."""
        found = []
        for k in range(self.points_s.shape[1] - 1):
            wide = self.points_s[:, k + 1] - self.points_s[:, k]
            fall = self.points_j[:, k + 1] - self.points_j[:, k]
            slope = np.divide(fall, wide, out=np.zeros_like(wide), where=wide > 0)
            found.append((self.points_j[:, k] - slope * self.points_s[:, k], slope))
        return found

    def among(self, who: NDArray[np.bool_]) -> Clocks:
        """Of some devices, bool [N]."""
        return replace(self, points_s=self.points_s[who], points_j=self.points_j[who])

    def with_server(self) -> Clocks:
        """With one device more, which trains nothing."""
        nothing = np.zeros((1, self.points_s.shape[1]))
        both = (self.points_s, self.points_j)
        seconds, joules = (np.append(part, nothing, axis=0) for part in both)
        return replace(self, points_s=seconds, points_j=joules)


def cubic(round_s: FloatArray, round_j: FloatArray, lowest: float) -> Clocks:
    """The cubic law from full clock down to a share of it."""
    seconds = np.stack([round_s, round_s / lowest], axis=1)
    return Clocks(seconds, np.stack([round_j, round_j * lowest**2], axis=1))


def hull(points: Sequence[tuple[FloatArray, FloatArray]], sources: Sequence[str] = ()) -> Clocks:
    """The lower convex hull of each device's points (seconds, joules).

    A point that is slower and no cheaper than another is of no use, nor is one above the line
    between its neighbours.

    >>> curve = hull([(np.array([1.0, 2.0, 3.0, 4.0]), np.array([9.0, 8.0, 3.0, 5.0]))])
    >>> curve.points_s.tolist(), curve.points_j.tolist(), curve.dropped
    ([[1.0, 3.0]], [[9.0, 3.0]], 2)
    """
    kept = [_lower(seconds, joules) for seconds, joules in points]
    longest = max(len(one) for one in kept)
    places = [np.append(one, np.repeat(one[-1], longest - len(one))) for one in kept]
    both = [
        np.stack([part[place] for part, place in zip(parts, places, strict=True)])
        for parts in zip(*points, strict=True)
    ]
    dropped = sum(len(one[0]) for one in points) - sum(len(one) for one in kept)
    return Clocks(both[0], both[1], modelled=False, dropped=dropped, sources=tuple(sources))


def _lower(seconds: FloatArray, joules: FloatArray) -> IntArray:
    """The points of a lower convex hull, in the order of their seconds."""
    order = np.lexsort((joules, seconds))
    kept: list[int] = []
    for k in order.tolist():
        if kept and joules[k] >= joules[kept[-1]]:
            continue
        while len(kept) > 1 and _above(seconds[[*kept[-2:], k]], joules[[*kept[-2:], k]]):
            kept.pop()
        kept.append(k)
    return np.array(kept)


def _above(seconds: FloatArray, joules: FloatArray) -> bool:
    """Is the middle one of three points above the line between the others, or on it?"""
    wide, fall = np.diff(seconds), np.diff(joules)
    return bool(fall[0] * wide[1] >= fall[1] * wide[0])


# A table of points ---------------------------------------------------------------------------


def measured(scenario: Scenario, steps: FloatArray) -> Clocks:
    """The curves by ``devices.operating_points``, for rounds of so many steps [N]."""
    path = scenario.devices.operating_points
    assert path is not None
    columns = read_table(path)
    step_s, step_j = (_positive(columns, name, path) for name in ("step_s", "step_j"))
    sources = tuple(dict.fromkeys(filter(None, columns.get("source", ()))))
    points = [
        (count * step_s[rows], count * step_j[rows])
        for count, rows in zip(steps.tolist(), _rows(scenario, columns, path), strict=True)
    ]
    return hull(points, sources)


def _positive(columns: dict[str, list[str]], name: str, path: str) -> FloatArray:
    values = number_column(columns, name, path, unit_of(name))
    wrong = ~((values > 1e-100) & (values < 1e100))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ScenarioError(
            f"{path}, row {row + 2}: {name} = {values[row]:g} must be above 0; correct it or "
            "drop the row",
            field="devices.operating_points",
        )
    return values


def _rows(scenario: Scenario, columns: dict[str, list[str]], path: str) -> tuple[IntArray, ...]:
    """The rows of each device: by its number or name, otherwise by its profile."""
    devices = scenario.devices
    if ("device" in columns) == ("profile" in columns):
        has = "both 'device' and 'profile'" if "device" in columns else "neither"
        raise ScenarioError(
            f"{path} needs a column 'device' (its number or name) or 'profile', and has {has}; "
            f"its columns are {', '.join(columns)}",
            field="devices.operating_points",
        )
    table = {} if devices.table is None else read_table(devices.table)
    numbers = [str(device) for device in range(devices.count)]
    kind = "device" if "device" in columns else "profile"
    keys = [numbers, table.get("name", numbers)]
    if kind == "profile":
        keys = [_profiles(devices, table)]
    named: dict[str, list[int]] = {}
    for row, cell in enumerate(columns[kind]):
        named.setdefault(cell, []).append(row)
    known = {one for names in keys for one in names}
    stranger = next((cell for cell in named if kind == "device" and cell not in known), None)
    if stranger is not None:
        raise ScenarioError(
            f"{path}, row {named[stranger][0] + 2}: device {stranger!r:.60} is not one of "
            f"0..{devices.count - 1}{' or a name in devices.table' if 'name' in table else ''}",
            field="devices.operating_points",
        )
    found = [
        np.array(sorted({row for names in keys for row in named.get(names[device], ())}), np.int64)
        for device in range(devices.count)
    ]
    bare = next((device for device, rows in enumerate(found) if not len(rows)), None)
    if bare is not None:
        raise ScenarioError(
            "{device} has no operating point in {path}; add a row with its seconds and joules",
            device=bare,
            figures={"path": path},
            field="devices.operating_points",
        )
    return tuple(found)


def _profiles(devices: Devices, table: Mapping[str, Sequence[str]]) -> list[str]:
    """The devices' profiles; empty for those without one."""
    given = table.get("profile") if devices.profile == "profile" else devices.profile
    one = [given] * devices.count if given is None or isinstance(given, str) else list(given)
    return [name or "" for name in one]
