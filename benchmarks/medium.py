"""The comparison again: messages with a price in all seven scenarios, other media in two of them.

Prices (joules, seconds, iterations that the budget pays for) need no training and take seconds;
accuracies want an accelerator. Every method has the learning rate that was chosen for it on
orthogonal links (`benchmarks.plans`). Runs are cached by content, so it can be stopped and started
again; what has been made is on the page.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import machine, progress, table
from benchmarks.plans import FOLDER, RESULTS, SCENARIOS, scenario_of
from joulemesh.base.errors import InfeasibleError
from joulemesh.scenario import Scenario
from joulemesh.scenario.profiles import radio

IN_ALL_MEDIA = ("fashion-ring-0.1", "fashion-geometric-50")
RANGE_M = 150.0
SHARED = {"network.medium": "shared", "network.interference_m": RANGE_M}
# What a message costs besides its bits, and a radio besides sending, by the Wi-Fi profile; the
# links themselves stay those of the comparison. The plain tree would take longer than the deadline,
# so that all methods with an exact average may use the scheme that is best.
PACKETS = {
    "plan.aggregation": "auto",
    **{f"network.{name}": radio("wifi").network[name] for name in ("packet_bits", "header_bits")},
    "network.packet_s": radio("wifi").network["packet_s"],
    **{f"devices.{name}": radio("wifi").devices[name] for name in ("receive_power_w", "idle_w")},
}
PRICED = "orthogonal, Wi-Fi packets"
MEDIA: dict[str, dict[str, Any]] = {
    "orthogonal": {},
    PRICED: PACKETS,
    "half duplex, Wi-Fi packets": {**PACKETS, "network.duplex": "half"},
    "orthogonal, broadcast": {"network.broadcast": True},
    "shared": SHARED,
    "shared, broadcast": {**SHARED, "network.broadcast": True},
}
METHODS = (
    "spread",
    "spread:50",
    "spread:100",
    "spread:200",
    "spread:400",
    "spread:700",
    "adaptive",
    "fixed:3",
    "gossip-learning",
    "balanced",
    "pens",
    "d-psgd",
    "skiptrain:tau=1",
    "gossip-pga",
    "merge",
    "led:3",
)
AS = {"spread:50": "spread:200", "spread:100": "spread:200"}  # not tried on orthogonal links
RECORD = RESULTS / "medium.json"
PAGE = FOLDER / "medium.md"
KEPT = ("accuracy", "accuracy_ci95", "device_accuracy", "device_accuracy_ci95")


def media_of(name: str) -> list[str]:
    """The media in which a scenario is compared."""
    return list(MEDIA) if name in IN_ALL_MEDIA else ["orthogonal", PRICED]


def in_medium(name: str, medium: str, **changes: Any) -> Scenario:
    """A scenario of the comparison in a medium."""
    return scenario_of(name, **MEDIA[medium], **changes)


# Prices -------------------------------------------------------------------------------------------


def price(name: str, medium: str, method: str) -> dict[str, Any]:
    """What a method's exchanges cost, and how long the budget lasts."""
    from joulemesh.methods import build
    from joulemesh.methods.setting import Setting

    setting = Setting(in_medium(name, medium), "budget")
    try:
        made = build(method, setting)
    except InfeasibleError as error:
        return {"status": "infeasible", "why": str(error)}
    ledger, n = made.reserve, made.reserve.iterations
    rounds_s = made.schedule.rounds * setting.world.devices.round_latency_s
    train_s = np.broadcast_to(rounds_s, (n, setting.devices)).max(axis=1)
    return {
        "status": "priced",
        "iterations": n,
        "exchange_j": float(ledger.exchange_j.sum() / n),
        "exchange_s": float((ledger.seconds - train_s).sum() / n),
        "energy_j": ledger.total_j,
        "time_s": float(ledger.seconds.sum()),
        "bits": float(ledger.bits.sum() / n),
    }


# Accuracies ---------------------------------------------------------------------------------------


def rates(name: str) -> dict[str, float]:
    """The learning rate that was chosen for each method, on orthogonal links."""
    source = RESULTS / f"{name}-plans-budget-rates.csv"
    with open(source, newline="", encoding="utf-8") as file:
        chosen = [row for row in csv.DictReader(file) if row["chosen"] == "True"]
    found = {row["method"]: float(row["learning_rate"]) for row in chosen}
    return {method: found[AS.get(method, method)] for method in METHODS}


def train(
    name: str,
    medium: str,
    methods: tuple[str, ...],
    seeds: int,
    cache: str | None,
    changes: dict[str, Any],
) -> dict[str, dict[str, Any]]:
    """Accuracies of methods on one scenario in one medium.

    A rate was chosen on other seeds and with ideal messages, so that it may diverge here: then half
    of it is tried, until no seed diverges.
    """
    import joulemesh

    rate, found, pending = rates(name), {}, set(methods)
    while pending:
        one = max(rate[method] for method in pending)
        some = [method for method in methods if method in pending and rate[method] == one]
        scenario = in_medium(name, medium, **{"training.learning_rate": one, **changes})
        study = joulemesh.compare(scenario, some, equal="budget", seeds=seeds, cache=cache)
        for row in study.table():
            found[row["method"]] = {
                "status": row["status"],
                "learning_rate": one,
                **{key: row[key] for key in KEPT},
            }
            if row["status"] == "diverged":
                rate[row["method"]] /= 2
            else:
                pending.remove(row["method"])
    return found


