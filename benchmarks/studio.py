"""How soon the studio's page shows a change, and how smoothly a device is dragged, in a browser."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from contextlib import AbstractContextManager
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.common import machine, progress, publish, table
from joulemesh.scenario import Scenario
from joulemesh.scenario.varied import typed_value
from joulemesh.studio.app import Session
from tests.browser import Browser, find_browser
from tests.serving import READY, STILL, Served, opened_studio

TITLE = "The studio: from a change to its plan on the screen"
CHANGES = 21  # of a field, one after another
DRAG_S = 4.0
MANY = {
    "network.topology": "geometric",
    "network.area_m": "2500",
    "budget.deadline_s": "0.3",
    "plan.iterations": "100",
}
FLEETS: dict[str, dict[str, str]] = {
    "20": {},
    "1,000": {"devices.count": "1000", **MANY},
    "2,000": {"devices.count": "2000", **MANY, "network.area_m": "3500"},
}
MOST = {
    "devices.count": "100000",
    **MANY,
    "network.area_m": "25000",
    "budget.deadline_s": "3",
    "plan.iterations": "50",
}
_PATIENCE_S = 900.0


def studio(fields: dict[str, str]) -> AbstractContextManager[Browser]:
    """The page of a fresh server, in a fresh browser."""
    return opened_studio(*_words(fields))


def _words(fields: dict[str, str]) -> list[str]:
    return [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]


def redraw(fields: dict[str, str]) -> dict[str, float]:
    """Milliseconds from a change of the batteries until the new plan is on the screen.

    ``answer``: until the new plan has come (request, planning, JSON); ``drawn``: until the browser
    has drawn all of it but the time line of an iteration; ``whole``: that too.
    """
    times: dict[str, list[float]] = {"answer": [], "drawn": [], "whole": []}
    drawing = []
    with studio(fields) as browser:
        browser.send("Performance.enable", timeDomain="threadTicks")
        for k in range(CHANGES):
            low = 6.0 + 0.01 * (k + 1)
            before = _busy_ms(browser)
            found = browser.evaluate(
                "(async () => { const begun = performance.now(); "
                "const chart = document.querySelector('#gantt .chart'); chart.replaceChildren(); "
                f"await studio.change({{ do: 'set', fields: {{ 'budget.energy_j': '[{low}, 30]' }} "
                "}); while (!chart.querySelector('rect')) await new Promise(requestAnimationFrame);"
                "return { ...studio.times, whole: performance.now() - begun }; })()"
            )
            drawing.append(_busy_ms(browser) - before)
            for name, list_ in times.items():
                list_.append(found[name])
            # The advice takes several plans; the next change waits for it, as a reader would.
            browser.wait(STILL)
    return {name: statistics.median(found) for name, found in times.items()} | {
        "worst": max(times["drawn"]),
        "planning_cpu": planning(fields),
        "drawing_cpu": statistics.median(drawing),
    }


def _busy_ms(browser: Browser) -> float:
    """Processor time of the page's main thread."""
    found = browser.send("Performance.getMetrics")["metrics"]
    (seconds,) = (float(one["value"]) for one in found if one["name"] == "TaskDuration")
    return 1000 * seconds


def planning(fields: dict[str, str]) -> float:
    """Milliseconds of processor time from a change to its JSON document, in this process."""
    asked = {name: typed_value(value) for name, value in fields.items()}
    spent = []
    with tempfile.TemporaryDirectory() as folder:
        session = Session(Scenario.preset("default").override(asked), Path(folder))
        session.view()
        for k in range(CHANGES):
            begun = time.process_time()
            low = 6.0 + 0.01 * (k + 1)
            session.act({"do": "set", "fields": {"budget.energy_j": f"[{low}, 30]"}})
            json.dumps(session.view())
            spent.append(1000 * (time.process_time() - begun))
    return statistics.median(spent)


