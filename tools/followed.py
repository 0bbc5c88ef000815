"""Follow every remedy and every advice of random scenarios, and count how often it comes true.

``python -m tools.followed [SCENARIOS [SEED]]`` prints a table: the kind of change, how often it was
offered, and how often planning with it does what was printed. A remedy of a refusal has to make a
plan. Advice has to bring exactly the rounds or iterations that it names.
"""

from __future__ import annotations

__all__ = ["Followed", "draw", "follow", "main", "table"]

import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joulemesh
from joulemesh.base.errors import Edit, JoulemeshError, ScenarioError, in_words
from joulemesh.planning.static import apply_edits
from joulemesh.scenario import Scenario

CHOICES: dict[str, tuple[Any, ...]] = {
    "network.topology": ("ring", "quasi-ring", "grid", "complete", "geometric", "star", "path"),
    "network.fading": ("none", "none", "none", "rayleigh", "rician", "nakagami"),
    "network.channel_known": (True, True, False),
    "network.duplex": ("orthogonal", "orthogonal", "half"),
    "network.shadowing_db": (0.0, 6.0),
    "network.packet_error": (0.0, 0.0, 0.0, 0.1),
    "plan.aggregation": (
        "auto",
        "auto",
        "theorem3",
        "tree",
        "tree-chunked",
        "ring",
        "ring-chunked",
        "gossip",
        "metropolis",
    ),
    "plan.rounds": (
        "theorem4",
        "theorem4",
        "theorem4-literal",
        "backfill",
        "uniform",
        "fixed",
        "inverse",
        "spread",
        "spread",
        "spread",
    ),
    "plan.zeta": ("auto", "auto", "auto", 60.0),
    "plan.iterations": (1, 5, 20, 60, "auto", "auto", "auto", "longest"),
    "plan.fixed_rounds": (1, 2, 5),
    "plan.gossip_rounds": ("epsilon", "balanced", 3),
    "plan.physics": ("physical", "physical", "physical", "paper"),
    "plan.on_depletion": ("refuse", "refuse", "leave"),
    "plan.coordination": (False, False, True),
    "plan.exchange": (*(["exact"] * 6), "neighbours", {"every": 3, "final": True}),
}
_MOST_STEPS = 3
MEDIA: dict[str, tuple[Any, ...]] = {
    "network.medium": ("shared", "orthogonal"),
    "network.broadcast": (True, False),
    "plan.physics": ("physical",),
}


def draw(rng: random.Random, folder: Path) -> Scenario | None:
    """A scenario; None where the fields contradict each other.

    Args:
        rng: makes the choices.
        folder: for traces and tables.
    """
    fields = {name: rng.choice(values) for name, values in CHOICES.items()}
    if rng.random() < 0.2:
        fields |= {name: rng.choice(values) for name, values in MEDIA.items()}
    count = rng.choice((2, 3, 4, 6, 8, 10, 14, 20, 30, 40))
    fields |= {"devices.count": count, "seed": rng.randrange(1000)}
    if count > 10 and fields["plan.aggregation"] in ("gossip", "metropolis"):
        fields["plan.aggregation"] = "auto"  # they take seconds to price on large sparse graphs
    if fields["network.topology"] in ("star", "path"):
        star = fields["network.topology"] == "star"
        fields["network.topology"] = [[0 if star else i, i + 1] for i in range(count - 1)]
    fields["network.area_m"] = rng.choice((30.0, 100.0, 500.0))
    fields["network.bandwidth_hz"] = 10 ** rng.uniform(5.0, 7.3)
    fields |= _budget(rng, count)
    fields |= _measured(rng, count, folder)
    traced = _traces(rng, count, folder)
    fields |= traced
    walked = fields["network.fading"] != "none" or fields["plan.on_depletion"] == "leave"
    if isinstance(fields["plan.iterations"], str) and (walked or traced):
        fields["plan.zeta"] = 60.0  # such plans are made iteration by iteration
    try:
        return Scenario.preset(rng.choice(("default", "adaptive"))).override(fields)
    except ScenarioError:
        return None


def _budget(rng: random.Random, count: int) -> dict[str, Any]:
    joules = 10 ** rng.uniform(-2.0, 2.7)
    held = rng.choice(("all", "all", "range", "each"))
    battery: Any = joules
    if held == "range":
        battery = [joules, joules * rng.uniform(1.1, 5.0)]
    elif held == "each":
        battery = {"values": [joules * rng.uniform(1.0, 9.0) for _ in range(count)]}
    fields: dict[str, Any] = {"budget.energy_j": battery}
    limits = rng.choice(("deadline", "total", "total", "both"))
    if limits != "total":
        fields["budget.deadline_s"] = 10 ** rng.uniform(-2.5, 1.0)
    else:
        fields["budget.deadline_s"] = None
    fields["budget.total_s"] = None if limits == "deadline" else 10 ** rng.uniform(-1.5, 1.3)
    return fields