# The command --------------------------------------------------------------------------------------


def measure(
    only: str, methods: tuple[str, ...], seeds: int, cache: str | None, changes: dict[str, Any]
) -> None:
    """Train what is asked for, and record each part as soon as it is made."""
    import jax

    for name in SCENARIOS:
        for medium in media_of(name):
            if only not in f"{name}, {medium}":
                continue
            progress(f"{name}, {medium}")
            made = train(name, medium, methods, seeds, cache, changes)
            record = _read()
            record["trained"][f"{name}, {medium}"] = {
                "accelerator": jax.local_devices()[0].device_kind,
                "machine": machine("jax"),
                "seeds": seeds,
                "changes": changes,
                "methods": made,
            }
            _write(record)


def price_all() -> None:
    """Price every method in every medium."""
    record = _read()
    record["machine"] = machine()
    record["prices"] = {}
    for name in SCENARIOS:
        for medium in media_of(name):
            progress(f"prices: {name}, {medium}")
            record["prices"][f"{name}, {medium}"] = {
                method: price(name, medium, method) for method in METHODS
            }
    _write(record)


def _read() -> dict[str, Any]:
    if not RECORD.is_file():
        return {"prices": {}, "trained": {}}
    found: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return found


def _write(record: dict[str, Any]) -> None:
    RECORD.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def main() -> None:
    """Measure what is asked for, and write the page."""
    parser = argparse.ArgumentParser("python -m benchmarks.medium")
    parser.add_argument("--train", action="store_true", help="accuracies, too: wants a GPU")
    parser.add_argument(
        "--only", default="", help='of the training alone: "NAME, MEDIUM" contains this'
    )
    parser.add_argument("--methods", default=",".join(METHODS), help="of the training")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--cache", default=None)
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE")
    parser.add_argument("--page", action="store_true", help="only write the page again")
    arguments = parser.parse_args()
    if not arguments.page:
        if not arguments.only:
            price_all()
        if arguments.train:
            from joulemesh.cli.common import field_and_value

            changes = dict(field_and_value(text) for text in arguments.set)
            methods = tuple(arguments.methods.split(","))
            measure(arguments.only, methods, arguments.seeds, arguments.cache, changes)
    for path, text in pages().items():
        path.write_text(text, "utf-8")


# The page -----------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """medium.md, from the record."""
    record, where = _read(), _read()["machine"]
    parts = [
        "# The same comparison where messages have a price, in other media, and with broadcast",
        "",
        f"Prices made by `python -m benchmarks.medium` on {where['cores']} cores of "
        f"{where['processor']}; accuracies by `python -m benchmarks.medium --train`.",
        "",
        "The seven scenarios of the [comparison](README.md), with the same batteries and the same "
        "total time, over links on which every packet has a price; and two of them, a ring and a "
        "geometric graph, in six media. *Wi-Fi packets*: every packet has the headers, the "
        "channel access and the acknowledgement of the radio profile `wifi`, and receiving and "
        "idling draw its power (`network.header_bits`, `network.packet_s`, "
        "`devices.receive_power_w`, `devices.idle_w`); links keep their rates, and every method "
        "that averages exactly may use the scheme with the best price, since the plain tree would "
        "miss the deadline. *Half duplex*: a device serves one link at a time. *Shared*: "
        "transmissions conflict that have a "
        f"device in common, or of which one's sender is within {RANGE_M:g} m of the other's "
        "receiver, and conflicting ones take different slots (`network.medium`, "
        "`network.interference_m`). *Broadcast*: one transmission serves all neighbours that are "
        "to get the same bits (`network.broadcast`). The [physics](../explanation/medium.md) "
        "behind it.",
    ]
    parts += ["", *_summary(record)]
    for name in SCENARIOS:
        parts += ["", f"## {name}", "", _exchanges(record, name), "", _lasting(record, name)]
        trained = _accuracies(record, name)
        if trained:
            parts += ["", trained]
    return {PAGE: "\n".join([*parts, ""])}


