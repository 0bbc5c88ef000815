"""Fading models by name. In: a name as the scenario writes it, links and their mean gains. Out: the
gains of every coherence block, and a forecast of those to come.
May not know: scenarios (``scenario``), or what is sent over the links (``aggregation``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.registries import CHANNELS
from joulemesh.tables import number_column, read_links, read_table

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Links:
    """What a fading model is given.

    Attributes:
        edges: int64 [E, 2], i < j, sorted, each link once.
        devices: number of devices N.
        mean_gain: float64 [E]: power gains without fading.
        chance: the random stream of a coherence block (counted from 0).
    """

    edges: NDArray[np.int64]
    devices: int
    mean_gain: FloatArray
    chance: Callable[[int], np.random.Generator]


class Fading(Protocol):
    """The gains of all links over coherence blocks (counted from 0).

    Gains are float64 [E], or [E, 2] where the two directions of a link differ: column 0 is from
    ``edges[:, 0]`` to ``edges[:, 1]``.
    """

    def gain(self, block: int) -> FloatArray:
        """The realised gains in a block."""

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The gains whose link energy is exceeded with probability 1 − quantile."""

    def edition(self, seen: int) -> int:
        """A number that changes when the forecast does."""

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """What was read from files, whose contents may change under their names."""


@dataclass(frozen=True)
class FadingModel:
    """A way in which links fade.

    Attributes:
        name: as the scenario writes it.
        description: one line.
        make: (links, parameters by name, argument) -> their fading; None if gains never change.
        parameters: fields of the scenario's section ``network`` that it takes.
        argument: what follows the name and a colon, in words; empty if nothing does.
    """

    name: str
    description: str
    make: Callable[[Links, Mapping[str, Any], str], Fading | None]
    parameters: tuple[str, ...] = ()
    argument: str = ""


def spellings(names: Iterable[str] | None = None) -> tuple[str, ...]:
    """How a scenario writes some models (all that are known by default), arguments included."""
    models = [CHANNELS[name] for name in (CHANNELS.names() if names is None else names)]
    return tuple(
        f"{model.name}:{model.argument}" if model.argument else model.name for model in models
    )


def find(text: str) -> tuple[FadingModel, str]:
    """The model that a scenario names, and its argument."""
    name, colon, argument = text.partition(":")
    model = CHANNELS[name]
    if bool(argument) != bool(model.argument) or (colon and not model.argument):
        wanted = f"{name}:{model.argument}" if model.argument else name
        raise ScenarioError(f"must be written {wanted!r}, not {text!r:.60}")
    return model, argument


def distribution(
    name: str,
    description: str,
    *,
    draw: Callable[..., FloatArray],
    quantile: Callable[..., float],
    parameters: tuple[str, ...] = (),
) -> FadingModel:
    """A fading model that multiplies the mean gain of every link by a random power.

    Args:
        name: as the scenario writes it.
        description: one line.
        draw: (random stream, number of links, parameters) -> float64 [E], of mean one. A link's
            power must not depend on how many links follow it.
        quantile: (probability q, parameters) -> the power that a fade exceeds with probability q,
            whose link energy is therefore the q quantile.
        parameters: fields of the scenario's section ``network`` that both take by name.
    """

    def make(links: Links, given: Mapping[str, Any], _argument: str) -> _Drawn:
        return _Drawn(links, partial(draw, **given), partial(quantile, **given))

    return FadingModel(name, description, make, parameters)


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Gains that are pure functions of the seed, the block and the link."""

    links: Links
    draw: Callable[[np.random.Generator, int], FloatArray]
    quantile: Callable[[float], float]
    data: tuple[FloatArray, ...] = ()

    def gain(self, block: int) -> FloatArray:
        mean_gain = self.links.mean_gain
        return mean_gain * self.draw(self.links.chance(block), len(mean_gain))

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The distribution is known, so what has been seen teaches nothing."""
        return np.asarray(self.links.mean_gain * self.quantile(quantile))

    def edition(self, seen: int) -> int:
        return 0


# SciPy's special functions are imported where they are needed, so that planning starts at once.


def _rayleigh_draw(rng: np.random.Generator, links: int) -> FloatArray:
    return rng.exponential(size=links)


