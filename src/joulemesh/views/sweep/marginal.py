"""One varied field at a time: every method's figure against it, averaged over the other fields.

A mean over different settings at different values would show the settings, not the field. So a
line is a mean over the same settings of the other fields at all of its values: those in which every
method has a figure wherever it has one at all. Each seed is averaged by itself, and intervals are
over seeds: settings of the other fields were chosen, not drawn.
"""

from __future__ import annotations

__all__ = ["Line", "Panel", "is_geometric", "panel_of", "scale_of", "words_of"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from joulemesh.results.statistics import estimate
from joulemesh.results.sweep import Sweep
from joulemesh.scenario.varied import Varied
from joulemesh.units import prefixed, unit_of
from joulemesh.views.values import value_words

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_DECADE = 10.0
_LONGEST = 22  # characters of a value


@dataclass(frozen=True, eq=False)
class Line:
    """One method in a panel.

    Attributes:
        method: its name.
        index: its number among the sweep's methods.
        mean: float64 [V], over seeds, at each value of the field; NaN where there is no figure.
        half: float64 [V], half the width of its 95 % interval; 0 for one seed.
        settings: how many settings of the other fields it is averaged over.
    """

    method: str
    index: int
    mean: FloatArray
    half: FloatArray
    settings: int


@dataclass(frozen=True, eq=False)
class Panel:
    """A figure against one field.

    Attributes:
        field: the number of the field among those that are varied.
        lines: of the methods that have anything to draw.
        settings: how many settings of the other fields there are.
        missing: methods without a line, because they could not run at all, or have figures in no
            setting at all of their values.
    """

    field: int
    lines: tuple[Line, ...]
    settings: int
    missing: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """What the reader should know of the settings that are averaged over."""
        lacking = f"no line: {', '.join(self.missing)}" if self.missing else ""
        if self.settings == 1:
            return lacking
        counts = sorted({line.settings for line in self.lines})
        over = " or ".join(map(str, counts))
        text = f"mean over {over} of {self.settings} settings" if counts else ""
        if counts == [self.settings]:
            text = f"mean over {self.settings} settings of the rest"
        return "; ".join(part for part in (text, lacking) if part)


def panel_of(study: Sweep, field: int, figure: str | None = None) -> Panel:
    """Every method's figure against one of the varied fields.

    Args:
        study: the sweep.
        field: the number of the field among ``study.varied``.
        figure: one of ``study.figures``; the score unless given.
    """
    cells = _first(study.array(figure), field)  # [V, settings, methods, seeds]
    known = _known(cells, _first(study.array(), field))
    shown = [m for m in range(len(study.methods)) if known[:, :, m].any()]
    balanced = {m: _balanced(known[:, :, m]) for m in shown}
    common = np.logical_and.reduce(list(balanced.values())) if shown else np.zeros(0, bool)
    lines = [
        _line(study.methods[m], m, cells[:, :, m], known[:, :, m], over)
        for m in shown
        if (over := common if common.any() else balanced[m]).any()
    ]
    drawn = {line.index for line in lines}
    missing = tuple(name for m, name in enumerate(study.methods) if m not in drawn)
    return Panel(field, tuple(lines), cells.shape[1], missing)


def _first(array: FloatArray, field: int) -> FloatArray:
    """[values of the field, settings of the others, methods, seeds]."""
    front = np.moveaxis(array, field, 0)
    return front.reshape(front.shape[0], -1, *front.shape[-2:])


def _known(cells: FloatArray, scores: FloatArray) -> BoolArray:
    """[V, settings, methods]: is there a figure of every seed that ran?

    What it took to reach a target is not averaged over those that did: that would flatter a method
    that rarely does.
    """
    ran, there = np.isfinite(scores), np.isfinite(cells)
    return np.asarray(there.any(axis=-1) & (there | ~ran).all(axis=-1))


def _balanced(known: BoolArray) -> BoolArray:
    """[settings]: in which is there a figure at every value that has one in some setting?"""
    values = known.any(axis=1)
    return np.asarray(known[values].all(axis=0))


def _line(name: str, index: int, cells: FloatArray, known: BoolArray, over: BoolArray) -> Line:
    found = [
        estimate(at[over].mean(axis=0) if there[over].all() else np.zeros(0))
        for at, there in zip(cells, known, strict=True)
    ]
    mean = np.array([one.mean for one in found])
    half = np.where(np.isfinite(mean), np.nan_to_num([one.half for one in found]), np.nan)
    return Line(name, index, mean, half, int(over.sum()))


def is_geometric(values: Sequence[float]) -> bool:
    """Do values stand more evenly on a logarithmic axis?

    >>> is_geometric([10, 20, 50]), is_geometric([10, 20, 30]), is_geometric([0.1, 1.0])
    (True, False, True)
    >>> is_geometric([0, 1, 10]), is_geometric([2, 3])
    (False, False)
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if len(ordered) < 2 or ordered[0] <= 0:
        return False
    if len(ordered) == 2:
        return bool(ordered[1] >= _DECADE * ordered[0])
    return _unevenness(np.log(ordered)) < _unevenness(ordered)


def _unevenness(values: FloatArray) -> float:
    steps = np.diff(values)
    return float(steps.std() / steps.mean())


def scale_of(field: Varied) -> tuple[float, str]:
    """What the values of a field are divided by in a figure or a table, and its label.

    >>> scale_of(Varied("budget.energy_j", (100.0, 5000.0), "battery"))
    (1000.0, 'battery [kJ]')
    >>> scale_of(Varied("training.alpha", (0.1, 1.0)))
    (1.0, 'concentration')
    """
    unit, scale = unit_of(field.name) if field.numeric else None, 1.0
    if unit is not None and unit not in ("dB", "dBm/Hz"):
        scale, unit = prefixed(float(np.abs(field.values).max()), unit)
    return scale, f"{field.words} [{unit}]" if unit else field.words


def words_of(field: Varied, k: int) -> str:
    """A value as people say it, in few characters.

    >>> words_of(Varied("network.topology", ("ring", "a" * 40)), 1)
    'aaaaaaaaaaaaaaaaaaaaa…'
    """
    value = field.values[k]
    kept = value if isinstance(value, bool | int | float | str | tuple) else field.plain[k]
    text = value_words(field.name, kept)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
