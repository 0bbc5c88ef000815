"""The text of the gallery's pages, from the scenarios, their plans and the records of tuning."""

from __future__ import annotations

__all__ = ["ALTERNATIVES", "described", "index_page", "outcome", "page_of", "plan_rows"]

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import joulemesh
from joulemesh.base.errors import JoulemeshError
from joulemesh.base.units import duration, energy
from joulemesh.planning.plan import Plan
from joulemesh.scenario.varied import typed_value
from joulemesh.views.charts import BINDING_KINDS, BINDING_WORDS
from tools.gallery import (
    NAMES,
    SCENARIOS,
    compare_command,
    record_of,
    scenario_of,
    tune_command,
)

TITLES = {
    "farm": "A farm in the sun",
    "drones": "Drones in flight",
    "hospital": "Hospital wards",
    "satellites": "Satellites with contact windows",
    "factory": "A factory hall on one channel",
    "phones": "Phones on Wi-Fi",
    "lora": "LoRa gateways",
    "underwater": "Under water",
    "vehicles": "Vehicles on the road",
    "campus": "A campus",
}
# The same scenario with one thing changed (by --set): what its lesson is seen by.
ALTERNATIVES: dict[str, tuple[tuple[str, ...], ...]] = {
    "farm": (("devices.harvest_w=0.7",), ("plan.fixed_rounds=20",)),
    "drones": (("budget.total_s=30",), ("plan.iterations=15",)),
    "hospital": (("plan.iterations=160",), ("plan.aggregation=tree-chunked",)),
    "satellites": (("budget.energy_j=400",), ("budget.deadline_s=1",)),
    "factory": (("network.interference_m=15",), ("network.broadcast=false",)),
    "phones": (("plan.rounds=theorem4",), ("plan.iterations=60",)),
    "lora": (("training.model=mlp",), ("plan.aggregation=ring-chunked",)),
    "underwater": (("plan.iterations=10",), ("plan.iterations=36",), ("training.model=mlp",)),
    "vehicles": (("network.fading=none",), ("network.packet_error=0",), ("budget.deadline_s=0.7",)),
    "campus": (("plan.exchange=neighbours",), ("plan.aggregation=tree",)),
}  # fmt: skip


@dataclass(frozen=True)
class Described:
    """What the comments at the head of a scenario's file say.

    Attributes:
        what: it is.
        teaches: what there is to learn from it.
    """

    what: str
    teaches: str


def described(name: str) -> Described:
    """What a scenario is and teaches, as its file says."""
    text = (SCENARIOS / f"{name}.toml").read_text("utf-8")
    head = " ".join(line.lstrip("# ") for line in re.match(r"(?:#.*\n)+", text)[0].splitlines())  # type: ignore[index]
    what, teaches = re.split(r"joulemesh plan \S+\.toml\s+What it teaches: ", head)
    return Described(what.strip(), teaches.strip())


def outcome(plan: Plan) -> str:
    """Cells of a plan: iterations, rounds of all devices, joules, seconds."""
    rounds, joules = int(plan.rounds.sum()), float(plan.spent_j.sum())
    return f"{plan.iterations} | {rounds:,} | {energy(joules)} | {duration(plan.time_s)}"


def plan_rows(plan: Plan) -> list[str]:
    """The rows of a page's table of the plan."""
    spent, supplied = float(plan.spent_j.sum()), float(plan.supplied_j.sum())
    shares = {
        "training": float(plan.compute_total_j.sum()),
        "exchange": float(plan.exchange_total_j.sum()),
        "rest": float(plan.idle_total_j.sum()),
    }
    bound = Counter(plan.binding.tolist())
    binds = [f"{BINDING_WORDS[kind]} ({bound[kind]})" for kind in BINDING_KINDS if bound[kind]]
    away = int((~plan.active).sum())
    skipped = int((~plan.exchanged).sum())
    rows = {
        "devices": f"{len(plan.energy_budget_j)}, {len(plan.world.graph.edges)} links",
        "scheme": plan.scheme,
        "iterations": str(plan.iterations),
        "rounds": f"{int(plan.rounds.sum()):,}",
        "joules": f"{energy(spent)} of {energy(supplied)}",
        "of these": ", ".join(
            f"{share} {joules / spent:.1%}" for share, joules in shares.items() if joules
        ),
        "time": duration(plan.time_s),
        "longest iteration": duration(float(plan.latency_s.max())),
        "devices by what binds them": ", ".join(binds),
    }
    if away:
        rows["away"] = f"{away / plan.active.size:.0%} of devices and iterations"
    if skipped:
        rows["skipped"] = f"{skipped} of {plan.iterations} exchanges"
    return [f"| {what} | {figure} |" for what, figure in rows.items()]


