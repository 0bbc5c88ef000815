"""What every page has stands in one place: its head, redrawing, printing, the tip."""

from __future__ import annotations

from importlib import resources

import pytest

ASSETS = resources.files("joulemesh.views").joinpath("assets")


@pytest.mark.parametrize(
    ("words", "home"),
    [
        ("<!doctype html>", "page.html"),
        ("Content-Security-Policy", "page.html"),
        ('addEventListener("resize"', "page.js"),
        ('addEventListener("beforeprint"', "page.js"),
        ('if (event.key === "Escape") tip.hide()', "page.js"),
    ],
)
def test_one_place(words: str, home: str) -> None:
    """Pages that are files have these in one place; the studio's is served, and has its own."""
    having = [one.name for one in ASSETS.iterdir() if words in one.read_text("utf-8")]
    assert [name for name in having if not name.startswith("studio")] == [home]
