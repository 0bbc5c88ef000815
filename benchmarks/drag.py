"""Frames per second while a device is dragged on the map, in a headless browser.

``python -m benchmarks drag`` writes ``docs/benchmarks/drag.md``.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import joulemesh
from benchmarks.common import machine, progress, publish, table
from joulemesh.views.charts import BINDING_WORDS, map_data
from joulemesh.views.page import asset
from tests.browser import Browser, find_browser

TITLE = "The map in a browser"
SIZES = (20, 500, 2_000, 100_000)
FRAMES = 120

_PARTS = ("svg.js", "export.js", "map.js")
# Each frame moves the pointer; a frame is over when the next begins.
_DRAG = """(async () => {
  const svg = document.querySelector('svg.map'), box = svg.getBoundingClientRect();
  const [cx, cy] = map.end(7), at = (k) => ({ bubbles: true, pointerId: 1, clientX: box.left +
    cx + 60 * Math.sin(k / 9), clientY: box.top + cy + 60 * Math.cos(k / 9) - 60 });
  svg.setPointerCapture = () => {};
  svg.dispatchEvent(new PointerEvent('pointerdown', at(0)));
  const times = [];
  for (let k = 0; k < FRAMES; k++) {
    svg.dispatchEvent(new PointerEvent('pointermove', at(k)));
    times.push(await new Promise(requestAnimationFrame));
  }
  svg.dispatchEvent(new PointerEvent('pointerup', at(FRAMES)));
  const steps = times.slice(1).map((t, k) => t - times[k]);
  steps.sort((a, b) => a - b);
  return { fps: 1000 / (steps.reduce((a, b) => a + b) / steps.length), slowest_ms: steps.at(-1) };
})()"""


def planned(devices: int) -> joulemesh.Plan:
    """A geometric graph with about 20 links at each device."""
    changes: dict[str, Any] = {
        "devices.count": devices,
        "network.topology": "geometric" if devices > 20 else "ring",
        "network.area_m": 100.0 * devices**0.5,
        "budget.deadline_s": 10.0,
        "plan.iterations": 5,
        "plan.aggregation": "tree",
    }
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(changes))


def sheet(plan: joulemesh.Plan) -> str:
    """A page with the map and nothing else."""
    data = json.dumps({"map": map_data(plan), "kinds": BINDING_WORDS})
    script = "\n".join(map(asset, _PARTS))
    call = (
        "const begun = performance.now();"
        "const map = deviceMap('here', data.map, { kinds: data.partition, onDrag() {} });"
        "const taken = performance.now() - begun;"
    )
    return (
        f"<!doctype html><meta charset=utf-8><style>{asset('report.css')}</style>"
        "<main><section class='card wide' id=here></section></main>"
        f'<script type="application/json" id="data">{data}</script>'
        f"<script>{script}\n{call}</script>"
    )


def measured(browser: Browser, devices: int) -> dict[str, Any]:
    """One size."""
    text = sheet(planned(devices))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "map.html")
        path.write_text(text, "utf-8")
        browser.resize(1280, 900)
        browser.open(path)
        browser.settle()
        drawn_ms = float(browser.evaluate("taken"))
        summarised = bool(browser.evaluate("Boolean(data.map.cells)"))
        shapes = int(browser.evaluate("document.querySelectorAll('#here svg *').length"))
        drag = {} if summarised else browser.evaluate(_DRAG.replace("FRAMES", str(FRAMES)))
        assert not browser.errors, browser.errors
    size = {"devices": devices, "page_kb": len(text) / 1e3, "drawn_ms": drawn_ms, "shapes": shapes}
    return {**size, **drag}


def page(record: dict[str, Any]) -> str:
    """What the record says."""
    cells = [
        [
            f"{row['devices']:,}",
            f"{row['page_kb']:,.0f} kB",
            f"{row['shapes']:,}",
            f"{row['drawn_ms']:.0f} ms",
            f"{row['fps']:.0f}" if "fps" in row else "summarised",
            f"{row['slowest_ms']:.0f} ms" if "fps" in row else "–",
        ]
        for row in record["rows"]
    ]
    head = ["devices", "page", "shapes", "first drawing", "frames/s, dragging", "slowest frame"]
    return (
        f"A device is dragged in circles for {FRAMES} frames of a headless Chromium (software "
        "rendering, 60 frames/s at the most). Links are drawn on a canvas; while a device moves, "
        "only its own are drawn again. More than 2,000 devices are summarised in cells.\n\n"
        + table(head, cells)
    )


def main() -> None:
    """Measure every size and write the page."""
    program = find_browser()
    if program is None:
        raise SystemExit("no chromium or google-chrome on PATH")
    rows = []
    with Browser(program) as browser:
        for devices in SIZES:
            progress(f"{devices:,} devices")
            rows.append(measured(browser, devices))
    record = {"machine": machine(), "rows": rows}
    publish("drag", TITLE, page(record), record)


if __name__ == "__main__":
    main()
