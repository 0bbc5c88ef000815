"""The page of a fleet at work: what it shows, who may see it, and a device that is killed."""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import joulemesh
from benchmarks.watching import until, visited
from joulemesh.base.errors import JoulemeshError
from joulemesh.deploy.fleet.fleet import Fleet
from joulemesh.deploy.fleet.pack import make_fleet
from joulemesh.deploy.operator.standing import Standing
from joulemesh.scenario import Scenario
from joulemesh.studio.server import PageServer
from joulemesh.studio.watching import (
    Document,
    FleetSource,
    NodeSource,
    WatchPage,
    serve_node,
)
from tests.axe import grave, needs_axe
from tests.browser import Browser, find_browser
from tests.deploy.journals import Fleet as Made
from tests.deploy.journals import Outage
from tests.legible import illegible

HOSTILE = "<img src=x onerror=alert(1)>"
NAMES = ("device-0", "device-1", "device-2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet whose devices' journals lie on this machine; none of them runs."""
    place = tmp_path_factory.mktemp("watch") / "farm"
    scenario = Scenario(devices={"count": 3}, plan={"iterations": 12})
    plan = joulemesh.plan(scenario)
    fleet = make_fleet(place, plan, with_keys=True)
    made = Made(plan, fleet.names, outages=[Outage(1, 4, 8)])
    made.write(place / "journals")
    return place


def waited(source: FleetSource) -> list[Any]:
    """What a source tells when it has asked everybody."""
    until(lambda: all(one.asked for one in source.look()))
    return source.look()


@pytest.fixture(scope="module")
def document(folder: Path) -> dict[str, Any]:
    with FleetSource(folder) as source:
        found = Document(Fleet.load(folder), notes=["as a test"]).made(waited(source))
    again: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return again


def test_journals_tell_where_nobody_answers(document: dict[str, Any], folder: Path) -> None:
    assert [one["name"] for one in document["devices"]] == list(NAMES)
    assert not any(one["answers"] for one in document["devices"])
    assert {one["state"] for one in document["devices"]} == {"ended"}
    assert {one["why"] for one in document["devices"]} == {""}  # nobody need ask why
    plan = joulemesh.plan(Fleet.load(folder).ground().scenario)
    spent = [one["spent_j"] for one in document["devices"]]
    assert np.isfinite(spent).all()
    assert [one["battery_j"] for one in document["devices"]] == plan.energy_budget_j.tolist()
    told = [text for _, name, text in document["events"] if name == "device-1"]
    assert any(text.startswith("view ") for text in told)
    assert any("started" in text for text in told)


def test_a_chart_is_made_again_only_if_a_journal_has_grown(folder: Path) -> None:
    planned = Document(Fleet.load(folder))
    with FleetSource(folder) as source:
        first = planned.made(waited(source))
        second = planned.made(source.look())
        assert second["version"] == first["version"]
        path = folder / "journals" / "device-2" / "journal.jsonl"
        with path.open("a") as file:
            file.write('{"at": 1900000000.0, "kind": "left", "reason": "asked to"}\n')
        until(lambda: planned.made(source.look())["version"] != first["version"])
        assert planned.made(source.look())["events"][0][1:] == ["device-2", "left: asked to"]


@pytest.fixture
def served(document: dict[str, Any]) -> Iterator[PageServer]:
    server = PageServer(WatchPage(HOSTILE, lambda: document).respond)
    yield server
    server.close()


def asked(url: str, **headers: str) -> tuple[int, str, Any]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode(), refusal.headers


def test_only_whoever_has_the_address_sees_it(served: PageServer) -> None:
    status, text, headers = asked(served.url)
    assert status == 200
    assert "connect-src &#x27;self&#x27;" in text or "connect-src 'self'" in text
    assert headers["X-Frame-Options"] == "DENY"
    assert json.loads(asked(f"{served.url}data")[1])["iterations"] == 12
    other = served.url.replace(served._guard.token, "guess")
    assert asked(other)[0] == 403
    assert asked(served.url, Host="evil.example")[0] == 403
    assert asked(served.url, Origin="http://evil.example")[0] == 403
    assert asked(f"{served.url}etc/passwd")[0] == 404


def test_a_port_that_is_taken_is_said(served: PageServer) -> None:
    with pytest.raises(JoulemeshError, match=r"port \d+ is in use; end what listens"):
        PageServer(WatchPage("", dict).respond, served.port)


def test_a_device_shows_itself_and_says_what_it_cannot_see(folder: Path, tmp_path: Path) -> None:
    home = folder / "devices" / "device-1"
    standing = Standing(1, "device-1", "training", iteration=4, spent_j=0.25)
    glimpses = NodeSource(home, lambda: standing).look()
    assert [one.state for one in glimpses] == ["not seen", "training", "not seen"]
    assert glimpses[0].why == "cannot be seen from device-1"
    said: list[str] = []
    stop = serve_node(home, 0, said.append)(lambda: standing)
    try:
        found = json.loads(asked(said[0].removeprefix("page at ") + "data")[1])
    finally:
        stop()
    assert found["devices"][1]["iteration"] == 4
    assert found["notes"] == ["This page is served by device-1, and shows what it knows."]


@pytest.mark.slow
def test_the_page_in_a_browser_and_without_its_server(document: dict[str, Any]) -> None:
    program = find_browser()
    if program is None:
        pytest.skip("no chromium or google-chrome on PATH")
    document["devices"][0]["name"] = document["names"][0] = HOSTILE
    document["devices"][0]["why"] = HOSTILE
    server = PageServer(WatchPage(HOSTILE, lambda: document).respond)
    with Browser(program) as browser:
        browser.allowed = server.url
        browser.send("Page.navigate", url=server.url)
        until(lambda: browser.evaluate("document.querySelectorAll('#rows tr').length") == 3)
        assert browser.evaluate("document.querySelectorAll('img').length") == 0
        assert browser.evaluate("document.querySelector('#rows th').textContent") == HOSTILE
        assert browser.errors == []
        browser.resize(400, 800, mobile=True)
        wide = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        assert browser.evaluate(wide)
        server.close()
        until(lambda: not browser.evaluate("document.getElementById('lost').hidden"))
        assert "has not answered" in browser.evaluate("document.getElementById('lost').textContent")


@pytest.mark.slow
def test_a_chart_that_is_read_by_keys_keeps_its_place_while_the_page_goes_on(
    document: dict[str, Any],
) -> None:
    program = find_browser()
    if program is None:
        pytest.skip("no chromium or google-chrome on PATH")
    versions = itertools.count(1)
    page = WatchPage("farm", lambda: document | {"version": next(versions)})
    server = PageServer(page.respond)
    with Browser(program) as browser:
        browser.allowed = server.url
        browser.visit(server.url)
        chart, tip = "document.querySelector('#costs .chart svg')", "document.querySelector('#tip')"
        browser.evaluate(f"{chart}.focus(), window.first = {chart}, null")
        for _ in range(3):
            browser.press("ArrowRight")
        assert "iteration 2\n" in browser.evaluate(f"{tip}.textContent")
        browser.wait(f"{chart} !== window.first")  # it was drawn anew
        assert browser.evaluate(f"document.activeElement === {chart}")
        browser.press("ArrowRight")
        assert "iteration 3\n" in browser.evaluate(f"{tip}.textContent")
        assert browser.evaluate(f"getComputedStyle({chart}).outlineStyle") == "solid"
        for width in (390, 700, 1280):
            browser.resize(width, 900, mobile=width < 500)
            assert illegible(browser) == [], width
        assert browser.errors == []
    server.close()


@pytest.mark.slow
def test_a_device_that_is_killed_and_comes_back_is_seen(tmp_path: Path) -> None:
    if find_browser() is None:
        pytest.skip("no chromium or google-chrome on PATH")
    visit = visited(tmp_path / "fleet")
    assert set(visit.found) == {"silent_s", "back_s"}
    assert visit.errors == []


@pytest.mark.slow
def test_axe_finds_nothing_grave(document: dict[str, Any]) -> None:
    needs_axe()
    program = find_browser()
    if program is None:
        pytest.skip("no chromium or google-chrome on PATH")
    silent = {"answers": False, "state": "silent", "heard_at": document["at"] - 30, "why": "is it?"}
    document["devices"][2] |= silent  # everything that a row may show
    server = PageServer(WatchPage("farm", lambda: document).respond)
    with Browser(program) as browser:
        browser.allowed = server.url
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)):
            browser.resize(width, 900, mobile=width < 500)
            browser.scheme(scheme)
            browser.send("Page.navigate", url=server.url)
            until(lambda: browser.evaluate("document.querySelectorAll('#rows tr').length") == 3)
            assert grave(browser) == [], (scheme, width)
    server.close()
