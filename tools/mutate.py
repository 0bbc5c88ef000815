"""Mutation testing: change the planner's arithmetic one place at a time; a test must notice.

    python tools/mutate.py            a sample of every module of MODULES; writes docs/mutation.md
    python tools/mutate.py budget     of one of them; writes nothing
    python tools/mutate.py --all      every mutant, which takes hours; writes docs/mutation.md

Each mutant runs in a process of its own that already holds the libraries, so it costs little more
than the tests that kill it. Files are never changed: the mutant is handed to Python's import. A
mutant that survives needs a reason in tools/survivors.toml, and a reason needs its survivor.
"""

from __future__ import annotations

__all__ = ["Mutant", "main", "mutants_of", "sample"]

import ast
import copy
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import multiprocessing
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from joulemesh.base.machine import cpus

ROOT = Path(__file__).resolve().parents[1]
PAGE, REASONS = ROOT / "docs" / "mutation.md", ROOT / "tools" / "survivors.toml"
SHARE, WORKERS = 0.9, cpus()
SAMPLE = 12  # mutants of each module, unless all are asked for: some minutes on two idle cores

# Modules, and the tests that should notice: first those that are quick to.
MODULES = {
    "rounds": ("rounds", "waterfill", "plan_by_hand", "causal"),
    "budget": ("budget", "plan_by_hand", "horizon"),
    "pricing/route": ("route_prices", "plan_by_hand", "causal"),
}

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
NAMES = {
    "max": "min", "min": "max", "maximum": "minimum", "minimum": "maximum",
    "argmax": "argmin", "argmin": "argmax", "any": "all", "all": "any",
    "floor": "ceil", "ceil": "floor", "ones": "zeros", "zeros": "ones",
    "cumsum": "asarray", "repeat": "tile", "forward_s": "backward_s", "backward_s": "forward_s",
    "forward_j": "backward_j", "backward_j": "forward_j", "sender": "receiver",
    "receiver": "sender", "where": "asarray", "continue": "break",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: ``key`` names it for as long as its function keeps the line's text."""

    module: str
    line: int
    key: str
    source: str


def _changes(node: ast.AST) -> Iterator[ast.AST | None]:
    """What could stand in a node's place; None: the statement goes."""

    def having(**fields: Any) -> ast.AST:
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    match node:
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op) in SWAPS:
            yield having(op=SWAPS[type(node.op)]())
        case ast.UnaryOp(operand=operand):
            yield operand
        case ast.Compare(ops=ops):
            for k, op in enumerate(ops):
                yield having(ops=[*ops[:k], SWAPS[type(op)](), *ops[k + 1 :]])
        case ast.Constant(value=bool(value)):
            yield having(value=not value)
        case ast.Constant(value=int(value)):
            yield from (having(value=value + 1), having(value=value - 1))
        case ast.Constant(value=float(value)):
            yield having(value=value * 2 if value else 1.0)
        case ast.Constant(value=str(value)):
            yield having(value=f"XX{value}")
        case ast.Attribute(attr=name) if name in NAMES:
            yield having(attr=NAMES[name])
        case ast.Name(id=name) if name in NAMES:
            yield having(id=NAMES[name])
        case ast.Call(args=given, keywords=named):
            if len(given) + len(named) > 1:
                for k in range(len(given)):
                    yield having(args=[*given[:k], *given[k + 1 :]])
            for k in range(len(named)):
                yield having(keywords=[*named[:k], *named[k + 1 :]])
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if not isinstance(
            test,
            ast.Compare | ast.UnaryOp,  # which have their own opposite
        ):
            yield having(test=ast.UnaryOp(ast.Not(), test))
        case ast.Slice(lower=lower, upper=upper) if lower or upper:
            yield having(lower=None, upper=None)
    match node:
        case ast.Return(value=ast.AST()):
            yield having(value=ast.Constant(None))
        case ast.Assign() | ast.AnnAssign(value=ast.AST()):
            yield having(value=ast.Constant(None))
        case ast.Expr() | ast.Raise() | ast.Continue():
            yield None


