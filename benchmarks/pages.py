"""Pages of docs/benchmarks, written again from the records that lie beside them."""

from __future__ import annotations

import json

from benchmarks import (
    accelerator_page,
    auto,
    bits,
    clocks,
    consensus,
    deploy,
    drag,
    faults,
    frontier,
    install,
    long,
    overhead,
    peers,
    planner,
    power,
    scale,
    slots,
    studio,
    torch_page,
    torch_threads,
    training,
    training_page,
    trees,
    watching,
)
from benchmarks.common import OUT, page_text

PAGES = {
    "accelerator": (accelerator_page.TITLE, accelerator_page.page),
    "planner": (planner.TITLE, planner.page),
    "training": (training.TITLE, training_page.page),
    "peers": (peers.TITLE, peers.page),
    "scale": (scale.TITLE, scale.page),
    "overhead": (overhead.TITLE, overhead.page),
    "faults": (faults.TITLE, faults.page),
    "trees": (trees.TITLE, trees.page),
    "drag": (drag.TITLE, drag.page),
    "slots": (slots.TITLE, slots.page),
    "power": (power.TITLE, power.page),
    "auto": (auto.TITLE, auto.page),
    "bits": (bits.TITLE, bits.page),
    "clocks": (clocks.TITLE, clocks.page),
    "frontier": (frontier.TITLE, frontier.page),
    "studio": (studio.TITLE, studio.page),
    "deploy": (deploy.TITLE, deploy.page),
    "long": (long.TITLE, long.page),
    "torch": (torch_page.TITLES["torch"], torch_page.page),
    "torch-gpu": (torch_page.TITLES["torch-gpu"], torch_page.page),
    "torch-threads": (torch_threads.TITLE, torch_threads.page),
    "watching": (watching.TITLE, watching.page),
    "consensus": (consensus.TITLE, consensus.page),
    "install": (install.TITLE, install.page),
}


def from_record(name: str) -> str:
    """A benchmark's page from its record: the same page that the measurement wrote."""
    title, page = PAGES[name]
    record = json.loads((OUT / f"{name}.json").read_text("utf-8"))
    return page_text(name, title, page(record), record)


def rewrite(name: str) -> None:
    (OUT / f"{name}.md").write_text(from_record(name), "utf-8")
