"""The child's side of a timed contender: say "ready", then run one block for every line read.

Standard library only: it runs in the environments of all contenders.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

MARK = "@answer "  # libraries print to standard output too: only lines that begin so are ours


def serve(block: Callable[[str], dict[str, Any]], *packages: str) -> None:
    """Answer every line of standard input with what ``block`` returns for it, as JSON.

    From then on whatever else is printed goes to standard error.
    """
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        _say(answers, {"versions": {name: _version(name) for name in packages}})
        for line in sys.stdin:
            _say(answers, block(line.strip()))


def _say(answers: Any, answer: dict[str, Any]) -> None:
    answers.write(MARK + json.dumps(answer) + "\n")
    answers.flush()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
