"""What benchmarks share: child processes with time and peak memory, machine, tables."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from joulemesh.base.machine import cpus

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "docs" / "benchmarks"
BENCH = ROOT / ".bench"  # what benchmarks make and may keep: environments, data, bytecode


def environment(changes: dict[str, str]) -> dict[str, str]:
    """The environment of a child process.

    Bytecode is kept even where this one tells Python not to write any, so that all but the first
    process start as an installed package does.
    """
    own = {**os.environ, "PYTHONPYCACHEPREFIX": str(BENCH / "bytecode"), **changes}
    own.pop("PYTHONDONTWRITEBYTECODE", None)
    return own


def measure(
    *command: str, env: dict[str, str] | None = None, cwd: Path = ROOT
) -> tuple[float, float, str]:
    """Wall seconds, peak memory in MiB and standard output of a child process."""
    own = environment(env or {})
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=cwd, env=own)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    unit = 1024.0 if sys.platform != "darwin" else 1024.0**2
    return wall, usage.ru_maxrss / unit, output


def machine(*packages: str) -> dict[str, Any]:
    """Hardware and versions to print beside every figure."""
    versions: dict[str, str | None] = {}
    for name in ("joulemesh", "numpy", "scipy", *packages):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": cpus(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(x.split(":", 1)[1].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def progress(what: str) -> None:
    """Say on standard error what is being measured; benchmarks take minutes."""
    print(f"[{time.strftime('%H:%M:%S')}] {what}", file=sys.stderr, flush=True)


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table, with cells that read as they are."""
    # Here, because the environments of peers, which load this module, do not have joulemesh.
    from joulemesh.views.markdown import table as markdown_table

    return markdown_table(header, rows)


def page_text(name: str, title: str, body: str, record: dict[str, Any]) -> str:
    """A benchmark's page: what made it, where, and its body."""
    where = record["machine"]
    tested = ", ".join(f"{k} {v}" for k, v in where["versions"].items() if v)
    module = record.get("module", f"benchmarks {name}")
    return (
        f"# {title}\n\nMade by `python -m {module}` on "
        f"{where['cores']} cores of {where['processor']}{_accelerator(where)}, "
        f"Python {where['python']}, {tested}.\n\n"
        f"{body}\n"
    )


def publish(
    name: str,
    title: str,
    body: str,
    record: dict[str, Any],
    *,
    suffix: str = "",
    quick: bool = False,
) -> None:
    """Print a result, and keep it as Markdown and JSON under docs/benchmarks.

    ``suffix`` keeps results of other kinds of machine beside each other; quick trials go to
    .bench/quick instead.
    """
    text = page_text(name, title, body, record)
    print(text)
    folder = BENCH / "quick" if quick else OUT
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}{suffix}.md").write_text(text, "utf-8")
    (folder / f"{name}{suffix}.json").write_text(
        json.dumps(record, indent=1).replace(f"{ROOT}/", "") + "\n", "utf-8"
    )


def _accelerator(where: dict[str, Any]) -> str:
    return f" and one {where['accelerator']}" if where.get("accelerator") else ""


def own_peak_mib() -> float:
    """Peak memory of this process in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
