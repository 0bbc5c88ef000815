"""The run folder: everything about one run, each file whole or not at all.

scenario.toml  plan.npz  versions.json       written at the start
metrics.csv  timings.csv  checkpoint/        after every chunk
ledger.csv  model.safetensors  result.json  report.html    at the end
"""

from __future__ import annotations

import csv
import io
import json
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from joulemesh._version import __version__
from joulemesh.errors import ScenarioError
from joulemesh.files import write_bytes, write_text, write_whole
from joulemesh.planning.plan import Plan
from joulemesh.runs.result import Chunk, Result, cumulative
from joulemesh.scenario import Scenario
from joulemesh.studies.record import CURVES
from joulemesh.training.trace import Trace

__all__ = ["RunFolder", "flat", "free_folder", "trace_of", "versions"]


def free_folder(base: Path, name: str) -> Path:
    """The first of ``base/name-001``, ``-002``, … that does not exist."""
    return next(p for k in range(1, 10**6) if not (p := base / f"{name}-{k:03d}").exists())


class RunFolder:
    """One run on disk."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, path: str | Path) -> RunFolder:
        """A new folder; one that holds anything is never written over."""
        folder = cls(path)
        if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
            raise ScenarioError(
                f"{folder.path} exists and is not empty; choose another --out, or add --resume to "
                "go on with the run in it"
            )
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ScenarioError(
                f"cannot make the run folder {folder.path}: {error.strerror}; choose another --out"
            ) from None
        return folder

    @property
    def checkpoint(self) -> Path:
        """Where the engine's state is kept."""
        return self.path / "checkpoint"

    @property
    def started(self) -> bool:
        """Is there a run in the folder?"""
        return (self.path / "scenario.toml").is_file()

    @property
    def finished(self) -> bool:
        """Has the run in the folder come to its end?"""
        return (self.path / "result.json").is_file()

    def scenario(self) -> Scenario:
        """The scenario of the run in the folder, as resolved when it started."""
        return Scenario.load(self.path / "scenario.toml")

    def begin(self, plan: Plan, seeds: tuple[int, ...], fingerprint: str) -> None:
        """Write what is known before training; the scenario last, so that it marks a good start."""
        plan.save(self.path / "plan.npz")
        self._write_json(
            "versions.json", {**versions(), "seeds": seeds, "fingerprint": fingerprint}
        )
        write_text(self.path / "scenario.toml", plan.scenario.to_toml())

    def start_record(self) -> dict[str, Any]:
        """What ``begin`` wrote of versions, seeds and fingerprint."""
        record: dict[str, Any] = json.loads((self.path / "versions.json").read_text("utf-8"))
        return record

    def parameters(self) -> int:
        """Size of the model that was trained."""
        with np.load(self.path / "plan.npz", allow_pickle=False) as file:
            return int(json.loads(str(file["plan"]))["parameters"])

    def write_metrics(self, plan: Plan, trace: Trace, seeds: tuple[int, ...]) -> None:
        """Curves so far; nothing in them depends on the wall clock."""
        rows = io.StringIO()
        writer = csv.writer(rows, lineterminator="\n")
        writer.writerow(["seed", "iteration", *CURVES, "energy_j", "time_s"])
        energy, clock = cumulative(plan, trace.iteration)
        for s, seed in enumerate(seeds):
            for k, iteration in enumerate(trace.iteration):
                values = [float(getattr(trace, name)[k, s]) for name in CURVES]
                writer.writerow([seed, int(iteration), *values, float(energy[k]), float(clock[k])])
        write_text(self.path / "metrics.csv", rows.getvalue())

    def metrics_text(self) -> str:
        """What ``write_metrics`` wrote; empty before."""
        path = self.path / "metrics.csv"
        return path.read_text("utf-8") if path.is_file() else ""

    def read_trace(self, seeds: tuple[int, ...], completed: int, dtype: Any) -> Trace:
        """The evaluations up to an iteration, from ``metrics.csv``."""
        return trace_of(self.metrics_text(), seeds, completed, dtype)

    def write_timings(self, setup_s: float, chunks: Sequence[Chunk]) -> None:
        """Wall clock by chunk, of the process that wrote last."""
        lines = ["phase,completed,device_steps,wall_s", f"setup,0,0,{setup_s:.6f}"]
        lines += [f"chunk,{c.completed},{c.device_steps},{c.wall_s:.6f}" for c in chunks]
        write_text(self.path / "timings.csv", "\n".join(lines) + "\n")

    def finish(self, result: Result) -> None:
        """Write what is known at the end; ``result.json`` last, so that it marks a good end."""
        if not self.started:
            self.begin(result.plan, result.seeds, "")
        self.write_metrics(result.plan, result.trace, result.seeds)
        self.write_timings(result.setup_s, result.chunks)
        self._write_ledger(result.plan)
        write_bytes(self.path / "model.safetensors", safetensors(result.params))
        self.write_report(result)
        self._write_json("result.json", result.summary())

    def write_report(self, result: Result) -> None:
        """The HTML page."""
        from joulemesh.runs.report import write_run_report

        write_run_report(self.path / "report.html", result)

    def _write_ledger(self, plan: Plan) -> None:
        columns = ("energy_budget_j", "compute_total_j", "exchange_total_j", "spent_j", "margin_j")
        figures = [getattr(plan, name) for name in columns]
        rounds, binding = plan.rounds.sum(axis=0), plan.binding

        def write(draft: Path) -> None:
            with draft.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["device", *columns, "rounds", "binding"])
                for i in range(len(rounds)):
                    own = [float(column[i]) for column in figures]
                    writer.writerow([i, *own, int(rounds[i]), str(binding[i])])

        write_whole(self.path / "ledger.csv", write)

    def _write_json(self, name: str, value: Any) -> None:
        write_text(self.path / name, json.dumps(value, indent=1) + "\n")


