"""The LaTeX table of a comparison: bold, marks, intervals, what is missing, and hostile names."""

from __future__ import annotations

from joulemesh.views.latex import comparison_table
from tests.views.publication.studies import study

A = (0.90, 0.91, 0.93, 0.92)
B = (0.88, 0.90, 0.90, 0.89)
C = (0.70, 0.72, 0.73, 0.71)


def cells(text: str) -> dict[str, list[str]]:
    """Rows of the body by method."""
    body = text.split(r"\midrule")[1].split(r"\bottomrule")[0]
    rows = [line.strip().removesuffix(r" \\").split(" & ") for line in body.strip().splitlines()]
    return {row[0]: row[1:] for row in rows}


def test_means_have_intervals_the_best_is_bold_and_differences_are_marked() -> None:
    rows = cells(comparison_table(study({"a": A, "b": B, "c": C})))
    assert rows["a"][0] == r"$\mathbf{91.5 \pm 2.1}\phantom{^{***}}$"
    assert rows["b"][0] == r"$89.2 \pm 1.5^{*}\phantom{^{**}}$"
    assert rows["c"][0] == r"$71.5 \pm 2.1^{***}$"
    assert rows["a"][2:5] == ["4", "$100$", "$2.00$"]
    assert rows["c"][5:] == ["not reached", "not reached"]


def test_one_seed_has_neither_intervals_nor_marks() -> None:
    text = comparison_table(study({"a": (0.9,), "b": (0.8,)}))
    assert cells(text)["a"][0] == r"$\mathbf{90.0}$"
    assert cells(text)["b"][0] == "$80.0$"
    assert "One seed, hence neither intervals nor tests." in text


def test_a_method_that_cannot_run_says_so() -> None:
    rows = cells(comparison_table(study({"a": A}, refused=["b"])))
    assert rows["b"] == ["infeasible", *["--"] * 6]
    only = comparison_table(study({"a": A}, refused=["b"], wanted=0.99))
    assert "not reached" in only


def test_a_narrow_table_fits_one_column() -> None:
    text = comparison_table(study({"a": A, "b": B}), narrow=True)
    assert r"\begin{table}[t]" in text
    assert len(cells(text)["a"]) == 3
    assert r"\begin{table*}[t]" in comparison_table(study({"a": A}))


def test_names_are_escaped() -> None:
    text = comparison_table(study({r"50%_of & #1 {x} \input{y}": A, "b": B}))
    assert r"50\%\_of \& \#1 \{x\} \textbackslash{}input\{y\} & $" in text


def test_a_score_that_is_better_when_lower_has_its_own_best_and_no_per_cent() -> None:
    numbers = {"training.dataset": "diabetes", "training.loss": "mse", "training.score": "rmse"}
    errors = {"a": (61.0, 62.0, 61.5), "b": (54.0, 55.5, 54.5)}
    text = comparison_table(study(errors, changes={**numbers, "training.partition": "iid"}))
    rows = cells(text)
    assert rows["b"][0].startswith(r"$\mathbf{54.7 \pm 1.9}")
    assert rows["a"][0].startswith(r"$61.5 \pm 1.2^{*")
    assert "[\\%]" not in text
    assert "The target is a test" in text
