"""The head of a run's report: what was learned, on which devices, when."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

import joulemesh
from joulemesh.data import Dataset
from joulemesh.models import from_functions
from joulemesh.study import folder
from joulemesh.study.paper import report_of_folder

TOML = """
[devices]
count = 3
profile = ["esp32", "laptop", "esp32"]
[budget]
deadline_s = 100.0
energy_j = 1e6
[plan]
iterations = 4
rounds = "fixed"
fixed_rounds = 1
[training]
chunk_iterations = 2
eval_every = 2
"""


class Then(datetime):
    """A clock that stands still, long ago."""

    @classmethod
    def now(cls, tz: Any = None) -> Self:
        return cls(2001, 2, 3, 4, 5, 6, tzinfo=tz or UTC)


def own_parts() -> tuple[Any, Dataset]:
    rng = np.random.default_rng(0)
    y = (np.arange(60) % 3).astype(np.int32)
    x = (rng.normal(size=(60, 5)) + 3 * np.eye(5)[y]).astype(np.float32)
    zeros = np.zeros((5, 3), np.float32)
    model = from_functions(lambda key: zeros, lambda w, x: x @ w, name="LeafNet <1>")
    return model, Dataset("/home/me/leaves.npz", x[:40], y[:40], x[40:], y[40:], 3)


def head(page: Path) -> tuple[str, str]:
    text = page.read_text("utf-8")
    found = [re.search(rf"{tag}>(.*?)</", text) for tag in ("<h1", 'id="summary"')]
    title, lead = (html.unescape(one[1]) for one in found if one)
    assert f"<title>{html.escape(title)}</title>" in text
    return title, lead.replace("\xa0", " ")


@pytest.mark.slow
def test_the_page_names_scenario_date_devices_model_and_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The date is that of the start, however often the run is taken up or the page written."""
    (tmp_path / "fleet & co.toml").write_text(TOML, "utf-8")
    scenario = joulemesh.Scenario.load(tmp_path / "fleet & co.toml")
    model, data = own_parts()

    class StopError(Exception):
        pass

    def stop(progress: Any) -> None:
        raise StopError

    with monkeypatch.context() as long_ago:
        long_ago.setattr(folder, "datetime", Then)
        with pytest.raises(StopError):
            joulemesh.run(scenario, model=model, data=data, out=tmp_path / "run", on_progress=stop)
    joulemesh.run(scenario, model=model, data=data, out=tmp_path / "run", resume=True)
    title, lead = head(tmp_path / "run" / "report.html")
    assert title == "Run of fleet & co, 3 February 2001"
    assert lead.startswith(
        "3 devices (2 esp32, 1 laptop) learned leaves.npz with a LeafNet <1> of 15 parameters in "
        "4 iterations, averaging along a tree, and reached "
    )
    report_of_folder(tmp_path / "run", tmp_path / "again.html")
    assert head(tmp_path / "again.html") == (title, lead)
