"""The studio without a mouse: what has the focus is seen, and everything can be done by keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.legible import illegible
from tests.studio.conftest import Page

pytestmark = pytest.mark.slow

# Where the focus is, whether that can be seen, and whether it is in view and not below the bar.
_FOCUS = """(() => {
  const one = document.activeElement, shown = one.matches('.hide') ? one.labels[0] : one;
  const style = getComputedStyle(shown), at = shown.getBoundingClientRect();
  const bar = document.querySelector('.bar'), top = bar.contains(one) ? 0 : bar.offsetHeight;
  const area = one.closest('section, aside, .bar');
  return { tag: one.tagName, id: one.id, area: area?.id || area?.tagName,
    outlined: style.outlineStyle === 'solid' && parseFloat(style.outlineWidth) >= 2,
    seen: at.bottom > top && at.top < innerHeight && at.width > 0 };
})()"""
_ORDER = ["HEADER", "ASIDE", "advice", "map", "rounds", "gantt", "batteries", "flow", "devices"]
_ON_MAP = "document.activeElement === document.querySelector('#map .chart svg')"


def focus(page: Page) -> dict[str, Any]:
    found: dict[str, Any] = page.browser.evaluate(_FOCUS)
    return found


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.browser.press(key, "\r" if key == "Enter" else "")


def on_button(page: Page, words: str) -> bool:
    """Go on by Tab until a button has the focus; whether it says so."""
    for _ in range(4):
        press(page, "Tab")
        if page.browser.evaluate("document.activeElement.tagName") == "BUTTON":
            break
    return bool(words in page.browser.evaluate("document.activeElement.textContent"))


def test_tab_reaches_everything_in_order_and_the_focus_is_seen(page: Page) -> None:
    press(page, "Tab")
    assert page.browser.evaluate("document.activeElement.textContent") == "Skip to the plan"
    areas: list[str] = []
    for _ in range(75):
        press(page, "Tab")
        found = focus(page)
        assert found["outlined"], found
        assert found["seen"], found
        if found["area"] not in areas:
            areas.append(found["area"])
        if found["area"] == "devices":
            break
    assert areas == _ORDER


def test_a_device_is_moved_killed_and_revived_by_keys(page: Page) -> None:
    before = page.settled()
    page.browser.evaluate("document.querySelector('#map .chart svg').focus()")
    press(page, "ArrowRight", "Enter", "ArrowRight", "ArrowUp", "Enter")
    view = page.settled(before["revision"] + 1)
    assert view["map"]["at"] != before["map"]["at"]
    assert page.browser.evaluate(_ON_MAP)

    assert on_button(page, "Kill…")
    press(page, "Enter")
    inside = "document.querySelector('#kill-dialog').contains(document.activeElement)"
    for _ in range(5):  # the page behind it cannot be reached
        assert page.browser.evaluate(f"{inside} || document.activeElement === document.body")
        press(page, "Tab")
    press(page, "Escape")
    assert not page.browser.evaluate("document.querySelector('#kill-dialog').open")
    assert page.browser.evaluate("document.activeElement.textContent") == "Kill…"

    press(page, "Enter")
    page.browser.evaluate("document.querySelector('#kill-when').select()")
    page.browser.send("Input.insertText", text="30")
    press(page, "Enter")
    view = page.settled(view["revision"] + 1)
    assert [when for _, when in view["leave"]] == [30]
    assert page.browser.evaluate(_ON_MAP)  # the button is gone, the focus is not
    assert on_button(page, "Revive")
    press(page, "Enter")
    assert page.settled(view["revision"] + 1)["leave"] == []
    assert page.browser.evaluate(_ON_MAP)


@pytest.mark.parametrize("key", ["Escape", "Tab"])
def test_a_device_that_is_not_let_go_goes_back(page: Page, key: str) -> None:
    before = page.settled()
    page.browser.evaluate("document.querySelector('#map .chart svg').focus()")
    press(page, "ArrowRight")
    places = "[...document.querySelectorAll('#map .device')].map((one) => one.getAttribute('cx'))"
    was = page.browser.evaluate(places)
    press(page, "Enter", "ArrowRight", "ArrowRight")
    assert page.browser.evaluate(places) != was
    press(page, key)
    assert page.browser.evaluate(places) == was
    assert page.settled()["revision"] == before["revision"]  # nothing to undo


def test_a_link_is_chosen_and_removed_by_keys(page: Page) -> None:
    before = page.settled()
    page.browser.evaluate("document.querySelector('#map .chart svg').focus()")
    press(page, "ArrowRight", "l")
    first = page.text("#selection")
    assert "the link between device 0" in first
    assert page.text("#tip").startswith("link ")
    press(page, "l")
    assert page.text("#selection") != first
    press(page, "l")
    assert page.text("#selection") == first  # a device of a ring has two
    assert on_button(page, "Remove this link")
    press(page, "Enter")
    view = page.settled(before["revision"] + 1)
    assert len(view["gone"]) == 1
    assert page.browser.evaluate(_ON_MAP)


def test_dialogs_close_by_escape_and_give_the_focus_back(page: Page) -> None:
    page.browser.evaluate("document.querySelector('#save').focus()")
    press(page, "Enter")
    assert page.browser.evaluate("document.activeElement.closest('dialog')?.id") == "save-dialog"
    press(page, "Escape")
    assert focus(page)["id"] == "save"
    page.browser.evaluate("document.querySelector('.how summary').focus()")
    press(page, "Enter", "Tab")
    assert focus(page)["id"] == "seeds"
    press(page, "Escape")
    assert page.browser.evaluate("document.activeElement.matches('.how > summary')")
    assert not page.browser.evaluate("document.querySelector('.how').open")


def test_a_remedy_that_is_taken_by_key_leaves_the_focus_at_the_plan(page: Page) -> None:
    page.enter("budget.deadline_s", "1 ms")
    revision = page.settled()["revision"]
    page.browser.evaluate("document.querySelector('#refusal button').focus()")
    press(page, "Enter")
    assert page.settled(revision + 1)["plan"] is not None
    assert focus(page)["id"] == "results"


def test_arrow_keys_go_from_row_to_row_of_the_table(page: Page) -> None:
    cell = "#table input[data-column='energy_j'][data-device='2']"
    page.browser.evaluate(f'document.querySelector("{cell}").focus()')
    where = "Object.values({ ...document.activeElement.dataset }).join()"
    press(page, "ArrowDown", "ArrowDown", "ArrowUp")
    assert page.browser.evaluate(where) == "energy_j,3"
    revision = page.settled()["revision"]
    page.browser.evaluate("document.activeElement.select()")
    page.browser.send("Input.insertText", text="11")
    press(page, "Enter")
    view = page.settled(revision + 1)
    names = [column["name"] for column in view["devices"]["columns"]]
    assert view["devices"]["cells"][names.index("energy_j")][3] == 11
    assert page.browser.evaluate(where) == "energy_j,4"


def test_the_pointer_reads_bars_of_the_time_line(page: Page) -> None:
    page.browser.wait("document.querySelectorAll('#gantt svg rect.bar').length > 20")
    x, y = page.browser.centre("#gantt svg rect.bar.send")
    page.browser.move(x, y)
    assert "sends to" in page.text("#tip")


def test_paper_has_its_own_drawings(page: Page) -> None:
    """Two charts stand side by side on paper, whatever the screen's width."""
    page.click("#pin")
    wide = "document.querySelector('{} .chart svg').viewBox.baseVal.width"
    page.browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.browser.evaluate(wide.format("#map")) == 400
    assert page.browser.evaluate(wide.format("#map-kept")) == 400
    assert page.browser.evaluate(wide.format("#gantt")) == 800
    page.browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.browser.evaluate(wide.format("#gantt")) > 800


@pytest.mark.parametrize("width", [390, 700, 1400])
def test_texts_do_not_lie_on_each_other(page: Page, width: int) -> None:
    """On a phone, on a projector at 200 %, on a desk; with two plans, and with a refusal."""
    page.browser.resize(width, 850, mobile=width < 500)
    page.browser.evaluate("document.querySelector('.asked').open = true")
    page.browser.wait("document.querySelectorAll('#gantt svg rect').length > 20")
    assert illegible(page.browser) == []
    page.click("#pin")
    page.enter("plan.iterations", "50")
    assert illegible(page.browser) == []
    page.enter("budget.deadline_s", "2 ms")
    assert illegible(page.browser) == []
