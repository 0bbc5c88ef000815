"""Digests of plans, ledgers and trained parameters, to show that a change of the code changes none.

    python -m tools.same_bits --check tools/same_bits.json    compare; exit 1 on any difference
    python -m tools.same_bits --write tools/same_bits.json    write a new record
    python -m tools.same_bits                                 print one line per scenario
    python -m tools.same_bits --check FILE ring gossip        only scenarios with these words

The scenarios (`tools.same_bits_cases`) go through the public interface only: `joulemesh.plan`,
`joulemesh.run` and `joulemesh.compare`, and what their results document. Every array and figure has
a digest of its own (the first 16 digits of SHA-256 over type, shape and bytes), so that a
difference is reported by scenario, part and name. Words (notes, reasons) are left out: they may be
rewritten. Floating-point results depend on processor and library versions, which the record names;
`--check` refuses to compare records of different machines (exit code 2).
"""

from __future__ import annotations

__all__ = ["Record", "differences", "digest", "machine", "main", "measure"]

import argparse
import hashlib
import json
import os
import platform
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import joulemesh
from tools.same_bits_cases import CASES, Case

Parts = dict[str, dict[str, str]]
Record = dict[str, Any]

_PLAN_ARRAYS = (
    "edges", "rounds", "active", "exchanged", "binding", "energy_budget_j", "margin_j", "margin_s",
)  # fmt: skip
_LEDGER_ARRAYS = (
    "compute_j", "exchange_s", "latency_s", "iteration_j", "compute_total_j", "exchange_total_j",
    "spent_j",
)  # fmt: skip


def digest(value: Any) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of arrays, numbers, texts and their nestings.

    >>> digest([1.0, 2.0]) == digest([1.0, np.nextafter(2.0, 3.0)])
    False
    >>> digest({"a": 1, "b": None}) == digest({"b": None, "a": 1})
    True
    """
    content = hashlib.sha256()
    for piece in _pieces(value):
        content.update(struct.pack("<q", len(piece)) + piece)
    return content.hexdigest()[:16]


def _pieces(value: Any) -> Iterator[bytes]:
    if isinstance(value, Mapping):
        yield b"mapping %d" % len(value)
        for key in sorted(value):
            yield from (repr(key).encode(), *_pieces(value[key]))
    elif isinstance(value, list | tuple):
        yield b"sequence %d" % len(value)
        for item in value:
            yield from _pieces(item)
    elif value is None or isinstance(value, bool | int | str):
        yield repr(value).encode()
    elif isinstance(value, float):
        yield b"float " + struct.pack("<d", value)
    else:
        array = np.asarray(value)
        if array.dtype == object:
            raise TypeError(f"{type(value).__name__} has no digest")
        yield f"{array.dtype.str} {array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()


def measure(case: Case, folder: Path) -> Parts:
    """Plan, train or compare one scenario.

    Args:
        case: the scenario and what is done with it.
        folder: an empty folder, for its files and the cache.

    Returns:
        Digests by part ("plan", "ledger", "parameters", "metrics") and name.
    """
    scenario = case.scenario(folder)
    if case.methods:
        return _compared(case, scenario, folder)
    if case.plan_only:
        return _planned(joulemesh.plan(scenario))
    rows: list[dict[str, Any]] = []
    result = joulemesh.run(
        scenario,
        model=case.model() if case.model else None,
        data=case.data() if case.data else None,
        seeds=case.seeds,
        on_metrics=rows.append,
    )
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        **_planned(result.plan),
        "parameters": dict(_leaves(result.params)),
        "metrics": {name: digest(column) for name, column in columns.items()},
    }


def _planned(plan: joulemesh.Plan) -> Parts:
    """Digests of a plan, and of what it costs each device in each iteration."""
    shape = plan.rounds.shape
    arrays = {name: digest(getattr(plan, name)) for name in _PLAN_ARRAYS}
    figures = {
        "scheme": digest([plan.scheme_at(t).name for t in range(1, plan.iterations + 1)]),
        "iterations": digest(plan.iterations),
        "deadline_s": digest(plan.deadline_s),
        "events": digest([(e.iteration, e.kind, tuple(e.devices)) for e in plan.events]),
        "bounds": digest(plan.bounds),
    }
    ledger = {name: digest(getattr(plan, name)) for name in _LEDGER_ARRAYS}
    ledger["exchange_j"] = digest(np.broadcast_to(plan.exchange_j, shape))
    ledger["bits"] = digest(_bits(plan))
    return {"plan": arrays | figures, "ledger": ledger}


def _bits(plan: joulemesh.Plan) -> Any:
    """[iterations, devices, 2]: bits of the model that each device sends and receives."""
    bits = np.zeros((*plan.rounds.shape, 2))
    for t in range(plan.iterations):
        route = plan.route(t + 1)
        for _, sender, receiver, count in () if route is None else route.messages():
            bits[t, sender, 0] += count
            bits[t, receiver, 1] += count
    return bits


def _leaves(params: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Path and digest of every array in nested dictionaries and lists of parameters."""
    if isinstance(params, Mapping):
        for key in sorted(params):
            yield from _leaves(params[key], f"{path}/{key}")
    elif isinstance(params, list | tuple):
        for number, part in enumerate(params):
            yield from _leaves(part, f"{path}/{number}")
    else:
        yield path or "/", digest(np.asarray(params))


