"""Pages that a program writes are what it writes today, and are rendered as they are meant."""

from __future__ import annotations

import csv
import json
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import markdown
import pytest

from benchmarks import comparison, joules, medium, plans
from benchmarks.pages import PAGES, from_record
from joulemesh.scenario import SECTIONS
from tools.reference import cli_page, scenario_page
from yan_li_2024.claims import read_claims
from yan_li_2024.page import write_page
from yan_li_2024.sentences import SENTENCES
from yan_li_2024.verdicts import claims_markdown

DOCS = Path(__file__).parents[2] / "docs"
REPRODUCTION = DOCS / "reproduction"
EXTENSIONS = ["admonition", "attr_list", "md_in_html", "tables", "toc"]  # as in mkdocs.yml


class Words(HTMLParser):
    """What a reader sees of a page, and what stands in italics."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words, self.slanted, self._open = "", "", False
        self.feed(markdown.markdown(page, extensions=EXTENSIONS))

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._open |= tag == "em"

    def handle_endtag(self, tag: str) -> None:
        self._open &= tag != "em"

    def handle_data(self, data: str) -> None:
        self.words += data
        self.slanted += data if self._open else ""


def claims() -> list[dict[str, str]]:
    with (REPRODUCTION / "claims.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("page", ["README.md", "claims.md"])
def test_the_reproduction_quotes_the_paper_word_for_word(page: str) -> None:
    shown = Words((REPRODUCTION / page).read_text("utf-8"))
    for row in claims():
        assert f"“{row['sentence']}”" in shown.words, row["id"]
        assert row["quantity"][1:] in shown.words, row["id"]
        assert row["detail"] in shown.words, row["id"]
    assert "τ*_{i,t}" in shown.words
    # Emphasis of ours only: none comes from an asterisk of the paper's.
    wanted = "holdsdoes not holdundecideddependsdepends" if page == "README.md" else ""
    assert shown.slanted == wanted


def test_the_reproduction_gives_its_reasons_word_for_word() -> None:
    shown = Words((REPRODUCTION / "README.md").read_text("utf-8")).words
    known = {row["id"] for row in claims()}
    assert all(one.why in shown for one in SENTENCES if one.id in known)
    timings = json.loads((REPRODUCTION / "timings.json").read_text("utf-8"))
    assert all(setup in shown for setup in timings["setups"].values())


def test_the_reproduction_is_written_from_its_numbers() -> None:
    """`joulemesh reproduce --redraw --out docs/reproduction` writes the two pages."""
    rows = read_claims((REPRODUCTION / "claims.csv").read_text("utf-8"))
    timings = json.loads((REPRODUCTION / "timings.json").read_text("utf-8"))
    page = write_page(
        rows,
        pictures=timings["pictures"],
        notes=timings["notes"],
        failures={},
        timings=timings,
        discussed=True,
    )
    assert (REPRODUCTION / "README.md").read_text("utf-8") == page
    assert (REPRODUCTION / "claims.md").read_text("utf-8") == claims_markdown(rows)


@pytest.mark.parametrize("name", PAGES)
def test_benchmark_pages_are_written_from_their_records(name: str) -> None:
    """`python -m benchmarks --page` writes them."""
    assert (DOCS / "benchmarks" / f"{name}.md").read_text("utf-8") == from_record(name)


@pytest.mark.parametrize("module", [comparison, medium, plans])
def test_the_comparison_is_written_from_its_tables(module: ModuleType) -> None:
    """`python -m benchmarks.comparison --page` and `benchmarks.plans --page` write the pages."""
    for path, text in module.pages().items():
        assert path.read_text("utf-8") == text, path.name


def test_every_record_of_a_benchmark_has_its_page() -> None:
    records = {path.stem for path in (DOCS / "benchmarks").glob("*.json")}
    # Machines that were calibrated have a record each, and one page (test_calibration_page.py).
    assert {name for name in records if not name.startswith("calibration-")} == {*PAGES}


def test_fields_are_described_as_in_the_program() -> None:
    shown = Words(scenario_page())
    for section in SECTIONS.values():
        for name, field in section.model_fields.items():
            assert field.description
            assert field.description in shown.words, name
    assert shown.slanted == Words(cli_page()).slanted == ""


def test_the_comparisons_tables_follow_from_their_curves() -> None:
    """Energy to target and its error are those of the curves that are published beside them."""
    path, equal = DOCS / "comparison" / "fashion-ring-0.1.toml", "batteries"
    made = {row["method"]: row for row in comparison.study_of(path, equal).table()}
    with (path.parent / "results" / f"{path.stem}-{equal}.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert float(row["accuracy"]) == pytest.approx(made[row["method"]]["accuracy"])
            for name in ("energy_to_target_j", "energy_to_target_j_error"):
                shown = float(row[name]) if row[name] else None
                assert shown == pytest.approx(made[row["method"]][name]), row["method"]


def test_a_comparison_made_in_pieces_is_recorded_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs.json"
    monkeypatch.setattr(comparison, "RUNS", runs)
    terms = {"machine": {"cores": 2}, "accelerator": ["cpu"], "seeds": 5}

    def run(name: str, seconds: float) -> dict[str, object]:
        return {"name": name, "seconds": seconds, "computed": 35}

    ring, cifar = run("fashion-ring-1.0-time", 3.0), run("cifar-ring-0.1-time", 4.0)
    assert comparison.with_earlier(terms, [cifar]) == [cifar]
    runs.write_text(json.dumps({**terms, "runs": [cifar]}), "utf-8")
    assert comparison.with_earlier(terms, [ring]) == [ring, cifar]  # in the order of the page
    again = run("cifar-ring-0.1-time", 9.0)
    assert comparison.with_earlier(terms, [again]) == [again]
    # Another machine's, or another number of seeds, is another measurement.
    assert comparison.with_earlier({**terms, "seeds": 3}, [ring]) == [ring]


def test_joule_for_joule_runs_the_scenarios_that_it_publishes() -> None:
    """More scenarios lie beside them; a glob would take those, too."""
    published = sorted((DOCS / "comparison" / "results").glob("*-joules.csv"))
    assert [f"{name}-joules" for name in sorted(joules.SCENARIOS)] == [p.stem for p in published]
    record = json.loads((DOCS / "comparison" / "results" / "joules.json").read_text("utf-8"))
    assert {run["name"] for run in record["runs"]} == set(joules.SCENARIOS)
    assert all((DOCS / "comparison" / f"{name}.toml").is_file() for name in joules.SCENARIOS)
