"""Commands, run in the process of a test."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from joulemesh.cli.main import main

SMALL = """
[devices]
count = 4
cycles_per_sample = [1e5, 3e5]
[network]
profile = "ideal"
[budget]
energy_j = [0.5, 1.5]
deadline_s = 0.04
[plan]
iterations = 4
rounds = "theorem4"
aggregation = "theorem3"
[training]
model = "logistic"
batch_size = 8
chunk_iterations = 4
"""


class Outcome(NamedTuple):
    """What came of a command."""

    code: int
    out: str
    err: str


Command = Callable[..., Outcome]


def commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """What runs a command in this process."""

    def run(*arguments: object, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["joulemesh", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        code: Any = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        caught = capsys.readouterr()
        return Outcome(int(code), caught.out, caught.err)

    return run