def _skipped(node: ast.AST) -> bool:
    """Docstrings, imports, ``__all__``, aliases of types: nothing that computes."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name == "__all__" or name.endswith("Array")
    return False


def _places(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int | None, str]]:
    """Every node as (parent, field, index, function); annotations, defaults and all."""

    def walk(node: ast.AST, where: str) -> Iterator[tuple[ast.AST, str, int | None, str]]:
        if isinstance(node, ast.FunctionDef):
            where = node.name
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "type_comment", "ctx", "op", "ops"):
                continue
            for k, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or _skipped(child):
                    continue
                if isinstance(node, ast.JoinedStr | ast.FormattedValue) and isinstance(
                    child, ast.Constant | ast.JoinedStr
                ):
                    continue  # the wording of a message, or its format
                yield node, field, k, where
                yield from walk(child, where)

    return walk(tree, "module")


def mutants_of(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module's source, each with its own source.

    >>> [mutant.key for mutant in mutants_of("m", "def f(a):\\n    return a + 1\\n")][1:]
    ['f: `a + 1` → `a - 1`', 'f: `1` → `2` in `return a + 1`', 'f: `1` → `0` in `return a + 1`']
    """
    tree, made, seen = ast.parse(source), [], Counter[str]()
    lines = source.splitlines()
    for parent, field, k, where in list(_places(tree)):
        held = getattr(parent, field)
        node = held if k is None else held[k]
        for other in _changes(node):
            text = ast.unparse(node).splitlines()[0]
            changed = "(gone)" if other is None else ast.unparse(other).splitlines()[0]
            line = getattr(node, "lineno", 0)
            around = lines[line - 1].strip()
            key = f"{where}: `{text}` → `{changed}`"
            key += "" if text in around and len(text) > 4 else f" in `{around}`"
            seen[key] += 1
            key += f" #{seen[key]}" if seen[key] > 1 else ""
            put = ast.Pass() if other is None else other
            setattr(parent, field, put if k is None else [*held[:k], put, *held[k + 1 :]])
            made.append(Mutant(module, line, key, ast.unparse(ast.fix_missing_locations(tree))))
            setattr(parent, field, held)
    return made


def sample(mutants: Sequence[Mutant], count: int) -> list[Mutant]:
    """So many of the mutants, the same ones every time, wherever in the module they stand.

    >>> some = [Mutant("m", k, f"key {k}", "") for k in range(50)]
    >>> [mutant.line for mutant in sample(some, 4)] == [mutant.line for mutant in sample(some, 4)]
    True
    """
    chosen = sorted(mutants, key=lambda one: hashlib.sha256(one.key.encode()).digest())[:count]
    return sorted(chosen, key=lambda one: one.line)


class _Import(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives a mutant's source to whoever imports its module."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> Any:
        path = str(ROOT / "src" / (self.name.replace(".", "/") + ".py"))
        found = importlib.machinery.ModuleSpec(name, self, origin=path)
        found.has_location = True
        return found if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.source, module.__file__ or "", "exec"), module.__dict__)


def _try(module: str, source: str) -> None:
    """Run the tests of a module on a source; the exit code is pytest's."""
    import hypothesis
    import pytest

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    os.chdir(ROOT)
    name = f"joulemesh.planning.{module.replace('/', '.')}"
    sys.meta_path.insert(0, _Import(name, source))
    importlib.import_module(name)  # now: pytest would read the files that it is given by itself
    # The same examples every time, or a survivor of one run is killed in the next; and no search
    # for the smallest one that kills.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("same", derandomize=True, database=None, phases=phases)
    hypothesis.settings.load_profile("same")
    tests = [f"tests/planning/test_{name}.py" for name in MODULES[module]]
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not slow and not gpu"]
    sys.exit(pytest.main([f"src/joulemesh/planning/{module}.py", *tests, *options]))


def _verdict(mutant: Mutant, limit_s: float = 600.0) -> str:
    """ "killed", "survived" or "timeout" (which kills too)."""
    process = _CONTEXT.Process(target=_try, args=(mutant.module, mutant.source))
    process.start()
    process.join(limit_s)
    if process.is_alive():
        process.kill()
        process.join()
        return "timeout"
    return "killed" if process.exitcode else "survived"


_CONTEXT = multiprocessing.get_context("forkserver")
_LIBRARIES = ("numpy", "scipy.sparse.csgraph", "scipy.optimize", "scipy.sparse.linalg")
_CONTEXT.set_forkserver_preload([*_LIBRARIES, "pydantic", "pytest", "hypothesis.strategies"])


