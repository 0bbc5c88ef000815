"""The page of the training benchmark, from its record."""

from __future__ import annotations

from typing import Any

from benchmarks.common import table
from benchmarks.counts import operations, step_bytes
from benchmarks.work import Work


def page(record: dict[str, Any]) -> str:
    parts = [
        _conditions(record),
        _beside_torch(record),
        _unequal_and_evaluation(record),
        _starts(record),
        _memory(record),
        _scale(record),
        _limits(record),
    ]
    return "\n\n".join(parts)


def _work(fields: dict[str, Any]) -> Work:
    return Work(**{**fields, "hidden": tuple(fields["hidden"])})


def _model(work: Work) -> str:
    if work.model == "cnn":
        return "CNN, 73,418 parameters"
    shape = "784" if work.dataset == "mnist" else work.dataset
    return "MLP " + "-".join([shape, *map(str, work.hidden), "10"])


def _conditions(record: dict[str, Any]) -> str:
    made = [name for name, is_made in record["made"].items() if is_made]
    data = (
        f" Of {' and '.join(made)} the files were not at hand: noise of the same shapes was used."
        if made
        else ""
    )
    return (
        f"Load average before the start: {record['load_before']:.2f}. Work: train 5 rounds (SGD "
        "steps, batch 32, learning rate 0.05) on each of 20 devices, then take the mean; float32 "
        "unless said otherwise. A block is a number of such iterations. Contenders run blocks in "
        f"turn, {record['repeats']} each, after a warm-up; ratios are medians over these turns."
        + data
    )


def _beside_torch(record: dict[str, Any]) -> str:
    rows = []
    for result in record["side_by_side"]:
        work, speed = _work(result["work"]), result["device_steps_per_s"]
        torch, ratio = speed.get("torch"), result["torch_ratio"]
        rows.append(
            [
                f"{_model(work)}, {work.dataset}",
                f"{speed['ours']:,.0f}",
                f"{torch:,.0f}" if torch else f"failed: {result['torch_failed']}",
                f"{ratio:.2f}" if ratio else "",
            ]
        )
    header = ["work", "Joulemesh", "PyTorch loop", "ratio"]
    return (
        "## Beside a plain PyTorch loop\n\nDevice-steps per second, without evaluation. The loop "
        "keeps its data in memory and uses all cores (on an accelerator, that).\n\n"
        + table(header, rows)
    )


def _unequal_and_evaluation(record: dict[str, Any]) -> str:
    rows = [
        [
            _model(_work(result["work"])),
            f"{result['unequal_ratio']:.2f}",
            f"{result['unequal_each_ratio']:.2f}",
            f"{100 * result['evaluation_share']:.1f} %",
        ]
        for result in record["side_by_side"]
    ]
    header = ["model", "rounds 1..10 per device", "per device and iteration", "evaluation"]
    return (
        "## Unequal rounds, and evaluation\n\nTime with rounds of 1 to 10 drawn per device (once, "
        "or anew in every iteration), against equal rounds of the same total; and the share of a "
        "run that its evaluations take (every 5 iterations, as by default).\n\n"
        + table(header, rows)
    )


def _starts(record: dict[str, Any]) -> str:
    rows = [
        [model, name, *(f"{run[key]:.2f}" for key in ("import_s", "set_up_s", "first_step_s"))]
        for model, runs in record["starts"].items()
        for name, run in runs.items()
    ]
    header = ["model", "start", "import s", "set-up s", "first compiled step s"]
    return (
        "## Start-up\n\nA fresh process with an empty compilation cache, and a second one that "
        "finds what the first compiled.\n\n" + table(header, rows)
    )


def _memory(record: dict[str, Any]) -> str:
    rows = []
    for name, run in record["memory"].items():
        rows.append(
            [
                name,
                f"{run['peak_mib']:,.0f}",
                f"{run['data_mib']:,.0f}",
                f"{20 * run['parameters'] * 4 / 2**20:.1f}",
                f"{run['device_peak_mib']:,.0f}" if "device_peak_mib" in run else "",
            ]
        )
    header = ["run", "peak MiB", "of which data", "parameters of 20 devices", "on the accelerator"]
    return (
        "## Memory\n\nThe whole process, from the data set's files to the last evaluation.\n\n"
        + table(header, rows)
    )


def _scale(record: dict[str, Any]) -> str:
    rows = []
    for run in record["speeds"]:
        work = _work(run["work"])
        name = [_model(work), work.precision, f"{work.devices:,}"]
        if "failed" in run:
            rows.append([*name, f"failed: {run['failed']}", "", "", ""])
            continue
        memory = run.get("device_peak_mib", run["peak_mib"])
        rows.append(
            [
                *name,
                f"{run['device_steps_per_s']:,.0f}",
                f"{1e6 / run['device_steps_per_s']:.2f}",
                f"{memory:,.0f}",
                f"{work.devices * run['parameters'] * 4 / 2**20:,.0f}",
            ]
        )
    header = [
        "model",
        "precision",
        "devices",
        "device-steps/s",
        "µs per device-step",
        "peak MiB",
        "of which parameters",
    ]
    return (
        "## Scale\n\nEvery device has the same number of samples, 64. Memory is that of the "
        "accelerator where there is one, else of the process.\n\n" + table(header, rows)
    )


def _limits(record: dict[str, Any]) -> str:
    limits, rows = record["limits"], []
    measured = [
        (_work(run["work"]), run["device_steps_per_s"])
        for run in record["speeds"]
        if "failed" not in run
    ]
    measured += [
        (_work(result["work"]), result["device_steps_per_s"]["ours"])
        for result in record["side_by_side"]
    ]
    for work, speed in measured:
        per_step, moved = operations(work), step_bytes(work)
        peak = limits.get(f"{work.precision}_gflops", limits["float32_gflops"])
        gflops, gigabytes = speed * per_step / 1e9, speed * moved / 1e9
        by_work, by_memory = peak * 1e9 / per_step, limits["copy_gb_s"] * 1e9 / moved
        rows.append(
            [
                f"{_model(work)}, {work.precision}, {work.devices:,}",
                f"{per_step / 1e6:.1f}",
                f"{moved / 1e6:.2f}",
                f"{gflops:,.0f} ({100 * gflops / peak:.0f} %)",
                f"{gigabytes:,.0f} ({100 * gigabytes / limits['copy_gb_s']:.0f} %)",
                f"{by_work:,.0f}",
                f"{by_memory:,.0f}",
            ]
        )
    products = ", ".join(
        f"{name.removesuffix('_gflops')} {value:,.0f} GFLOP/s"
        for name, value in limits.items()
        if name.endswith("_gflops")
    )
    header = ["work", "MFLOP", "MB", "GFLOP/s", "GB/s", "limit by MFLOP", "by MB"]
    return (
        "## Distance to the limits\n\nMeasured on this machine in the same run: large products "
        f"{products} (in JAX's default precision); memory {limits['copy_gb_s']:,.0f} GB/s (read "
        "and written). Operations and least bytes of a device-step are counted in "
        "`benchmarks/counts.py`. Bytes assume that no cache holds the parameters of all devices or "
        "the activations of a batch: with few devices, and on a CPU, which trains one device "
        "after another, memory limits less than shown. Limits are in device-steps/s.\n\n"
        + table(header, rows)
    )
