"""A minimal paper takes over tables, figures and references, and LaTeX has nothing to say."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import joulemesh
from joulemesh.study.paper import references, used_by
from joulemesh.views.figures import comparison_figure
from joulemesh.views.latex import comparison_table
from joulemesh.views.plan_figure import plan_figure
from joulemesh.views.printing import WIDTHS
from joulemesh.views.style import save_figure
from tests.views.publication.studies import study

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("pdflatex") is None,
        reason="pdflatex is not installed (Debian: texlive-latex-base, -latex-extra, -pictures)",
    ),
]
FINALS = {
    "adaptive": (0.90, 0.91, 0.93, 0.92),
    "d-psgd": (0.88, 0.90, 0.90, 0.89),
    r"a%_&#{}\$^~ű": (0.70, 0.72, 0.73, 0.71),
}
PAPER = r"""
\documentclass[%s]{%s}
\usepackage{booktabs,pgf,graphicx}
\begin{document}
\title{T}\author{A}\maketitle
Text \cite{yan2024adaptive}.
\input{wide.tex}
\input{narrow.tex}
\begin{figure}\centering\input{joules.pgf}\caption{PGF.}\end{figure}
\begin{figure}\centering\includegraphics{joules.pdf}\caption{PDF.}\end{figure}
\begin{figure*}\centering\input{plan.pgf}\caption{PGF.}\end{figure*}
\bibliographystyle{plain}\bibliography{references}
\end{document}
"""
WIDTH = r"""
\documentclass[%s]{%s}
\begin{document}
\title{T}\author{A}\maketitle
x\typeout{IN \the\columnwidth, \the\textwidth.}
\end{document}
"""
CLASSES = {
    "ieee": ("IEEEtran", "journal"),
    "acm": ("acmart", "sigconf,nonacm"),
    "3.1": ("article", "twocolumn"),
}


def has(kind: str) -> bool:
    kpse = shutil.which("kpsewhich")
    if kpse is None:
        return kind == "article"
    return subprocess.run([kpse, f"{kind}.cls"], capture_output=True).returncode == 0


def lay_out(folder: Path, width: str) -> None:
    """Everything that the paper takes over."""
    made = study(FINALS)
    wide = f"{width}-wide" if width in ("ieee", "acm") else "6.4"
    (folder / "wide.tex").write_text(comparison_table(made), "utf-8")
    (folder / "narrow.tex").write_text(
        comparison_table(made, narrow=True).replace("tab:comparison", "tab:narrow"), "utf-8"
    )
    drawn = comparison_figure(made, ("joules",), width)
    save_figure(drawn, folder / "joules", "pgf,pdf")
    plan = joulemesh.plan(made.scenario)
    save_figure(plan_figure(plan, wide), folder / "plan", "pgf")
    used = used_by(made.scenario, list(FINALS))
    (folder / "references.bib").write_text(references(used), "utf-8")


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


@pytest.mark.parametrize("width", CLASSES)
def test_a_paper_compiles_without_a_complaint(tmp_path: Path, width: str) -> None:
    kind, options = CLASSES[width]
    if not has(kind):
        pytest.skip(f"the class {kind} is not installed (Debian: texlive-publishers)")
    lay_out(tmp_path, width)
    (tmp_path / "article.tex").write_text(PAPER % (options, kind), "utf-8")
    latex = ("pdflatex", "-halt-on-error", "-interaction=nonstopmode", "article")
    run(tmp_path, *latex)
    if shutil.which("bibtex"):
        assert "Warning" not in run(tmp_path, "bibtex", "article")
    run(tmp_path, *latex)
    said = run(tmp_path, *latex)
    assert "undefined" not in said
    assert "Overfull" not in said
    if shutil.which("pdffonts"):
        fonts = run(tmp_path, "pdffonts", "article.pdf")
        assert "STIXGeneral" in fonts
        assert all(
            "yes" in line.split("  ")[-1] or " yes " in line for line in fonts.splitlines()[2:]
        )


@pytest.mark.parametrize("width", ["ieee", "acm"])
def test_widths_are_those_of_the_class(tmp_path: Path, width: str) -> None:
    kind, options = CLASSES[width]
    if not has(kind):
        pytest.skip(f"the class {kind} is not installed (Debian: texlive-publishers)")
    (tmp_path / "w.tex").write_text(WIDTH % (options, kind), "utf-8")
    said = run(tmp_path, "pdflatex", "-interaction=nonstopmode", "w")
    found = re.search(r"IN ([\d.]+)pt, ([\d.]+)pt\.", said)
    assert found is not None
    assert WIDTHS[width] * 72.27 == pytest.approx(float(found[1]), abs=0.01)
    assert WIDTHS[f"{width}-wide"] * 72.27 == pytest.approx(float(found[2]), abs=0.01)
