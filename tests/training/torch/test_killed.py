"""A run of a PyTorch module that is killed without a word goes on to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import joulemesh

pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")
pytestmark = pytest.mark.slow

MODULE = """
import torch

def make():
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
"""


def scenario(folder: Path) -> Path:
    (folder / "mine.py").write_text(MODULE)
    path = folder / "fleet.toml"
    path.write_text(
        "[devices]\ncount = 4\n[plan]\niterations = 60\nrounds = 'theorem4'\n[training]\n"
        "model = 'mine.py:make'\nchunk_iterations = 2\noptimizer = 'adam'\n"
    )
    return path


def test_killed_and_resumed_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    path, out = scenario(tmp_path), tmp_path / "run"
    whole = joulemesh.run(joulemesh.Scenario.load(path), out=tmp_path / "whole")
    command = [sys.executable, "-m", "joulemesh", "run", str(path), "--out", str(out)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list(out.glob("checkpoint/*.safetensors")) and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it had finished before it was killed"
    assert not (out / "model.safetensors").exists()
    subprocess.run([*command, "--resume"], check=True, stdout=subprocess.DEVNULL)
    wanted = (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert (out / "model.safetensors").read_bytes() == wanted
    assert whole.accuracy.size
