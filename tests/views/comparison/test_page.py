"""What is shown of a comparison: figures, tables, the page."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import verified
from joulemesh.methods import lookup
from joulemesh.scenario import Scenario
from joulemesh.study.compare import DEFAULT_METHODS
from joulemesh.study.comparison import Comparison
from joulemesh.study.record import Entry
from joulemesh.training.jax.engine import Engine
from joulemesh.views.comparison import render_comparison, show_comparison
from tests.views.markup import Page

Seven = tuple[Comparison, list[Engine]]
NASTY = '</script><b>&"$title'


@pytest.fixture
def mixed(seven: Seven) -> Comparison:
    """The seven, and one that could not run."""
    found = seven[0]
    refused = Entry.refused(NASTY, f"why: {NASTY}", len(found.seeds), 5)
    return Comparison(found.scenario, "energy", found.seeds, (*found.entries, refused))


def test_a_figure_with_three_axes(seven: Seven) -> None:
    figure = seven[0].figure()
    assert [axes.get_xlabel() for axes in figure.axes] == [
        "iteration",
        "energy of all devices [J]",
        "simulated time [ms]",
    ]
    for axes in figure.axes:
        labels = axes.get_legend_handles_labels()[1]
        assert labels == list(DEFAULT_METHODS)
        assert len(axes.collections) == 7  # a band each
    first = seven[0].entries[0]
    line = figure.axes[1].lines[0]
    np.testing.assert_allclose(np.asarray(line.get_xdata()), first.energy_j.mean(axis=1))
    shown = 100 * first.curves["test_accuracy"].mean(axis=1)  # per cent, as in tables
    np.testing.assert_allclose(np.asarray(line.get_ydata()), shown)


def test_a_figure_against_one_axis(seven: Seven, mixed: Comparison) -> None:
    assert len(seven[0].figure("seconds").axes) == 1
    assert len(mixed.figure("joules").axes[0].collections) == 7  # who did not run is left out
    with pytest.raises(ScenarioError, match="use some of iterations, joules, seconds"):
        seven[0].figure("watts")


def test_everything_is_saved(seven: Seven, tmp_path: Path) -> None:
    seven[0].save(tmp_path / "a" / "b")
    files = {path.name for path in (tmp_path / "a" / "b").iterdir()}
    pictures = {
        f"{n}{s}" for n in ("figure", "iterations", "joules", "seconds") for s in (".png", ".svg")
    }
    again = {"scenario.toml", "study.json", "inputs", "manifest.jsonl", ".lock"}
    paper = {"table.tex", "methods.txt", "references.bib"}
    assert files == {"comparison.csv", "table.csv", "report.html"} | again | pictures | paper
    assert verified(tmp_path / "a" / "b").intact
    (tmp_path / "a" / "b" / "table.csv").write_text("accuracy\n1.0\n")
    assert list(verified(tmp_path / "a" / "b").damaged) == ["table.csv"]
    seven[0].save(tmp_path / "a" / "b")  # it may be written again
    assert verified(tmp_path / "a" / "b").intact
    (tmp_path / "file").write_text("")
    with pytest.raises(ScenarioError, match="cannot make the folder"):
        seven[0].save(tmp_path / "file")


def test_a_page_that_asks_for_nothing_and_escapes_everything(mixed: Comparison) -> None:
    text = render_comparison(mixed, versions={NASTY: NASTY})
    page = Page(text)
    assert page.open == []
    assert page.addresses == ["data:,"]
    assert len(page.scripts) == 2
    assert not re.search(r"@import|url\(|https:|fetch\(", text)
    assert "<b>" not in text
    data = page.data
    chart = data["learning"]
    score = next(one for one in chart["along"] if one["key"] == "test_accuracy")
    assert [line["text"] for line in score["lines"]] == list(DEFAULT_METHODS)
    first, line = mixed.entries[0], score["lines"][0]
    joules = chart["points"][line["points"]]["joules"]
    np.testing.assert_allclose(joules, first.energy_j.mean(axis=1), rtol=1e-4)
    accuracy = first.curves["test_accuracy"].mean(axis=1)
    np.testing.assert_allclose(line["mean"], accuracy, rtol=1e-4)
    for name in ("Equal batteries", "paired by seed", "[devices]", "why: &lt;/script&gt;"):
        assert name in text


def test_a_page_says_what_was_learned_when_and_by_which_methods(
    seven: Seven, tmp_path: Path
) -> None:
    (tmp_path / "fleet & co.toml").write_text(seven[0].scenario.to_toml(), "utf-8")
    named = replace(seven[0], scenario=Scenario.load(tmp_path / "fleet & co.toml"))
    text = render_comparison(named, when="2026-11-05T08:00:00+00:00")
    title = "Comparison of fleet &amp; co, 5 November 2026"
    assert f"<title>{title}</title>" in text
    assert f"<h1>{title}</h1>" in text
    learned = "5 devices learned few with a logistic model of 650 parameters, by each of 7 methods."
    assert learned in text
    for name in DEFAULT_METHODS:
        method = lookup(name)
        assert method.citation is not None
        said = f"<dt>{name}</dt><dd>{method.description}"
        assert f"{said}<cite>{method.citation}</cite></dd>" in html.unescape(text)


def test_curves_and_summary_say_how_many_samples_they_rest_on(seven: Seven) -> None:
    rows = list(csv.DictReader(io.StringIO(seven[0].to_csv())))
    assert {(row["test_samples"], row["device_samples"]) for row in rows} == {("60", "60")}
    assert seven[0].summary()["test_samples"] == seven[0].summary()["curve_test_samples"] == 60
    # The largest error is that of the accuracy nearest to one half: √(p(1 − p)/60).
    p = min((row["accuracy"] for row in seven[0].table()), key=lambda one: abs(one - 0.5))
    error = (p * (1 - p) / 60) ** 0.5
    assert seven[0].summary()["accuracy_se"] == pytest.approx(error)
    page = render_comparison(seven[0])
    assert f"rest on all 60 test samples (standard error up to {100 * error:.1f} points)" in page
    assert "devices’ modelled clock" in page
    console = Console(width=200, file=io.StringIO())
    show_comparison(seven[0], console)
    assert isinstance(console.file, io.StringIO)
    printed = " ".join(console.file.getvalue().split())
    assert f"60 test samples, standard error up to {100 * error:.1f} points" in printed
    assert "time on the modelled clock of the devices" in printed
    assert "(±" not in printed + page  # one meaning of ±: the interval over seeds
    some = [
        replace(entry, samples=np.array([[50, 20]] * (len(entry.iteration) - 1) + [[60, 60]]))
        for entry in seven[0].entries
    ]
    sampled = replace(seven[0], entries=tuple(some))
    assert sampled.summary()["curve_device_samples"] == 20
    assert re.search(
        r"rest on all 60 test samples \([^)]+\), curves on 50 of them", render_comparison(sampled)
    )


def test_a_page_of_nothing_but_refusals(seven: Seven) -> None:
    refused = Entry.refused("a", "too dear", 2, 5)
    found = Comparison(seven[0].scenario, "time", (0, 1), (refused,))
    assert "None of the methods could run" in render_comparison(found)
    assert "too dear" in found._repr_html_()
    assert len(found.figure().axes) == 3


@pytest.mark.parametrize("width", [80, 140])
def test_a_table_that_fits_a_terminal(mixed: Comparison, width: int) -> None:
    stream = io.StringIO()
    show_comparison(mixed, Console(file=stream, width=width))
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    text = stream.getvalue()
    assert all(name in text for name in DEFAULT_METHODS)
    assert "infeasible" in text
    assert "95 % of the best" in " ".join(text.split())
    row = mixed.table()[0]
    assert f"{100 * row['accuracy']:.1f} ± {100 * row['accuracy_ci95']:.1f}" in text
