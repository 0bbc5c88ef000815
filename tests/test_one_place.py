"""What stands in one place stays there: another copy would one day say something else.

Each row names what the code looks like that does it, and the only modules that may look so. Both
ways count: a pattern that finds nothing any longer guards nothing.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import joulemesh
from joulemesh.models.curves import CURVES

HOME = Path(joulemesh.__file__).parent

ONE_PLACE: dict[str, tuple[str, set[str]]] = {
    "forecast costs": (r"\.quantile_gain\(", {"planning/ground.py"}),
    # The chosen kind makes its scheme ready; planning asks for it once.
    "making a scheme ready": (
        r"\b(?:kind|choice)\.ready\(",
        {"aggregation/scheme.py", "planning/ground.py"},
    ),
    "whether link costs are flooded": (r"\.coordination and\b", {"planning/ground.py"}),
    "what a flooding costs": (
        r"bits=LINK_REPORT_BITS|LINK_REPORT_BITS \*|\* LINK_REPORT_BITS",
        {"planning/pricing.py"},
    ),
    "weights of the mean": (
        r"def mean_weights|sizes\.astype\(np\.float64\)|sizes\w*\)? / \w*\.?sizes",
        {"training/schedule.py", "planning/ground.py"},  # the latter: samples of a pass
    ),
    "driving the engine": (r"\b(?:learner|engine)\.advance\(", {"training/driver.py"}),
    "the user's cache folder": (
        r"\b(os_cache|user_cache_dir)\(|XDG_CACHE_HOME|~/\.cache",
        {"base/cache.py"},
    ),
    "palette and style": (
        r"#[0-9A-Fa-f]{6}\b|rc_context|rcParams\[|font\.family",
        {"views/printing.py", "views/style.py"},
    ),
}


def modules() -> list[Path]:
    return sorted(HOME.rglob("*.py"))


@pytest.mark.parametrize("what", ONE_PLACE)
def test_it_stands_in_one_place(what: str) -> None:
    looks, allowed = ONE_PLACE[what]
    found = {
        path.relative_to(HOME).as_posix()
        for path in modules()
        if re.search(looks, path.read_text("utf-8"))
    }
    assert found == allowed


def named(path: Path) -> set[str]:
    """The curves that a module names in texts."""
    return {
        node.value
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and node.value in CURVES
    }


def test_the_curves_are_listed_in_one_place() -> None:
    """Elsewhere three names of curves would be another list."""
    lists = {path.relative_to(HOME).as_posix() for path in modules() if len(named(path)) > 2}
    assert lists == {"models/curves.py"}


@pytest.mark.parametrize(
    ("what", "copy"),
    [
        ("forecast costs", "gain = world.channel.quantile_gain(0.9)"),
        ("making a scheme ready", "scheme = kind.ready(conditions, fit, reason)"),
        ("weights of the mean", "share = sizes / sizes.sum()"),
        ("weights of the mean", "share = held.sizes / held.sizes.sum()"),
        ("driving the engine", "state, trace = engine.advance(state)"),
        ("the user's cache folder", "folder = platformdirs.user_cache_dir('joulemesh')"),
        ("palette and style", "line.set_color('#0072B2')"),
    ],
)
def test_a_copy_would_be_seen(what: str, copy: str) -> None:
    assert re.search(ONE_PLACE[what][0], copy)
