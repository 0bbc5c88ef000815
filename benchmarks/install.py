"""Installations: their size on disk, and how long they take to import and to plan.

A wheel is built and installed into empty environments with the versions of constraints.txt, as a
user would. Times are medians over processes in turn, also in parts of what `import numpy` takes in
the same environment, so that another machine can compare.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, machine, progress, publish, table

TITLE = "Installations"
EXTRAS = ("", "deploy", "jax")
ROUNDS = 15
TIMED = {
    "python": ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import joulemesh": ["-c", "import joulemesh"],
    "joulemesh --version": ["-m", "joulemesh", "--version"],
    "joulemesh plan": ["-m", "joulemesh", "plan"],
}
_PACKAGES = """
import json, sys
from importlib.metadata import distributions
from pathlib import Path

found = {}
for one in distributions():
    if one.name not in ("pip", "setuptools"):
        files = {Path(one.locate_file(file)).resolve() for file in one.files or ()}
        found[one.name] = sum(file.stat().st_size for file in files if file.is_file())
heavy = [name for name in ("jax", "pandas", "matplotlib") if name in found]
print(json.dumps({"bytes": found, "heavy": heavy}))
"""


def build(folder: Path) -> Path:
    """The wheel of this working tree."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation",
         "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )  # fmt: skip
    (wheel,) = folder.glob("joulemesh-*.whl")
    return wheel


def installed(wheel: Path, extras: str, folder: Path) -> Path:
    """The Python of an empty environment into which the wheel was installed."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    wanted = f"{wheel}[{extras}]" if extras else str(wheel)
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--constraint", str(ROOT / "constraints.txt"), wanted],
        check=True,
    )  # fmt: skip
    return python


def case(wheel: Path, extras: str, folder: Path) -> dict[str, Any]:
    """Packages and bytes of an installation."""
    progress(f"joulemesh[{extras}]")
    python = installed(wheel, extras, folder)
    answer = subprocess.run(
        [str(python), "-c", _PACKAGES], capture_output=True, text=True, check=True, cwd=folder
    )
    found = json.loads(answer.stdout)
    sizes = found["bytes"]
    return {
        "extras": extras,
        "packages": len(sizes),
        "own_bytes": sizes["joulemesh"],
        "all_bytes": sum(sizes.values()),
        "heavy": found["heavy"],
    }


def timed(python: Path, folder: Path) -> dict[str, float]:
    """Median seconds of each process, in turn."""
    progress("times")
    seconds: dict[str, list[float]] = {name: [] for name in TIMED}
    for turn in range(ROUNDS + 1):
        for name, words in TIMED.items():
            start = time.perf_counter()
            subprocess.run([str(python), *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)
            if turn:  # the first reads everything from the disk
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def page(record: dict[str, Any]) -> str:
    sizes = [
        [
            f"joulemesh[{one['extras']}]" if one["extras"] else "joulemesh",
            str(one["packages"]),
            f"{one['own_bytes'] / 1e6:.1f}",
            f"{one['all_bytes'] / 1e6:.0f}",
            ", ".join(one["heavy"]) or "none",
        ]
        for one in record["cases"]
    ]
    times = record["seconds"]
    bare, numpy = times["python"], times["import numpy"] - times["python"]
    rows = [
        [name, f"{1e3 * value:.0f}", "" if name == "python" else f"{(value - bare) / numpy:.2f}"]
        for name, value in times.items()
    ]
    return (
        "The wheel, installed into empty environments with the versions of `constraints.txt`. "
        "Bytes are those of the files that pip lists, with its compiled bytecode, in megabytes "
        "(10⁶); pip itself is not counted.\n\n"
        + table(["installed", "packages", "own MB", "all MB", "JAX, pandas, Matplotlib"], sizes)
        + "\n\nThe light installation, in which the plan of the default scenario (20 devices, 867 "
        f"iterations) is made without JAX, pandas or Matplotlib: medians of {ROUNDS} processes in "
        "turn, and what each adds to a bare Python, in parts of what `import numpy` adds.\n\n"
        + table(["process", "ms", "parts of NumPy's import"], rows)
    )


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        cases = [case(wheel, extras, folder / f"env{k}") for k, extras in enumerate(EXTRAS)]
        seconds = timed(folder / "env0" / "bin" / "python", folder)
    record = {"machine": machine(), "cases": cases, "seconds": seconds}
    publish("install", TITLE, page(record), record)


if __name__ == "__main__":
    main()
