"""A studio that runs: its server in a process of its own, and plain HTTP to speak to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Browser, find_browser


class Served:
    """A server that was started by the command."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "joulemesh", "studio", "--no-browser", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert "http://" in line, self.process.communicate()[1]
        self.url = line.split()[-1]
        self.host, _, rest = self.url.removeprefix("http://").partition("/")
        self.root = f"/{rest}"

    def ask(
        self,
        path: str,
        order: Any = None,
        *,
        method: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body (JSON read) and headers of an answer."""
        talk = http.client.HTTPConnection(self.host, timeout=60)
        body = None if order is None else json.dumps(order)
        sent = {} if body is None else {"content-type": "application/json"}
        kind = method or ("GET" if body is None else "POST")
        talk.request(kind, path, body, {**sent, **(headers or {})})
        answer = talk.getresponse()
        text = answer.read().decode()
        talk.close()
        kind = answer.headers["content-type"].partition(";")[0]
        made = json.loads(text) if kind == "application/json" else text
        return answer.status, made, {name.lower(): value for name, value in answer.headers.items()}

    def tab(self, tab: str, **order: Any) -> tuple[int, Any]:
        """What a tab gets for an order."""
        status, answer, _ = self.ask(f"{self.root}tab/{tab}", order)
        return status, answer

    def end(self) -> int:
        """Interrupt it as Ctrl-C does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)

    def close(self) -> None:
        """End it, and what it holds."""
        self.end()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def _require_extra() -> None:
    for name in ("starlette", "uvicorn"):
        pytest.importorskip(name, reason="the extra studio is not installed")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    _require_extra()
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
    _require_extra()
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
        browser.wait("!document.querySelector('#advice').matches('.stale')")
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


READY = "document.documentElement.dataset.ready === 'true'"


@pytest.fixture
def page(browser: Browser, served: Served) -> Iterator[Page]:
    made = Page(browser, served)
    yield made
    assert browser.errors == []
    browser.send("Page.close")
