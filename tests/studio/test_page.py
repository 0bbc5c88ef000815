"""The page in a real browser: what somebody does to it, and what it then shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import joulemesh
from joulemesh.planning.plan import digest_of
from joulemesh.studio.table import table_text
from tests.axe import grave, needs_axe
from tests.browser import Browser
from tests.hostile import NAMES
from tests.serving import READY, Served
from tests.studio.conftest import Page

DEADLINE = "#field-budget-deadline_s"
TOLD = "document.querySelector('#training .words').innerText"


def test_a_change_redraws_wrong_input_is_said_and_undo_takes_back(page: Page) -> None:
    """The one test of the page that always runs: the others are slow."""
    before = page.settled()
    tiles = page.text("#tiles")
    after = page.enter("budget.deadline_s", "50 ms")
    assert after["plan"]["rounds"] > before["plan"]["rounds"]
    assert page.text("#tiles") != tiles
    assert f"{after['plan']['rounds']:,}" in page.text("#tiles")
    for chart in ("#map", "#rounds", "#batteries", "#flow"):
        assert page.browser.evaluate(f"document.querySelectorAll('{chart} svg *').length") > 10
    page.browser.wait("document.querySelectorAll('#gantt svg rect').length > 20")

    page.browser.fill(DEADLINE, "soon")
    page.browser.wait(f"document.querySelector('{DEADLINE}-error').checkVisibility()")
    assert "number" in page.text(f"{DEADLINE}-error")
    invalid = f"document.querySelector('{DEADLINE}').getAttribute('aria-invalid')"
    assert page.browser.evaluate(invalid) == "true"
    assert page.settled()["plan"]["digest"] == after["plan"]["digest"]

    assert page.click("#undo")["plan"]["digest"] == before["plan"]["digest"]
    assert page.browser.evaluate(invalid) is None
    assert page.text("#tiles") == tiles
    assert page.click("#redo")["plan"]["digest"] == after["plan"]["digest"]
    page.browser.errors = [one for one in page.browser.errors if "422" not in one]


@pytest.mark.slow
def test_a_device_is_dragged_by_mouse_and_by_keys(page: Page) -> None:
    was = page.settled()["map"]["at"]
    revision = page.settled()["revision"]
    page.browser.drag("#map [data-device='3']", 40, 25)
    now = page.settled(revision + 1)["map"]["at"]
    assert now[3][0] > was[3][0]
    assert now[3][1] < was[3][1]  # north is up, and pixels count down
    assert now[:3] + now[4:] == was[:3] + was[4:]
    assert "move device 3" in page.browser.evaluate("document.querySelector('#undo').title")
    page.browser.evaluate("document.querySelector('#map svg').focus()")
    for key in ("Enter", "ArrowRight", "ArrowRight", "Enter"):
        page.browser.press(key)
    later = page.settled(revision + 2)["map"]["at"]
    assert later[3][0] > now[3][0]
    assert page.click("#undo", steps=1)["map"]["at"] == now


@pytest.mark.slow
def test_a_device_is_killed_and_revived(page: Page) -> None:
    before = page.settled()
    page.browser.click("#map [data-device='7']")
    page.browser.wait("document.querySelector('#selection').checkVisibility()")
    page.browser.click("#selection button")
    page.browser.fill("#kill-when", "20")
    view = page.click("#kill-now")
    assert view["leave"] == [[7, 20]]
    assert "Iteration 20, gone: device 7" in page.text("#events")
    assert view["plan"]["rounds"] < before["plan"]["rounds"]
    assert page.press("Revive device 7")["plan"]["digest"] == before["plan"]["digest"]


@pytest.mark.slow
def test_a_link_is_removed_and_put_back(page: Page) -> None:
    before = page.settled()
    i, j = before["map"]["route"]["ends"][4]
    page.browser.centre(f"#map [data-device='{i}']")  # scrolls to it
    x, y = page.browser.evaluate(
        f"(() => {{ const at = [{i}, {j}].map((k) => document.querySelector("
        "`#map [data-device='${k}']`).getBoundingClientRect()); const mid = (side, size) => "
        "(at[0][side] + at[1][side] + at[0][size]) / 2; "
        "return [mid('left', 'width'), mid('top', 'height')]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        page.browser.send(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1
        )
    view = page.press("Remove this link", "#selection")
    assert view["gone"] == [[i, j]]
    assert [i, j] not in view["map"]["route"]["ends"]
    other = json.dumps({"do": "cut", "link": before["map"]["route"]["ends"][9]})
    assert page.browser.evaluate(f"window.studio.change({other})")
    assert "falls into 2 parts" in page.text("#refusal")  # there is no map of it, and a way back
    assert page.press("Put back the link", "#refusal")["plan"] is not None
    assert page.press("Put back the link")["plan"]["digest"] == before["plan"]["digest"]


@pytest.mark.slow
def test_a_refusal_offers_its_remedy_as_a_button(page: Page) -> None:
    view = page.enter("budget.deadline_s", "1 ms")
    assert view["plan"] is None
    assert "misses the deadline" in page.text("#refusal")
    assert not page.text("#rounds")
    assert page.browser.evaluate("document.querySelectorAll('#map .device').length") == 20
    assert page.browser.evaluate("document.querySelector('#simulate').disabled")
    assert page.press("Raise the deadline to", "#refusal")["plan"] is not None
    assert not page.text("#refusal")


@pytest.mark.slow
def test_two_plans_stand_side_by_side(page: Page) -> None:
    page.click("#pin")
    page.enter("plan.iterations", "50")
    table = page.text("#differences")
    assert "plan.iterations\t100\t50" in table
    assert "iterations\t100\t50\t−50 %" in table
    for chart in ("map-kept", "map-now", "rounds-kept", "rounds-now"):
        assert page.browser.evaluate(f"document.querySelectorAll('#{chart} svg').length") == 1
    page.click("#pin")
    assert not page.text("#compare")


@pytest.mark.slow
def test_the_table_is_edited_pasted_and_loaded(page: Page) -> None:
    cell = "#table input[data-column='energy_j'][data-device='2']"
    revision = page.settled()["revision"]
    page.browser.fill(cell, "0.5 Wh")
    view = page.settled(revision + 1)
    names = [column["name"] for column in view["devices"]["columns"]]
    assert view["devices"]["cells"][names.index("energy_j")][2] == 1800
    paste = (
        "(() => {{ const t = new DataTransfer(); t.setData('text', {}); "
        "document.querySelector({}).dispatchEvent(new ClipboardEvent('paste', "
        "{{ clipboardData: t, bubbles: true, cancelable: true }})); }})()"
    )
    page.browser.evaluate(paste.format(json.dumps("11\t3e9\n12\t2e9\n"), json.dumps(cell)))
    view = page.settled(revision + 2)
    cells = view["devices"]["cells"]
    assert cells[names.index("energy_j")][2:4] == [11, 12]
    assert cells[names.index("cpu_hz")][2:4] == [3e9, 2e9]
    text = "name\tenergy_j\tx_m\ty_m\nbarn\t9\t0\t0\nhill\t9\t50\t0\nwell\t9\t0\t50\n"
    page.browser.evaluate(paste.format(json.dumps(text), json.dumps(cell)))
    view = page.settled(revision + 3)
    assert view["names"] == ["barn", "hill", "well"]
    assert page.browser.evaluate("document.querySelectorAll('#table tbody tr').length") == 3


@pytest.mark.slow
def test_a_preset_is_picked_and_a_field_is_found(page: Page) -> None:
    page.browser.evaluate(
        "(() => { const s = document.querySelector('#preset'); s.value = 'paper'; "
        "s.dispatchEvent(new Event('change')); })()"
    )
    page.browser.wait("document.querySelector('#field-plan-physics').value === 'paper'")
    page.browser.fill("#filter", "nakagami")
    shown = "[...document.querySelectorAll('.field')].filter((f) => f.checkVisibility()).length"
    assert page.browser.evaluate(shown) in (1, 2)


# Training -----------------------------------------------------------------------------------------


def children(served: Served) -> list[int]:
    """Processes that train for a server, whichever of its threads has started them."""
    threads = Path(f"/proc/{served.process.pid}/task").glob("*/children")
    found = [int(pid) for path in threads for pid in path.read_text().split()]
    return [pid for pid in found if b"studio.jobs" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.slow
def test_a_simulation_draws_live_curves_and_planning_goes_on(page: Page) -> None:
    page.enter("plan.iterations", "40")
    page.browser.click("#simulate")
    page.browser.wait(f"{TOLD} !== 'Starting…'")
    assert page.enter("budget.deadline_s", "41 ms")["plan"] is not None  # while it trains
    page.browser.wait(f"{TOLD}.startsWith('Done')", 120)
    done = page.text("#training .words")
    assert re.fullmatch(r"Done: accuracy \d\d\.\d % for [\d.]+ J in [\d.]+ s", done)
    drawn = "document.querySelector('#curve-accuracy path.line').getAttribute('d')"
    assert page.browser.evaluate(drawn).count("L") >= 5
    page.browser.resize(390, 850, mobile=True)  # what was drawn before fits the new width
    chart = "document.querySelector('#curve-accuracy .chart')"
    fits = f"{chart}.querySelector('svg').viewBox.baseVal.width === {chart}.clientWidth"
    page.browser.wait(fits)


@pytest.mark.slow
def test_what_is_stopped_or_left_ends_its_process(page: Page) -> None:
    page.browser.click("#simulate")
    page.browser.wait(f"{TOLD} !== 'Starting…'")
    (worker,) = children(page.served)
    page.browser.click("#stop")
    page.browser.wait(f"{TOLD} === 'Stopped.'")
    assert worker not in children(page.served)
    page.browser.click("#simulate")
    page.browser.wait(f"{TOLD} !== 'Starting…'")
    assert children(page.served)
    page.browser.visit("about:blank")
    page.browser.wait("true")
    for _ in range(600):
        if not children(page.served):
            break
        page.browser.evaluate("new Promise((r) => setTimeout(r, 50))")
    assert not children(page.served)


@pytest.mark.slow
def test_tuning_shows_its_front_as_it_grows(page: Page) -> None:
    page.enter("plan.iterations", "10")
    page.enter("training.model", "logistic")
    page.browser.evaluate("document.querySelector('.how').open = true")
    page.browser.fill("#candidates", "3")
    page.browser.click("#tune")
    dots = "document.querySelectorAll('#front .dot').length"
    first = page.browser.wait(dots, 180)
    assert first > 0
    page.browser.wait(f"{TOLD}.startsWith('Done')", 180)
    assert page.browser.evaluate(dots) >= first
    assert page.browser.evaluate("document.querySelectorAll('#front path.front').length") == 1


# Saving -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_saved_file_planned_by_command_gives_the_same_plan(page: Page, tmp_path: Path) -> None:
    page.enter("budget.deadline_s", "50 ms")
    page.browser.drag("#map [data-device='3']", 30, 30)
    page.browser.wait("document.querySelector('#undo').title.includes('move')")
    view, place = page.settled(), tmp_path / "fleet.toml"
    page.browser.click("#save")
    page.browser.fill("#save-path", str(place))
    page.browser.click("#save-now")
    page.browser.wait("!document.querySelector('#save-dialog').open")
    assert digest_of(joulemesh.plan(joulemesh.Scenario.load(place))) == view["plan"]["digest"]
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", "plan", str(place), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    told = json.loads(done.stdout)
    rounds = sum(sum(row) for row in told["rounds"])
    assert rounds == view["plan"]["rounds"]

    page.enter("budget.deadline_s", "45 ms")
    text = place.read_text()
    page.browser.click("#save")
    page.browser.click("#save-now")
    page.browser.wait("document.querySelector('#save-over').checkVisibility()")
    assert "exists" in page.text("#save-dialog .error")
    assert place.read_text() == text
    page.browser.click("#save-over")
    page.browser.wait("!document.querySelector('#save-dialog').open")
    assert joulemesh.Scenario.load(place).budget.deadline_s == 0.045
    page.browser.errors = [one for one in page.browser.errors if "409" not in one]


# The server, other tabs, other people's names ---------------------------------------------------


@pytest.mark.slow
def test_a_server_that_stops_is_said_and_one_that_comes_back_too(
    serve: Callable[..., Served], browser: Browser
) -> None:
    served = serve("--preset", "adaptive")
    page = Page(browser, served)
    lost = "document.querySelector('#lost').checkVisibility()"
    served.process.send_signal(signal.SIGSTOP)
    browser.wait(lost, 30)
    served.process.send_signal(signal.SIGCONT)
    browser.wait(f"!{lost}", 30)
    assert page.enter("budget.deadline_s", "50 ms")["plan"] is not None
    assert served.end() == 0
    browser.wait(lost, 5)
    assert "The server has stopped" in page.text("#lost")
    assert "Copy the scenario" in page.text("#lost")
    browser.fill(DEADLINE, "60 ms")
    browser.wait(f"document.querySelector('{DEADLINE}-error').checkVisibility()")
    assert "does not answer" in page.text(f"{DEADLINE}-error")
    browser.send("Page.close")


@pytest.mark.slow
def test_two_tabs_do_not_disturb_each_other(browser: Browser, served: Served) -> None:
    one = Page(browser, served)
    first = one.enter("budget.deadline_s", "50 ms")
    back = browser.tab()
    browser.visit(served.url)
    browser.wait(READY)
    other = one.settled()
    assert other["plan"]["digest"] != first["plan"]["digest"]
    second = one.enter("budget.deadline_s", "45 ms")
    here = browser.switch(back)
    assert one.settled()["plan"]["digest"] == first["plan"]["digest"]
    browser.visit(served.url)  # loaded again, a tab goes on where it was
    browser.wait(READY)
    assert one.settled()["plan"]["digest"] == first["plan"]["digest"]
    browser.send("Page.close")
    browser.switch(here)
    assert one.settled()["plan"]["digest"] == second["plan"]["digest"]
    browser.send("Page.close")


@pytest.mark.slow
def test_names_are_shown_and_never_interpreted(page: Page) -> None:
    count = len(NAMES)
    rows = {
        "name": [name.replace("\n", " ") for name in NAMES],
        "x_m": [str(10 * k) for k in range(count)],
        "y_m": [str(7 * k) for k in range(count)],
        "energy_j": ["9"] * count,
    }
    order = json.dumps({"do": "table", "text": table_text(rows)})
    assert page.browser.evaluate(f"window.studio.change({order})")
    page.browser.click("#map [data-device='1']")
    page.browser.wait("document.querySelectorAll('#gantt svg rect').length > 5")
    page.browser.wait("document.querySelector('#advice').checkVisibility()")
    assert NAMES[1] in page.text("#selection")
    assert page.browser.evaluate("document.querySelector('#table input').value") == NAMES[0]
    assert page.browser.evaluate("window.harmed === undefined")
    assert page.browser.evaluate("document.querySelectorAll('img, main script').length") == 0


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1400])
def test_axe_finds_nothing_grave(page: Page, width: int, scheme: str) -> None:
    needs_axe()
    page.browser.scheme(scheme)
    page.browser.resize(width, 850, mobile=width < 500)
    page.browser.wait("document.querySelectorAll('#gantt svg rect').length > 20")
    assert grave(page.browser) == []
    page.click("#pin")
    page.enter("budget.deadline_s", "2 ms")
    assert grave(page.browser) == []
    page.browser.click("#save")
    assert grave(page.browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1400])
def test_nothing_overflows_at_any_width(page: Page, width: int, scheme: str) -> None:
    page.browser.scheme(scheme)
    page.browser.resize(width, 850, mobile=width < 500)
    page.browser.settle()
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.browser.evaluate(wide) <= 0
    named = (
        "[...document.querySelectorAll('button, input, select')].filter((e) => "
        "e.checkVisibility() && !e.labels?.length && !e.getAttribute('aria-label') && "
        "!e.textContent.trim()).map((e) => e.id)"
    )
    assert page.browser.evaluate(named) == []
