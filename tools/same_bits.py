"""A record of what the code gives, to show that a change of the code changes nothing else.

    python -m tools.same_bits --check tools/same_bits.json    compare; exit 1 on any difference
    python -m tools.same_bits --write tools/same_bits.json    write a record; with --only, a part
    python -m tools.same_bits                                 print one line per case
    python -m tools.same_bits --only ring gossip --check FILE only cases with one of these words
    python -m tools.same_bits --fleets 10000 --check FILE     so many virtual fleets, not 500

The cases are scenarios that are planned, trained and compared (`tools.same_bits_cases`), commands
with what they print and write, pages, fleets and PyTorch modules (`tools.same_bits_commands`). They
go through the public interface, the command line and its files. Nothing is kept from one case for
another. Words (notes, reasons) are left out: they may be rewritten; so is what a clock measured.

Every array and figure has a digest of its own, and some of its numbers (`tools.same_bits_figures`).
`--check` says of each case that differs whether only bits do, whether numbers are within 1e-9, or
whether a value is another, and the first figure of that kind.

Floating-point results depend on processor and library versions, which the record names. `--check`
refuses records of other machines (exit code 2) unless `--elsewhere` is given: then differences of
bits and below 1e-9, and all of what was trained, are listed as perhaps due to the machine, and do
not count. PyTorch has a record of its own, compared where the same version is installed.
"""

from __future__ import annotations

__all__ = ["Difference", "Record", "differences", "elsewhere", "machine", "main", "record"]

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tools.same_bits_cases import SCENARIOS
from tools.same_bits_commands import COMMANDS, TORCH, fleets, torch_version
from tools.same_bits_figures import KINDS, Parts, Values, contrast, digest, figures

Record = dict[str, Any]

_FLEETS = 500
_PROCESSES = 2
_UNTRAINED = ("plan", "ledger", "seeds")  # parts that begin so hold nothing that was trained


class Case(Protocol):
    """Something that is measured."""

    @property
    def name(self) -> str:
        """Unique."""

    def measure(self, folder: Path) -> Values:
        """What comes out, by part and name, in an empty folder."""


def cases(number: int = _FLEETS) -> list[Case]:
    """All cases that can be measured here, with so many virtual fleets."""
    return [*SCENARIOS, *COMMANDS, *fleets(number), *(TORCH if torch_version() else ())]


def _measured(case: Case) -> tuple[str, Parts, float]:
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            found = figures(case.measure(Path(folder)))
        except Exception as error:  # the others are compared all the same
            found = {"error": {type(error).__name__: " ".join(str(error).split())[:300]}}
    return case.name, found, time.perf_counter() - begun


def record(
    chosen: Sequence[Case], processes: int = 1, tell: Callable[[str], None] = lambda line: None
) -> Record:
    """Measure cases.

    Args:
        chosen: which.
        processes: how many at a time.
        tell: called with one line after each.

    Returns:
        The machine, the version of PyTorch, and for each case its figures.
    """
    found: dict[str, Parts] = {}
    for name, parts, seconds in _all_measured(chosen, processes):
        found[name] = parts
        tell(f"{digest(parts)}  {seconds:5.1f} s  {name}")
    torch = {name: parts for name, parts in found.items() if name.startswith("torch: ")}
    rest = {name: parts for name, parts in found.items() if name not in torch}
    made: Record = {"machine": machine(), "cases": rest}
    return made | ({"torch": {"version": torch_version(), "cases": torch}} if torch else {})


def _all_measured(chosen: Sequence[Case], processes: int) -> Iterator[tuple[str, Parts, float]]:
    if processes == 1:
        yield from map(_measured, chosen)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield from pool.map(_measured, chosen)


@dataclass(frozen=True)
class Difference:
    """Between two records of one case.

    Attributes:
        case: its name.
        kind: the gravest, one of `KINDS`.
        where: part and name of the first figure that differs so.
        numbers: what it was and is, if it is known.
        figures: how many differ.
        trained: does none differ but of what was trained?
    """

    case: str
    kind: str
    where: str
    numbers: str
    figures: int
    trained: bool

    def __str__(self) -> str:
        """In one line."""
        more = f" (and {self.figures - 1} more)" if self.figures > 1 else ""
        numbers = f" {self.numbers}" if self.numbers else ""
        return f"{self.case}: {self.kind}: {self.where}{numbers}{more}"


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


def differences(before: Mapping[str, Parts], after: Mapping[str, Parts]) -> list[Difference]:
    """What differs between the cases of two records."""
    found = []
    for case in sorted({*before, *after}):
        if case not in before or case not in after:
            where = f"only in the {'old' if case in before else 'new'} record"
            found.append(Difference(case, "value", where, "", 1, False))
        elif one := _difference(case, before[case], after[case]):
            found.append(one)
    return found


def _difference(case: str, before: Parts, after: Parts) -> Difference | None:
    old, new = (
        {(part, name): text for part, named in parts.items() for name, text in named.items()}
        for parts in (before, after)
    )
    each = []
    for key in {**old, **new}:
        if old.get(key) == new.get(key):
            continue
        missing = "is gone" if key not in new else "is new"
        both = key in old and key in new
        kind, numbers = contrast(old[key], new[key]) if both else ("value", missing)
        each.append((kind, key, numbers))
    if not each:
        return None
    kind, (part, name), numbers = max(each, key=lambda one: KINDS.index(one[0]))
    trained = all(not part.startswith(_UNTRAINED) for _, (part, _), _ in each)
    return Difference(case, kind, f"{part}: {name}", numbers, len(each), trained)


