"""The page of the accelerator's benchmark, from its record."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from benchmarks.common import table
from benchmarks.counts import factored, operations, step_bytes
from benchmarks.work import CNN, MLP, Work

TITLE = "One accelerator"
_NAMES = {"mlp": "MLP 784-200-10", "cnn": "CNN, 73,418 parameters"}


def counted(case: dict[str, Any]) -> tuple[int, int]:
    """Operations and least bytes of one device-step in the way that a case was trained."""
    work: Work = replace(MLP if case["model"] == "mlp" else CNN, precision=case["precision"])
    return factored(work) if case["trained"] == "factored" else (operations(work), step_bytes(work))


def page(record: dict[str, Any]) -> str:
    speeds = [case for case in record["cases"] if "model" in case]
    whole = [case for case in record["cases"] if "model" not in case]
    limits = record["limits"]
    return "\n\n".join(
        [
            "Noise of the data sets' shapes, batch 32, 5 rounds, exact mean, no evaluation; the "
            "best of three chunks after compilation. Operations and bytes of a device-step are "
            "counted in `benchmarks/counts.py`. Trained *kept*: each device has parameters of its "
            "own; *shared*: from the same start, and only the mean is kept; *factored*: the same "
            "with the input layer as a product of samples ([why](../performance.md)). The first "
            "call compiles and runs one chunk.",
            "Measured in the same process: large products float32 "
            f"{limits['float32_gflops'] / 1e3:,.0f} TFLOP/s (in JAX's default precision), bfloat16 "
            f"{limits['bfloat16_gflops'] / 1e3:,.0f} TFLOP/s; memory "
            f"{limits['copy_gb_s'] / 1e3:.1f} TB/s (read and written).",
            _speeds(speeds),
            "## Whole runs\n\nThe CNN on CIFAR-10: 20 devices, 400 iterations of 4 rounds, "
            "evaluated 8 times on all 10,000 test samples; compilation apart. ± is the standard "
            "deviation over seeds.",
            _whole(whole),
        ]
    )


def _speeds(cases: list[dict[str, Any]]) -> str:
    header = ["model", "precision", "devices", "seeds", "trained", "device-steps/s"]
    header += ["TFLOP/s", "TB/s", "first call s"]
    rows = []
    for case in sorted(cases, key=lambda case: case["model"], reverse=True):
        per_step, moved = counted(case)
        speed = case["device_steps_per_s"]
        rows.append(
            [
                _NAMES[case["model"]],
                case["precision"],
                f"{case['devices']:,}",
                f"{case['seeds']}",
                case["trained"],
                f"{speed:,.0f}",
                f"{speed * per_step / 1e12:.1f}",
                f"{speed * moved / 1e12:.2f}",
                f"{case['first_s']:.1f}",
            ]
        )
    return table(header, rows)


def _whole(cases: list[dict[str, Any]]) -> str:
    rows = []
    for case in cases:
        found = case["accuracy"]
        spread = f" ± {statistics.stdev(found):.4f}" if len(found) > 1 else ""
        rows.append(
            [
                case["precision"],
                f"{case['seeds']}",
                f"{case['seconds']:.2f}",
                f"{statistics.fmean(found):.4f}{spread}",
            ]
        )
    return table(["precision", "seeds", "seconds", "test accuracy"], rows)