def drag(fields: dict[str, str]) -> dict[str, float]:
    """Frames per second while a device of the map is dragged round."""
    with studio(fields) as browser:
        x, y = browser.centre("#map [data-device='5']")
        browser.evaluate(
            "(() => { window.frames_ = []; const on = (t) => { frames_.push(t); "
            "requestAnimationFrame(on); }; requestAnimationFrame(on); })()"
        )
        press = {"button": "left", "buttons": 1, "clickCount": 1}
        browser.send("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **press)
        begun = browser.evaluate("performance.now()")
        moves, now = 0, begun
        while now < begun + 1000 * DRAG_S:
            moves += 1
            dx, dy = 60 * ((moves % 40) / 40), 45 * ((moves % 28) / 28)
            browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=x + dx, y=y + dy, **press)
            now = browser.evaluate("performance.now()")
        frames = browser.evaluate(f"frames_.filter((t) => t >= {begun} && t <= {now})")
        gaps = [late - early for early, late in pairwise(frames)]
        browser.send("Input.dispatchMouseEvent", type="mouseReleased", x=x, y=y, **press)
    return {
        "frames_per_s": 1000 * len(frames) / (now - begun),
        "slowest_ms": max(gaps),
        "moves_per_s": 1000 * moves / (now - begun),
    }


def first(fields: dict[str, str]) -> dict[str, float]:
    """Seconds from opening the page until its first plan is drawn, and how large the page then is.

    ``processor_s`` is what the server took of a processor until then; ``answers_ms`` is how long
    the page takes to draw a frame after a key.
    """
    program = find_browser()
    if program is None:
        raise RuntimeError("no chromium or google-chrome on PATH")
    server = Served(*_words(fields), cwd=Path(tempfile.gettempdir()))
    try:
        with Browser(program) as browser:
            browser.allowed = server.url
            browser.resize(1400, 1000)
            before, begun = _processor_s(server.process.pid), time.monotonic()
            browser.visit(server.url)
            browser.wait(READY, _PATIENCE_S)
            drawn = time.monotonic() - begun
            spent = _processor_s(server.process.pid) - before
            elements = browser.evaluate("document.querySelectorAll('*').length")
            begun = time.monotonic()
            browser.press("Tab")
            answers = 1000 * (time.monotonic() - begun)
    finally:
        server.close()
    figures = {"drawn_s": drawn, "processor_s": spent}
    return figures | {"elements": elements, "answers_ms": answers}


def _processor_s(process: int) -> float:
    """Processor time of a process so far (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


_SHOWN = {
    "answer": "plan received",
    "drawn": "drawn",
    "worst": "drawn, slowest",
    "whole": "with its time line",
    "planning_cpu": "planning and JSON, processor time",
    "drawing_cpu": "page with time line, processor time",
}


def page(record: dict[str, Any]) -> str:
    rows = [
        [name, *(f"{one[key]:.0f} ms" for key in _SHOWN)] for name, one in record["redraw"].items()
    ]
    header = ["devices", *_SHOWN.values()]
    found = record["drag"]
    return (
        f"Medians of {CHANGES} changes of one field (`budget.energy_j`), from the change until the "
        "browser has drawn the frame: the request, planning, the JSON document, and all charts and "
        "tables. The time line of an iteration is fetched once the rest is drawn. 20 devices are "
        "the preset `default`, whose number of iterations is searched for; 1,000 are on a "
        "geometric graph with 20 neighbours each and 100 iterations. Processor time does not "
        "depend on what else runs on the machine, as the other columns do.\n\n"
        + table(header, rows)
        + f"\n\nA device dragged on a map of 2,000 with their links: {found['frames_per_s']:.0f} "
        f"frames per second over {DRAG_S:g} s, the slowest frame {found['slowest_ms']:.0f} ms, "
        f"with {found['moves_per_s']:.0f} moves of the mouse per second. The browser is headless "
        "Chromium without a GPU, on the same cores as the server.\n\n"
        f"{_many(record.get('first'))}"
        f"Other programs were {'not ' if record['load'] < 0.7 else ''}running at the same time "
        f"(load {record['load']:.1f} at the start)."
    )


def _many(found: dict[str, float] | None) -> str:
    if found is None:
        return ""
    return (
        "100,000 devices with about 20 neighbours each and 50 iterations: the first plan is on the "
        f"screen after {found['drawn_s']:.0f} s ({found['processor_s']:.0f} s of a processor for "
        f"graph, plan and JSON). It is summarised, in {found['elements']:,.0f} elements, and the "
        f"page answers a key within {found['answers_ms']:.0f} ms.\n\n"
    )


def main() -> None:
    load = os.getloadavg()[0]
    found = {}
    for name in ("20", "1,000"):
        progress(f"redraw, {name} devices")
        found[name] = redraw(FLEETS[name])
    progress("drag, 2,000 devices")
    record = {
        "machine": machine(),
        "load": load,
        "redraw": found,
        "drag": drag(FLEETS["2,000"]),
        "first": first(MOST),
    }
    publish("studio", TITLE, page(record), record)


if __name__ == "__main__":
    main()
