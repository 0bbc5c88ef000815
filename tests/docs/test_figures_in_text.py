"""Figures in README.md and docs agree with the files that hold them; none stands by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tools import figures_in_text
from tools.figures_in_text import (
    OF_RESULTS,
    PAGES,
    ROOT,
    as_shown,
    figures,
    main,
    rewritten,
    unfounded,
)
from tools.records import Record, Table, interval, paired


def named(pages: list[Path]) -> list[Any]:
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


@pytest.mark.parametrize("page", named(PAGES))
def test_figures_are_those_of_their_records(page: Path) -> None:
    """`python -m tools.figures_in_text` writes them."""
    assert [shown for _, shown, new in figures(page) if shown.split() != new.split()] == []


@pytest.mark.parametrize(
    "page", named([page for page in OF_RESULTS if page.parent.name != "comparison"])
)
def test_no_figure_is_unfounded(page: Path) -> None:
    assert unfounded(page) == [], "write it from a file, or say that it is given: CONTRIBUTING.md"


def test_the_pages_that_quote_results_do_so_by_name() -> None:
    counts = {str(page.relative_to(ROOT)): len([*figures(page)]) for page in PAGES}
    assert counts["README.md"] > 30
    assert counts["docs/performance.md"] > 50
    assert counts["docs/reproduction/discussion.md"] > 90


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It is 4.5 times as fast.", ["4.5 times"]),
        ("It takes 12 s or 3\nMiB.", ["12 s", "3\nMiB"]),
        ("ahead by 0.5 ± 0.2 points", ["0.5 ± 0.2 points"]),
        ("ahead by 0.5 ± 0.2 here", ["0.5 ± 0.2"]),
        ("95 % of them", ["95 %"]),
        ("| a | 4,767 | 12 devices |", ["4,767"]),
        ("4.5<!--= peers.x --> times, 95 %<!-- given -->, and 3 J more", ["3 J"]),
        ("`sleep 3 s`, N − 1 times, 20 devices, Python 3.11", []),
        ("```console\n$ joulemesh plan\n339 J\n```\n", []),
    ],
)
def test_a_number_without_a_source_is_found(text: str, found: list[str], tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    assert [one.partition(": ")[2] for one in unfounded(page)] == found


@pytest.mark.parametrize(
    ("value", "shown", "wanted"),
    [
        (5894.52, "4,767", "5,895"),
        (0.00237, "0.1", "0.0"),
        (-0.26, "+0.3", "−0.3"),
        (0.26, "+0.3", "+0.3"),
        (-0.001, "+0.0", "0.0"),
        ((1.96, 0.24), "−1 ± 3", "2 ± 0"),
        ((1.96, 0.24), "1.0 ± 0.1", "2.0 ± 0.2"),
    ],
)
def test_a_figure_keeps_its_form(value: object, shown: str, wanted: str) -> None:
    assert as_shown(value, shown) == wanted


def test_a_wrong_figure_is_told_and_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("It took 9<!--= len(claims.rows) --> and 1<!--= 2 + 2 -->.\n", "utf-8")
    monkeypatch.setattr(figures_in_text, "PAGES", [page])
    monkeypatch.setattr(figures_in_text, "ROOT", tmp_path)
    assert main(check=True) == 1
    assert "page.md:1: 9 -> 38\npage.md:1: 1 -> 4\n" in capsys.readouterr().out
    assert main(check=False) == 0
    assert page.read_text("utf-8").startswith("It took 38<!--= len(claims.rows) --> and 4<!--=")
    assert rewritten(page) == page.read_text("utf-8")
    assert main(check=True) == 0


@pytest.mark.parametrize(
    "text", ["1<!--= nobody.knows -->", "1 ± 2<!--= 3 -->", "1<!--= peers.contenders -->",
             "1<!--= __import__('os') -->"]
)  # fmt: skip
def test_a_name_that_nothing_bears_is_an_error(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r"page\.md, line 1"):
        [*figures(page)]


def test_records_and_tables_are_read_by_name() -> None:
    record = Record({"runs": [{"n": 1, "s": 0.5}, {"n": 2, "s": 0.7}], "x y": {"z": 3}})
    assert (record.runs(n=2).s, record("x y").z, record.runs[0].n) == (0.7, 3, 1)
    assert [one.s for one in record.runs] == [0.5, 0.7]
    with pytest.raises(LookupError, match="0 entries"):
        record.runs(n=3)
    with pytest.raises(AttributeError, match="no field 'm'"):
        _ = record.runs[0].m
    rows = Table(
        [{"seed": str(s), "iteration": str(t), "y": str(t + s)} for s in (0, 1) for t in (1, 2)]
    )
    assert rows.last().column("y") == [2.0, 3.0]
    with pytest.raises(LookupError, match="no column 'z'"):
        rows(z=1)


def test_differences_are_paired_by_seed() -> None:
    """Differences 1, 2, 3: mean 2, and t(0.975, 2) / √3 = 2.484."""
    first, second = (
        Table([{"seed": str(s), "y": str(a * s)} for s in (1, 2, 3)]) for a in (2.0, 1.0)
    )
    middle, half = paired(first, second, "y", scale=1)
    assert (middle, round(half, 3)) == (2.0, 2.484)
    assert interval([1.0, 2.0, 3.0]) == (middle, half)


def test_the_readme_is_plain_text() -> None:
    """No comments for machines: people read it in an editor."""
    assert "<!--" not in (ROOT / "README.md").read_text("utf-8")


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page without comments, whose figures are named beside it."""
    page = tmp_path / "page.md"
    told = (("It took {} of them and {} more", "2 + 2", "10 / 4"),)
    monkeypatch.setitem(figures_in_text.BESIDE, page, (told, ("weighs 3 GB",)))
    return page


def test_figures_named_beside_a_page_are_written_and_founded(plain: Path) -> None:
    plain.write_text("It took 9\nof them and 1.0 more. It weighs\n3 GB.\n", "utf-8")
    assert [(line, shown, new) for line, shown, new in figures(plain)] == [
        (1, "9", "4"),
        (2, "1.0", "2.5"),
    ]
    assert rewritten(plain) == "It took 4\nof them and 2.5 more. It weighs\n3 GB.\n"
    assert unfounded(plain) == []
    plain.write_text(plain.read_text("utf-8") + "And 5 MiB.\n", "utf-8")
    assert unfounded(plain) == ["page.md, line 4: 5 MiB"]


@pytest.mark.parametrize("text", ["It weighs 3 GB.", "It took 9 of them and 1 more. " * 2])
def test_a_phrase_that_does_not_stand_there_once_is_an_error(plain: Path, text: str) -> None:
    plain.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="times, not once"):
        [*figures(plain)]
