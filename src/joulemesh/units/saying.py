"""Quantities as people say them: durations, energies, and columns of tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["column", "counted", "duration", "energy", "prefixed", "si"]

_PRINTED = ("p", "n", "µ", "m", "", "k", "M", "G")
_HOUR_S, _DAY_S = 3600, 86400


class _Split(NamedTuple):
    """A time in two parts: their names, seconds in the smaller, how many of it make the larger."""

    large: str
    small: str
    part_s: int
    parts: int


_SPLITS = (_Split("min", "s", 1, 60), _Split("h", "min", 60, 60), _Split("d", "h", 3600, 24))


def _power(value: float, digits: int) -> int:
    """Which power of 1000 a figure is printed in, so that 999.7 is 1 k and not 1e+03."""
    if value == 0 or not math.isfinite(value):
        return 0
    rounded = abs(float(f"{value:.{digits}g}"))
    return min(max(math.floor(math.log10(rounded) / 3 + 1e-12), -4), 3)


def si(value: float, unit: str, *, digits: int = 3) -> str:
    """A figure with its SI prefix and three digits, or as many as are asked for.

    >>> si(0.00123, "J"), si(0.0, "s"), si(45600.0, "J")
    ('1.23 mJ', '0 s', '45.6 kJ')
    >>> si(999.7, "J")
    '1 kJ'
    """
    scale, name = prefixed(value, unit, digits=digits)
    return f"{value / scale:.{digits}g} {name}"


def prefixed(largest: float, unit: str, *, digits: int = 3) -> tuple[float, str]:
    """Divisor and name of the unit in which a figure has one to three digits before the point.

    >>> prefixed(0.0042, "J"), prefixed(0.0, "J")
    ((0.001, 'mJ'), (1.0, 'J'))
    """
    power = _power(largest, digits)
    return float(f"1e{3 * power}"), f"{_PRINTED[power + 4]}{unit}"


def energy(joules: float, *, digits: int = 3) -> str:
    """An energy in joules, as fields and tables have it.

    Args:
        joules: the energy.
        digits: how many significant digits.

    >>> energy(0.25), energy(2500.0), energy(360_000.0)
    ('250 mJ', '2.5 kJ', '360 kJ')
    """
    return si(joules, "J", digits=digits)


def duration(seconds: float, *, digits: int = 3) -> str:
    """A time as people say it: the two largest of days, hours, minutes and seconds.

    Args:
        seconds: the time.
        digits: how many significant digits; beyond three, the last part has decimals.

    >>> duration(6960), duration(90), duration(120), duration(0.04), duration(59.97)
    ('1 h 56 min', '1 min 30 s', '2 min', '40 ms', '1 min')
    >>> duration(200_000), duration(1e9)
    ('2 d 8 h', '11574 d')
    >>> duration(100.2, digits=6)
    '1 min 40.2 s'
    """
    if not math.isfinite(seconds) or float(f"{abs(seconds):.{digits}g}") < 60:
        return si(seconds, "s", digits=digits)
    if seconds < 0:
        return f"-{duration(-seconds, digits=digits)}"
    if seconds >= 100 * _DAY_S:
        return f"{seconds / _DAY_S:.{max(digits, 5)}g} d"
    split = 0 if seconds < _HOUR_S else 1 if seconds < _DAY_S else 2
    many, rest = _parts(seconds, split, digits)
    if split < 2 and many >= _SPLITS[split + 1].parts:  # 59 min 59.9 s is an hour
        split += 1
        many, rest = _parts(seconds, split, digits)
    large, small, _, _ = _SPLITS[split]
    return f"{many:.0f} {large} {rest:.{digits}g} {small}" if rest else f"{many:.0f} {large}"


def _parts(seconds: float, split: int, digits: int) -> tuple[float, float]:
    _, _, part_s, parts = _SPLITS[split]
    return divmod(round(seconds / part_s, max(digits - 3, 0)), parts)


def counted(number: float, noun: str) -> str:
    """How many of something there are, in the singular or the plural.

    >>> counted(1, "exchange"), counted(1200, "exchange"), counted(0.5, "round")
    ('1 exchange', '1,200 exchanges', '0.5 rounds')
    """
    many = f"{number:,}" if isinstance(number, int) else f"{number:.6g}"
    return f"{many} {noun}" if number == 1 else f"{many} {noun}s"


def column(values: Iterable[float], unit: str, *, digits: int = 3) -> tuple[str, Sequence[str]]:
    """Cells of a table's column, all with the prefix that suits the largest.

    Args:
        values: the figures.
        unit: their SI unit.
        digits: how many significant digits the largest figure keeps.

    Returns:
        The unit for the column's header, and the cells, with equally many decimals: up to three
        more than the largest figure needs, so that a small one is not shown as 0.

    >>> column([0.0123, 1.5, 0.0], "J")
    ('J', ['0.01', '1.50', '0.00'])
    >>> column([90.2, 0.031], "J")
    ('J', ['90.20', '0.03'])
    >>> column([0.0123, 0.0004], "J")
    ('mJ', ['12.3', '0.4'])
    """
    figures = list(values)
    largest = max((abs(value) for value in figures if math.isfinite(value)), default=0.0)
    scale, name = prefixed(largest, unit, digits=digits)
    scaled = [value / scale for value in figures]
    sizes = [float(f"{abs(value):.{digits}g}") for value in scaled if math.isfinite(value)]
    exponents = [math.floor(math.log10(size)) for size in sizes if size]
    decimals = max(digits - 1 - max(exponents, default=digits - 1), 0)
    decimals = max(decimals, min(-min(exponents, default=0), decimals + 3))
    return name, [f"{value:,.{decimals}f}" for value in scaled]
