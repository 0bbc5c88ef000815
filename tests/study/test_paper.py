"""A run's folder for a paper: figures, setting and references, all in the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

import joulemesh
from joulemesh.base.files import verified
from joulemesh.study.paper import write_run_paper
from joulemesh.views.printing import Printing
from tests.comparisons import few_digits, small_scenario


@pytest.mark.slow
def test_a_run_is_drawn_and_told_from_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    joulemesh.run(small_scenario(), data=few_digits(), seeds=2, out=folder)
    made = write_run_paper(folder, Printing(("pdf",), 3.4))
    names = {path.name for path in made}
    assert names == {"curves.pdf", "plan.pdf", "methods.txt", "references.bib"}
    said = " ".join((folder / "paper" / "methods.txt").read_text("utf-8").split())
    assert "Training was run with 2 seeds (seeds 0 to 1)." in said
    before = {path.name: path.read_bytes() for path in made}
    again = write_run_paper(folder, Printing(("pdf",), 3.4))
    assert {path.name: path.read_bytes() for path in again} == before
    found = verified(folder)
    assert found.intact
    assert not found.strangers
