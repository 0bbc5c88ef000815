"""Figures for a paper: formats, widths, fonts, the same bytes twice, and nothing left behind."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

from joulemesh.base.errors import ScenarioError
from joulemesh.views.printing import FORMATS, WIDTHS, width_in
from joulemesh.views.style import save_figure, styled

HOSTILE = r"50%_of & #1 {x} \input{y} $5 ^~"


def drawn(width: float = 3.4, *, printed: bool = True) -> Figure:
    """Curves on a log scale, an image, and a name full of characters that LaTeX minds."""
    with styled(printed=printed):
        figure = Figure(figsize=(width, 2.0), layout="constrained")
        left, right = figure.subplots(1, 2)
        left.semilogy([1, 2, 3], [0.01, 1, 20], label=HOSTILE.replace("$", r"\$"))
        left.set_ylabel("cost τ [µJ]")
        left.legend()
        right.imshow(np.arange(6.0).reshape(2, 3), interpolation="nearest")
    return figure


def test_all_formats_are_written_the_same_twice_and_the_settings_stay(tmp_path: Path) -> None:
    settings, figure = dict(mpl.rcParams), drawn()
    size = figure.get_size_inches().tolist()
    names = ["f.pdf", "f.svg", "f.pgf", "f-img0.png", "f.png"]
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        again = figure if folder == "a" else drawn()
        made = save_figure(again, tmp_path / folder / "f", FORMATS)
        assert [path.name for path in made] == names
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(names)
    assert dict(mpl.rcParams) == settings
    assert figure.get_size_inches().tolist() == size


def test_pdf_fonts_are_embedded_truetype_and_it_has_no_date(tmp_path: Path) -> None:
    save_figure(drawn(), tmp_path / "f", "pdf")
    content = (tmp_path / "f.pdf").read_bytes()
    kinds = set(
        re.findall(rb"/Subtype /(Type3|Type1|TrueType|CIDFontType\d|Type0|Type42)", content)
    )
    assert kinds
    assert not kinds & {b"Type3", b"Type1"}
    assert b"/FontFile2" in content
    assert b"STIXGeneral" in content
    assert b"Date" not in content


@pytest.mark.parametrize("width", [*WIDTHS, 4.5])
def test_every_format_has_the_width_that_was_asked_for(tmp_path: Path, width: str | float) -> None:
    inches = width_in(width)
    save_figure(drawn(inches), tmp_path / "f", "pdf,svg,pgf")
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+)", (tmp_path / "f.pdf").read_bytes())
    view = re.search(r'width="([\d.]+)pt"', (tmp_path / "f.svg").read_text("utf-8"))
    first = re.search(r"pgfqpoint\{([\d.]+)in\}", (tmp_path / "f.pgf").read_text("utf-8"))
    assert box is not None
    assert view is not None
    assert first is not None
    for found in (float(box[1]) / 72, float(view[1]) / 72, float(first[1])):
        assert found == pytest.approx(inches, abs=1e-4)


def test_pgf_needs_no_latex_and_escapes_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    save_figure(drawn(), tmp_path / "f", "pgf")
    text = (tmp_path / "f.pgf").read_text("utf-8")
    assert r"50\%\_of \& \#1 \{x\} \textbackslash{}input\{y\} \$5 \^{}\textasciitilde{}" in text
    assert r"cost \ensuremath{\tau} [\ensuremath{\mu}J]" in text
    assert r"\mathdefault{10^{1}}" in text
    assert r"\providecommand\mathdefault" in text
    assert text.isascii()


@pytest.mark.parametrize("text", ["gif", "pdf,", "", "pdf,.jpeg"])
def test_an_unknown_format_is_refused_and_nothing_is_written(tmp_path: Path, text: str) -> None:
    with pytest.raises(ScenarioError, match="use some of pdf, svg, pgf, png"):
        save_figure(drawn(), tmp_path / "f", text)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("width", ["nature", "nan", "0.2", "-3", 1e9])
def test_an_unknown_width_is_refused(width: str | float) -> None:
    with pytest.raises(ScenarioError, match=r"use ieee, ieee-wide, acm, acm-wide, or"):
        width_in(width)


def test_a_format_that_cannot_be_drawn_leaves_no_other_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = drawn()
    (tmp_path / "f.pdf").write_bytes(b"old")

    def fail(*_: object) -> None:
        raise ValueError("cannot be drawn")

    monkeypatch.setattr("joulemesh.views.style.pgf_files", fail)
    with pytest.raises(ValueError, match="cannot be drawn"):
        save_figure(figure, tmp_path / "f", "pdf,pgf")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("f.pdf", b"old")]


def test_a_name_that_latex_would_not_take_is_changed_for_images_only(tmp_path: Path) -> None:
    made = save_figure(drawn(), tmp_path / "my %fig#1", "pgf")
    assert [path.name for path in made] == ["my %fig#1.pgf", "my--fig-1-img0.png"]
    assert r"{my--fig-1-img0.png}" in made[0].read_text("utf-8")
