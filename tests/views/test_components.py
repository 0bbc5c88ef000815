"""The shared chart components in a real browser: each by itself, in a page that is nothing else."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from joulemesh.planning.plan import Plan
from joulemesh.views import charts as digest
from joulemesh.views.charts import BINDING_WORDS, flow_data, gantt_data, map_data
from joulemesh.views.page import asset, policy
from tests.browser import Browser
from tests.hostile import NAMES
from tests.legible import illegible

PARTS = ("svg.js", "export.js", "map.js", "rounds.js", "lines.js", "devices.js", "gantt.js")
TIP = "document.querySelector('#tip').hidden ? null : document.querySelector('#tip').textContent"

Stage = Callable[..., Browser]


@pytest.fixture
def stage(browser: Browser, tmp_path: Path) -> Stage:
    """A page with one empty container, in which a call of a component is made."""

    def show(call: str, data: Any) -> Browser:
        styles = asset("report.css")
        script = "\n".join([*map(asset, (*PARTS, "flow.js")), "const seen = [];", call])
        text = json.dumps(data).replace("<", "\\u003c")
        path = tmp_path / "stage.html"
        path.write_text(
            "<!doctype html><html lang=en><meta charset=utf-8><title>stage</title>"
            f'<meta http-equiv="Content-Security-Policy" content="{policy(styles, script)}">'
            f"<style>{styles}</style><main><section class='card wide' id=here></section></main>"
            f'<script type="application/json" id="data">{text}</script><script>{script}</script>',
            "utf-8",
        )
        browser.resize(1280, 900)
        browser.scheme("light")
        browser.open(path)
        browser.settle()
        return browser

    return show


def draw_map(options: str = "") -> str:
    return f"const map = deviceMap('here', data.map, {{ kinds: data.partition, {options} }});"


DRAGGED = (
    "onDrag: (i, x, y) => seen.push(['drag', i, x, y]), "
    "onDrop: (i, x, y) => seen.push(['drop', i, x, y]), onSelect: (what) => seen.push(what)"
)


@pytest.fixture
def dragged(stage: Stage, plans: dict[str, Plan]) -> Browser:
    data = {"map": map_data(plans["default"]), "kinds": BINDING_WORDS}
    return stage(draw_map(DRAGGED), data)


def test_a_device_is_dragged_with_its_links(dragged: Browser, plans: dict[str, Plan]) -> None:
    browser = dragged
    before = "document.querySelector('canvas.still').toDataURL()"
    drawn = browser.evaluate(before)
    x, y = browser.centre("[data-device='3']")
    mouse = {"button": "left", "buttons": 1, "clickCount": 1}
    browser.send("Input.dispatchMouseEvent", type="mousePressed", x=x, y=y, **mouse)
    for step in range(1, 6):
        at = {"x": x - 10 * step, "y": y + 8 * step}
        browser.send("Input.dispatchMouseEvent", type="mouseMoved", **at, **mouse)
        browser.settle()
    browser.send("Input.dispatchMouseEvent", type="mouseReleased", x=x - 50, y=y + 40, **mouse)
    browser.settle()
    seen = browser.evaluate("seen")
    assert seen[0] == {"device": 3}
    assert [one[0] for one in seen[1:]] == ["drag"] * (len(seen) - 2) + ["drop"]
    was_x, was_y = plans["default"].world.graph.positions_m[3]
    _, device, now_x, now_y = seen[-1]
    assert device == 3
    assert now_x < was_x - 5
    assert now_y < was_y - 5
    assert browser.evaluate(before) != drawn
    assert browser.errors == []


def test_keys_choose_a_device_and_move_it(dragged: Browser) -> None:
    browser = dragged
    browser.evaluate("document.querySelector('svg.map').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate("seen.at(-1)") == {"device": 0}
    assert browser.evaluate(TIP).startswith("device 0")
    browser.press("Enter", "\r")
    assert "arrow keys move it" in browser.evaluate(TIP)
    browser.press("ArrowLeft")
    kind, device, x, y = browser.evaluate("seen.at(-1)")
    assert (kind, device) == ("drag", 0)
    browser.press("ArrowLeft")
    assert browser.evaluate("seen.at(-1)")[2] < x
    assert browser.evaluate("seen.at(-1)")[3] == pytest.approx(y)
    browser.press("Enter", "\r")
    assert browser.evaluate("seen.at(-1)")[:2] == ["drop", 0]
    browser.press("ArrowRight")
    assert browser.evaluate("seen.at(-1)")["device"] != 0
    assert browser.errors == []


def test_a_map_that_is_only_read_moves_nothing(stage: Stage, plans: dict[str, Plan]) -> None:
    data = {"map": map_data(plans["default"]), "kinds": BINDING_WORDS}
    browser = stage(draw_map("onSelect: (what) => seen.push(what)"), data)
    browser.evaluate("document.querySelector('svg.map').focus()")
    browser.press("ArrowRight")
    browser.press("Enter", "\r")
    browser.press("ArrowLeft")
    assert all("device" in what for what in browser.evaluate("seen"))
    i, j = data["map"]["route"]["ends"][0]
    middle = (
        f"(() => {{ const a = map.end({i}), b = map.end({j}), f = map.svg.getBoundingClientRect();"
    )
    middle += "return [f.left + (a[0] + b[0]) / 2, f.top + (a[1] + b[1]) / 2]; })()"
    x, y = browser.evaluate(middle)
    browser.move(x, y)
    assert browser.evaluate(TIP).startswith(f"link {i}–{j}: ")
    assert browser.evaluate(TIP).endswith("on the route")
    assert browser.errors == []


def test_very_many_devices_are_drawn_as_cells(
    stage: Stage, plans: dict[str, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "MOST_DOTS", 500)
    data = {"map": map_data(plans["many"]), "kinds": BINDING_WORDS}
    browser = stage(draw_map(), data)
    circles = "document.querySelectorAll('circle.cell').length"
    assert browser.evaluate(circles) == len(data["map"]["cells"]) < 600
    browser.evaluate("document.querySelector('svg').focus()")
    browser.press("ArrowRight")
    assert " devices about " in browser.evaluate(TIP)
    assert browser.errors == []


def test_the_time_line_has_a_bar_for_each_message(stage: Stage, plans: dict[str, Plan]) -> None:
    chart = gantt_data(plans["default"])[0]
    call = (
        "const line = ganttChart('here', data.chart, { names: data.names }); line.window = [0, 9];"
    )
    call += "line.draw();"
    names = [f"sensor {k}" for k in range(20)]
    browser = stage(call, {"chart": chart, "names": names})
    for kind in ("train", "send", "receive"):
        count = sum(bar["kind"] == kind for bar in chart["bars"])
        assert browser.evaluate(f"document.querySelectorAll('rect.{kind}').length") == count
    labels = "[...document.querySelectorAll('svg text.name')].map((e) => e.textContent)"
    assert set(names) <= set(browser.evaluate(labels))
    browser.evaluate("document.querySelector('svg').focus()")
    browser.press("End")
    assert " sends to sensor " in browser.evaluate(TIP)
    assert browser.evaluate("document.querySelectorAll('rect.near').length") == 2
    browser.click(".stretch button:last-child")  # zooms out, as far as there is anything
    assert browser.errors == []


def test_flows_are_as_wide_as_their_joules(stage: Stage, plans: dict[str, Plan]) -> None:
    plan = plans["default"]
    browser = stage("flowChart('here', data.flow);", {"flow": flow_data(plan)})
    label = browser.evaluate("document.querySelector('svg').getAttribute('aria-label')")
    assert label.startswith("Where the joules went, 361 J in all: training 337 J")
    heights = "[...document.querySelectorAll('rect.source')].map((e) => +e.getAttribute('height'))"
    drawn = np.array(browser.evaluate(heights))
    assert drawn / drawn.sum() == pytest.approx(
        plan.energy_budget_j / plan.energy_budget_j.sum(), rel=1e-4
    )
    browser.evaluate("document.querySelector('svg').focus()")
    browser.press("ArrowRight")
    assert browser.evaluate(TIP).startswith("device 0: ")
    assert browser.errors == []


SAVED = """(() => { const kept = [];
  URL.createObjectURL = (blob) => { kept.push(blob); return '#'; };
  HTMLAnchorElement.prototype.click = function () { kept.push(this.download); };
  for (const button of document.querySelectorAll('.tools button')) button.click();
  return Promise.all(kept.map((one) => (one instanceof Blob ? one.text() : one))); })()"""


@pytest.mark.parametrize("call", ["flow", "map", "gantt"])
def test_a_chart_is_saved_as_svg_and_csv(
    stage: Stage, plans: dict[str, Plan], tmp_path: Path, call: str
) -> None:
    plan = plans["default"]
    calls = {
        "flow": ("flowChart('here', data);", flow_data(plan)),
        "map": ("deviceMap('here', data);", map_data(plan)),
        "gantt": ("ganttChart('here', data);", gantt_data(plan)[0]),
    }
    browser = stage(*calls[call])
    drawing, svg_name, table, csv_name = browser.evaluate(SAVED)
    assert svg_name.endswith(".svg")
    assert csv_name.endswith(".csv")
    root = ElementTree.fromstring(drawing)
    every = [value for element in root.iter() for value in element.attrib.values()]
    assert not [value for value in every if "var(" in value]
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    rows = list(csv.reader(io.StringIO(table)))
    assert len(rows) > 10
    assert len({len(row) for row in rows}) == 1
    (tmp_path / "alone.svg").write_text(drawing, "utf-8")
    browser.open(tmp_path / "alone.svg")
    assert browser.errors == []


@pytest.mark.parametrize("component", ["map", "gantt", "flow"])
def test_names_are_never_interpreted(stage: Stage, plans: dict[str, Plan], component: str) -> None:
    plan = plans["default"]
    names = [NAMES[k % len(NAMES)] for k in range(20)]
    flow = flow_data(plan)
    for source, name in zip(flow["sources"], names, strict=True):
        source["name"] = name
    data = {"map": map_data(plan), "chart": gantt_data(plan)[0], "flow": flow, "names": names}
    call = {
        "map": "deviceMap('here', data.map, { names: data.names });",
        "gantt": "ganttChart('here', data.chart, { names: data.names });",
        "flow": "flowChart('here', data.flow);",
    }[component]
    browser = stage(call, data)
    browser.evaluate("document.querySelector('.tools details').open = true")
    browser.evaluate("document.querySelector('#here svg').focus()")
    browser.press("ArrowRight")
    browser.settle()
    assert browser.evaluate("window.harmed === undefined")
    assert browser.evaluate("document.querySelectorAll('img, b, iframe').length") == 0
    cells = "[...document.querySelectorAll('.tools td')].map((e) => e.textContent)"
    assert set(names) <= set(browser.evaluate(cells))
    assert browser.evaluate("document.documentElement.scrollWidth") <= 1280
    assert browser.errors == []


def test_texts_fit_where_there_is_little_room(stage: Stage) -> None:
    browser = stage("", {})
    words = "[clip('device-17', 9), clip('device-17', 6), clip('device-17', 1), plain(80000)]"
    assert browser.evaluate(words) == ["device-17", "dev…17", "d…", "80,000"]
    text = "unbroken('4.2 % of 361 J in 40 ms, 20 devices and 3 m long; 2 mJ/bit')"
    whole = "4.2\u00a0% of 361\u00a0J in 40\u00a0ms, 20 devices and 3\u00a0m long; 2\u00a0mJ/bit"
    assert browser.evaluate(text) == whole
    few = "fitting(linear(0, 867, 0, 218), {}, 218, 5).length"
    assert browser.evaluate(few.format("plain")) == 5  # and not only 0 and 500
    assert browser.evaluate(few.format("(v) => `${v} seconds`")) == 2


def test_what_is_read_by_keys_keeps_its_place_when_it_is_drawn_anew(stage: Stage) -> None:
    spec = "{ label: 'x', x: { name: 'x', write: plain }, y: { name: 'y', write: plain }, lines: "
    spec += "[{ text: 'a', ink: '#000', xs: [1, 2, 3], ys: [1, 2, 3] }] }"
    browser = stage(f"const again = () => lineChart('here', {spec}); again();", {})
    chart = "document.querySelector('#here .chart svg')"
    browser.evaluate(f"{chart}.focus()")
    for expected in ("1\na: 1", "2\na: 2", "3\na: 3"):
        browser.press("ArrowRight")
        assert browser.evaluate(TIP) == expected
        browser.evaluate("tip.hide(); again();")
        assert browser.evaluate(f"document.activeElement === {chart}")


def test_a_table_that_goes_on_to_the_right_says_so(stage: Stage, plans: dict[str, Plan]) -> None:
    browser = stage(draw_map(), {"map": map_data(plans["default"]), "kinds": BINDING_WORDS})
    browser.resize(390, 900)
    browser.evaluate("document.querySelector('.tools details').open = true")
    box = "document.querySelector('.tools .scroll')"
    browser.wait(f"{box}.classList.contains('more')")
    browser.evaluate(f"{box}.scrollLeft = 9999")
    browser.wait(f"!{box}.classList.contains('more')")


def test_bars_too_narrow_for_an_edge_have_none(stage: Stage, plans: dict[str, Plan]) -> None:
    narrow = "document.getElementById('here').style.width = '320px';"
    drawn = f"{narrow} ganttChart('here', data.gantt[0]);"
    browser = stage(drawn, {"gantt": gantt_data(plans["default"])})
    edges = (
        "[...document.querySelectorAll('rect.bar')].map((one) => "
        "[Number(one.getAttribute('width')), getComputedStyle(one).stroke !== 'none'])"
    )
    browser.evaluate("document.querySelector('button').click()")  # the whole iteration
    found = browser.evaluate(edges)
    assert any(wide < 4 for wide, _ in found)
    assert all(edged == (wide >= 4) for wide, edged in found if not 3.9 < wide < 4.1)


@pytest.mark.parametrize("wide", [320, 460, 800])
def test_long_names_of_uses_are_not_cut_off_by_the_drawing(stage: Stage, wide: int) -> None:
    words = ["training", "exchanges, with what is drawn while a device waits", "left over", "lost"]
    flow = {
        "sources": [{"name": "12,345 devices: battery binds", "joules": [9.0, 0.2, 3.0, 1e-15]}],
        "uses": [
            {"key": key, "text": text}
            for key, text in zip(("train", "exchange", "left", "spilled"), words, strict=True)
        ],
    }
    narrow = f"document.getElementById('here').style.width = '{wide}px';"
    browser = stage(f"{narrow} flowChart('here', data.flow);", {"flow": flow})
    assert illegible(browser) == []
    assert "lost" not in browser.evaluate("document.querySelector('svg').textContent")  # rounding
