"""Environments of contenders: made whole, or refused in one line and nothing run in their place."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import environments

ROOT = Path(__file__).resolve().parents[1]


def test_what_pip_refuses_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*command: str) -> None:
        if "pip" in command:
            raise RuntimeError("ERROR: No matching distribution found for certifi>=2999")

    monkeypatch.setattr(environments, "BENCH", tmp_path)
    monkeypatch.setattr(environments, "_run", refuse)
    with pytest.raises(SystemExit) as end:
        environments.main("flower-app", "flwr>=1.41", "jax")
    assert end.value.code == (
        "error: pip cannot install flwr>=1.41, jax into an environment: "
        "ERROR: No matching distribution found for certifi>=2999"
    )


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_without_its_environment_the_test_of_flower_is_not_skipped_but_fails(
    tmp_path: Path,
) -> None:
    for name, script in (("python", "echo error: no flwr >&2; exit 1"), ("pytest", "echo ran")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    command = [
        "make",
        "--silent",
        "--no-print-directory",
        "--old-file=.venv/ready",
        "test-flower",
        f"BIN={tmp_path}",
    ]
    own = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=own)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: no flwr\n")
