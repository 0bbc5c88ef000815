"""`python -m tools.studio_figures`: the documentation's pictures of the studio, from a browser."""

from __future__ import annotations

__all__ = ["main"]

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.browser import Browser, find_browser
from tools.reading import DOCS, ROOT

FIGURES = DOCS / "figures"
_READY = "document.documentElement.dataset.ready === 'true'"
_STILL = "!document.querySelector('#advice.stale, #gantt .stale')"
_REFUSED = "studio.change({ do: 'set', fields: { 'budget.deadline_s': '2 ms' } })"
_COMPARED = (
    "studio.change({ do: 'undo' })"
    ".then(() => studio.change({ do: 'pin' }))"
    ".then(() => studio.change({ do: 'kill', device: 7, iteration: 40 }))"
)


def main() -> None:
    """Start a studio, and take its pictures."""
    program = find_browser()
    if program is None:
        sys.exit("no chromium or google-chrome on PATH")
    process = subprocess.Popen(
        [sys.executable, "-m", "joulemesh", "studio", "--no-browser", "--preset", "adaptive"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    try:
        with Browser(program) as browser:
            browser.allowed = address = process.stdout.readline().split()[-1]
            browser.resize(1280, 860)
            browser.visit(address)
            browser.wait(_READY)
            _take(browser, "studio")
            browser.evaluate(
                "studio.change({ do: 'set', fields: { 'budget.deadline_s': '2 ms' } })"
            )
            _take(browser, "studio-refusal", height=420, still="true")
            browser.evaluate(_COMPARED)
            browser.evaluate("document.querySelector('#compare').scrollIntoView()")
            _take(browser, "studio-compare")
            browser.evaluate("studio.change({ do: 'unpin' })")
            browser.evaluate("scrollTo(0, 0)")
            browser.scheme("dark")
            _take(browser, "studio-dark")
            browser.scheme("light")
            browser.resize(390, 844, mobile=True)
            browser.evaluate("document.querySelector('.asked').open = false; scrollTo(0, 0)")
            _take(browser, "studio-phone", height=844)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stdout.close()


def _take(browser: Browser, name: str, *, height: int = 860, still: str = _STILL) -> None:
    """A picture of what can be seen, once nothing is to come any more."""
    browser.wait(still)
    browser.settle()
    left, top, width = browser.evaluate("[scrollX, scrollY, innerWidth]")
    clip = {"x": left, "y": top, "width": width, "height": height, "scale": 1}
    shot = browser.send("Page.captureScreenshot", format="png", clip=clip)
    path: Path = FIGURES / f"{name}.png"
    path.write_bytes(base64.b64decode(shot["data"]))
    print(f"wrote {path.relative_to(ROOT)}, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
