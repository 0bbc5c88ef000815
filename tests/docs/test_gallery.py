"""The gallery: every scenario plans and trains, and its page says what its plan and records say."""

from __future__ import annotations

import functools
import re
import tomllib

import pytest

import joulemesh
from joulemesh.planning.plan import Plan
from tools.gallery import GALLERY, NAMES, RESULTS, SCENARIOS, record_of, scenario_of
from tools.gallery_pages import ALTERNATIVES, described, index_page, page_of, plan_rows

# What a scenario is, rather than a figure of the field.
CHOSEN = {"broadcast", "count", "fading", "mean_degree", "path_loss", "table", "topology"}
RENEW = "`python -m tools.gallery` writes it anew"


@functools.cache
def plan_of(name: str) -> Plan:
    return joulemesh.plan(scenario_of(name))


def test_the_gallery_has_a_page_and_a_picture_for_every_scenario() -> None:
    assert {path.stem for path in SCENARIOS.glob("*.toml")} == {*NAMES} == {*ALTERNATIVES}
    assert {path.stem for path in GALLERY.glob("*.png")} == {*NAMES}
    assert {path.stem for path in GALLERY.glob("*.md")} == {*NAMES, "index"}
    assert {path.stem for path in RESULTS.glob("*.json")} <= {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_what_its_plan_says(name: str) -> None:
    page = (GALLERY / f"{name}.md").read_text("utf-8")
    assert "\n".join(plan_rows(plan_of(name))) in page, RENEW
    assert (SCENARIOS / f"{name}.toml").read_text("utf-8") in page, RENEW
    assert described(name).teaches in page


@pytest.mark.parametrize("name", NAMES)
def test_a_record_of_tuning_is_that_of_the_scenario_as_it_is(name: str) -> None:
    if not (RESULTS / f"{name}.json").exists():
        page = (GALLERY / f"{name}.md").read_text("utf-8")
        assert "Not tuned yet." in page, RENEW
        return
    assert record_of(name, plan_of(name)) is not None, f"`python -m tools.gallery --tune {name}`"


@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_a_scenario_says_where_it_comes_from(name: str) -> None:
    """By a comment on its line, or right above it."""
    lines = (SCENARIOS / f"{name}.toml").read_text("utf-8").splitlines()
    section, seen = "", 0
    for before, line in zip(["", *lines], lines, strict=False):
        section = line.strip("[]") if line.startswith("[") else section
        field = re.match(r"(\w+) = ", line)
        if field and section in {"devices", "network", "budget"} and field[1] not in CHOSEN:
            seen += 1
            assert "#" in line or before.startswith("#"), f"{section}.{field[1]} has no source"
    assert seen >= 3
    assert tomllib.loads("\n".join(lines))["training"]["dataset"] == "digits"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_written_from_its_scenario_and_record(name: str) -> None:
    assert (GALLERY / f"{name}.md").read_text("utf-8") == page_of(name, plan_of(name)), RENEW


@pytest.mark.slow
def test_the_first_page_is_written_from_the_records() -> None:
    assert (GALLERY / "index.md").read_text("utf-8") == index_page(), RENEW


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_trains_in_reduced_size(name: str) -> None:
    scenario = scenario_of(name).override({"plan.iterations": 8, "training.eval_every": 4})
    result = joulemesh.run(scenario, seeds=1)
    assert result.account.iterations == 8
    assert (result.account.margin_j >= 0).all()
    scores = result.trace.test_score[:, 0]
    assert scores[-1] > 0.3  # of ten digits
