"""The gallery in docs/gallery: `python -m tools.gallery [--tune] [NAME …]`, in the root.

Each scenario of examples/gallery has its plan's picture and its page. `--tune` also tunes it (about
half a minute of processor time each) and keeps what was found in docs/gallery/results; figures on
the pages come from there and from the plan, never from a keyboard.
"""

from __future__ import annotations

__all__ = [
    "GALLERY",
    "NAMES",
    "RESULTS",
    "SCENARIOS",
    "compare_command",
    "main",
    "record_of",
    "scenario_of",
    "tune_command",
]

import argparse
import json
import os
import shlex
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

import joulemesh
from joulemesh.planning.plan import Plan, digest_of
from joulemesh.views.plan_figure import plan_figure
from joulemesh.views.style import styled_as
from tools.reading import DOCS, ROOT

SCENARIOS = ROOT / "examples" / "gallery"
GALLERY = DOCS / "gallery"
RESULTS = GALLERY / "results"
NAMES = (
    "farm",
    "drones",
    "hospital",
    "satellites",
    "factory",
    "phones",
    "lora",
    "underwater",
    "vehicles",
    "campus",
)
# Plans with traces take a second each, so fewer of them are priced.
_TRACED = {"farm": "fixed", "drones": "spread", "satellites": "spread"}
_RATES = "training.learning_rate=[0.1, 0.2, 0.4]"
_COMPARED = {"campus": "spread,adaptive,d-psgd"}  # where methods are what the scenario is about
_OF_METHOD = (
    "method",
    "iterations",
    "energy_j",
    "time_s",
    "accuracy",
    "accuracy_ci95",
    "accuracy_difference",
    "accuracy_difference_ci95",
)
_OF_RECORD = ("winner", "given", "difference", "seeds", "fresh_seeds", "test_samples", "rungs")


def scenario_of(name: str) -> joulemesh.Scenario:
    """A scenario of the gallery."""
    return joulemesh.Scenario.load(SCENARIOS / f"{name}.toml")


def tune_command(name: str, plan: Plan) -> list[str]:
    """The command that tunes a scenario in a small setting: 12 candidates at most, few seeds."""
    n = plan.iterations
    words = ["joulemesh", "tune", f"examples/gallery/{name}.toml"]
    words += ["--candidates", "12", "--search-seeds", "1", "--seeds", "3"]
    words += ["--try", f"plan.iterations=[{n // 2}, {n}, {2 * n}]", "--try", _RATES]
    if name in _TRACED:
        words += ["--try", "plan.aggregation=tree", "--try", "plan.exchange=exact"]
        words += ["--try", f"plan.rounds={_TRACED[name]}"]
    return words


def compare_command(name: str) -> list[str] | None:
    """The command that compares methods on a scenario; None where its page shows none."""
    if name not in _COMPARED:
        return None
    words = ["joulemesh", "compare", f"examples/gallery/{name}.toml"]
    return [*words, "--methods", _COMPARED[name], "--seeds", "3"]


def record_of(name: str, plan: Plan) -> dict[str, Any] | None:
    """What tuning found for this very plan; None where it was not tuned, or was another."""
    path = RESULTS / f"{name}.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return record if record["plan"] == digest_of(plan) else None


def tune(name: str) -> None:
    """Tune a scenario as its page says, and keep what the page shows of it."""
    plan = joulemesh.plan(scenario_of(name))
    words = tune_command(name, plan)
    found = _json_of(words)
    record: dict[str, Any] = {"version": joulemesh.__version__, "command": shlex.join(words)}
    record |= {"plan": digest_of(plan), "candidates": len(found["candidates"])}
    record |= {key: found[key] for key in _OF_RECORD}
    record |= compared(name)
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (RESULTS / f"{name}.json").write_text(text, "utf-8")


def compared(name: str) -> dict[str, Any]:
    """What comparing methods found, where the page shows it."""
    words = compare_command(name)
    if words is None:
        return {}
    rows = _json_of(words)["methods"]
    return {"methods": [{key: row[key] for key in _OF_METHOD} for row in rows]}


def _json_of(words: list[str]) -> dict[str, Any]:
    """What one of our commands prints, by the package that is imported here."""
    done = subprocess.run(
        [sys.executable, "-m", *words, "--json"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def draw(name: str, plan: Plan) -> Path:
    """The plan's picture: map with route, rounds and batteries."""
    path = GALLERY / f"{name}.png"
    figure, drawn = plan_figure(plan), BytesIO()
    with styled_as(figure):
        figure.savefig(drawn, format="png", dpi=160, metadata={"Software": None})
    # A palette of 256 colours is a third of the size.
    Image.open(drawn).convert("RGB").quantize(256).save(path, optimize=True)
    return path


def main() -> None:
    """Tune if asked, draw, and write the pages."""
    from tools.gallery_pages import index_page, page_of

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="of examples/gallery; all")
    parser.add_argument("--tune", action="store_true", help="tune anew, and keep the records")
    asked = parser.parse_args()
    for name in asked.names or NAMES:
        if name not in NAMES:
            parser.error(f"{name} is none of {', '.join(NAMES)}")
        if asked.tune:
            tune(name)
        plan = joulemesh.plan(scenario_of(name))
        draw(name, plan)
        (GALLERY / f"{name}.md").write_text(page_of(name, plan), "utf-8")
        print(f"wrote docs/gallery/{name}.md", flush=True)
    (GALLERY / "index.md").write_text(index_page(), "utf-8")


if __name__ == "__main__":
    main()
