"""Ctrl-C at any moment: one line, exit code 130, and never a crash."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STUB = """
import atexit, os, signal, sys
sys.argv = ["joulemesh", "plan"]
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
from joulemesh.planning import static
def interrupted(*arguments, **options):
    os.kill(os.getpid(), signal.SIGINT)
static.plan = interrupted
atexit.register(print, "destructors")
print("begun")
from joulemesh.cli import main
main()
"""


def test_an_interrupted_command_does_not_tear_down_what_still_computes() -> None:
    """Destructors of XLA's libraries free code that its threads may be executing."""
    child = subprocess.run([sys.executable, "-c", STUB], capture_output=True, text=True)
    assert (child.returncode, child.stdout) == (130, "begun\n")
    assert "Traceback" not in child.stderr
    whole = STUB.replace("os.kill(os.getpid(), signal.SIGINT)", "raise SystemExit(2)")
    other = subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True)
    assert (other.returncode, other.stdout) == (2, "begun\ndestructors\n")


@pytest.mark.slow
@pytest.mark.parametrize("twice", [False, True])
def test_ctrl_c_at_any_moment_of_a_figure_ends_with_130(tmp_path: Path, twice: bool) -> None:
    rng, interrupted = random.Random(twice), 0
    for turn in range(4):
        folder = tmp_path / str(turn)
        folder.mkdir()
        figure = ["reproduce", "fig5", "--quick", "--seeds", "12"]
        program = [sys.executable, "-m", "joulemesh", *figure]
        child = subprocess.Popen(
            [*program, "--cache", "kept", "--out", "out"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert child.stderr is not None
        line = ""
        while "fig5" not in line:  # it compiles or trains
            line = child.stderr.readline()
            assert line, child.wait()
        time.sleep(rng.uniform(0.0, 0.6))
        child.send_signal(signal.SIGINT)
        if twice:
            time.sleep(rng.uniform(0.0, 0.5))
            child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=120)
        if "fig5: done" in said:  # before the signal came; Python itself is ending
            assert child.returncode in (0, 130, -signal.SIGINT), (child.returncode, said)
            continue
        assert "Traceback" not in said
        assert child.returncode == 130, (child.returncode, said)
        assert "stopped; the same command goes on" in said
        interrupted += 1
    assert interrupted
