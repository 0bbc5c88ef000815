"""Quantities with units. In: numbers, and texts as people write them. Out: SI values, and texts as
people say them. May not know: what is measured (``scenario``, ``world``, ``planning``).

In a file, a field's name holds its SI unit (``energy_j``) and a plain number is in that unit; a
text may give another ("100 Wh"). In print there are two forms:

- **Sentences and summaries** use `energy` (joules with a prefix), `duration` (seconds with a prefix
  below a minute, then the two largest of days, hours, minutes and seconds), and `si` for everything
  else. Each keeps about three digits; refusals, in which two nearly equal figures may stand side by
  side, keep six.
- **Tables** keep SI units: `column` gives all cells of a column one prefix, and its name goes into
  the header, so that figures in one column can be compared at a glance.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from joulemesh.base.errors import UnitError

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
    """A figure with its SI prefix and three digits, or as many as are asked for."""
    scale, name = prefixed(value, unit, digits=digits)
    return f"{value / scale:.{digits}g} {name}"


def prefixed(largest: float, unit: str, *, digits: int = 3) -> tuple[float, str]:
    """Divisor and name of the unit in which a figure has one to three digits before the point."""
    power = _power(largest, digits)
    return float(f"1e{3 * power}"), f"{_PRINTED[power + 4]}{unit}"


def energy(joules: float, *, digits: int = 3) -> str:
    """An energy in joules, as fields and tables have it."""
    return si(joules, "J", digits=digits)


def duration(seconds: float, *, digits: int = 3) -> str:
    """A time as people say it: the two largest of days, hours, minutes and seconds."""
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
    """How many of something there are, in the singular or the plural."""
    many = f"{number:,}" if isinstance(number, int) else f"{number:.6g}"
    return f"{many} {noun}" if number == 1 else f"{many} {noun}s"


def column(values: Iterable[float], unit: str, *, digits: int = 3) -> tuple[str, Sequence[str]]:
    """Cells of a table's column, all with the prefix that suits the largest."""
    figures = list(values)
    largest = max((abs(value) for value in figures if math.isfinite(value)), default=0.0)
    scale, name = prefixed(largest, unit, digits=digits)
    scaled = [value / scale for value in figures]
    sizes = [float(f"{abs(value):.{digits}g}") for value in scaled if math.isfinite(value)]
    exponents = [math.floor(math.log10(size)) for size in sizes if size]
    decimals = max(digits - 1 - max(exponents, default=digits - 1), 0)
    decimals = max(decimals, min(-min(exponents, default=0), decimals + 3))
    return name, [f"{value:,.{decimals}f}" for value in scaled]


class _Dimension(NamedTuple):
    kind: str
    example: str
    plain: str


_DIMENSIONS = {
    "J": _Dimension("an energy", "100 Wh", "joules"),
    "s": _Dimension("a time", "5 min", "seconds"),
    "W": _Dimension("a power", "23 dBm", "watts"),
    "Hz": _Dimension("a frequency", "20 MHz", "hertz"),
    "bit/s": _Dimension("a rate", "10 Mbit/s", "bits per second"),
    "m": _Dimension("a length", "500 m", "metres"),
    "dBm/Hz": _Dimension("a power density", "-174 dBm/Hz", "dBm/Hz"),
    "dB": _Dimension("a ratio", "8 dB", "decibels"),
    "bit": _Dimension("an amount of data", "2 MB", "bits"),
    "J/bit": _Dimension("an energy per bit", "50 nJ/bit", "joules per bit"),
    "A s": _Dimension("a charge", "2500 mAh", "coulombs"),
}
_SUFFIXES = {
    "_dbm_per_hz": "dBm/Hz",
    "_j_per_bit": "J/bit",
    "_db": "dB",
    "_bps": "bit/s",
    "_hz": "Hz",
    "_j": "J",
    "_s": "s",
    "_w": "W",
    "_m": "m",
}
_PURE = {"nakagami_m"}  # names that end like a unit and have none: this m is a shape