def _compared(case: Case, scenario: joulemesh.Scenario, folder: Path) -> Parts:
    """Digests of every method's ledger and curves, parts named by method."""
    study = joulemesh.compare(
        scenario,
        case.methods,
        case.equal,
        case.seeds,
        worlds=case.worlds,
        model=case.model() if case.model else None,
        data=case.data() if case.data else None,
        cache=folder / "cache",
    )
    parts: Parts = {}
    for entry in study.entries:
        ledger = ("iteration", "energy_j", "time_s", "spent_j", "leftover_j", "totals")
        parts[f"ledger of {entry.name}"] = {
            "status": digest(entry.status),
            **{name: digest(getattr(entry, name)) for name in ledger},
        }
        parts[f"metrics of {entry.name}"] = {
            **{name: digest(curve) for name, curve in entry.curves.items()},
            **{f"final {name}": digest(values) for name, values in entry.final.items()},
            "samples": digest(entry.samples),
        }
    return parts


def machine() -> dict[str, Any]:
    """All that bits may depend on besides the code."""
    import jax
    import scipy

    return {
        "processor": _processor(),
        "cores": _cores(),
        "cpu_devices": jax.local_device_count(),
        "backend": jax.default_backend(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "jaxlib": version("jaxlib"),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def _cores() -> int:
    """Processors that this process may use: libraries split long sums among them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    """The processor's name, with what tells generations of one name apart."""
    fields: dict[str, str] = {}
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            name, _, value = line.partition(":")
            fields.setdefault(name.strip(), value.strip())
    except OSError:
        return f"{platform.machine()} {platform.processor()}".strip()
    known = [fields[name] for name in ("cpu family", "model", "stepping") if name in fields]
    return " ".join([fields.get("model name", platform.machine()), "/".join(known)]).strip()


def record(
    cases: Sequence[Case] = CASES, tell: Callable[[str], None] = lambda line: None
) -> Record:
    """Measure scenarios.

    Args:
        cases: which.
        tell: called with one line after each.

    Returns:
        The machine, and for each scenario its digests.
    """
    scenarios: dict[str, Parts] = {}
    for case in cases:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            scenarios[case.name] = measure(case, Path(folder))
        whole = digest(scenarios[case.name])
        tell(f"{whole}  {time.perf_counter() - begun:5.1f} s  {case.name}")
    return {"machine": machine(), "scenarios": scenarios}


def differences(before: Record, after: Record) -> list[str]:
    """What differs between two records of the same machine, one line per scenario and part."""
    lines = []
    old, new = before["scenarios"], after["scenarios"]
    for scenario in sorted({*old, *new}):
        if scenario not in old or scenario not in new:
            lines.append(f"{scenario}: only in the {'old' if scenario in old else 'new'} record")
            continue
        for part in sorted({*old[scenario], *new[scenario]}):
            was, now = old[scenario].get(part, {}), new[scenario].get(part, {})
            names = [name for name in sorted({*was, *now}) if was.get(name) != now.get(name)]
            if names:
                lines.append(f"{scenario}: {part}: {', '.join(names)}")
    return lines


def elsewhere(before: Record, here: Mapping[str, Any]) -> str:
    """Why records cannot be compared, in one line; empty if they can."""
    there = before["machine"]
    other = [
        f"{name} {there.get(name)} there and {here.get(name)} here"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    ]
    if not other:
        return ""
    return (
        f"the record is of another machine: {'; '.join(other)}: check out the old commit, "
        "write its record here with --write, and compare with that one"
    )


def _written(made: Record) -> str:
    """JSON with one line per scenario and part, to be read in a diff."""
    lines = [f'{{"machine": {json.dumps(made["machine"])},', '"scenarios": {']
    scenarios = []
    for name, parts in made["scenarios"].items():
        inner = [f"  {json.dumps(part)}: {json.dumps(found)}" for part, found in parts.items()]
        scenarios.append(f"{json.dumps(name)}: {{\n" + ",\n".join(inner) + "}")
    return "\n".join([*lines, ",\n".join(scenarios), "}}", ""])


def main(arguments: Sequence[str] | None = None, cases: Sequence[Case] = CASES) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.same_bits", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", type=Path, metavar="FILE", help="write the record to FILE")
    what.add_argument("--check", type=Path, metavar="FILE", help="compare with the record in FILE")
    parser.add_argument("words", nargs="*", help="only scenarios whose name has one of these")
    asked = parser.parse_args(arguments)
    if asked.words:
        cases = [case for case in cases if any(word in case.name for word in asked.words)]
    before: Record | None = None
    if asked.check:
        try:
            before = json.loads(asked.check.read_text("utf-8"))
        except (OSError, ValueError) as error:
            return _refuse(f"{asked.check} cannot be read: {error}: write it with --write")
        why = elsewhere(before, machine())
        if why:
            return _refuse(why)
    made = record(cases, lambda line: print(line, flush=True))
    if asked.write:
        asked.write.write_text(_written(made), "utf-8")
    if before is None:
        return 0
    if asked.words:
        chosen = {case.name for case in cases}
        before["scenarios"] = {k: v for k, v in before["scenarios"].items() if k in chosen}
    found = differences(before, made)
    print(*found, sep="\n", end="\n" if found else "")
    print(f"{len(found)} differences in {len(made['scenarios'])} scenarios")
    return 1 if found else 0


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


if __name__ == "__main__":
    # The same number of processors everywhere; JAX reads both when it is first imported.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
    sys.exit(main())
