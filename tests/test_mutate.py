"""The mutation tester: its mutants, and that every reason still belongs to one of them."""

from __future__ import annotations

import ast
import importlib.util
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = '''"""A module."""
__all__ = ["f"]
LIMIT = 2.5


def f(a: int, b: int = 3) -> int:
    """Text."""
    if not a < b and a is not None:
        raise ValueError(f"no {a + b} of {LIMIT}")
    return max(a, b, key=abs)
'''


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutate", ROOT / "tools" / "mutate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_mutants_change_one_place_each_and_no_words(tool: ModuleType) -> None:
    mutants = tool.mutants_of("m", SOURCE)
    original = ast.unparse(ast.parse(SOURCE))
    assert len({mutant.source for mutant in mutants}) == len(mutants)
    for mutant in mutants:
        assert mutant.source != original
        compile(mutant.source, "mutant", "exec")
        assert '__all__ = ["f"]'.replace('"', "'") in mutant.source
        assert '"""Text."""' in mutant.source
    assert {mutant.key.partition(" in ")[0] for mutant in mutants} == {
        "module: `LIMIT = 2.5` → `LIMIT = None`",
        "module: `2.5` → `5.0`",
        "f: `3` → `4`",
        "f: `3` → `2`",
        "f: `not a < b and a is not None` → `not a < b or a is not None`",
        "f: `if not a < b and a is not None:` → `if not (not a < b and a is not None):`",
        "f: `not a < b` → `a < b`",
        "f: `a < b` → `a <= b`",
        "f: `a is not None` → `a is None`",
        "f: `raise ValueError(f'no {a + b} of {LIMIT}')` → `(gone)`",
        "f: `a + b` → `a - b`",
        "f: `return max(a, b, key=abs)` → `return None`",
        "f: `max(a, b, key=abs)` → `max(b, key=abs)`",
        "f: `max(a, b, key=abs)` → `max(a, key=abs)`",
        "f: `max(a, b, key=abs)` → `max(a, b)`",
        "f: `max` → `min`",
    }


@pytest.mark.slow
def test_every_reason_names_a_mutant(tool: ModuleType) -> None:
    """Code that is rewritten loses its reasons; `make mutate` finds the new ones."""
    reasons = tomllib.loads((ROOT / "tools" / "survivors.toml").read_text("utf-8"))
    assert set(reasons) <= set(tool.MODULES)
    for module, own in reasons.items():
        path = ROOT / "src" / "joulemesh" / "planning" / f"{module}.py"
        keys = {mutant.key for mutant in tool.mutants_of(module, path.read_text("utf-8"))}
        assert set(own) <= keys
        assert all(own.values())


def test_a_sample_is_the_same_every_time_and_grows_by_more(tool: ModuleType) -> None:
    source = "def f(a, b):\n    return a + b - 3 * a\n\n\ndef g(a):\n    return a < 2\n"
    every = tool.mutants_of("m", source)
    few, more = tool.sample(every, 3), tool.sample(every[::-1], 6)
    assert {mutant.key for mutant in few} < {mutant.key for mutant in more}
    assert [mutant.line for mutant in more] == sorted(mutant.line for mutant in more)
    assert len(tool.sample(every, 10**6)) == len(every)
