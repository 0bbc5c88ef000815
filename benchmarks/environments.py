"""Environments of contenders: a venv each under .bench, made once.

python -m benchmarks.environments NAME REQUIREMENT …    make one, and print its interpreter
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.common import BENCH

# First everywhere: packages that need PyTorch then find it and do not fetch CUDA libraries.
TORCH = ("torch==2.13.0", "numpy")


def python_of(name: str, *steps: Sequence[str]) -> str:
    """The interpreter of an environment, made and filled if need be.

    Args:
        name: of its folder.
        steps: requirements, installed step by step.

    Raises:
        RuntimeError: it could not be made; the message is pip's last error.
    """
    folder = BENCH / name
    python = folder / "bin" / "python"
    wanted = "\n".join(" ".join(step) for step in steps) + "\n"
    ready = folder / "ready"
    if ready.exists() and ready.read_text() == wanted:
        return str(python)
    _run(sys.executable, "-m", "venv", "--clear", str(folder))
    for step in steps:
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *step)
    ready.write_text(wanted)
    return str(python)


def torch_python() -> str:
    """An interpreter that has PyTorch: this one if it does, else an environment made for it."""
    if importlib.util.find_spec("torch") is not None:
        return sys.executable
    return python_of("torch", TORCH)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [x for x in (done.stderr + done.stdout).splitlines() if x.startswith("ERROR")]
        raise RuntimeError(lines[-1] if lines else f"{' '.join(command[:4])} failed")


def main(name: str, *requirements: str) -> None:
    """Make an environment and print its interpreter; one line if it cannot be made."""
    try:
        print(python_of(name, requirements))
    except RuntimeError as error:
        asked = ", ".join(requirements)
        sys.exit(f"error: pip cannot install {asked} into an environment: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
