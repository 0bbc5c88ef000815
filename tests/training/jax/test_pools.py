"""Samples on disk: trained and evaluated as those in memory are, to the last bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data import Dataset, load, partition
from joulemesh.data.arrays import read_npz
from joulemesh.data.own import OnDisk, read_disk
from joulemesh.data.reading import Reading
from joulemesh.metrics import reported
from joulemesh.models import build
from joulemesh.models.curves import COUNTS, column_names
from joulemesh.training import Engine, Options, Schedule
from joulemesh.training.jax import evaluation, pools

DEVICES = 4
MIXING = (np.eye(4) + np.eye(4)[[1, 0, 3, 2]] / 2 + np.eye(4)[[3, 2, 1, 0]] / 2)[None] / 2
NAMES = ("x_train", "y_train", "x_test", "y_test")


def arrays(kind: str) -> dict[str, Any]:
    draw = np.random.default_rng(3)
    x: Any
    y: Any
    if kind == "tokens":
        text = draw.integers(0, 6, (90, 5)).astype(np.int32)
        x, y = text[:, :-1], text[:, 1:]
    else:
        x = draw.integers(0, 256, (90, 4, 4, 1), np.uint8)
        y = draw.integers(0, 3, 90) if kind == "classes" else draw.normal(size=90)
        if kind == "numbers":
            x = draw.normal(size=(90, 5)).astype(np.float32)
    return {"x_train": x[:60], "y_train": y[:60], "x_test": x[60:], "y_test": y[60:]}


LOSSES = {"classes": "cross-entropy", "numbers": "mse", "tokens": "token-cross-entropy"}


def both(folder: Path, kind: Any) -> tuple[Dataset, Dataset]:
    """The same data in memory and on disk."""
    made = arrays(kind)
    np.savez(folder / "all.npz", **made)
    for name, array in made.items():
        np.save(folder / f"{name}.npy", array)
    reading = Reading(targets=kind, loss=LOSSES[kind])
    return read_npz(folder / "all.npz", reading), read_disk(folder / "x_train.npy", reading)


def engine(data: Dataset, mixed: bool = True, seeds: int = 1, **options: Any) -> Engine:
    held = [partition(data.strata(), DEVICES, kind="quantity", seed=s) for s in range(seeds)]
    loss = LOSSES[data.targets]
    name = "token-mlp" if loss.startswith("token") else "mlp"
    model = build(name, data.shape, data.classes, (6,), loss=loss)
    rounds = np.random.default_rng(0).integers(0, 4, (7, DEVICES))
    schedule = Schedule(rounds, mixing=MIXING) if mixed else Schedule(rounds)
    settings: dict[str, Any] = {"eval_every": 3, "batch_size": 5, "chunk_iterations": 3}
    chosen = Options(**{**settings, "loss": loss, "learning_rate": 0.02, **options})
    return Engine(model, data, held, schedule, chosen, range(seeds))


def learned(trainer: Engine) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    steps = list(trainer.train())
    names = (*column_names(*reported(trainer.options)), *COUNTS)
    curves = {n: np.concatenate([trace.curve(n) for _, trace in steps]) for n in names}
    return trainer.params(steps[-1][0]), curves


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert list(one) == list(other)
    for name, values in one.items():
        np.testing.assert_array_equal(values, other[name], err_msg=name)


RARER = [
    ("tokens", {}),
    ("classes", {"local_round": "epoch"}),
    ("classes", {"mixed": False, "seeds": 2}),
]


@pytest.mark.parametrize(
    ("kind", "changes"),
    [("numbers", {}), *(pytest.param(*one, marks=pytest.mark.slow) for one in RARER)],
)
def test_training_from_disk_gives_the_same_bits(
    kind: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    memory, disk = both(tmp_path, kind)
    assert disk.on_disk
    assert not memory.on_disk
    streams = engine(disk, **changes)
    assert streams.pools is not None
    (params, curves), (own, seen) = learned(engine(memory, **changes)), learned(streams)
    same(params, own)
    same(curves, seen)


@pytest.mark.slow
def test_a_small_pool_shortens_chunks_and_evaluates_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = both(tmp_path, "numbers")
    params, curves = learned(engine(memory, eval_share=0.0, eval_device_samples=7))
    for module in (pools, evaluation):
        monkeypatch.setattr(module, "POOL_BYTES", 20 * 11)  # eleven samples of five float32
    streams = engine(disk, eval_share=0.08, eval_device_samples=7)
    streams.evaluator.counts = type(streams.evaluator.counts)(
        (7, 20, 7), 30, streams.evaluator.counts.agree, streams.partitions
    )
    assert streams.key.chunk == 1
    own, seen = learned(streams)
    same(params, own)
    for name in ("test_r2", "test_loss", "device_r2_mean", "device_r2_min", "test_mae"):
        np.testing.assert_allclose(seen[name][-1], curves[name][-1], rtol=2e-6, err_msg=name)
    assert seen["test_samples"][-1] == 30


@pytest.mark.slow
def test_a_run_from_disk_goes_on_where_it_was(tmp_path: Path) -> None:
    _, disk = both(tmp_path, "numbers")
    whole, _ = learned(engine(disk))
    first = engine(disk)
    state, _ = next(first.train())
    kept = first.save(state)
    again = engine(disk)
    *_, (state, _) = again.train(again.load(kept))
    same(whole, again.params(state))


def test_samples_are_read_by_index_across_parts() -> None:
    whole = np.arange(60, dtype=np.float32).reshape(20, 3)
    parts = OnDisk([whole[:7], whole[7:8], whole[8:]])
    index = np.array([[19, 0], [7, 6]])
    np.testing.assert_array_equal(parts[index], whole[index])
    np.testing.assert_array_equal(parts[5:12], whole[5:12])
    np.testing.assert_array_equal(np.asarray(parts), whole)
    assert parts.nbytes == whole.nbytes


def test_bytes_are_scaled_as_in_memory(tmp_path: Path) -> None:
    memory, disk = both(tmp_path, "classes")
    np.testing.assert_array_equal(memory.mean, disk.mean)
    np.testing.assert_array_equal(memory.std, disk.std)
    assert (memory.classes, memory.shape, memory.outputs) == (
        disk.classes,
        disk.shape,
        disk.outputs,
    )


def test_arrow_files_are_mapped(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (the extra parquet)")
    made = arrays("numbers")
    for part in ("train", "test"):
        x, y = made[f"x_{part}"], made[f"y_{part}"]
        lists = arrow.FixedSizeListArray.from_arrays(arrow.array(x.ravel()), x.shape[1])
        table = arrow.table({"x": lists, "y": y})
        path = tmp_path / f"mine-{part}.arrow"
        with arrow.ipc.new_file(str(path), table.schema) as file:
            file.write_table(table, max_chunksize=16)
    data = load(str(tmp_path / "mine-train.arrow"), reading=Reading(targets="numbers", loss="mse"))
    assert data.on_disk
    assert len(data.x_train._parts) == 4  # type: ignore[attr-defined]
    np.testing.assert_array_equal(data.x_train[:], made["x_train"])
    np.testing.assert_array_equal(data.y_test[:, 0], made["y_test"].astype(np.float32))


def test_a_sample_that_is_not_finite_is_named_when_it_is_read(tmp_path: Path) -> None:
    made = arrays("numbers")
    made["x_train"][11, 2] = np.nan
    for name, array in made.items():
        np.save(tmp_path / f"{name}.npy", array)
    data = read_disk(tmp_path / "x_train.npy", Reading(targets="numbers"))
    with pytest.raises(ScenarioError, match=r"x_train\[11\] holds NaN"):
        pools.checked_samples(data, "x_train", np.array([3, 11]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"x_train": np.zeros((60, 5))}, "samples to train on are float64"),
        ({"y_train": np.zeros(59)}, "60 samples to train on have 59 targets"),
        ({"x_test": None}, "x_test.npy does not exist"),
    ],
)
def test_files_that_do_not_do_are_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    for name, array in {**arrays("numbers"), **change}.items():
        if array is not None:
            np.save(tmp_path / f"{name}.npy", array)
    with pytest.raises(ScenarioError, match=said):
        read_disk(tmp_path / "x_train.npy", Reading(targets="numbers"))


def test_other_files_and_options_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "mine.npy", np.zeros(3))
    with pytest.raises(ScenarioError, match=r"name the file x_train\.npy"):
        read_disk(tmp_path / "mine.npy")
    with pytest.raises(ScenarioError, match=r"training\.normalize would copy all samples"):
        read_disk(tmp_path / "x_train.npy", Reading(normalize=True))


LARGE = """
import sys
from pathlib import Path
import joulemesh

asked = joulemesh.Scenario.preset("adaptive").override({
    "training.dataset": sys.argv[1], "training.partition": "iid", "training.hidden": [16],
    "plan.iterations": 10, "devices.count": 8,
})
result = joulemesh.run(asked)
# ru_maxrss would include the process that this one was forked from.
status = Path("/proc/self/status").read_text().splitlines()
peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(int(result.final.test_samples.min()), peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="peaks are counted in KiB on Linux")
def test_a_data_set_larger_than_the_memory_that_is_used(tmp_path: Path) -> None:
    samples, features = {"train": 2**20, "test": 2**18}, 256
    for part, count in samples.items():
        file = tmp_path / f"x_{part}.npy"
        np.lib.format.open_memmap(file, "w+", np.float32, (count, features)).flush()  # sparse
        np.save(tmp_path / f"y_{part}.npy", np.arange(count) % 2)
    words = [sys.executable, "-c", LARGE, str(tmp_path / "x_train.npy")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    tested, peak_kib = map(int, done.stdout.split())
    whole = (tmp_path / "x_train.npy").stat().st_size
    assert tested == samples["test"]
    assert whole == 2**30 + 128
    assert peak_kib * 1024 < 0.75 * whole  # of which a process with JAX takes a third by itself
