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
        ('"Escape"', "page.js"),
    ],
)
def test_one_place(words: str, home: str) -> None:
    having = [one.name for one in ASSETS.iterdir() if words in one.read_text("utf-8")]
    assert having == [home]
