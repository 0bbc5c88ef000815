"""What computed a result is recorded with it, and shown by everything that is made from it."""

from __future__ import annotations

import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import joulemesh
from joulemesh import Scenario
from joulemesh.models.core import from_functions
from joulemesh.study.export import export_model
from joulemesh.study.paper import write_run_paper
from joulemesh.training.software import PACKAGES, software
from joulemesh.views.printing import ON_SCREEN

SMALL = {
    "devices.count": 4,
    "plan.iterations": 4,
    "training.model": "logistic",
    "training.eval_every": 2,
}
SCENARIO = Scenario.preset("adaptive").override(SMALL)

# The sentence of methods.txt about each library.
SAID = {
    "jax": "Models were trained and evaluated with JAX {jax} and jaxlib {jaxlib}.",
    "torch": "Models were trained and evaluated with PyTorch {torch}.",
}


@pytest.fixture(params=["jax", "torch"])
def model(request: pytest.FixtureRequest) -> Any:
    """A model of each library; PyTorch is imported for both where it is installed."""
    if request.param == "torch":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")
        return "torch", torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    import jax.numpy as jnp

    def apply(w: Any, x: Any) -> Any:
        return x.reshape(len(x), -1) @ w

    return "jax", from_functions(lambda key: jnp.zeros((64, 10)), apply, name="linear")


def check_record(record: dict[str, Any], library: str) -> None:
    assert record["trained_by"] == [library]
    assert record["packages"][library] == version(library)
    assert ("torch" in record["packages"]) == (library == "torch")


def check_page(page: str, library: str) -> None:
    shown = dict(re.findall(r"<div><dt>([^<]*)</dt><dd>([^<]*)</dd></div>", page))
    assert shown["trained_by"] == library
    assert shown[library] == version(library)
    assert ("torch" in shown) == (library == "torch")


def check_methods(text: str, library: str) -> None:
    numbers = {name: version(name) for name in PACKAGES[library]}
    assert SAID[library].format(**numbers) in " ".join(text.split())
    assert ("PyTorch" in text) == (library == "torch")


def test_a_run_records_what_trained_it(model: tuple[str, Any], tmp_path: Path) -> None:
    library, given = model
    folder = tmp_path / "run"
    result = joulemesh.run(SCENARIO, model=given, out=folder, seeds=2)
    assert result.summary()["trained_by"] == {library: version(library)}
    check_record(json.loads((folder / "versions.json").read_text())["versions"], library)
    check_page((folder / "report.html").read_text(), library)
    write_run_paper(folder, ON_SCREEN)
    check_methods((folder / "paper/methods.txt").read_text(), library)
    card = export_model(folder, tmp_path / "model") / "README.md"
    title = {"jax": "JAX", "torch": "PyTorch"}[library]
    assert f"| trained by | {title} {version(library)} |" in card.read_text()
    saved = tmp_path / "saved"
    result.save(saved)
    check_record(json.loads((saved / "versions.json").read_text())["versions"], library)


def test_a_tuning_records_what_trained_it(model: tuple[str, Any], tmp_path: Path) -> None:
    library, given = model
    options: Any = {"seeds": 1, "search_seeds": 1, "candidates": 2, "model": given}
    options |= {"cache": tmp_path / "cache", "out": tmp_path / "tuned"}
    found = joulemesh.tune(SCENARIO, {"training.learning_rate": [0.05, 0.1]}, **options)
    assert found.summary()["trained_by"] == {library: version(library)}
    check_record(json.loads((tmp_path / "tuned/tuning.json").read_text())["versions"], library)
    check_page((tmp_path / "tuned/report.html").read_text(), library)
    again = joulemesh.tune(
        SCENARIO, {"training.learning_rate": [0.05, 0.1]}, **options, resume=True
    )
    assert again.computed == 0


def test_a_study_of_both_libraries_names_both() -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed (the extra torch)")
    record = software("jax", "torch")
    assert record["trained_by"] == ["jax", "torch"]
    assert {"jax", "torch", "flax"} <= set(record["packages"])
