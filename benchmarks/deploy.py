"""Fleets of real processes: `python -m benchmarks deploy`, or some parts of it:
`python -m benchmarks.deploy [links | exchanges | faults | local]`.

links       goodput of single messages on limited links (root)
exchanges   seconds of whole exchanges on limited links, beside the plan's (root)
faults      devices killed and frozen at random moments
local       seconds of `joulemesh deploy local`, from the command to the report
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import deploy_faults, deploy_links, deploy_local
from benchmarks.common import OUT, machine, publish, table

TITLE = "Fleets of real processes"
PARTS: dict[str, Callable[[Path], list[dict[str, Any]]]] = {
    "links": deploy_links.measure_links,
    "exchanges": deploy_links.measure_exchanges,
    "faults": deploy_faults.measure,
    "local": deploy_local.measure,
}


def main() -> None:
    """Measure the parts that are named, or all; the others keep their last figures."""
    names = sys.argv[1:] if Path(sys.argv[0]).stem == "deploy" else []
    unknown = next((name for name in names if name not in PARTS), None)
    if unknown is not None:
        sys.exit(f"unknown part {unknown!r}; there are {', '.join(PARTS)}")
    kept = OUT / "deploy.json"
    record: dict[str, Any] = json.loads(kept.read_text("utf-8")) if kept.exists() else {}
    record.update(machine=machine("jax", "cryptography"))
    for name in names or PARTS:
        record.setdefault("load", {})[name] = os.getloadavg()[0]
        with tempfile.TemporaryDirectory(prefix="joulemesh-") as place:
            record[name] = PARTS[name](Path(place))
    publish("deploy", TITLE, page(record), record)


def page(record: dict[str, Any]) -> str:
    """The page's body."""
    shown = {"local": _local, "links": _links, "exchanges": _exchanges, "faults": _faults}
    cores, loads = record["machine"]["cores"], record["load"]
    return "\n\n".join(
        f"{show(record[name])}{_busy(loads[name], cores)}"
        for name, show in shown.items()
        if name in record
    )


def _busy(load: float, cores: int) -> str:
    """What to know of a part that was measured on a machine with other work to do."""
    if load < 0.5:
        return ""
    return (
        f"\n\nOther processes were at work when this was begun (a load of {load:.1f} on {cores} "
        "cores): seconds are longer than on a quiet machine, CPU seconds hardly."
    )


def _local(rows: list[dict[str, Any]]) -> str:
    header = [
        "devices",
        "iterations",
        "all s",
        "CPU s",
        "until all had started s",
        "largest difference",
    ]
    cells = [
        [
            f"{one['devices']}",
            f"{one['iterations']}",
            f"{one['seconds']:.1f}",
            f"{one['cpu_s']:.1f}",
            f"{one['started_s']:.1f}",
            f"{one['difference']:.1e}",
        ]
        for one in rows
    ]
    return (
        "## From the command to the report\n\n"
        "`joulemesh deploy local` on the default scenario: each device is a process with a "
        "certificate of its own, and all of them share this machine's cores. CPU seconds are those "
        "of all processes together, planning, simulation and report included. The largest "
        "difference is that of any device's parameters at the end from the simulated ones.\n\n"
        + table(header, cells)
    )


def _links(rows: list[dict[str, Any]]) -> str:
    sizes = sorted({one["megabytes"] for one in rows})
    rates = sorted({one["rate_mbps"] for one in rows})
    share = {(one["rate_mbps"], one["megabytes"]): one["goodput"] for one in rows}
    cells = [
        [f"{rate:g}", *(f"{100 * share[rate, size]:.1f} %" for size in sizes)] for rate in rates
    ]
    header = ["link Mbit/s", *(f"{size:g} MB" for size in sizes)]
    return (
        "## Goodput\n\n"
        "One message from one process to another, over mutual TLS, on a link limited by "
        "a token bucket that counts whole Ethernet frames: the payload's bits, over the seconds "
        "until it is acknowledged, as a share of the rate. TCP's and Ethernet's headers alone take "
        "4.4 %.\n\n" + table(header, cells)
    )


def _exchanges(rows: list[dict[str, Any]]) -> str:
    header = ["scheme", "model MB", "shortest message ms", "planned s", "measured s", "ratio"]
    header.append("goodput")
    cells = [
        [
            one["scheme"],
            f"{one['megabytes']:.2g}",
            f"{1000 * one['shortest_s']:.1f}",
            f"{one['planned_s']:.3f}",
            f"{one['measured_s']:.3f}",
            f"{one['ratio']:.3f}",
            f"{100 * one['goodput']:.0f} %",
        ]
        for one in rows
    ]
    return (
        "## Exchanges on limited links\n\n"
        "Six devices as processes in network namespaces (`joulemesh deploy emulate`), with links "
        f"of {min(one['slowest_mbps'] for one in rows):.0f} to "
        f"{max(one['fastest_mbps'] for one in rows):.0f} Mbit/s: seconds of an exchange, from when "
        "the last device has trained to when the last has finished, median over the iterations. "
        "Goodput is that of the worst link: payload over the seconds until it is acknowledged. "
        "Where the fastest link carries the shortest message in less time than a process needs to "
        "handle one (a few milliseconds on a quiet machine), the processes are measured rather "
        f"than the links: `plan.message_s = {deploy_links.HANDLING_S:g}` keeps chunks above that, "
        "and the rows with shorter messages show what happens without it.\n\n"
        + table(header, cells)
    )


def _faults(rows: list[dict[str, Any]]) -> str:
    header = ["run", "faults", "rejoined", "longest pause s", "overdrawn", "same bits", "views"]
    cells = [
        [
            one["name"],
            f"{one['faults']}",
            f"{one['rejoined']}",
            f"{one['longest_pause_s']:.1f}",
            f"{one['overdrawn']}",
            "yes" if one["same_bits"] else "no",
            f"{one['views']}",
        ]
        for one in rows
    ]
    lost = sum(not one["complete"] for one in rows)
    allowed = deploy_faults.PATIENCE_S + deploy_faults.GRACE_S
    return (
        "## Faults\n\n"
        f"Fleets of {deploy_faults.DEVICES_COUNT} processes that average exactly; a silent device "
        f"is suspected after {deploy_faults.PATIENCE_S:g} s. Killed processes are started again by "
        "their supervisor. The longest pause is the longest time between two commits of a device "
        "that had no fault itself, counted from the last fault before the second of them, and may "
        f"be {allowed:g} s. Runs lost: {lost}.\n\n" + table(header, cells)
    )


if __name__ == "__main__":
    main()
