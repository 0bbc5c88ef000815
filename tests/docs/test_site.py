"""The site builds without a warning, asks for nothing elsewhere, and fits a phone and a laptop.

From a folder, without a server, it can be searched, and its commands can be copied.
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGES = (
    "index",
    "tutorial",
    "how-to/devices",
    "explanation/notes",
    "reference/cli",
    "reference/glossary",
    "reference/scenario",
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra docs is not installed")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    place = ROOT / "tests" / "browser.py"
    found = importlib.util.spec_from_file_location("docs_browser", place)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    program = module.find_browser()
    if program is None:
        pytest.skip("no browser of the Chromium family")
    with module.Browser(program) as opened:
        yield opened


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text("utf-8")
        assert not re.findall(r'src="https?://[^"]+"', text), page
        assert not re.findall(r'<link[^>]+href="https?://[^"]+"', text), page


@pytest.mark.parametrize("page", PAGES)
def test_pages_fit_a_phone_in_light_and_dark(page: str, address: str, browser: Any) -> None:
    browser.resize(390, 800, mobile=True)
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.errors.clear()
        browser._loaded = False
        browser.send("Page.navigate", url=f"{address}/{page}.html")
        until = time.monotonic() + 60
        while not browser._loaded:
            browser._note(browser._read(until))
        browser.settle()
        assert browser.evaluate("document.documentElement.scrollWidth") == 390
        assert [error for error in browser.errors if address not in error] == []
        shade = browser.evaluate("getComputedStyle(document.body).backgroundColor")
        dark = sum(map(float, re.findall(r"[\d.]+", shade)[:3])) < 384
        assert dark == (scheme == "dark")


def wait_for(browser: Any, expression: str, seconds: float = 30.0) -> Any:
    """The value of an expression as soon as it is true."""
    until = time.monotonic() + seconds
    while not (value := browser.evaluate(expression)):
        assert time.monotonic() < until, f"{expression} stays {value}"
        browser.settle()
    return value


@pytest.mark.parametrize("page", ["index.html", "how-to/devices.html"])
def test_search_works_from_a_folder(page: str, site: Path, browser: Any) -> None:
    browser.resize(1280, 900)
    browser.open(site / page)
    browser.click(".md-search__input")
    browser.send("Input.insertText", text="spanning tre")
    browser.press("e", "e")  # the theme listens to keys
    wait_for(browser, "document.querySelectorAll('.md-search-result__item').length")
    found = browser.evaluate(
        "[...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)"
    )
    assert all(address.startswith(site.resolve().as_uri()) for address in found)
    assert any("explanation/notes.html" in address for address in found)
    assert browser.errors == []  # nothing was asked of the network


@pytest.mark.parametrize(
    ("page", "copied"),
    [
        ("tutorial.html", "joulemesh init fleet.toml"),
        ("reference/cli.html", "joulemesh new fleet"),
        (
            "explanation/repairs.html",
            "joulemesh plan --set plan.physics=paper\njoulemesh plan --preset paper",
        ),
        ("how-to/fading.html", "joulemesh plan --preset adaptive --set network.fading=rayleigh"),
    ],
)
def test_the_copy_button_copies_commands_only(
    page: str, copied: str, site: Path, browser: Any
) -> None:
    browser.resize(1280, 900)
    browser.open(site / page)
    browser.evaluate(
        "document.addEventListener('copy', () => { window.copied = document.activeElement.value; })"
    )
    browser.click(".language-console .md-clipboard, .language-console [data-clipboard-target]")
    text = wait_for(browser, "window.copied")
    assert text.startswith(copied)
    assert not re.search(r"^\$ |wrote|^scheme", text, re.MULTILINE)


def test_tables_and_code_fit_a_laptop(site: Path, browser: Any) -> None:
    browser.resize(1280, 900)
    wide = []
    for page in sorted(site.rglob("*.html")):
        browser.open(page)
        browser.settle()
        wide += browser.evaluate(
            "[...document.querySelectorAll('.md-content .md-typeset__scrollwrap, "
            ".md-content pre > code')].filter(box => box.scrollWidth > box.clientWidth)"
            f".map(box => [{str(page.relative_to(site))!r}, box.innerText.slice(0, 60)])"
        )
    assert wide == []
