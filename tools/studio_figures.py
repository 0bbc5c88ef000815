"""`python -m tools.studio_figures`: the documentation's pictures of the studio, from a browser."""

from __future__ import annotations

__all__ = ["main"]

import base64
from pathlib import Path

from tests.browser import Browser
from tests.serving import opened_studio
from tools.reading import DOCS, ROOT

FIGURES = DOCS / "figures"
_STILL = "!document.querySelector('#advice.stale, #gantt .stale')"
_REFUSED = "studio.change({ do: 'set', fields: { 'budget.deadline_s': '2 ms' } })"
_COMPARED = (
    "studio.change({ do: 'undo' })"
    ".then(() => studio.change({ do: 'pin' }))"
    ".then(() => studio.change({ do: 'kill', device: 7, iteration: 40 }))"
)


def main() -> None:
    """Start a studio, and take its pictures."""
    with opened_studio("--preset", "adaptive", width=1280, height=860) as browser:
        _take(browser, "studio")
        browser.evaluate(_REFUSED)
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
