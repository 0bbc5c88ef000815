"""`python -m tools.screens OUT [NAME …]`: pictures of every page in every form, to be looked at.

Each page is shown at desktop and phone width, in light and dark colours, and as it is printed; tall
ones are cut into sheets that stand side by side. What the pages show is computed for them, in
small, and kept in OUT for the next time.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image

import joulemesh
from benchmarks.watching import until
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import make_fleet
from joulemesh.studio.server import PageServer
from joulemesh.studio.watching import Document, FleetSource, WatchPage
from joulemesh.views.deployment import render_deployment
from tests.browser import Browser, find_browser
from tests.deploy.journals import Fleet as Made
from tests.deploy.journals import Outage
from tests.serving import STILL, opened_studio
from tests.views.deployment import test_page as deployed

FORMS = {
    "desktop": (1400, "light"),
    "desktop-dark": (1400, "dark"),
    "phone": (390, "light"),
    "phone-dark": (390, "dark"),
}
_SHEET = 1500  # pixels of a sheet's longer side
_SMALL = ["--set", "plan.iterations=60", "--set", "training.model=logistic"]
_CAUSAL = ["--set", "network.channel_known=false", "--set", "plan.iterations=60"]
COMMANDS = {
    "run": ["run", "--seeds", "3"],
    "harvest": [
        *(
            "run",
            "--preset",
            "adaptive",
            "--set",
            "devices.harvest_w=[0.1, 1.5]",
            "--set",
            "devices.idle_w=0.02",
        ),
        *("--set", "network.fading=rayleigh", *_CAUSAL),
    ],
    "comparison": [
        "compare",
        "--methods",
        "spread,adaptive,d-psgd,fixed:3",
        "--seeds",
        "3",
        *_SMALL,
    ],
    "sweep": [
        *("sweep", "--methods", "spread,adaptive,fixed:3", "--seeds", "2", *_SMALL),
        *("--vary", "budget.energy_j=5,10,20", "--vary", "network.topology=geometric,ring"),
    ],
    "tuning": ["tune", "--candidates", "12", "--search-seeds", "1", "--seeds", "3", *_SMALL],
}
_ITERATED = ["document.querySelectorAll('#gantt svg rect').length > 20"]
# What is done to the studio, one after another, and what must then hold.
STUDIO: dict[str, tuple[str, list[str]]] = {
    "studio": ("true", _ITERATED),
    "studio-compare": (
        "studio.change({ do: 'pin' }).then(() => "
        "studio.change({ do: 'kill', device: 7, iteration: 40 }))",
        _ITERATED,
    ),
    "studio-refusal": (
        "studio.change({ do: 'unpin' }).then(() => "
        "studio.change({ do: 'set', fields: { 'budget.deadline_s': '2 ms' } }))",
        ["!document.querySelector('#refusal').hidden"],
    ),
    "studio-simulate": (
        "studio.change({ do: 'undo' }).then(() => document.querySelector('#simulate').click())",
        ["document.querySelector('#training .words').innerText.startsWith('Done')"],
    ),
    "studio-tune": (
        "studio.change({ do: 'set', fields: { 'plan.iterations': '10' } })"
        ".then(() => document.querySelector('#tune').click())",
        ["document.querySelector('#training .words').innerText.startsWith('Done')"],
    ),
    "studio-save": ("document.querySelector('#save').click()", ["true"]),
    "studio-kill": (
        "(document.querySelector('#save-dialog').close(), "
        "document.querySelector('#map svg').dispatchEvent("
        "new KeyboardEvent('keydown', { key: 'ArrowRight' })), "
        "document.querySelector('#selection button').click())",
        ["true"],
    ),
    "studio-how": (
        "(document.querySelector('#kill-dialog').close(), "
        "document.querySelector('.how').open = true)",
        ["true"],
    ),
}


def _command(name: str, folder: Path) -> Path:
    """The report of a command, which is carried out where its folder is not there yet."""
    place = folder / name
    words = ["report", str(place)] if name in ("run", "harvest") and place.exists() else None
    again = ["--resume"] if name == "tuning" and place.exists() else []
    words = words or [*COMMANDS[name], "--out", str(place), *again]
    subprocess.run(
        [sys.executable, "-m", "joulemesh", *words],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return place / "report.html"


def _deployment(folder: Path) -> Path:
    fleet = Made(deployed.make_plan(), deployed.NAMES, [Outage(device=2, after=4, back=8)])
    path = folder / "deployment.html"
    view = deployed.make_view(fleet, curve=deployed.make_curve(fleet.plan))
    path.write_text(render_deployment(view), "utf-8")
    return path


@contextmanager
def _watch(folder: Path) -> Iterator[str]:
    """The address of a page that watches a fleet of which only the journals are there."""
    place = folder / "watched"
    shutil.rmtree(place, ignore_errors=True)
    plan = joulemesh.plan(joulemesh.Scenario(devices={"count": 8}, plan={"iterations": 40}))
    fleet = make_fleet(place, plan, with_keys=True)
    Made(plan, fleet.names, outages=[Outage(3, 12, 24)]).write(place / "journals")
    with FleetSource(place) as source:
        until(lambda: all(one.asked for one in source.look()))
        found = Document(Fleet.load(place)).made(source.look())
        silent = {"answers": False, "state": "silent", "heard_at": found["at"] - 30}
        up = {"answers": True, "state": "training", "why": ""}
        for k, device in enumerate(found["devices"]):
            device |= silent if k == 3 else up
        server = PageServer(WatchPage("farm", lambda: found).respond)
        try:
            yield server.url
        finally:
            server.close()


class Sheets:
    """Takes pictures of the page that is open, in every form."""

    def __init__(self, browser: Browser, out: Path) -> None:
        self._browser, self._out = browser, out

    def take(self, name: str, settle: Callable[[], None] = lambda: None) -> None:
        """All forms of one page."""
        for form, (width, scheme) in FORMS.items():
            self._browser.scheme(scheme)
            self._browser.resize(width, 900, mobile=width < 500)
            settle()
            self._browser.settle()
            self._cut(self._picture(width), f"{name}-{form}")
        self._browser.scheme("light")
        self._browser.resize(1400, 900)
        settle()
        for old in self._out.glob(f"{name}-print-*.png"):
            old.unlink()
        path = self._out / f"{name}.pdf"
        path.write_bytes(self._browser.print_pdf())
        if shutil.which("pdftoppm"):
            sheets = ["pdftoppm", "-png", "-r", "90", str(path), str(self._out / f"{name}-print")]
            subprocess.run(sheets, check=True)
        print(f"{name}: {', '.join(FORMS)}, print", flush=True)

    def _picture(self, width: int) -> Image.Image:
        tall = self._browser.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
        shot = self._browser.send(
            "Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip
        )
        return Image.open(BytesIO(base64.b64decode(shot["data"])))

    def _cut(self, picture: Image.Image, name: str) -> None:
        wide, room = picture.width, 20
        columns = max(1, _SHEET // (wide + room))
        strips = [picture.crop((0, y, wide, min(y + _SHEET, picture.height)))
                  for y in range(0, picture.height, _SHEET)]  # fmt: skip
        for old in self._out.glob(f"{name}-[0-9]*.png"):
            old.unlink()
        for k in range(0, len(strips), columns):
            shown = strips[k : k + columns]
            sheet = Image.new("RGB", (len(shown) * (wide + room), shown[0].height), "#888")
            for column, strip in enumerate(shown):
                sheet.paste(strip, (column * (wide + room), 0))
            sheet.save(self._out / f"{name}-{1 + k // columns}.png")


def _studio(out: Path, wanted: set[str]) -> None:
    with opened_studio("--preset", "adaptive", "--set", "training.model=logistic") as browser:
        sheets = Sheets(browser, out)
        for name, (act, holds) in STUDIO.items():
            browser.evaluate("scrollTo(0, 0)")
            browser.evaluate(f"Promise.resolve({act}).then(() => null)")
            for one in holds:
                browser.wait(one, 300)
            if name in wanted:
                sheets.take(name, lambda: browser.wait(STILL))


def main() -> None:
    """Take the pictures."""
    every = [*COMMANDS, "deployment", "watch", *STUDIO]
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path, help="a folder for pages and pictures")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)}; all")
    asked = parser.parse_args()
    wanted = set(asked.names or every)
    if unknown := wanted - set(every):
        parser.error(f"no page is called {json.dumps(sorted(unknown))}")
    program = find_browser()
    if program is None:
        sys.exit("no chromium or google-chrome on PATH")
    pages = asked.out.resolve() / "pages"
    pages.mkdir(parents=True, exist_ok=True)
    with Browser(program) as browser:
        sheets = Sheets(browser, asked.out)
        for name in (*COMMANDS, "deployment"):
            if name in wanted:
                browser.open(_deployment(pages) if name == "deployment" else _command(name, pages))
                sheets.take(name)
        if "watch" in wanted:
            with _watch(pages) as address:
                browser.allowed = address
                browser.visit(address)
                sheets.take("watch")
    if wanted & set(STUDIO):
        _studio(asked.out, wanted)


if __name__ == "__main__":
    main()