def _rayleigh_quantile(q: float) -> float:
    return float(-np.log(q))


def _rician_draw(rng: np.random.Generator, links: int, *, rician_k_db: float | str) -> FloatArray:
    """Power of a fixed path, K times as strong as all scattered ones together, and of these."""
    k = _linear(rician_k_db)
    scattered = rng.standard_normal((links, 2))
    scattered[:, 0] += np.sqrt(2 * k)
    return np.asarray((scattered**2).sum(axis=1) / (2 * (k + 1)))


def _rician_quantile(q: float, *, rician_k_db: float | str) -> float:
    # 2 (K + 1) times the power is noncentral chi-square: 2 degrees of freedom, noncentrality 2 K.
    from scipy.special import chndtrix

    k = _linear(rician_k_db)
    return float(chndtrix(1.0 - q, 2.0, 2 * k) / (2 * (k + 1)))


def _nakagami_draw(rng: np.random.Generator, links: int, *, nakagami_m: float) -> FloatArray:
    return rng.standard_gamma(nakagami_m, size=links) / nakagami_m


def _nakagami_quantile(q: float, *, nakagami_m: float) -> float:
    """The power is a gamma variable of shape m and mean one."""
    from scipy.special import gammainccinv

    return float(gammainccinv(nakagami_m, q) / nakagami_m)


def _linear(decibels: float | str) -> float:
    return float(10 ** (float(decibels) / 10))


for _model in (
    FadingModel(
        "none", "gains stay as path loss and shadowing make them", lambda links, given, _: None
    ),
    distribution(
        "rayleigh",
        "no line of sight: the power is exponential",
        draw=_rayleigh_draw,
        quantile=_rayleigh_quantile,
    ),
    distribution(
        "rician",
        "a line of sight, K times as strong as the scattered paths (K = 0 is rayleigh)",
        draw=_rician_draw,
        quantile=_rician_quantile,
        parameters=("rician_k_db",),
    ),
    distribution(
        "nakagami",
        "gamma power of shape m, which fits many measurements (m = 1 is rayleigh)",
        draw=_nakagami_draw,
        quantile=_nakagami_quantile,
        parameters=("nakagami_m",),
    ),
):
    CHANNELS.register(_model)


IntArray = NDArray[np.int64]

_GAIN, _RELATIVE = "gain", "relative_gain"
_MOST = 2**53  # beyond this, float64 skips integers


@dataclass(frozen=True, eq=False)
class Trace:
    """Gains of t = 1..T, one t for each coherence block, and those measured before the start.

    A planner may look at no more than it has seen: the forecast is a quantile of the past and of
    the blocks seen, taken anew whenever their number has doubled, and the mean gain as long as
    there is neither.

    Attributes:
        path: of the file, for messages.
        gains: float64 [T, E] or [T, E, 2].
        past: float64 [P, E] or [P, E, 2]: of t ≤ 0.
        mean_gain: float64 [E]: of path loss and shadowing.
        end: what follows t = T: ``"refuse"``, ``"hold"`` or ``"repeat"``.
    """

    path: str
    gains: FloatArray
    past: FloatArray
    mean_gain: FloatArray
    end: str

    def gain(self, block: int) -> FloatArray:
        """The gains of t = block + 1."""
        last = len(self.gains)
        if block >= last and self.end == "refuse":
            raise ScenarioError(
                f"{self.path} ends at t = {last}, and t = {block + 1} is wanted; lower "
                'plan.iterations, add rows, or set network.trace_end to "hold" or "repeat"'
            )
        row = block % last if self.end == "repeat" else min(block, last - 1)
        return np.asarray(self.gains[row])

    def forecast(self, quantile: float, seen: int) -> FloatArray:
        """The quantile of link energy over what is known: no gain lies between two measured."""
        known = np.concatenate([self.past, self.gains[: self.edition(seen)]])
        if not len(known):
            return self.mean_gain
        return np.asarray(np.quantile(known, 1.0 - quantile, axis=0, method="inverted_cdf"))

    def edition(self, seen: int) -> int:
        """How many blocks the forecast rests on: the largest power of two that has been seen."""
        return min(1 << (seen.bit_length() - 1), len(self.gains)) if seen else 0

    @property
    def data(self) -> tuple[FloatArray, ...]:
        """All gains."""
        return self.gains, self.past


