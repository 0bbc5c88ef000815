"""docs/figures/deployment.png: the report of six devices, one of which is killed on the way.

`python -m tools.deployment_figure`, in the repository's root; it takes a minute or two, and wants a
browser of the Chromium family.
"""

from __future__ import annotations

__all__ = ["main"]

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "figures" / "deployment.png"
NAMES = ("gate", "barn", "mast", "pump", "shed", "mill")
SETTINGS = {
    "devices.table": "devices.csv",
    "devices.count": "6",
    "network.topology": "complete",
    "plan.iterations": "300",
    "budget.energy_j": "60",
}
_KILLED, _AFTER, _PATIENCE_S = "pump", 40, 300.0


def _carry_out(folder: Path) -> Path:
    """Run the fleet, and kill one device when it has come some way; the page."""
    rows = "".join(f"{name},3e5\n" for name in NAMES)
    (folder / "devices.csv").write_text(f"name,cycles_per_sample\n{rows}", "utf-8")
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    command = ["deploy", "local", *settings, "--patience", "2s", "--out", "farm"]
    running = subprocess.Popen([sys.executable, "-m", "joulemesh", *command], cwd=folder)
    run = folder / "farm" / "devices" / _KILLED / "run"
    until = time.monotonic() + _PATIENCE_S
    while _committed(run) < _AFTER and time.monotonic() < until and running.poll() is None:
        time.sleep(0.05)
    if running.poll() is None:
        os.kill(json.loads((run / ".lock").read_text("utf-8"))["process"], signal.SIGKILL)
    if running.wait() != 0:
        raise RuntimeError("the fleet did not come to its end")
    return folder / "farm" / "report.html"


def _committed(run: Path) -> int:
    """The last iteration that a device has committed."""
    journal = run / "journal.jsonl"
    lines = journal.read_text("utf-8").splitlines() if journal.exists() else []
    done = [json.loads(line)["iteration"] for line in lines if '"kind": "committed"' in line]
    return max(done, default=0)


def main() -> None:
    """Draw it."""
    from tests.browser import Browser, find_browser

    program = find_browser()
    if program is None:
        print(f"no browser of the Chromium family: {FIGURE.name} is left as it is")
        return
    with tempfile.TemporaryDirectory() as name, Browser(program) as browser:
        page = _carry_out(Path(name))
        browser.resize(1100, 800)
        browser.scheme("light")
        browser.open(page)
        browser.settle()
        browser.screenshot(FIGURE)


if __name__ == "__main__":
    main()
