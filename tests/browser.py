"""A headless browser, driven over a pipe by the DevTools protocol; standard library only."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_PATIENCE_S = 60.0
_CODES = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36}
_CODES |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}


def find_browser() -> str | None:
    """Path of a browser of the Chromium family, or None."""
    return next(filter(None, map(shutil.which, _NAMES)), None)


class Browser:
    """One page of a fresh browser. ``errors`` holds what its console complained about.

    Requests to addresses other than files count as errors, unless they begin with ``allowed``.
    """

    def __init__(self, program: str) -> None:
        self.errors: list[str] = []
        self.allowed: str | None = None
        self._loaded = False
        self._next = 0
        self._buffer = b""
        self._session: str | None = None
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        # The browser reads commands from descriptor 3 and answers on 4. Its ends are lifted above
        # those numbers first, so that the shell's redirections cannot overwrite one another.
        (their_in, self._to), (self._from, their_out) = os.pipe(), os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (their_in, their_out)]
        command = f'exec "$0" "$@" 3</dev/fd/{high[0]} 4>/dev/fd/{high[1]}'
        folder = f"--user-data-dir={self._profile.name}"
        self._process = subprocess.Popen(
            ["sh", "-c", command, program, *_FLAGS, folder, "about:blank"],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (their_in, their_out, *high):
            os.close(end)
        page = next(
            target["targetId"]
            for target in self.send("Target.getTargets")["targetInfos"]
            if target["type"] == "page"
        )
        self._attach(page)

    def _attach(self, page: str) -> None:
        attached = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def tab(self) -> str:
        """Open another tab and go on there; the session to come back to (`switch`)."""
        before, self._session = self._session, None
        assert before is not None
        self._attach(self.send("Target.createTarget", url="about:blank")["targetId"])
        return before

    def switch(self, session: str) -> str:
        """Go on in another tab; the session of this one."""
        before, self._session = self._session, session
        assert before is not None
        self.send("Page.bringToFront")
        return before

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._profile.cleanup()

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; its result."""
        self._next += 1
        message: dict[str, Any] = {"id": self._next, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        view = memoryview(json.dumps(message).encode() + b"\0")
        while view:
            view = view[os.write(self._to, view) :]
        until = time.monotonic() + _PATIENCE_S
        while True:
            answer = self._read(until)
            if answer.get("id") != self._next:
                self._note(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._from], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(f"the browser said nothing for {_PATIENCE_S:g} s")
            part = os.read(self._from, 1 << 16)
            if not part:
                raise RuntimeError("the browser has ended")
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, event: dict[str, Any]) -> None:
        method, detail = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.exceptionThrown":
            thrown = detail["exceptionDetails"]
            self.errors.append(thrown.get("exception", {}).get("description") or thrown["text"])
        elif method == "Runtime.consoleAPICalled" and detail["type"] in ("error", "warning"):
            self.errors.append(" ".join(str(part.get("value")) for part in detail["args"]))
        elif method == "Log.entryAdded" and detail["entry"]["level"] in ("error", "warning"):
            self.errors.append(detail["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            address = detail["request"]["url"]
            own = self.allowed is not None and address.startswith(self.allowed)
            if not own and not address.startswith(("file:", "data:", "about:", "blob:")):
                self.errors.append(f"asked for {address}")

    def open(self, path: Path) -> None:
        """Open a local page and wait until it is loaded."""
        self.visit(path.resolve().as_uri())

    def visit(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self.errors.clear()
        self._loaded = False
        self.send("Page.navigate", url=address)
        until = time.monotonic() + _PATIENCE_S
        while not self._loaded:
            self._note(self._read(until))

    def evaluate(self, expression: str) -> Any:
        """Value of a JavaScript expression; a promise is awaited."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression: str, patience_s: float = _PATIENCE_S) -> Any:
        """Value of a JavaScript expression once it is true."""
        until = time.monotonic() + patience_s
        while not (found := self.evaluate(expression)):
            if time.monotonic() > until:
                raise TimeoutError(f"{expression} is still {found!r}; errors: {self.errors}")
            self.settle()
            time.sleep(0.02)
        return found

    def settle(self) -> None:
        """Wait until the page has drawn two frames."""
        self.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")

    def centre(self, selector: str) -> tuple[float, float]:
        """Where the middle of an element is, after scrolling to it."""
        x, y = self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            "e.scrollIntoView({block: 'center'}); const b = e.getBoundingClientRect();"
            "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
        )
        self.settle()  # the scrolling reaches the page a frame later
        return x, y

    def move(self, x: float, y: float) -> None:
        """Move the mouse."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def click(self, selector: str) -> None:
        """A real click in the middle of an element."""
        x, y = self.centre(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self.settle()

    def drag(self, selector: str, dx: float, dy: float) -> None:
        """Take hold of the middle of an element, and let go elsewhere."""
        x, y = self.centre(selector)

        def mouse(kind: str, share: float) -> None:
            self.send(
                "Input.dispatchMouseEvent", type=kind, x=x + share * dx, y=y + share * dy,
                button="left", buttons=1, clickCount=1,
            )  # fmt: skip

        mouse("mousePressed", 0.0)
        for step in range(1, 6):
            mouse("mouseMoved", step / 5)
            self.settle()
        mouse("mouseReleased", 1.0)
        self.settle()

    def fill(self, selector: str, text: str) -> None:
        """Type a text into a field in place of its own, and leave the field."""
        self.evaluate(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "for (let p = e; p; p = p.parentElement) if (p.matches('details')) p.open = true; "
            "e.focus(); e.select?.(); })()"
        )
        self.send("Input.insertText", text=text)
        self.press("Tab")

    def press(self, key: str, text: str = "", *, shift: bool = False) -> None:
        """Press a key on whatever has the focus."""
        code, held = _CODES.get(key, 0), {"modifiers": 8 if shift else 0}
        self.send(
            "Input.dispatchKeyEvent", type="keyDown", key=key, text=text,
            windowsVirtualKeyCode=code, **held,
        )  # fmt: skip
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **held)
        self.settle()

    def resize(self, width: int, height: int, *, mobile: bool = False) -> None:
        """Size of the window, in CSS pixels."""
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip
        self.settle()

    def scheme(self, name: str) -> None:
        """The user's preference: "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": name}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.settle()

    def screenshot(self, path: Path) -> None:
        """A PNG of the whole page."""
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print_pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.send("Page.printToPDF", printBackground=True)["data"])