def read_trace(path: str, links: Links, end: str = "refuse") -> Trace:
    """Read a CSV file with the columns t, i, j and ``gain`` or ``relative_gain``."""
    columns = read_table(path)
    ends = read_links(columns, path, links.devices)
    time, value = _times(columns, path), _values(columns, path)
    key = ends.min(axis=1) * links.devices + ends.max(axis=1)
    wanted = links.edges[:, 0] * links.devices + links.edges[:, 1]
    link = np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)
    used = wanted[link] == key
    way = (ends[:, 0] > ends[:, 1]).astype(np.int64)
    gains, times = _table(path, links.edges, time[used], link[used], way[used], value[used])
    if _RELATIVE in columns:
        gains = gains * links.mean_gain[None, :, None]
    if (gains[..., 0] == gains[..., 1]).all():
        gains = gains[..., 0]
    return Trace(path, gains[times >= 1], gains[times < 1], links.mean_gain, end)


def _times(columns: dict[str, list[str]], path: str) -> IntArray:
    time = number_column(columns, "t", path)
    bad = (time != np.floor(time)) | (np.abs(time) > _MOST)
    if bad.any():
        row = int(np.argmax(bad))
        raise ScenarioError(
            f"{path}, row {row + 2}: t = {time[row]:g} must be a whole number; the first coherence "
            "block is t = 1, and t of 0 or less lies before the start"
        )
    return time.astype(np.int64)


def _values(columns: dict[str, list[str]], path: str) -> FloatArray:
    given = [name for name in (_GAIN, _RELATIVE) if name in columns]
    if len(given) != 1:
        raise ScenarioError(
            f"{path} has {'both' if given else 'neither'} of the columns {_GAIN!r} (a power gain) "
            f"and {_RELATIVE!r} (times the gain without fading); give one of them"
        )
    value = number_column(columns, given[0], path)
    if not (value > 0).all():
        row = int(np.argmin(value > 0))
        raise ScenarioError(
            f"{path}, row {row + 2}: {given[0]} {value[row]:g} must be greater than 0"
        )
    return value


def _table(
    path: str, edges: IntArray, time: IntArray, link: IntArray, way: IntArray, value: FloatArray
) -> tuple[FloatArray, IntArray]:
    """float64 [times, E, 2] and the times, ascending: before the start, then 1, 2, …, T."""
    time = np.minimum(time, len(time) + 1)  # more than there are rows leaves a gap all the same
    last = int(time.max(initial=1))
    before = np.unique(time[time < 1])
    row_of = np.where(time < 1, np.searchsorted(before, time), len(before) + time - 1)
    # Which gains there are is found out before room is made for those that there should be.
    present = np.unique(row_of * len(edges) + link)
    absent = np.flatnonzero(present != np.arange(len(present)))
    if len(absent) or len(present) < (len(before) + last) * len(edges):
        row, k = divmod(int(absent[0]) if len(absent) else len(present), len(edges))
        t = int(before[row]) if row < len(before) else row - len(before) + 1
        i, j = edges[k]
        raise ScenarioError(
            f"{path} has no gain for the link {i}-{j} at t = {t}; add the row {t},{i},{j},GAIN"
        )
    gains = np.full((len(before) + last, len(edges), 2), np.nan)
    gains[row_of, link, way] = value
    again = gains[row_of, link, way] != value
    if again.any():
        row = int(np.argmax(again))
        i, j = edges[link[row]][:: -1 if way[row] else 1]
        raise ScenarioError(
            f"{path} has two gains from {i} to {j} at t = {time[row]} ({value[row]:g} and "
            f"{gains[row_of[row], link[row], way[row]]:g}); keep one row"
        )
    gains = np.where(np.isnan(gains), gains[..., ::-1], gains)
    return gains, np.concatenate([before, np.arange(1, last + 1)])


for _model in (
    FadingModel(
        "trace",
        "gains from a CSV file: t, i, j, and gain or relative_gain",
        lambda links, given, path: read_trace(path, links, given["trace_end"]),
        parameters=("trace_end",),
        argument="FILE.csv",
    ),
):
    CHANNELS.register(_model)
