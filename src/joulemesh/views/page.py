"""Files that pages are made of: styles, scripts and icons."""

from __future__ import annotations

__all__ = ["asset", "embed_json", "policy", "render_page"]

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib import resources
from string import Template
from typing import Any


def asset(name: str) -> str:
    """The text of a file of this package's folder ``assets``."""
    return resources.files("joulemesh.views").joinpath("assets", name).read_text("utf-8")


_SCRIPTS = ("svg.js", "export.js", "page.js")


def render_page(
    name: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    live: bool = False,
    **parts: str,
) -> str:
    """A page as text."""
    written = html.escape(title)
    style = "\n" + "\n".join(map(asset, styles)) + "\n"
    script = (
        '\n(() => {\n"use strict";\n' + "\n".join(map(asset, (*_SCRIPTS, *scripts))) + "\n})();\n"
    )
    return Template(asset("page.html")).substitute(
        title=written,
        policy=policy(style, script, live=live),
        style=style,
        body=Template(asset(name)).substitute(parts, title=written),
        data=embed_json(data),
        script=script,
    )


def policy(style: str, script: str, *, live: bool = False) -> str:
    """The Content-Security-Policy of a page: this style and this script run, and nothing else."""
    allowed = {
        "style-src": f"'sha256-{_digest(style)}'",
        "script-src": f"'sha256-{_digest(script)}'",
    }
    if live:
        allowed["connect-src"] = "'self'"
    rules = {"default-src": "'none'", **allowed, "img-src": "data:", "base-uri": "'none'"}
    return "; ".join(
        f"{name} {value}" for name, value in {**rules, "form-action": "'none'"}.items()
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def embed_json(data: Any) -> str:
    """JSON that may stand inside a script element, whatever text is in it."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c")