def page_of(name: str, plan: Plan) -> str:
    """The page of a scenario."""
    said = described(name)
    file = f"examples/gallery/{name}.toml"
    parts = [
        f"# {TITLES[name]}",
        f"{said.what} **What it teaches:** {said.teaches}",
        f"![The plan: map with route, rounds, batteries]({name}.png)",
        "## The plan",
        f"```console\n$ joulemesh plan {file}\n```",
        "\n".join(["| | |", "|---|---|", *plan_rows(plan)]),
        "## With one thing changed",
        _changed(name, plan),
        "## Tuned",
        _tuned(name, plan),
        _methods(name, plan),
        "## The scenario, with its sources",
        "Comments say where each figure comes from; *assumed* means that it has no source but our "
        "judgement.",
        f'```toml title="{file}"\n{(SCENARIOS / f"{name}.toml").read_text("utf-8")}```',
        _beside(name),
        "`python -m tools.gallery` writes this page; `--tune` tunes anew.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _beside(name: str) -> str:
    files = sorted(path.name for path in SCENARIOS.glob(f"{name}*.csv"))
    listed = ", ".join(f"`{file}`" for file in files)
    return f"Beside it in `examples/gallery`: {listed}." if files else ""


def _changed(name: str, plan: Plan) -> str:
    rows = [
        "| `--set` | iterations | rounds | joules | time |",
        "|---|---:|---:|---:|---:|",
        f"| as it stands | {outcome(plan)} |",
    ]
    refused = []
    for words in ALTERNATIVES[name]:
        shown = " ".join(f"`{word}`" for word in words)
        changes = dict(word.split("=", 1) for word in words)
        try:
            rows.append(f"| {shown} | {outcome(changed(name, changes))} |")
        except JoulemeshError as error:
            rows.append(f"| {shown} | refused | | | |")
            refused.append(f"With {shown} there is no plan, and Joulemesh says what would help:")
            refused.append(f"> {error}")
    return "\n\n".join(["\n".join(rows), *refused])


def changed(name: str, changes: Mapping[str, str]) -> Plan:
    """The plan of a scenario with some fields changed, as `--set` changes them."""
    values = {field: typed_value(text) for field, text in changes.items()}
    return joulemesh.plan(scenario_of(name).override(values))


def _percent(found: Mapping[str, Any] | None, *, sign: bool = False) -> str:
    if found is None or found["mean"] is None:
        return "none"
    half = "" if found["ci95"] is None else f" ± {100 * found['ci95']:.1f}"
    return f"{100 * found['mean']:{'+' if sign else ''}.1f}{half}"


def _tuned(name: str, plan: Plan) -> str:
    record = record_of(name, plan)
    if record is None:
        command = _wrapped(tune_command(name, plan))
        return f"Not tuned yet. `python -m tools.gallery --tune {name}` does it:\n\n{command}"
    rows = ["| | iterations | joules | time | accuracy [%] |", "|---|---:|---:|---:|---:|"]
    rows += [_row("as it stands", record["given"]), _row("tuned", record["winner"])]
    changes = record["winner"]["changes"]
    won = ", ".join(f"`{field} = {_toml(value)}`" for field, value in changes.items())
    which = f"the winner has {won}" if changes else "none was better than the scenario as it stands"
    said = (
        f"Of {record['candidates']} candidates {record['rungs'][0]['candidates']} were trained, "
        f"and {which}. Both were then trained at {len(record['fresh_seeds'])} fresh seeds, and "
        f"tested on {record['test_samples']} samples that no choice was made by; half-widths are "
        "those of 95 % intervals."
    )
    parts = ["\n".join(rows), said, _verdict(record), _wrapped(tune_command(name, plan))]
    return "\n\n".join(part for part in parts if part)


def _methods(name: str, plan: Plan) -> str:
    """Methods on the scenario's batteries, where it is about them."""
    record, words = record_of(name, plan), compare_command(name)
    if record is None or words is None:
        return ""
    rows = ["| method | iterations | joules | time | accuracy [%] | difference [points] |"]
    rows.append("|---|---:|---:|---:|---:|---:|")
    for row in record["methods"]:
        mean = {"mean": row["accuracy"], "ci95": row["accuracy_ci95"]}
        apart = {"mean": row["accuracy_difference"], "ci95": row["accuracy_difference_ci95"]}
        cells = [f"`{row['method']}`", str(row["iterations"]), energy(row["energy_j"])]
        cells += [duration(row["time_s"]), _percent(mean)]
        cells.append("" if apart["mean"] is None else _percent(apart, sign=True))
        rows.append(f"| {' | '.join(cells)} |")
    said = "Differences are those from the first method, paired by seed, with 95 % intervals."
    return "\n\n".join(["## Methods on the same batteries", "\n".join(rows), said, _wrapped(words)])


def _row(title: str, final: Mapping[str, Any] | None) -> str:
    if final is None:
        return f"| {title} | no plan | | | |"
    return (
        f"| {title} | {final['iterations']} | {energy(final['energy_j'])} | "
        f"{duration(final['time_s'])} | {_percent(final['accuracy'])} |"
    )


def _verdict(record: Mapping[str, Any]) -> str:
    found = record["difference"]
    if not record["winner"]["changes"] or found is None or found["mean"] is None:
        return ""
    if found["mean"] == found["ci95"] == 0:
        return "At every seed both are right on as many samples."
    said = f"The difference, paired by seed, is {_percent(found, sign=True)} points: "
    if found["ci95"] is None or abs(found["mean"]) <= found["ci95"]:
        return (
            said + "the interval contains zero, so that these few seeds do not tell the two apart."
        )
    return said + (
        "tuning helped." if found["mean"] > 0 else "tuning on so few seeds chose wrongly."
    )


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)  # words, numbers and truths are written alike


