"""Peers on the MNIST work, each in an environment of its own, in turn with ours.

A peer that cannot be installed or run is reported with the reason; the others go on.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.common import machine, progress, publish, table
from benchmarks.environments import TORCH, python_of
from benchmarks.work import MLP, Work, prepare, with_data
from benchmarks.workers import Worker, rate

TITLE = "Peers on the same work"
REPEATS = 5
OURS = "Joulemesh"
# Nothing of what is timed may call home.
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class Peer:
    """A contender: the name of its environment and module, what to install, and a remark."""

    module: str
    steps: tuple[Sequence[str], ...]
    remark: str


PEERS = {
    "PyTorch loop": Peer("torch_loop", (TORCH,), "all cores, data and parameters in place"),
    "pfl-research": Peer("pfl", (TORCH, ("pfl[pytorch]==0.6.0",)), "one process, all cores"),
    "gossipy": Peer("gossipy", (TORCH, ("gossipy-dfl==0.0.1",)), "one process, all cores"),
    "Flower": Peer("flower", (TORCH, ("flwr[simulation]==1.41.0",)), "an actor on each core"),
}


def start(name: str, peer: Peer, work: Work) -> Worker:
    progress(f"{name}: environment and first iteration")
    # The plain loop shares its environment with the training benchmark.
    python = python_of(peer.module.removesuffix("_loop"), *peer.steps)
    return Worker([python, "-m", f"benchmarks.peers.{peer.module}", work.dump()], QUIET)


def in_turn(work: Work, repeats: int) -> dict[str, dict[str, Any]]:
    """Run blocks of all contenders in turn; the blocks of each, its versions, why it failed."""
    found: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        command = [sys.executable, "-m", "benchmarks.ours", "serve", work.dump()]
        workers = {OURS: stack.enter_context(Worker(command))}
        for name, peer in PEERS.items():
            found[name] = {"remark": peer.remark, "blocks": []}
            try:
                workers[name] = stack.enter_context(start(name, peer, work))
            except RuntimeError as error:
                found[name]["failed"] = str(error)
        found[OURS] = {"remark": "", "blocks": []}
        for name, worker in workers.items():
            found[name]["versions"] = worker.versions
        for number in range(repeats):
            for name, worker in list(workers.items()):
                progress(f"block {number + 1} of {repeats}: {name}")
                try:
                    found[name]["blocks"].append(rate(worker.block()))
                except RuntimeError as error:
                    found[name]["failed"] = str(error)
                    del workers[name]
    return found


def summarise(found: dict[str, dict[str, Any]]) -> None:
    """Add medians, and the median over turns of how many times faster ours was."""
    for result in found.values():
        if result["blocks"]:
            result["device_steps_per_s"] = statistics.median(result["blocks"])
            # Blocks of the same turn; a peer that failed has fewer turns.
            pairs = zip(found[OURS]["blocks"], result["blocks"], strict=False)
            result["ours_is_times"] = statistics.median(ours / peer for ours, peer in pairs)


def row(name: str, result: dict[str, Any]) -> list[str]:
    versions = ", ".join(f"{k} {v}" for k, v in result.get("versions", {}).items() if v)
    failed = f"failed: {result['failed']}" if "failed" in result else ""
    remark = "; ".join(part for part in (result["remark"], failed) if part)
    if "device_steps_per_s" not in result:
        return [name, "", "", "", versions, remark]
    spread = f"{min(result['blocks']):,.0f} to {max(result['blocks']):,.0f}"
    speed, times = f"{result['device_steps_per_s']:,.0f}", f"{result['ours_is_times']:.1f}"
    return [name, speed, spread, "" if name == OURS else times, versions, remark]


def page(record: dict[str, Any]) -> str:
    found, work = record["contenders"], record["work"]
    header = ["contender", "device-steps/s", "from, to", "Joulemesh is times", "versions", "remark"]
    data = "noise of MNIST's shape (its files were not at hand)" if record["made"] else "MNIST"
    return (
        f"Device-steps per second in the steady state on {data}: {work['devices']} devices, MLP "
        f"784-200-10, batch {work['batch']}, {work['rounds']} rounds per iteration, "
        f"{work['iterations']} iterations a block, SGD at {work['learning_rate']}. Start-up, "
        "compilation and the first iteration are left out, and nobody evaluates in the timed part. "
        f"Contenders run a block in turn, {len(found[OURS]['blocks'])} times; figures are medians, "
        "the ratio that of the turns. Load average before the start: "
        f"{record['load_before']:.2f}.\n\n"
        "Same work, not the same algorithm: Joulemesh, the plain loop, Flower and pfl-research "
        "take the mean of all devices after each iteration (the latter two through their server); "
        "gossipy's nodes each send their model to one neighbour on a ring.\n\n"
        + table(header, [row(name, found[name]) for name in (OURS, *PEERS)])
    )


def main(*, quick: bool = False) -> None:
    load = os.getloadavg()[0]
    _, made = prepare(MLP.dataset)
    work, repeats = with_data(MLP), REPEATS
    if quick:
        work, repeats = replace(work, iterations=3), 2
    found = in_turn(work, repeats)
    summarise(found)
    record = {
        "machine": machine("jax", "jaxlib"),
        "load_before": load,
        "made": made,
        "work": asdict(work),
        "contenders": found,
    }
    publish("peers", TITLE, page(record), record, quick=quick)
