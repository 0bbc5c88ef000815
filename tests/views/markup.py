"""What a page is made of, for tests of all pages."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import Any

_VOID = ("meta", "link", "br", "hr", "img", "image", "path", "polyline", "polygon")


class Page(HTMLParser):
    """Elements, of which those are ``open`` that were never closed; scripts, addresses, text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.scripts: list[str] = []
        self.addresses: list[str | None] = []
        self.ids: set[str | None] = set()
        self.text = ""
        self.feed(text)
        self.close()

    @property
    def data(self) -> Any:
        """What the page's script draws."""
        return json.loads(self.scripts[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        found = dict(attrs)
        self.ids.add(found.get("id"))
        self.addresses += [found[key] for key in ("src", "href") if key in found]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        else:
            self.text += data
