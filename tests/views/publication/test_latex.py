"""Tables for LaTeX: structure, escaping, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joulemesh.base.errors import ScenarioError
from joulemesh.views.latex import Tex, booktabs, escape
from joulemesh.views.table import Column, Table

TABLE: dict[str, Any] = {"caption": "What it costs.", "label": "tab:cost"}


def table(names: list[str], rows: list[list[str]], words: int = 1) -> Table:
    """A table whose first columns are words."""
    return Table([Column(name, figures=k >= words) for k, name in enumerate(names)], rows)


def test_a_table_has_rules_caption_label_and_notes() -> None:
    text = booktabs(
        table(["method", "J"], [["a", "1"], ["b", "2"]]), notes=["50 % of it."], **TABLE
    )
    lines = [line.strip() for line in text.splitlines()]
    assert lines == [
        r"% Needs \usepackage{booktabs}.",
        r"\begin{table}[t]",
        r"\centering",
        r"\caption{What it costs.}",
        r"\label{tab:cost}",
        r"\begin{tabular}{@{}lr@{}}",
        r"\toprule",
        r"method & J \\",
        r"\midrule",
        r"a & 1 \\",
        r"b & 2 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\par\smallskip",
        r"\parbox{\linewidth}{\footnotesize 50 \% of it.}",
        r"\end{table}",
    ]


def test_a_wide_table_floats_over_both_columns() -> None:
    text = booktabs(table(["a", "b"], [["1", "–"]], words=0), wide=True, **TABLE)
    assert r"\begin{table*}[t]" in text
    assert r"\end{table*}" in text
    assert "{@{}rr@{}}" in text
    assert r"1 & -- \\" in text


def test_latex_passes_and_other_text_does_not() -> None:
    text = booktabs(table(["a"], [[Tex(r"\textbf{1}")], [r"\textbf{1}"]]), **TABLE)
    assert r"    \textbf{1} \\" in text
    assert r"    \textbackslash{}textbf\{1\} \\" in text


@pytest.mark.parametrize("cell", ["[3pt]", "*"])
def test_a_first_cell_is_no_option_of_the_line_before(cell: str) -> None:
    text = booktabs(table(["a"], [["x"], [cell]]), **TABLE)
    assert rf"    {{}}{cell} \\" in text


@given(st.text(max_size=40))
def test_whatever_a_name_holds_nothing_of_it_is_a_command(name: str) -> None:
    made = escape(name)
    assert made.isascii()
    assert made.isprintable()
    depth, k = 0, 0
    while k < len(made):
        assert made[k] not in "#$&_^" or made[k - 1] == "\\"
        if made[k] == "\\" and made[k + 1] in "\\{}$&#%_":
            k += 1  # an escaped character
        depth += {"{": 1, "}": -1}.get(made[k], 0) if made[k - 1] != "\\" else 0
        assert depth >= 0
        k += 1
    assert depth == 0


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(ScenarioError, match="a row of 3 cells does not fit a table of 2 columns"):
        booktabs(table(["a", "b"], [["1", "2"], ["1", "2", "3"]]), **TABLE)


@pytest.mark.parametrize("label", ["", "tab cost", "tab%", "a}b", "tab\ncost"])
def test_a_label_that_latex_cannot_refer_to_is_refused(label: str) -> None:
    with pytest.raises(ScenarioError, match="is unusable: use letters"):
        booktabs(table(["a"], [["1"]]), caption="c", label=label)
