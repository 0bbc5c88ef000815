"""Results that the documentation quotes: records of benchmarks, tables of the reproduction and of
the comparison, read so that a figure can be named in a line.

`peers.contenders("Flower").ours_is_times` is a field of docs/benchmarks/peers.json, and
`scale.runs(devices=100_000).peak_mib` one of the run with that many devices.
"""

from __future__ import annotations

__all__ = ["Record", "Table", "interval", "mean", "paired", "read_table", "records"]

import csv
import json
import math
import statistics
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scipy import stats

DOCS = Path(__file__).resolve().parents[1] / "docs"
BENCHMARKS = (
    "accelerator",
    "overhead",
    "peers",
    "planner",
    "scale",
    "torch",
    "torch-gpu",
    "training",
    "trees",
)


class Record:
    """A part of a JSON file.

    >>> record = Record({"runs": [{"n": 1, "s": 0.5}, {"n": 2, "s": 0.7}], "by name": {"x y": 3}})
    >>> record.runs(n=2).s, record("by name")("x y")
    (0.7, 3)
    """

    def __init__(self, content: Any) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        try:
            return _wrapped(self._content[name])
        except (KeyError, TypeError):
            raise AttributeError(f"no field {name!r} in {str(self._content)[:60]}") from None

    def __call__(self, key: str = "", **where: Any) -> Any:
        """The entry of that name, or the one whose fields have these values."""
        if key:
            return getattr(self, key)
        found = [one for one in self._content if all(one.get(k) == v for k, v in where.items())]
        if len(found) != 1:
            raise LookupError(f"{len(found)} entries have {where}")
        return _wrapped(found[0])

    def __getitem__(self, index: int) -> Any:
        return _wrapped(self._content[index])

    def names(self) -> list[str]:
        """The names of a dictionary's entries."""
        return list(self._content)

    def __iter__(self) -> Iterator[Any]:
        """The entries of a list, or of a dictionary."""
        content = self._content
        return map(_wrapped, content.values() if isinstance(content, dict) else content)


def _wrapped(value: Any) -> Any:
    return Record(value) if isinstance(value, (dict, list)) else value