def _measured(rng: random.Random, count: int, folder: Path) -> dict[str, Any]:
    """Measured figures, in a table or as numbers."""
    fields: dict[str, Any] = {}
    if rng.random() < 0.2:
        fields["devices.idle_w"] = 10 ** rng.uniform(-3.0, 0.5)
    if rng.random() < 0.15:
        fields["devices.receive_j_per_bit"] = 10 ** rng.uniform(-9.0, -7.0)
    if rng.random() < 0.15:
        fields["devices.overhead_s"] = 10 ** rng.uniform(-4.0, -2.0)
    if rng.random() < 0.25:
        rows = ["name,step_s,step_s_low,step_s_high,step_j"]
        for device in range(count):
            step_s = rng.uniform(0.5e-3, 3e-3)
            figures = (step_s, 0.9 * step_s, 1.1 * step_s, step_s * rng.uniform(1.0, 8.0))
            rows.append(f"node{device}," + ",".join(f"{one:.6g}" for one in figures))
        path = folder / "devices.csv"
        path.write_text("\n".join(rows) + "\n")
        fields["devices.table"] = str(path)
        if rng.random() < 0.5:
            fields["plan.safety"] = 0.9
    return fields


def _traces(rng: random.Random, count: int, folder: Path) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if rng.random() < 0.1:
        rows = [
            f"{t},{device},{int(rng.random() < 0.8)}"
            for t in range(1, 20, 3)
            for device in range(count)
        ]
        path = folder / "there.csv"
        path.write_text("t,device,available\n" + "\n".join(rows) + "\n")
        fields["devices.availability"] = str(path)
    if rng.random() < 0.1:
        fields["devices.harvest_w"] = 10 ** rng.uniform(-2.0, 0.5)
    if rng.random() < 0.1 and count > 3:
        fields["devices.leave"] = [[rng.randrange(count), rng.randint(2, 10)]]
    return fields


# Following --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Followed:
    """One change that was offered and followed.

    Attributes:
        name: what is changed, and whether a refusal or a plan offers it.
        true: planning with it does what was printed.
        detail: what came instead.
    """

    name: str
    true: bool
    detail: str = ""


def follow(scenario: Scenario) -> Iterator[Followed]:
    """Plan a scenario, and follow what the refusal or the plan advises."""
    try:
        plan = joulemesh.plan(scenario)
    except JoulemeshError as refusal:
        yield from _remedies(scenario, refusal)
        return
    now = {"rounds": int(plan.rounds.sum()), "iterations": plan.iterations}
    for change in plan.answer.tried:
        name = f"advice: {_name(change.edit)}"
        try:
            made = joulemesh.plan(apply_edits(scenario, [change.edit]))
        except JoulemeshError as refusal:
            yield Followed(name, False, str(refusal))
            continue
        got = {"rounds": int(made.rounds.sum()), "iterations": made.iterations}[change.measure]
        true = got == change.amount
        if change is plan.answer.change:
            true &= f"({got:,} in place of {now[change.measure]:,})" in plan.answer.text
            true &= in_words([change.edit], plan.names)[1:] in plan.answer.text
        yield Followed(name, true, f"{got:,} in place of {change.amount:,} {change.measure}")


def _remedies(scenario: Scenario, refusal: JoulemeshError) -> Iterator[Followed]:
    if not refusal.remedies:
        yield Followed(f"{type(refusal).__name__} that names no change", True, str(refusal))
    for remedy in refusal.remedies:
        name = f"remedy: {' and '.join(map(_name, remedy))}"
        printed = " and ".join(edit.text for edit in remedy)
        changed = apply_edits(scenario, map(_printed, remedy))
        try:
            joulemesh.plan(changed)
            yield Followed(name, printed in str(refusal))
        except JoulemeshError as later:
            # Fields that contradict each other hide whether the budgets suffice.
            again = isinstance(refusal, ScenarioError) and _ends(changed, later)
            yield Followed(name, again, f"{refusal} -> {later}")


def _ends(scenario: Scenario, refusal: JoulemeshError) -> bool:
    """Does following refusals one after another end in a plan, or where none names a change?"""
    for _ in range(_MOST_STEPS):
        if not refusal.remedies:
            return True
        scenario = apply_edits(scenario, map(_printed, refusal.remedies[0]))
        try:
            joulemesh.plan(scenario)
            return True
        except JoulemeshError as later:
            refusal = later
    return False


def _printed(edit: Edit) -> Edit:
    """The change with the figure that its text prints."""
    if not isinstance(edit.value, float):
        return edit
    return replace(edit, value=float(edit.text.rpartition(" ")[2]))


def _name(edit: Edit) -> str:
    return f"{edit.how} {edit.field}"


def table(found: list[Followed]) -> str:
    """How often each kind was offered, and how often it was true."""
    offered, true = (
        Counter(one.name for one in found),
        Counter(one.name for one in found if one.true),
    )
    width = max(map(len, offered), default=0)
    rows = [
        f"{name:{width}}  {number:7}  {true[name]:7}" for name, number in sorted(offered.items())
    ]
    return "\n".join([f"{'change':{width}}  offered  true", *rows])


def drawn(count: int, seed: int, folder: Path) -> Iterator[Scenario]:
    """Some random scenarios."""
    made = 0
    for number in range(10 * count):
        own = folder / str(number)
        own.mkdir()
        scenario = draw(random.Random(1000 * seed + number), own)
        if scenario is not None:
            yield scenario
            made += 1
        if made == count:
            return


def main(count: int = 500, seed: int = 0) -> int:
    """Follow, print, and say what did not come true."""
    found: list[Followed] = []
    with tempfile.TemporaryDirectory() as folder:
        for scenario in drawn(count, seed, Path(folder)):
            found += follow(scenario)
    print(table(found))
    wrong = [one for one in found if not one.true]
    for one in wrong:
        print(f"\n{one.name}: {one.detail}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