def elsewhere(before: Record, here: Mapping[str, Any]) -> str:
    """In what the machine of a record differs from this one, in one line; empty if in nothing."""
    there = before["machine"]
    return "; ".join(
        f"{name} {there.get(name)} there and {here.get(name)} here"
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name)
    )


def _kept(file: Path, made: Record, *, whole: bool) -> Record:
    """What was measured, and of a file of this machine what was not measured now.

    Args:
        file: that is to be written.
        made: what was measured.
        whole: was every case to be measured? Those that are neither here are then no case any more;
            but for further fleets, and PyTorch where it is missing.
    """
    try:
        old = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return made
    if elsewhere(old, made["machine"]):
        return made
    cases = {k: v for k, v in old["cases"].items() if not whole or k.startswith("fleets ")}
    torch = made.get("torch") or old["torch"]
    if torch["version"] == old["torch"]["version"] and not whole:
        torch = {**torch, "cases": old["torch"]["cases"] | torch["cases"]}
    return {**made, "cases": cases | made["cases"], "torch": torch}


def _written(made: Record) -> str:
    """JSON with one line for each part, to be read in a diff."""
    torch = made.get("torch", {"cases": {}})
    lines = [f'{{"machine": {json.dumps(made["machine"])},', '"cases": {']
    lines += [_lines(made["cases"]), "},"]
    lines += [f'"torch": {{"version": {json.dumps(torch.get("version"))}, "cases": {{']
    return "\n".join([*lines, _lines(torch["cases"]), "}}}", ""])


def _lines(found: Mapping[str, Parts]) -> str:
    texts = []
    for name, parts in found.items():
        inner = [f"  {json.dumps(part)}: {json.dumps(named)}" for part, named in parts.items()]
        texts.append(f"{json.dumps(name)}: {{\n" + ",\n".join(inner) + "}")
    return ",\n".join(texts)


def main(arguments: Sequence[str] | None = None, of: Sequence[Case] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.same_bits", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", type=Path, metavar="FILE", help="write the record to FILE")
    what.add_argument("--check", type=Path, metavar="FILE", help="compare with the record in FILE")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="WORD", help="cases whose name has one of these"
    )
    parser.add_argument("--fleets", type=int, default=_FLEETS, metavar="N", help="virtual fleets")
    parser.add_argument("--processes", type=int, default=1, choices=range(1, _PROCESSES + 1))
    parser.add_argument("--elsewhere", action="store_true", help="compare with another machine")
    asked = parser.parse_args(arguments)
    of = cases(asked.fleets) if of is None else of
    of = [case for case in of if any(word in case.name for word in asked.only)]
    before: Record | None = None
    other = ""
    if asked.check:
        try:
            before = json.loads(asked.check.read_text("utf-8"))
        except (OSError, ValueError) as error:
            return _refuse(f"{asked.check} cannot be read: {error}: write it with --write")
        other = elsewhere(before, machine())
        if other and not asked.elsewhere:
            return _refuse(
                f"the record is of another machine: {other}: check out the old commit, write its "
                "record here with --write, and compare with that one; or see by --elsewhere what "
                "differs by more than machines do"
            )
    if not torch_version():
        print("PyTorch is not installed: its cases are skipped")
    made = record(of, asked.processes, lambda line: print(line, flush=True))
    failed = [name for name, parts in made["cases"].items() if "error" in parts]
    if asked.write and failed:
        return _refuse(f"{failed[0]} fails: {made['cases'][failed[0]]['error']}")
    if asked.write:
        kept = _kept(asked.write, made, whole=asked.only == [""])
        asked.write.write_text(_written(kept), "utf-8")
    return 0 if before is None else _compared(before, made, asked.only, other)


def _compared(before: Record, made: Record, words: Sequence[str], other: str) -> int:
    """Print what differs; the exit code."""
    old = dict(before["cases"])
    torch = made.get("torch", {"version": "", "cases": {}})
    known = before.get("torch", {"version": None, "cases": {}})
    new = dict(made["cases"])
    if torch["version"] and torch["version"] == known["version"]:
        old, new = old | known["cases"], new | torch["cases"]
    elif torch["version"]:
        print(f"PyTorch's record is of {known['version']}, not {torch['version']}: not compared")
    wanted = {
        name: parts
        for name, parts in old.items()
        if any(word in name for word in words) and (name in new or not name.startswith("fleets "))
    }
    found = differences(wanted, new)
    if other:
        excused = [one for one in found if one.trained or one.kind != "value"]
        found = [one for one in found if one not in excused]
        print(*(f"perhaps due to the machine: {one}" for one in excused), sep="\n")
    print(*found, sep="\n", end="\n" if found else "")
    kinds = Counter(one.kind for one in found)
    told = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    print(f"{len(found)} of {len(new)} cases differ{': ' if told else ''}{told}")
    return 1 if found else 0


def _refuse(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


if __name__ == "__main__":
    # The same number of processors everywhere; JAX reads both when it is first imported.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
    sys.exit(main())