def _summary(record: dict[str, Any]) -> list[str]:
    """All scenarios with ideal messages and with those of Wi-Fi, one row each."""
    rows = []
    for name in SCENARIOS:
        found = record["trained"].get(f"{name}, {PRICED}")
        if found is None:
            continue
        ran = {key: one for key, one in found["methods"].items() if one["status"] == "ran"}
        tuned = [key for key in ran if key.startswith("spread:")]
        rivals = [key for key in ran if not key.startswith("spread") and key != "adaptive"]
        free = dict(_ideal(name))
        nearest, best = (
            max(some, key=lambda key: float(ran[key]["accuracy"])) for some in (rivals, tuned)
        )
        rows.append(
            [
                name,
                f"{100 * max(free[key] for key in free if key.startswith('spread')):.1f}",
                f"{100 * free['adaptive']:.1f}" if "adaptive" in free else "diverged",
                _percent(found["methods"]["spread"]),
                f"{_percent(ran[best])} ({best})",
                _percent(found["methods"]["adaptive"]),
                f"{_percent(ran[nearest])} ({nearest})",
            ]
        )
    return [
        "## All scenarios",
        "",
        "Test accuracy of the mean model in per cent. Ideal messages cost their bits alone; the "
        "best of the spread plans there is the one of the comparison. The numbers of iterations "
        "tried with the packets of Wi-Fi are those of the tables below. Learning rates were chosen "
        "with ideal messages, and halved until no seed diverged. "
        f"{_origin(record, PRICED)}",
        "",
        table(
            [
                "scenario",
                "ideal: spread plan",
                "ideal: adaptive",
                "Wi-Fi: spread, auto",
                "Wi-Fi: best spread:n",
                "Wi-Fi: adaptive",
                "Wi-Fi: nearest other method",
            ],
            rows,
        ),
    ]


def _ideal(name: str) -> Iterator[tuple[str, float]]:
    """Methods and their accuracies in the comparison with ideal messages."""
    with open(RESULTS / f"{name}-plans-budget.csv", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["status"] == "ran":
                yield row["method"], float(row["accuracy"])


def _percent(one: dict[str, Any] | None, key: str = "accuracy") -> str:
    if one is None or one["status"] != "ran":
        return "–" if one is None else str(one["status"])
    half = one[f"{key}_ci95"]
    return f"{100 * one[key]:.1f}" + (f" ± {100 * half:.1f}" if half else "")


def _exchanges(record: dict[str, Any], name: str) -> str:
    def cell(one: dict[str, Any]) -> str:
        if one["status"] != "priced":
            return str(one["status"])
        return f"{one['exchange_j']:.3g} J, {1000 * one['exchange_s']:.3g} ms"

    return "**An exchange: joules of all devices, and milliseconds.**\n\n" + _by_medium(
        record["prices"], name, cell
    )


def _lasting(record: dict[str, Any], name: str) -> str:
    def cell(one: dict[str, Any]) -> str:
        if one["status"] != "priced":
            return str(one["status"])
        return f"{one['iterations']:,} in {one['time_s']:.1f} s, {one['energy_j']:,.0f} J"

    return "**Iterations that the budget pays for.**\n\n" + _by_medium(record["prices"], name, cell)


def _by_medium(found: dict[str, Any], name: str, cell: Any) -> str:
    media = [medium for medium in MEDIA if f"{name}, {medium}" in found]
    rows = [
        [method, *(cell(found[f"{name}, {medium}"].get(method)) for medium in media)]
        for method in METHODS
    ]
    return table(["method", *media], rows)


def _accuracies(record: dict[str, Any], name: str) -> str:
    found = {key: one["methods"] for key, one in record["trained"].items() if key.startswith(name)}
    if not found:
        return ""

    def cell(one: dict[str, Any] | None) -> str:
        own, mean = (_percent(one, key) for key in ("device_accuracy", "accuracy"))
        return mean if mean == own else f"{mean} (own {own})"

    said = [
        f"**Test accuracy in per cent**: the mean model, and devices' own. {_origin(record, name)}"
    ]
    said += ["", _by_medium(found, name, cell), "", _winners(record, name)]
    return "\n".join(said)


def _origin(record: dict[str, Any], part: str) -> str:
    """Where the accuracies of the comparisons whose names contain a part come from."""
    words = {
        f"{one['seeds']} seeds on one {one['accelerator']}"
        + "".join(f", {field} = {value}" for field, value in one["changes"].items())
        for key, one in record["trained"].items()
        if part in key
    }
    return f"{'; '.join(sorted(words))}."


def _winners(record: dict[str, Any], name: str) -> str:
    """Who is ahead in each medium, and who is within the interval."""
    lines = []
    for medium in MEDIA:
        one = record["trained"].get(f"{name}, {medium}")
        if one is None:
            continue
        ran = {key: row for key, row in one["methods"].items() if row["status"] == "ran"}
        best = max(ran, key=lambda key: float(ran[key]["accuracy"]))
        near = [
            key
            for key, row in ran.items()
            if key != best
            and ran[best]["accuracy"] - row["accuracy"]
            <= (ran[best]["accuracy_ci95"] or 0) + (row["accuracy_ci95"] or 0)
        ]
        also = f"; intervals that overlap: {', '.join(near)}" if near else ""
        lines.append(f"- {medium}: **{best}**, {100 * ran[best]['accuracy']:.1f} %{also}.")
    return "\n".join(["Ahead by the mean model:", "", *lines])


if __name__ == "__main__":
    main()