_SMALL = {"p": -12, "n": -9, "µ": -6, "μ": -6, "u": -6, "m": -3}  # both Unicode signs of micro
_LARGE = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12}
# A unit: the SI unit that it stands for, its power of ten, and a whole factor. Hertz and bits have
# no small prefixes, so that "20 mHz" is questioned and not taken for 0.02 Hz.
_Unit = tuple[str, int, int]
_UNITS: dict[str, _Unit] = {
    prefix + name: (si_unit, power, factor)
    for prefixes, names in (
        (_SMALL | _LARGE, {"J": ("J", 1), "Wh": ("J", 3600), "W": ("W", 1), "m": ("m", 1)}),
        (_SMALL | _LARGE, {"s": ("s", 1), "Ah": ("A s", 3600)}),
        (_LARGE, {"Hz": ("Hz", 1), "bit": ("bit", 1), "B": ("bit", 8)}),
        (_LARGE, {"bit/s": ("bit/s", 1), "bps": ("bit/s", 1), "b/s": ("bit/s", 1)}),
        (_LARGE, {"B/s": ("bit/s", 8)}),
        (_SMALL | _LARGE, {"J/bit": ("J/bit", 1)}),
    )
    for prefix, power in prefixes.items()
    for name, (si_unit, factor) in names.items()
}
_UNITS |= {
    "cm": ("m", -2, 1),
    "min": ("s", 0, 60),
    "h": ("s", 0, 3600),
    "d": ("s", 0, 86400),
    "dB": ("dB", 0, 1),
    "dBm/Hz": ("dBm/Hz", 0, 1),
}
_WORDS = {
    "joule": "J",
    "second": "s",
    "sec": "s",
    "minute": "min",
    "hour": "h",
    "day": "d",
    "watt": "W",
    "meter": "m",
    "metre": "m",
    "bit": "bit",
    "byte": "B",
}
_UNITS |= {word + end: _UNITS[unit] for word, unit in _WORDS.items() for end in ("", "s")}
_UNITS["hertz"] = _UNITS["Hz"]
_DECIBELS = {"dBm": -30.0, "dBW": 0.0}  # above one watt

# Atomic, as "1e1e1e…" would else be tried in exponentially many ways.
_NUMBER = r"(?>(\d+(?:[.,]\d*)?|[.,]\d+)(?:[eE]([+-]?\d{1,9}))?)"
_TERM = re.compile(rf"{_NUMBER}(\s*)([A-Za-zµμ]+(?:/[A-Za-z]+)?)")
_QUANTITY = re.compile(rf"\s*([+-]?)((?:{_TERM.pattern}\s*)++)")


def unit_of(field: str) -> str | None:
    """The SI unit that a field's name ends in, or None."""
    if field.rpartition(".")[2] in _PURE:
        return None
    return next((unit for end, unit in _SUFFIXES.items() if field.endswith(end)), None)


def example(unit: str) -> str:
    """A quantity of the same kind as an SI unit, as people write it."""
    return _DIMENSIONS[unit].example


def is_quantity(text: str) -> bool:
    """Whether a text is a number with a unit, right or wrong, and not the name of something."""
    whole = _QUANTITY.fullmatch(text)
    if whole is None:
        return False
    return all(
        term[4] in _UNITS or term[4] in _DECIBELS or bool(term[3])
        for term in _TERM.finditer(whole[2])
    )


def parse(text: str, unit: str) -> float:
    plain = re.fullmatch(rf"\s*([+-]?){_NUMBER}\s*", text)
    if plain is not None:
        terms, sign = [(plain[2], plain[3], "")], plain[1]
    else:
        whole = _QUANTITY.fullmatch(text)
        if whole is None:
            raise _refusal(text, "this is not a number", unit)
        terms = [(term[1], term[2], term[4]) for term in _TERM.finditer(whole[2])]
        sign = whole[1]
    values = [_term(text, sign, term, unit) for term in terms]
    if len(values) > 1 and unit != "s":
        raise _refusal(text, "only a time may have several parts", unit)
    total = math.fsum(values)
    if not math.isfinite(total):
        raise _refusal(text, "this is too large", unit)
    return total


def _term(text: str, sign: str, term: tuple[str, str | None, str], wanted: str) -> float:
    """One number with one unit, as a number of ``wanted``."""
    number, exponent, name = term
    if "," in number:
        point = text.strip().replace(",", ".")
        raise UnitError(f"{_short(text)}: write a decimal point, and no other marks: {point!r}")
    if name in _DECIBELS:
        found, power, factor = "W", 0, 1
    elif name:
        found, power, factor = _known(text, name, wanted)
    else:
        found, power, factor = wanted, 0, 1
    if found != wanted:
        raise _refusal(text, f"this is {_DIMENSIONS[found].kind}", wanted, _charge(found, text))
    value = float(f"{sign}{number}e{int(exponent or 0) + power}") * factor
    if name in _DECIBELS:
        try:
            return float(10.0 ** ((value + _DECIBELS[name]) / 10))
        except OverflowError:
            return math.inf
    return value


def _known(text: str, name: str, wanted: str) -> _Unit:
    if name in _UNITS:
        return _UNITS[name]
    same = [known for known, unit in _UNITS.items() if unit[0] == wanted]
    if wanted == "W":
        same += _DECIBELS
    close = [known for known in same if known.lower() == name.lower()]
    close = close[-1:] or difflib.get_close_matches(name, same, 1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise _refusal(text, f"the unit {name[:20]!r} is unknown", wanted, hint)


def _charge(found: str, text: str) -> str:
    """How to turn a battery's charge, which is not an energy, into one."""
    if found != "A s":
        return ""
    return f"multiply by its voltage: at 3.7 V, {energy(3.7 * parse(text, found))}; "


def _refusal(text: str, what: str, wanted: str, hint: str = "") -> UnitError:
    kind, example, plain = _DIMENSIONS[wanted]
    return UnitError(f"{_short(text)}: {what}; {hint}give {kind} such as {example!r} or {plain}")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
