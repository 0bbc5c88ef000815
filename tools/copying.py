"""A hook of MkDocs: the copy button of a console block copies its commands, ready to paste.

Prompts and what the commands print stay on the page. The theme copies the attribute `data-copy` of
an element around the code in place of the code's own text.
"""

from __future__ import annotations

__all__ = ["commands_only", "on_page_content"]

import html
import re
from typing import Any

_BLOCK = re.compile(r'<div class="language-console highlight">(.*?</code></pre>)', re.DOTALL)


def commands_only(text: str) -> str:
    r"""The commands of a console block, without prompts and output.

    >>> print(commands_only("$ cd study  # here\nsome output\n$ joulemesh plan \\\n    --json\n{}"))
    cd study  # here
    joulemesh plan \
        --json
    """
    kept, goes_on = [], False
    for line in text.splitlines():
        if line.startswith("$ ") or goes_on:
            kept.append(line if goes_on else line.removeprefix("$ "))
            goes_on = line.endswith("\\")
    return "\n".join(kept)


def _marked(found: re.Match[str]) -> str:
    text = html.unescape(re.sub(r"<[^>]+>", "", found[1]))
    copied = html.escape(commands_only(text) or text.strip("\n")).replace("\n", "&#10;")
    return f'<div class="language-console highlight" data-copy="{copied}">{found[1]}'


def on_page_content(content: str, **_: Any) -> str:
    """Mark every console block of a page with what to copy."""
    return _BLOCK.sub(_marked, content)