def _page(found: list[tuple[Mutant, str]], made: Counter[str], reasons: dict[str, str]) -> str:
    """docs/mutation.md; ``made`` is how many mutants each module has."""
    from joulemesh.views.markdown import Markdown, code, table  # not in the mutants' processes

    alive = [mutant for mutant, verdict in found if verdict == "survived"]
    counts = []
    for name, own in [*((code(f"planning/{m}.py"), {m}) for m in MODULES), ("all", {*MODULES})]:
        all_, left = (sum(m.module in own for m in some) for some in (dict(found), alive))
        there = sum(made[module] for module in own)
        counts.append([name, f"{there}", f"{all_}", f"{all_ - left}", f"{1 - left / all_:.1%}"])
    survivors = [
        [
            code(mutant.module),
            _words(mutant.key),
            reasons.get(f"{mutant.module}.{mutant.key}", Markdown("**none given**")),
        ]
        for mutant in alive
    ]
    parts = [
        _HEAD,
        table(["module", "mutants", "tried", "killed", "share"], counts, "lrrrr"),
        "## Survivors",
        "What no test can notice, or should; reasons are kept in `tools/survivors.toml`.",
        table(["module", "mutant", "why it lives"], survivors),
    ]
    return "\n\n".join(parts) + "\n"


def _words(key: str) -> str:
    """A mutant's key: words, with code between backticks."""
    from joulemesh.views.markdown import Markdown, code, escape

    pieces = key.split("`")
    return Markdown("".join(code(x) if k % 2 else escape(x) for k, x in enumerate(pieces)))


_HEAD = """# Mutation testing

Written by `make mutate`, which changes the planner's core one place at a time (an operator, a
number, a comparison, a name, an argument, a statement less) and asks whether a test of
`tests/planning` or a doctest notices. A mutant that never ends counts as killed. Of each module a
sample is tried, the same every time; `python tools/mutate.py --all` tries every mutant, which takes
hours. The command fails below 90 %, for a survivor without a reason, and for a reason whose mutant
was tried and did not survive."""


def main(arguments: Sequence[str]) -> int:
    """Try mutants of the chosen modules, or of all; returns the exit code."""
    chosen = [word for word in arguments if word != "--all"]
    most = sys.maxsize if "--all" in arguments else SAMPLE
    with REASONS.open("rb") as file:
        given = tomllib.load(file)
    reasons = {f"{module}.{key}": why for module, own in given.items() for key, why in own.items()}
    mutants: list[Mutant] = []
    made, slowest_s = Counter[str](), 6.0
    for module in chosen or MODULES:
        source = (ROOT / "src" / "joulemesh" / "planning" / f"{module}.py").read_text("utf-8")
        start = time.monotonic()
        if _verdict(Mutant(module, 0, "", ast.unparse(ast.parse(source)))) != "survived":
            sys.exit(f"error: the tests of {module} fail on the module as it is; run them first")
        slowest_s = max(slowest_s, time.monotonic() - start)
        every = mutants_of(module, source)
        made[module] = len(every)
        mutants += sample(every, most)
    found = _tried(mutants, 5 * slowest_s)
    alive = {f"{mutant.module}.{mutant.key}" for mutant, verdict in found if verdict == "survived"}
    share = 1 - len(alive) / len(found)
    sys.stdout.write(f"{len(found)} mutants, {len(alive)} survive: {share:.1%} killed\n")
    if not chosen:
        PAGE.write_text(_page(found, made, reasons), "utf-8")
    tried = {f"{mutant.module}.{mutant.key}" for mutant in mutants} & set(reasons)
    for title, keys in (("has no reason", alive - tried), ("is dead or gone", tried - alive)):
        for key in sorted(keys):
            sys.stdout.write(f"{title}: {key}\n")
    return int(share < SHARE or alive != tried)


def _tried(mutants: Sequence[Mutant], limit_s: float) -> list[tuple[Mutant, str]]:
    """Every mutant with its verdict."""
    found = []
    with ThreadPoolExecutor(WORKERS) as pool:
        verdicts = pool.map(partial(_verdict, limit_s=limit_s), mutants)
        for mutant, verdict in zip(mutants, verdicts, strict=True):
            found.append((mutant, verdict))
            if verdict != "killed":
                sys.stdout.write(f"{mutant.module}.py:{mutant.line}  {verdict}  {mutant.key}\n")
                sys.stdout.flush()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
