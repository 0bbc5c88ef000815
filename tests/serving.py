"""A studio that runs: its server in a process of its own, plain HTTP to speak to it, a browser."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.browser import Browser, find_browser

READY = "document.documentElement.dataset.ready === 'true'"
STILL = "!document.querySelector('#advice').matches('.stale')"


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


@contextmanager
def opened_studio(*arguments: str, width: int = 1400, height: int = 1000) -> Iterator[Browser]:
    """The page of a fresh server in a fresh browser, once its plan and its advice are shown."""
    program = find_browser()
    if program is None:
        raise RuntimeError("no chromium or google-chrome on PATH")
    server = Served(*arguments, cwd=Path(__file__).parents[1])
    try:
        with Browser(program) as browser:
            browser.allowed = server.url
            browser.resize(width, height)
            browser.visit(server.url)
            browser.wait(READY)
            browser.wait(STILL)
            yield browser
    finally:
        server.close()