class Table:
    """Rows of a CSV file, some or all.

    >>> table = Table([{"a": "x", "n": "1"}, {"a": "y", "n": "2"}])
    >>> table(a="y").one("n"), table.column("n")
    (2.0, [1.0, 2.0])
    """

    def __init__(self, rows: Sequence[dict[str, str]]) -> None:
        self.rows = rows

    def __call__(self, **where: Any) -> Table:
        """The rows whose cells have these values."""
        for name in where:
            if self.rows and name not in self.rows[0]:
                raise LookupError(f"no column {name!r}")
        wanted = {name: str(value) for name, value in where.items()}
        return Table([row for row in self.rows if all(row[k] == v for k, v in wanted.items())])

    def column(self, name: str) -> list[float]:
        """The numbers in a column."""
        return [float(row[name]) for row in self.rows]

    def column_given(self, name: str) -> list[float]:
        """The numbers in a column, without its empty cells."""
        return [float(row[name]) for row in self.rows if row[name]]

    def one(self, name: str) -> float:
        """The number in a column of the only row."""
        (number,) = self.column(name)
        return number

    def values(self, name: str) -> list[str]:
        """What stands in a column, each once, in the order of the rows."""
        return list(dict.fromkeys(row[name] for row in self.rows))

    def last(self) -> Table:
        """The rows of the last iteration."""
        return self(iteration=max(int(row["iteration"]) for row in self.rows))


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half the width of its 95 % interval (Student's t)."""
    spread = statistics.stdev(values) / math.sqrt(len(values))
    return statistics.fmean(values), float(stats.t.ppf(0.975, len(values) - 1)) * spread


def paired(first: Table, second: Table, column: str, scale: float = 100) -> tuple[float, float]:
    """Mean difference over seeds with its half-width; in points unless ``scale`` says otherwise."""
    seeds = first.values("seed")
    pairs = [(first(seed=s).one(column), second(seed=s).one(column)) for s in seeds]
    return interval([scale * (a - b) for a, b in pairs])


def significant(value: float, digits: int) -> float:
    """The value with so many significant digits.

    >>> significant(29_412.3, 3)
    29400.0
    """
    return float(f"{value:.{digits}g}")


@cache
def read_table(path: Path) -> Table:
    """A CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return Table(list(csv.DictReader(file)))


@cache
def _json(path: Path) -> Record:
    return Record(json.loads(path.read_text("utf-8")))


def records() -> dict[str, Any]:
    """All that a page may quote from, by name."""
    named: dict[str, Any] = {
        name.replace("-", "_"): _json(DOCS / "benchmarks" / f"{name}.json") for name in BENCHMARKS
    }
    reproduction = DOCS / "reproduction"
    named |= {path.stem: read_table(path) for path in sorted(reproduction.glob("*.csv"))}
    named["timings"] = _json(reproduction / "timings.json")
    named["comparison"] = _comparison
    functions: list[Any] = [apart, at_rate, auto_lag, bytes_per_device, counted, exchange_shares]
    functions += [
        first_calls,
        found,
        grown,
        in_medium,
        mean,
        paired,
        shares,
        significant,
        steps,
        abs,
        len,
        max,
        min,
        round,
        sum,
    ]
    return named | {function.__name__: function for function in functions}


def steps(case: str) -> float:
    """Device-steps per second of a case of the accelerator's benchmark."""
    return float(
        _json(DOCS / "benchmarks" / "accelerator.json").cases(case=case).device_steps_per_s
    )


def first_calls(model: str) -> list[float]:
    """Seconds of the accelerator's first calls, which compile."""
    cases = _json(DOCS / "benchmarks" / "accelerator.json").cases
    return [case.first_s for case in cases if case.case.startswith(model)]


def bytes_per_device() -> float:
    """What one more device adds to the memory of a whole run on a CPU."""
    few, *_, many = _json(DOCS / "benchmarks" / "scale.json").runs
    return float((many.peak_mib - few.peak_mib) * 2**20 / (many.devices - few.devices))


def grown(column: str) -> float:
    """A figure of the planner at 1,000,000 devices, if it grows as from 1,000 to 100,000."""
    sizes = _json(DOCS / "benchmarks" / "planner.json").scale
    few, many = (getattr(sizes(devices=count), column) for count in (1_000, 100_000))
    return float(few + (many - few) * (1_000_000 - 1_000) / (100_000 - 1_000))


def mean(values: Sequence[float]) -> float:
    """The mean."""
    return statistics.fmean(values)


def counted(model: str, *, factored: bool = False) -> tuple[float, float]:
    """Operations and least bytes of a device-step of the MLP or CNN that benchmarks train."""
    from benchmarks import counts
    from benchmarks.work import CNN, MLP

    work = {"mlp": MLP, "cnn": CNN}[model]
    return counts.factored(work) if factored else (counts.operations(work), counts.step_bytes(work))


def apart(equal: str, scenarios: str = "", only: str = "", without: str = "") -> list[float]:
    """How many points of accuracy methods are ahead of adaptive, over all scenarios.

    Args:
        equal: on which terms.
        scenarios: only those whose name contains this.
        only: this method only.
        without: all but this one.
    """
    results = DOCS / "comparison" / "results"
    return [
        100 * float(row["accuracy_difference"])
        for path in sorted(results.glob(f"*-{equal}.csv"))
        if scenarios in path.name
        for row in read_table(path).rows
        if row["accuracy_difference"] and row["method"] != without
        if not only or row["method"] == only
    ]


def found(scenario: str, equal: str, method: str, column: str, scale: float = 1) -> float:
    """One figure of a comparison's table."""
    return scale * _comparison(scenario, equal)(method=method).one(column)


def shares(*methods: str) -> list[float]:
    """Joules of rivals over the tuned plan's, within one budget, in every scenario."""
    return [
        float(row["energy_j"]) / float(table.rows[0]["energy_j"])
        for table in _plans().values()
        for row in table.rows
        if (row["method"] in methods if methods else not row["method"].startswith("spread"))
    ]


def exchange_shares() -> list[float]:
    """Joules that the tuned plan's exchanges take of all that it spends, in every scenario."""
    best = [table.rows[0] for table in _plans().values()]
    return [float(row["exchange_j"]) / float(row["energy_j"]) for row in best]


def at_rate(rate: float, method: str = "", scenario: str = "") -> int:
    """How often a learning rate was the best, within one budget: of a method, in a scenario."""
    return sum(
        row["learning_rate"] == str(rate)
        for name, table in _plans().items()
        for row in table.rows
        if scenario in name and row["method"] == (method or row["method"])
        if method or not row["method"].startswith("spread")
    )


def _plans() -> dict[str, Table]:
    found = sorted((DOCS / "comparison" / "results").glob("*-plans-budget.csv"))
    return {path.stem: read_table(path) for path in found}


def _in_medium(case: str) -> Any:
    """The methods that were trained in one medium, by name."""
    return _json(DOCS / "comparison" / "results" / "medium.json").trained(case).methods


def in_medium(case: str, method: str, field: str = "accuracy") -> float:
    """A method's accuracy in one medium, or its interval, in per cent."""
    return 100 * float(getattr(_in_medium(case)(method), field))


def auto_lag(case: str) -> float:
    """Points that the best number of iterations tried is ahead of "auto", in one medium."""
    methods = _in_medium(case)
    ours = [name for name in methods.names() if name.startswith("spread")]
    ours = [name for name in ours if methods(name).status == "ran"]
    return 100 * float(max(methods(name).accuracy for name in ours) - methods("spread").accuracy)


def _comparison(scenario: str, equal: str) -> Table:
    return read_table(DOCS / "comparison" / "results" / f"{scenario}-{equal}.csv")
