"""Markdown made from data is rendered as the data, by the renderer of the site."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

import markdown
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from joulemesh.views.markdown import Markdown, code, escape, table

# Those of mkdocs.yml that give characters a meaning.
EXTENSIONS = ["admonition", "attr_list", "md_in_html", "tables", "toc"]
TEXTS = st.text(st.sampled_from("aZ09 τ.,;:-+*_`~^=!?#&<>|()[]{}\\/\"'$@\n"), max_size=24)


class Cells(HTMLParser):
    """The words of every cell, or of the whole page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data: str) -> None:
        self.words += data
        if self.cells:
            self.cells[-1] += data


def seen(page: str) -> Cells:
    return Cells(markdown.markdown(page, extensions=EXTENSIONS))


def flat(text: str) -> str:
    return " ".join(text.split())


@given(TEXTS)
@example("τ*_{i,t} and τ*_{i,t}")
@example("the step {i,t}")
@example("_a_ __b__ ~~c~~ [d](e) [f][g] <h> &lt; `i` \\* a|b")
@example("!!! note")
@example("::: joulemesh.plan")
@example("1. first")
@example("- x")
@example("## x")
def test_text_is_rendered_as_it_is(text: str) -> None:
    assert flat(seen(f"{escape(text)}").words) == flat(text)
    assert flat(seen(f"**Found:** {escape(text)}").words) == f"Found: {flat(text)}".rstrip()
    assert flat(seen(f"- {escape(text)}").words) == flat(text)
    page = seen(table(["a", "b"], [[text, "last"]]))
    assert [flat(cell) for cell in page.cells] == ["a", "b", flat(text), "last"]


@given(st.text(st.sampled_from("a τ_*|`<>&{}[]\\:"), min_size=1, max_size=12).map(str.strip))
@example("np.zeros((2, n))  # a | b")
def test_code_is_rendered_as_it_is(text: str) -> None:
    if not text:
        return
    assert flat(seen(f"see {code(text)}").words) == f"see {flat(text)}"
    page = markdown.markdown(table(["a", "b"], [[code(text), "last"]]), extensions=EXTENSIONS)
    assert [flat(cell) for cell in Cells(page).cells] == ["a", "b", flat(text), "last"]
    inside = re.search(r"<td><code>(.*?)</code></td>", page, re.DOTALL)
    assert inside is not None
    assert flat(html.unescape(inside[1])) == flat(text)


def test_markdown_is_left_alone_and_columns_are_aligned() -> None:
    text = table(["name", "n"], [[Markdown("**a**"), "1"]], "lr")
    assert text.splitlines()[1] == "|---|---:|"
    page = markdown.markdown(text, extensions=EXTENSIONS)
    assert "<strong>a</strong>" in page
    assert 'style="text-align: right;"' in page


@pytest.mark.parametrize("text", ["+0.5 to 1", "−3.2 J", "? undecided", "x86_64", "τ_total = 3"])
def test_what_means_nothing_is_not_escaped(text: str) -> None:
    assert escape(text) == text