def trace_of(text: str, seeds: tuple[int, ...], completed: int, dtype: Any) -> Trace:
    """The evaluations up to an iteration, from the text of ``metrics.csv``; exactly as they were.

    >>> trace_of("", (0,), 5, np.float32).test_loss.shape
    (0, 1)
    """
    rows = [r for r in csv.DictReader(io.StringIO(text)) if int(r["iteration"]) <= completed]
    mine = [[r for r in rows if int(r["seed"]) == seed] for seed in seeds]
    iteration = np.array([int(r["iteration"]) for r in mine[0]], np.int64)
    columns = {
        name: np.array([[float(r[name]) for r in part] for part in mine], dtype)
        .reshape(len(seeds), len(iteration))
        .T
        for name in CURVES
    }
    return Trace(iteration, **columns)


def versions() -> dict[str, Any]:
    """Software and hardware that decide the bits of a run."""
    import jax

    packages = ("numpy", "scipy", "jax", "jaxlib", "optax", "flax", "orbax-checkpoint")
    return {
        "joulemesh": __version__,
        "python": sys.version.split()[0],
        "packages": {name: version(name) for name in packages},
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "accelerators": [device.device_kind for device in jax.devices()],
        "processes": jax.process_count(),
    }


def flat(record: dict[str, Any]) -> dict[str, str]:
    """Names and texts of a record whose values may be dicts or lists.

    >>> flat({"python": "3.11", "packages": {"jax": "0.10"}, "seeds": [0, 1]})
    {'python': '3.11', 'jax': '0.10', 'seeds': '0, 1'}
    """
    texts: dict[str, str] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            texts |= {key: str(item) for key, item in value.items()}
        else:
            texts[name] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return texts


def safetensors(params: Any) -> bytes:
    """Parameters in the safetensors format, named by their path in the tree."""
    import jax
    from safetensors.numpy import save

    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    named = {
        ".".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
        or "params": np.ascontiguousarray(leaf)
        for path, leaf in leaves
    }
    data: bytes = save(named)
    return data
