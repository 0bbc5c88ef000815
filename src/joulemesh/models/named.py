"""Models of the user's own by file and name: ``training.model = "my_models.py:Net"``."""

from __future__ import annotations

__all__ = ["is_own", "own_model", "own_parts"]

import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from joulemesh.errors import ScenarioError
from joulemesh.own_code import files_run, run_file

_OWN = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")


def own_parts(text: str) -> tuple[str, str] | None:
    """The file and the name in it; None if the text names no such model.

    >>> own_parts("models/mine.py:Net"), own_parts("mlp")
    (('models/mine.py', 'Net'), None)
    """
    found = _OWN.fullmatch(text)
    return (found["path"], found["name"]) if found else None


def is_own(text: str) -> bool:
    """Does it name a model in a file?"""
    return own_parts(text) is not None


@lru_cache(maxsize=16)
def _module(path: str, changed_ns: int) -> Any:
    """The file, run once unless it has changed."""
    del changed_ns
    return run_file(path, f"training.model = {path!r}")


def own_model(text: str) -> Any:
    """What a file of the user's own calls by a name: a class, a module, a pair of functions.

    A file that is not where the name says, as on a device that was told of it, is one of those
    that were loaded.

    Raises:
        ScenarioError: there is no such file, or no such name in it.
    """
    parts = own_parts(text)
    assert parts is not None
    path, name = parts
    file = Path(path)
    if not file.is_file():
        loaded = [one for one in files_run() if one.name == file.name]
        if not loaded:
            raise ScenarioError(
                f"training.model = {text!r}: there is no file {path}; name one, or give it with "
                "--load"
            )
        file = loaded[-1]
    module = _module(str(file.resolve()), file.stat().st_mtime_ns)
    if not hasattr(module, name):
        known = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ScenarioError(
            f"training.model = {text!r}: {path} has no {name}; it has {', '.join(known[:8])}"
        )
    return getattr(module, name)
