"""Commands, pages and fleets of `tools.same_bits`: what they print as JSON, and what they write."""

from __future__ import annotations

__all__ = ["COMMANDS", "TORCH", "WITHOUT", "Command", "Fleets", "fleets", "torch_version"]

import io
import json
import os
import re
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from tools.same_bits_cases import columns
from tools.same_bits_figures import Values, plain

_SCENARIO = """
[devices]
count = 4
cycles_per_sample = [1e4, 3e4]

[network]
profile = "wifi"

[budget]
energy_j = [0.5, 2.0]
total_s = 0.4

[plan]
iterations = 6

[training]
model = "logistic"
l2 = 0.01
eval_every = 2
"""

WITHOUT = {
    "calibrate links": "needs a second machine",
    "deploy check": "needs devices that listen",
    "deploy emulate": "needs the rights of the administrator",
}
"""Commands that print JSON and are in no case."""


# What is neither the command line nor a file -----------------------------------------------------


def _virtual_fleet(seed: int) -> Any:
    """How a virtual fleet went: its broken rule, events, views, seconds, complete, digest."""
    from joulemesh.testing.fleets.cases import case_of
    from joulemesh.testing.fleets.fleet import simulate

    return simulate(case_of(seed))


# -------------------------------------------------------------------------------------------------


def _joulemesh(*words: str) -> str:
    """What a command prints; it may end with a refusal, whose code comes first then."""
    printed, said = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["joulemesh", *words]
    try:
        with redirect_stdout(printed), redirect_stderr(said):
            runpy.run_module("joulemesh", run_name="__main__")
    except SystemExit as end:
        if end.code not in (None, 0, 1, 3):
            raise RuntimeError(f"joulemesh {' '.join(words)}: {said.getvalue()}") from None
    finally:
        sys.argv = before
    return printed.getvalue()


def _printed(*words: str, leave_out: str = "-") -> dict[str, Any]:
    """The JSON that a command prints; of a list, the number and the rows."""
    found = json.loads(_joulemesh(*words, "--json"))
    told = plain(found, re.compile(leave_out))
    return told if isinstance(told, dict) else {"rows": told}


