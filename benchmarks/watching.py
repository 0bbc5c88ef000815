"""`python -m benchmarks.watching [--publish]`: a fleet of 8 processes on the page of `watch`.

One device is killed and started again later. How long does it take until the page, in a real
browser, shows that it is silent, and that it is back? `--publish` writes the page
docs/benchmarks/watching.md, and pictures to docs/figures.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joulemesh
from benchmarks import deploy_faults as fleet_of
from benchmarks.common import machine, progress, publish
from joulemesh.deploy.local.local import LocalFleet, environment, open_fleet
from joulemesh.deploy.view import Settings
from tests.browser import Browser, find_browser

TITLE = "Watching a fleet"
MODULE = "benchmarks.watching --publish"
ITERATIONS, KILLED, DOWN_S = 3000, 3, 6.0
FIGURES = Path(__file__).parents[1] / "docs" / "figures"
_PATIENCE_S = 90.0
_TALL = 1250
_PICTURES = (
    ("watch.png", 1280, "light"),
    ("watch-dark.png", 1280, "dark"),
    ("watch-phone.png", 400, "light"),
)


class Visit:
    """A browser that looks at a fleet while one of its devices is killed and started again."""

    def __init__(self, running: LocalFleet, shots: Path | None) -> None:
        self._running, self._shots = running, shots
        self.found: dict[str, float] = {}
        self.errors: list[str] = []
        self.failure: BaseException | None = None

    def go(self) -> None:
        """Visit; whatever goes wrong is kept for the main thread."""
        try:
            self._go()
        except BaseException as failure:
            self.failure = failure
        finally:
            self._running.supervisor.stop()

    def _go(self) -> None:
        until(lambda: min(one.iteration for one in self._running.standings()) >= 5)
        program = find_browser()
        assert program is not None, "no chromium or google-chrome on PATH"
        command = [sys.executable, "-m", "joulemesh", "watch", str(self._running.folder)]
        curve = ["--simulate"] if self._shots else []
        watching = subprocess.Popen(
            [*command, "--no-browser", *curve], stdout=subprocess.PIPE, text=True
        )
        assert watching.stdout is not None
        try:
            address = watching.stdout.readline().split()[-1]
            with Browser(program) as browser:
                browser.allowed = address.rpartition("/")[0].rpartition("/")[0]
                browser.resize(1280, 900)
                browser.send("Page.navigate", url=address)
                until(lambda: "training" in row(browser) or "exchanging" in row(browser))
                self._kill(browser)
                self.errors = list(browser.errors)
        finally:
            watching.send_signal(signal.SIGINT)
            watching.wait(20)

    def _kill(self, browser: Browser) -> None:
        process = self._running.processes[KILLED]
        os.kill(process.pid, signal.SIGKILL)
        self.found["silent_s"] = timed(lambda: "silent" in row(browser))
        time.sleep(DOWN_S)
        self._take_pictures(browser)
        launched = time.time()
        again = subprocess.Popen(
            process.job.command,
            env={**os.environ, **environment()},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            until(lambda: process.job.ready(launched))  # it has written that it is up
            self.found["back_s"] = timed(lambda: "silent" not in row(browser))
            until(lambda: "started (number 2)" in text(browser, "#log"))
            until(lambda: "not in the newest view" not in row(browser))
        finally:
            again.terminate()
            again.wait()

    def _take_pictures(self, browser: Browser) -> None:
        if self._shots is None:
            return
        time.sleep(2)
        for name, width, scheme in _PICTURES:
            browser.scheme(scheme)
            browser.resize(width, 900)
            clip = {"x": 0, "y": 0, "width": width, "height": _TALL, "scale": 1}
            shot = browser.send(
                "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
            )
            (self._shots / name).write_bytes(base64.b64decode(shot["data"]))
        browser.scheme("light")
        browser.resize(1280, 900)


def row(browser: Browser) -> str:
    """What the page's table says of the device that is killed."""
    return text(browser, f"#rows tr:nth-child({KILLED + 1})")


def text(browser: Browser, selector: str) -> str:
    """The text of an element; empty if it is not there."""
    found = f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"
    return str(browser.evaluate(found))


def until(holds: Callable[[], bool]) -> None:
    """Wait for something."""
    timed(holds)


def timed(holds: Callable[[], bool]) -> float:
    """Seconds until something holds."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > _PATIENCE_S:
            raise TimeoutError(f"not within {_PATIENCE_S:g} s")
        time.sleep(0.02)
    return time.monotonic() - begun


def visited(folder: Path, shots: Path | None = None) -> Visit:
    """Run a fleet, and look at it.

    Args:
        folder: a new one, of the fleet.
        shots: a folder for pictures of the page, or None.

    Returns:
        What was found.
    """
    scenario = fleet_of.scenario(ITERATIONS).override({"training.eval_every": 10})
    plan = joulemesh.plan(scenario)
    fleet = open_fleet(folder, plan, settings=Settings(patience_s=fleet_of.PATIENCE_S))[0]
    running = LocalFleet(folder, fleet, plan, restarts=0)
    visit = Visit(running, shots)
    thread = threading.Thread(target=visit.go)
    thread.start()
    running.run(lambda standings: None, every_s=0.2)
    thread.join()
    if visit.failure is not None:
        raise visit.failure
    return visit


def main() -> None:
    wanted = "--publish" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        visit = visited(Path(place) / "fleet", FIGURES if wanted else None)
    record = {"module": MODULE, "machine": machine(), **visit.found}
    if wanted:
        publish("watching", TITLE, page(record), record)
    else:
        progress(page(record))


def page(record: dict[str, Any]) -> str:
    """The page's body."""
    return "\n".join(
        [
            "Eight devices as processes of one machine, and the page of `joulemesh watch` in "
            "headless Chromium. One device is killed (SIGKILL) and started again later.",
            "",
            f"- killed: the page shows that it is silent after **{record['silent_s']:.1f} s**;",
            f"- started again: the page shows that it is back **{record['back_s']:.1f} s** after "
            "the first line of its new journal.",
            "",
            "The page asks once a second, and the server asks every device twice a second.",
        ]
    )


if __name__ == "__main__":
    main()