def _wrapped(words: list[str]) -> str:
    """A command as it is typed, an option with its value on each line but the first."""
    head, tail = " ".join(words[:3]), words[3:]
    pairs = [f"{a} {_quoted(b)}" for a, b in zip(tail[::2], tail[1::2], strict=True)]
    return "```console\n$ " + " \\\n    ".join([head, " ".join(pairs[:3]), *pairs[3:]]) + "\n```"


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


_ABOUT = """\
Ten scenarios from the field, to begin from. Each has figures with their sources, and is about one
thing that decides there. They train on the embedded digits, which stand in for the data of the
field: joules, seconds and routes are the field's, accuracies are those of the digits."""
_HOW = """\
Accuracies are those of `joulemesh tune` in a small setting (12 candidates at most, one seed to
choose by, three fresh ones to report by, with 95 % intervals), so take small differences for what
they are.

The files are in `examples/gallery`. Try one, change it on a page, tune it:

```console
$ joulemesh plan examples/gallery/phones.toml
$ joulemesh studio examples/gallery/phones.toml
$ joulemesh tune examples/gallery/phones.toml --out tuned
```

`python -m tools.gallery` writes these pages and draws their pictures."""


def index_page() -> str:
    """The gallery's first page."""
    rows = ["| | what it teaches | as it stands [%] | tuned [%] |", "|---|---|---:|---:|"]
    for name in NAMES:
        record = record_of(name, joulemesh.plan(scenario_of(name)))
        figures = "not tuned yet | "
        if record is not None:
            given, winner = record["given"], record["winner"]
            figures = f"{_percent(given and given['accuracy'])} | {_percent(winner['accuracy'])}"
        lesson = described(name).teaches
        lesson = f"{lesson[:1].upper()}{lesson[1:]}"
        rows.append(f"| [{TITLES[name]}]({name}.md) | {lesson} | {figures} |")
    return "\n\n".join(["# Gallery", _ABOUT, "\n".join(rows), _HOW]) + "\n"
