"""Blocks of text that are pasted from one machine to another."""

from __future__ import annotations

import sys
from pathlib import Path

from joulemesh.errors import ScenarioError

__all__ = ["pasted_text"]


def pasted_text(path: Path) -> str:
    """The text of a file; of the standard input, as far as the line that ends a block, for ``-``.

    Whoever pastes a block need not know how to end the input.

    Raises:
        ScenarioError: the file cannot be read.
    """
    from joulemesh.files.bounded import read_bounded
    from joulemesh.files.limits import FLEET

    if path != Path("-"):
        try:
            return read_bounded(path, FLEET.now).decode("utf-8", "replace")
        except OSError as error:
            raise ScenarioError(f"cannot read {path}: {error.strerror}; check the path") from None
    lines, size = [], 0
    for line in sys.stdin:
        lines.append(line)
        size += len(line)
        if "-----END JOULEMESH" in line:
            break
        if size > FLEET.now:
            raise ScenarioError(f"more than {FLEET} came without the end of a block; paste it only")
    return "".join(lines)
