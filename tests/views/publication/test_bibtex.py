"""BibTeX: whatever a citation holds, the entry can be read; equal keys are told apart."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulemesh.base.registry import Citation
from joulemesh.views.latex import Used, bibtex
from tests.views.publication.bibtex_grammar import parse

HOSTILE = "50%_of & #1 {x} }} \\input{y} $5 ^~ @misc{z, Hegedűs \n"


def test_a_journal_article_has_its_volume_number_and_pages() -> None:
    cited = Citation("Le", "On the T", 1998, "P IEEE 86(11):2278-2324", doi="10.1109/5.726791")
    (entry,) = parse(bibtex([Used("data set a", (cited,))], version="1"))
    assert (entry.kind, entry.key) == ("article", "le1998t")
    assert entry.fields == {
        "author": "Le",
        "title": "{On the T}",
        "journal": "P IEEE",
        "volume": "86",
        "number": "11",
        "pages": "2278--2324",
        "year": "1998",
        "doi": "10.1109/5.726791",
    }


def test_whole_names_win_over_family_names_and_accents_are_commands() -> None:
    cited = Citation("Hegedűs, Danner", "T", 2021, names="Hegedűs, István and Danner, Gábor")
    (entry,) = parse(bibtex([Used("a", (cited,))], version="1"))
    assert entry.fields["author"] == r"Heged{\H{u}}s, Istv{\'{a}}n and Danner, G{\'{a}}bor"
    assert entry.key == "hegedus2021t"


def test_a_publication_stands_once_with_all_that_it_is_for() -> None:
    cited = Citation("Yan", "T", 2024, arxiv="2403.20075")
    text = bibtex([Used("method a", (cited,)), Used("scheme b", (cited,))], version="1")
    assert len(parse(text)) == 1
    assert text.startswith("% method a; scheme b\n")


def test_equal_keys_are_told_apart() -> None:
    made = [Citation("Yan", f"Deep {k}", 2024) for k in range(3)]
    keys = [one.key for one in parse(bibtex([Used("a", tuple(made))], version="1"))]
    assert keys == ["yan2024deep", "yan2024deep-2", "yan2024deep-3"]


def test_what_has_no_publication_is_named_in_a_comment() -> None:
    text = bibtex([Used("method my@own\nmethod", ())], version="1")
    assert text == "% method my(at)own\\nmethod: no publication is recorded\n"
    assert parse(text) == []


_TEXT = st.text(min_size=1, max_size=30).filter(lambda text: text.strip(" ,{}") != "")


@given(_TEXT, _TEXT, st.text(max_size=20), st.text(max_size=20))
def test_whatever_a_citation_holds_its_entry_can_be_read(
    authors: str, title: str, venue: str, what: str
) -> None:
    cited = Citation(f"A{authors}Z", f"A{title}Z", 2024, venue and f"A{venue}Z")
    (entry,) = parse(bibtex([Used(what or "x", (cited,))], version="1"))
    assert entry.fields["year"] == "2024"


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bibtex") is None, reason="bibtex (TeX Live) is not installed")
def test_bibtex_itself_reads_hostile_entries(tmp_path: Path) -> None:
    cited = [Citation(HOSTILE, HOSTILE + str(k), 2024, HOSTILE) for k in range(2)]
    (tmp_path / "a.bib").write_text(bibtex([Used(HOSTILE, tuple(cited))], version="1"), "utf-8")
    (tmp_path / "a.aux").write_text("\\citation{*}\n\\bibstyle{plain}\n\\bibdata{a}\n", "utf-8")
    done = subprocess.run(["bibtex", "a"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "Warning" not in done.stdout
