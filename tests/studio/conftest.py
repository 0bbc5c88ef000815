"""A studio that runs, for tests of its server and of its page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser, find_browser
from tests.serving import READY, STILL, Served


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    made: list[Served] = []

    def start(*arguments: str) -> Served:
        made.append(Served(*arguments, cwd=tmp_path))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = find_browser()
    if program is None:
        pytest.skip("no chromium or google-chrome on PATH")
    with Browser(program) as opened:
        yield opened


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server that tests share: every tab has a session of its own."""
    made = Served("--preset", "adaptive", cwd=tmp_path_factory.mktemp("studio"))
    yield made
    made.close()


class Page:
    """The studio's page in a tab of its own."""

    def __init__(self, browser: Browser, served: Served) -> None:
        self.browser, self.served = browser, served
        browser.tab()
        browser.allowed = served.url
        browser.resize(1400, 1000)
        browser.scheme("light")
        browser.visit(served.url)
        browser.wait(READY)
        browser.wait(STILL)
        self.settled()

    def settled(self, revision: int | None = None) -> dict[str, Any]:
        """Wait until the page has drawn a revision, and for its time line; what it shows."""
        if revision is not None:
            self.browser.wait(f"window.studio?.state.view?.revision === {revision}")
        self.browser.wait("!document.body.hasAttribute('aria-busy')")
        view: dict[str, Any] = self.browser.evaluate("window.studio.state.view")
        return view

    def enter(self, field: str, text: str) -> dict[str, Any]:
        """Type into a field of the form; the plan that follows."""
        revision = self.settled()["revision"]
        self.browser.fill(f"#field-{field.replace('.', '-')}", text)
        return self.settled(revision + 1)

    def click(self, selector: str, *, steps: int = 1) -> dict[str, Any]:
        """Click on something that changes the scenario; the plan that follows."""
        revision = self.settled()["revision"]
        self.browser.click(selector)
        return self.settled(revision + steps)

    def text(self, selector: str) -> str:
        """What an element says; empty if it cannot be seen."""
        found = f"document.querySelector({json.dumps(selector)})"
        shown: str = self.browser.evaluate(f"{found}?.checkVisibility() ? {found}.innerText : ''")
        return shown

    def press(self, text: str, inside: str = "body") -> dict[str, Any]:
        """Click on the button that says something, and wait for the plan that follows."""
        mark = (
            f"(() => {{ const b = [...document.querySelectorAll({json.dumps(inside + ' button')})]"
            f".find((b) => b.checkVisibility() && b.textContent.includes({json.dumps(text)})); "
            "document.querySelectorAll('[data-wanted]').forEach((e) => delete e.dataset.wanted); "
            "if (b) b.dataset.wanted = ''; return Boolean(b); })()"
        )
        self.browser.wait(mark)
        return self.click("[data-wanted]")


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    made = Page(browser, served)
    yield made
    assert browser.errors == []
    browser.send("Page.close")
