"""Contents of a run folder's files, from values and back."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from joulemesh.models.curves import COUNTS, column_names
from joulemesh.training.tensors import named_leaves
from joulemesh.training.trace import Trace

__all__ = ["costs_of", "flat", "safetensors", "trace_of"]


def trace_of(text: str, seeds: tuple[int, ...], dtype: Any, score: str = "accuracy") -> Trace:
    """The evaluations in the text of ``metrics.csv``; exactly as they were.

    Columns between those of every run and the costs are of further metrics.

    Args:
        text: of the file.
        seeds: the repetition seeds.
        dtype: of the curves.
        score: the metric that runs are compared by.

    >>> trace_of("", (0,), np.float32).test_loss.shape
    (0, 1)
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    mine = [[r for r in rows if int(r["seed"]) == seed] for seed in seeds]
    iteration = np.array([int(r["iteration"]) for r in mine[0]], np.int64)

    def column(name: str, kind: Any) -> Any:
        values = [[float(r[name]) for r in part] for part in mine]
        return np.array(values, kind).reshape(len(seeds), len(iteration)).T

    always = column_names((), score)
    curves = {name: column(name, dtype) for name in always}
    known = {"seed", "iteration", "energy_j", "time_s", *always, *COUNTS}
    own = {name: column(name, dtype) for name in (rows[0] if rows else ()) if name not in known}
    counts = {name: column(name, np.int64) for name in COUNTS}
    return Trace.of({"iteration": iteration, **curves, **counts}, score=score, own=own)


def costs_of(text: str, seeds: tuple[int, ...]) -> tuple[Any, Any]:
    """Joules and seconds after each evaluation in the text of ``metrics.csv``.

    Returns:
        Both float64 [evaluations], or [evaluations, seeds] where seeds differ.

    >>> text = "seed,iteration,energy_j,time_s\\n0,5,1.5,3.0\\n1,5,2.5,3.0\\n"
    >>> [costs.tolist() for costs in costs_of(text, (0, 1))]
    [[[1.5, 2.5]], [[3.0, 3.0]]]
    """
    rows = list(csv.DictReader(io.StringIO(text)))
    found = [
        np.array([[float(r[name]) for r in rows if int(r["seed"]) == seed] for seed in seeds]).T
        for name in ("energy_j", "time_s")
    ]
    alike = all((costs == costs[:, :1]).all() for costs in found)
    joules, seconds = (costs[:, 0] for costs in found) if alike else found
    return joules, seconds


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
    from safetensors.numpy import save

    data: bytes = save(named_leaves(params))
    return data
