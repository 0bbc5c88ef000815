"""The pages of the torch learner's benchmark, from its records."""

from __future__ import annotations

from typing import Any

from benchmarks.common import table

TITLES = {
    "torch": "PyTorch modules beside a plain loop: CPU",
    "torch-gpu": "PyTorch modules beside a plain loop: one GPU",
}
_NAMES = {"mlp": "MLP 784-200-10", "cnn": "CNN, 73,418 parameters, 32×32×3 images"}


def page(record: dict[str, Any]) -> str:
    worst = max(case["difference_float64"] for case in record["cases"])
    return "\n\n".join(
        [
            "The torch learner (`joulemesh.run(..., model=nn_module)`) beside a plain PyTorch loop "
            "that takes one step after another, device after device: samples normalised and "
            "resident, PyTorch's fused SGD, the mean as two operations, draws made before the "
            "clock starts. Noise of the data sets' shapes, float32, batch 32, 5 rounds, exact "
            "mean, no evaluation. Blocks of both are timed in turn"
            + (", " if "accelerator" in record["machine"] else ", in a process each, ")
            + f"and the ratio is the median of {record['turns']} pairs (in brackets the least and "
            "the largest).",
            _speeds(record["cases"]),
            "The first block includes making the learner, tracing and, where it says so, "
            "compilation. Memory is the peak of what PyTorch holds on the GPU, or of a process "
            "that runs one block on the CPU. From the same start, with the same draws, in "
            f"float64, no parameter of any device differs by more than {worst:.1g} after 15 steps "
            f"(the benchmark fails above {record['tolerance']:g}).",
        ]
    )


def _how(case: dict[str, Any]) -> str:
    if not case["together"]:
        return "one by one"
    how = ["together"]
    how += ["compiled"] if case["compiled"] else []
    return ", ".join([*how, "captured"] if case.get("captured") else how)


def _speeds(cases: list[dict[str, Any]]) -> str:
    header = ["model", "devices", "computed", "loop steps/s", "learner steps/s", "ratio"]
    header += ["loop MiB", "learner MiB", "first block s"]
    rows = []
    for case in sorted(cases, key=lambda one: (one["model"] != "mlp", one["devices"])):
        speed, peak = case["device_steps_per_s"], case["peak_mib"]
        places = 2 if case["ratio"] < 10 else 0
        least, most = min(case["ratios"]), max(case["ratios"])
        rows.append(
            [
                _NAMES[case["model"]],
                f"{case['devices']}",
                _how(case),
                f"{speed['loop']:,.0f}",
                f"{speed['ours']:,.0f}",
                f"{case['ratio']:.{places}f} ({least:.{places}f}–{most:.{places}f})",
                f"{peak['loop']:,.0f}",
                f"{peak['ours']:,.0f}",
                f"{case['first_s']:.1f}",
            ]
        )
    return table(header, rows)