def _names(tree: Any) -> Any:
    """A tree's keys alone, where the values depend on machine and hour."""
    if isinstance(tree, Mapping):
        return {key: _names(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_names(tree[0])] if tree else []
    return ""


def _charts(page: Path) -> dict[str, Any]:
    """What the charts of a page are drawn from."""
    data = re.search(
        r'<script type="application/json" id="data">(.*?)</script>',
        page.read_text("utf-8"),
        re.DOTALL,
    )
    if data is None:
        raise ValueError(f"{page.name} has no data")
    told: dict[str, Any] = plain(json.loads(data[1]))
    return told


def _table(path: str) -> dict[str, Any]:
    return columns(Path(path).read_text("utf-8"))


def _arrays(path: str) -> dict[str, Any]:
    from safetensors.numpy import load_file

    return dict(load_file(path))


@contextmanager
def _at(folder: Path) -> Any:
    """In a folder, with a cache of its own and the same terminal everywhere."""
    before, own = Path.cwd(), {"XDG_CACHE_HOME": str(folder / "cache"), "COLUMNS": "80"}
    kept = {name: os.environ.get(name) for name in own}
    os.chdir(folder)
    os.environ |= own
    try:
        yield
    finally:
        os.chdir(before)
        for name, value in kept.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


@dataclass(frozen=True)
class Command:
    """Some commands, one after another in a folder with a scenario.

    Attributes:
        name: unique.
        does: gives what is measured, by part and name.
        covers: the commands whose JSON is measured.
    """

    name: str
    does: Callable[[], Values]
    covers: Sequence[str] = ()

    def measure(self, folder: Path) -> Values:
        """Run them.

        Args:
            folder: an empty folder.

        Returns:
            What came out, by part and name.
        """
        with _at(folder):
            Path("small.toml").write_text(_SCENARIO, "utf-8")
            return self.does()


def _lists() -> Values:
    return {
        "methods": _printed("methods"),
        "metrics": _printed("metrics"),
        "profiles": _printed("profiles"),
        "profile": _printed("profiles", "wifi"),
        "schema": plain(json.loads(_joulemesh("schema"))),
    }


def _plan() -> Values:
    leave_out = "fields|kinds"
    return {
        "plan": _printed("plan", "small.toml"),
        "studio": _printed("studio", "small.toml", leave_out=leave_out),
        "studio, refused": _printed(
            "studio", "small.toml", "--set", "budget.energy_j=1e-9", leave_out=leave_out
        ),
        "studio, moving": _printed(
            "studio", "small.toml", "--set", "network.fading=rayleigh", leave_out=leave_out
        ),
    }


def _run() -> Values:
    return {
        "run": _printed("run", "small.toml", "--seeds", "2", "--out", "run"),
        "verify": _printed("verify", "run"),
        "cite": _printed("cite", "run"),
        "charts": _charts(Path("run/report.html")),
        "metrics.csv": _table("run/metrics.csv"),
        "ledger.csv": _table("run/ledger.csv"),
        "model": _arrays("run/model.safetensors"),
    }


def _run_of_a_method() -> Values:
    said = _printed("run", "small.toml", "--method", "skiptrain", "--out", "run")
    return {
        "run": said,
        "charts": _charts(Path("run/report.html")),
        "metrics.csv": _table("run/metrics.csv"),
    }


def _worlds() -> Values:
    said = _printed("run", "small.toml", "--worlds", "2", "--out", "run")
    return {
        "run": said,
        "summary.csv": _table("run/summary.csv"),
        "metrics.csv": _table("run/world-1/metrics.csv"),
    }


def _compare() -> Values:
    return {
        "compare": _printed(
            "compare", "small.toml", "--methods", "adaptive,fixed:2,d-psgd", "--seeds", "2",
            "--out", "study"),
        "verify": _printed("verify", "study"),
        "cite": _printed("cite", "study"),
        "charts": _charts(Path("study/report.html")),
        "comparison.csv": _table("study/comparison.csv"),
        "table.csv": _table("study/table.csv"),
    }  # fmt: skip


def _rates() -> Values:
    return {
        "compare": _printed(
            "compare", "small.toml", "--methods", "adaptive,d-psgd", "--seeds", "2", "--worlds",
            "2", "--lr-grid", "0.05,0.2", "--tune-seeds", "1", "--out", "study"),
        "worlds.csv": _table("study/worlds.csv"),
        "charts": _charts(Path("study/report.html")),
    }  # fmt: skip


def _sweep() -> Values:
    return {
        "sweep": _printed(
            "sweep", "small.toml", "--vary", "training.alpha=0.1,1", "--vary",
            "devices.count=3,4", "--methods", "adaptive,fixed:2", "--seeds", "2", "--out", "swept"),
        "charts": _charts(Path("swept/report.html")),
        "table.csv": _table("swept/table.csv"),
        "summary.csv": _table("swept/summary.csv"),
        "verify": _printed("verify", "swept"),
    }  # fmt: skip


def _tune() -> Values:
    said = _printed(
        "tune", "small.toml", "--seeds", "2", "--search-seeds", "1", "--out", "tuned",
        "--try", "plan.aggregation=[tree, ring-chunked]", "--try", "plan.exchange=exact",
        "--try", "plan.rounds=[uniform, spread]", "--try", "plan.iterations=[6, 12]",
        "--try", "training.learning_rate=[0.05, 0.2]")  # fmt: skip
    best = plain(_toml("tuned/best.toml"))
    return {
        "tune": said,
        "best": best,
        "candidates.csv": _table("tuned/candidates.csv"),
        "charts": _charts(Path("tuned/report.html")),
        "verify": _printed("verify", "tuned"),
    }


def _toml(path: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(Path(path).read_text("utf-8"))


def _constants() -> Values:
    return {
        "estimate": _printed("estimate", "small.toml"),
        "bounds": _printed("bounds", "small.toml"),
        "reproduce": _printed("reproduce", "table1", "--quick", "--out", "redone"),
    }


def _machine() -> Values:
    """Of what is measured of the machine, the names of the figures."""
    doctor = json.loads(_joulemesh("doctor", "--json"))
    words = ("calibrate", "device", "small.toml", "--quick", "--samples", "3", "--watts", "5")
    device = json.loads(_joulemesh(*words, "--json"))
    return {"doctor": {"names": _names(doctor)}, "calibrate device": {"names": _names(device)}}


def _fleet() -> Values:
    """Three processes whose joules are counted by the plan's prices."""
    timed = "iteration_s|seconds|.*elapsed_s|late|worst|deadline|measured|.*bps|at|.*_age_s"
    local = _printed("deploy", "local", "small.toml", "--set", "devices.count=3", "--out", "fleet",
                     "--patience", "60s", leave_out=timed)  # fmt: skip
    receipt = plain(json.loads(Path("fleet/receipt.json").read_text("utf-8")),
                    re.compile(f"{timed}|fleet|plan|meter"))  # fmt: skip
    table = {name: column for name, column in _table("fleet/receipt.csv").items()
             if not re.fullmatch("measured.*_s|meter", name)}  # fmt: skip
    model = _arrays("fleet/devices/device-1/model/model.safetensors")
    names = {
        "collect": json.loads(_joulemesh("deploy", "collect", "fleet", "--json")),
        "report": json.loads(_joulemesh("deploy", "report", "fleet", "--json")),
        "status": json.loads(_joulemesh("deploy", "status", "fleet", "--json")),
        "watch": json.loads(_joulemesh("watch", "fleet", "--json")),
    }
    charts = _charts(Path("fleet/report.html"))
    del charts["learning"]["points"][-1]["seconds"]  # the metered ones
    shown = ("names", "metered", "learning", "gantt", "flow")
    return {
        "local": local, "receipt": receipt, "receipt.csv": table, "model": model,
        "charts": {name: charts[name] for name in shown},
        **{name: {"names": _names(tree)} for name, tree in names.items()},
    }  # fmt: skip


COMMANDS = (
    Command("command: lists", _lists, ("methods", "metrics", "profiles")),
    Command("command: plan and studio", _plan, ("plan", "studio")),
    Command("command: run", _run, ("run", "verify", "cite")),
    Command("command: run of a method", _run_of_a_method),
    Command("command: run in worlds", _worlds),
    Command("command: compare", _compare, ("compare",)),
    Command("command: compare in worlds, at several rates", _rates),
    Command("command: sweep", _sweep, ("sweep",)),
    Command("command: tune", _tune, ("tune",)),
    Command("command: constants, reproduction", _constants, ("estimate", "bounds", "reproduce")),
    Command("command: the machine", _machine, ("doctor", "calibrate device")),
    Command("command: a fleet", _fleet, (
        "deploy local", "deploy collect", "deploy report", "deploy status", "watch")),
)  # fmt: skip


@dataclass(frozen=True)
class Fleets:
    """Virtual fleets, by their seeds.

    Attributes:
        seeds: which.
    """

    seeds: range
    together = 25

    @property
    def name(self) -> str:
        """By the first and the last seed."""
        return f"fleets {self.seeds[0]} to {self.seeds[-1]}"

    def measure(self, folder: Path) -> Values:
        """Simulate them; a figure for each 25."""
        parts: dict[str, dict[str, Any]] = {}
        for first in self.seeds[:: self.together]:
            some = range(first, min(first + self.together, self.seeds.stop))
            ends = [_virtual_fleet(seed) for seed in some]
            parts[f"seeds {some[0]} to {some[-1]}"] = {
                "courses": [(end.broken, end.digest, end.views, *end.complete) for end in ends],
                "events": sum(end.events for end in ends),
                "seconds": sum(end.seconds for end in ends),
            }
        return parts


def fleets(number: int) -> list[Fleets]:
    """The seeds from 0, in parts that take a minute."""
    return [Fleets(range(k, min(k + 500, number))) for k in range(0, number, 500)]


# PyTorch -----------------------------------------------------------------------------------------


def torch_version() -> str:
    """Which PyTorch is installed; empty if none is."""
    try:
        return version("torch")
    except PackageNotFoundError:
        return ""


_MODULE = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.layers(x)
"""


def _prepare_torch() -> tuple[str, ...]:
    chance = np.random.default_rng(10)
    x = chance.normal(size=(500, 6)).astype(np.float32)
    y = (x[:, 0] * x[:, 1] > 0).astype(np.int64) + (x[:, 2] > 1)
    np.savez("mine.npz", x_train=x[:400], y_train=y[:400], x_test=x[400:], y_test=y[400:])
    Path("net.py").write_text(_MODULE, "utf-8")
    return ("small.toml", "--set", "training.model=net.py:Net", "--set",
            "training.dataset=mine.npz", "--set", "training.l2=0")  # fmt: skip


def _torch_run(*changes: str) -> Values:
    words = _prepare_torch()
    sets = [word for change in changes for word in ("--set", change)]
    said = _printed("run", *words, *sets, "--seeds", "2", "--out", "run")
    return {
        "run": said,
        "metrics.csv": _table("run/metrics.csv"),
        "ledger.csv": _table("run/ledger.csv"),
        "model": _arrays("run/model.safetensors"),
    }


def _torch_compare(*changes: str) -> Values:
    words = _prepare_torch()
    sets = [word for change in changes for word in ("--set", change)]
    methods = "adaptive,spread,fixed:2,inverse,balanced,d-psgd,fedavg,skiptrain,gossip-pga,merge"
    said = _printed("compare", *words, *sets, "--methods", methods, "--equal", "iterations",
                    "--seeds", "2", "--out", "study")  # fmt: skip
    return {"compare": said, "comparison.csv": _table("study/comparison.csv")}


TORCH = (
    Command("torch: run", _torch_run),
    Command("torch: adam, epochs, gossip, float64", partial(
        _torch_run, "training.optimizer=adam", "training.local_round=epoch",
        "training.precision=float64", "training.weights=samples", "plan.aggregation=metropolis",
        "plan.epsilon=0.3", "plan.rounds=fixed", "plan.fixed_rounds=1", "budget.energy_j=90",
        "budget.total_s=90")),
    Command("torch: methods", _torch_compare),
    Command("torch: methods, packets are lost", partial(
        _torch_compare, "network.packet_error=0.2", "network.tries=2")),
)  # fmt: skip
