"""Pages: templates with their styles and scripts, in one file that asks for nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment

_SCRIPTS = ("svg.js", "export.js", "page.js")


def asset(name: str) -> str:
    """The text of a file of this package's folder ``assets``."""
    return resources.files("joulemesh.views").joinpath("assets", name).read_text("utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # only who renders pays for it

    made = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_unbroken,
    )
    made.filters["numbered"] = enumerate
    return made


def _unbroken(value: Any) -> Any:
    """Keep a percentage on one line; markup, and text in ``<pre>``, is left as it is."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def fragment(name: str, **parts: Any) -> str:
    """A template as text; everything that is not markup is escaped."""
    return _environment().get_template(name).render(parts)


def render_page(
    name: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Any,
    live: bool = False,
    **parts: Any,
) -> str:
    """A page as text."""
    style = "\n" + "\n".join(map(asset, styles)) + "\n"
    script = (
        '\n(() => {\n"use strict";\n' + "\n".join(map(asset, (*_SCRIPTS, *scripts))) + "\n})();\n"
    )
    allowed = policy(style, script, live=live)
    own = {"style": style, "script": script, "policy": allowed, "json": _embedded(data)}
    return fragment(name, title=title, page=own, data=data, **parts)


def policy(style: str, script: str, *, live: bool = False) -> str:
    """The Content-Security-Policy of a page: this style and this script run, and nothing else."""
    rules = {
        "default-src": "'none'",
        "style-src": f"'sha256-{_digest(style)}'",
        "script-src": f"'sha256-{_digest(script)}'",
        **({"connect-src": "'self'"} if live else {}),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _embedded(data: Any) -> str:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c")
