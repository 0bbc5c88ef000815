"""Several processes on one machine: the same run as one process, and what happens when one goes."""

from __future__ import annotations

import csv
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse

import joulemesh
from joulemesh.base.errors import ScenarioError
from joulemesh.base.machine import Machine
from joulemesh.data import Dataset, from_arrays, partition
from joulemesh.models import build
from joulemesh.study.folder import RunFolder
from joulemesh.study.request import Progress
from joulemesh.training import Checkpoints, Engine, Options, Schedule
from joulemesh.training.jax import platform
from joulemesh.training.jax.distributed import Group
from joulemesh.training.learner import Interrupt

QUICK = {
    "devices.count": 5,
    "plan.iterations": 6,
    "training.model": "logistic",
    "training.chunk_iterations": 3,
    "training.eval_every": 2,
    "training.precision": "float64",
}
# Long enough to be interrupted: every chunk is kept, and there are sixty.
LONG = {
    **QUICK,
    "devices.count": 6,
    "network.topology": "complete",
    "budget.energy_j": 1e6,
    "plan.aggregation": "metropolis",
    "plan.iterations": 300,
    "plan.rounds": "fixed",
    "training.chunk_iterations": 5,
    "training.eval_every": 50,
    "training.optimizer": "adam",
    "training.learning_rate": 1e-3,
}
EXACT: dict[str, Any] = {"rtol": 0, "atol": 1e-10}
PATIENCE_S = 300
ENDED = "of this run was lost or has ended; `joulemesh run --out "


def scenario_of(changes: dict[str, object]) -> joulemesh.Scenario:
    return joulemesh.Scenario.preset("adaptive").override(changes, source="--set")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(
    changes: dict[str, object], folder: Path, number: int, processes: int, port: int, *more: str
) -> subprocess.Popen[str]:
    """Start one of the processes, with one processor."""
    joins = ("--coordinator", f"127.0.0.1:{port}", "--processes", str(processes))
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "joulemesh", "run", "--preset", "adaptive", "--json"),
            *("--out", str(folder)),
            *(f"--set={name}={value}" for name, value in changes.items()),
            *(*joins, "--process-id", str(number), *more),
        ],
        # With this verbosity gRPC silences all of JAX's C++, its last words too.
        env={**os.environ, "JAX_NUM_CPU_DEVICES": "1", "GRPC_VERBOSITY": "NONE"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@dataclass
class Start:
    """Starts processes; ``changes`` for all, or for each of them."""

    running: list[subprocess.Popen[str]] = field(default_factory=list)

    def __call__(
        self,
        changes: dict[str, object] | list[dict[str, object]],
        folder: Path,
        processes: int,
        *more: str,
    ) -> list[subprocess.Popen[str]]:
        port = free_port()
        each = changes if isinstance(changes, list) else [changes] * processes
        made = [launch(own, folder, i, processes, port, *more) for i, own in enumerate(each)]
        self.running.extend(made)
        return made


@pytest.fixture
def start() -> Iterator[Start]:
    """Start processes that do not outlive the test."""
    starting = Start()
    yield starting
    for process in starting.running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ends(process: subprocess.Popen[str], within_s: float = PATIENCE_S) -> tuple[int, str, str]:
    printed, said = process.communicate(timeout=within_s)
    return process.returncode, printed, said


def wait_for_a_checkpoint(folder: Path, processes: list[subprocess.Popen[str]]) -> None:
    end = time.monotonic() + PATIENCE_S
    place = folder / "checkpoint"
    while not (place.is_dir() and any(path.suffix == ".safetensors" for path in place.iterdir())):
        assert all(process.poll() is None for process in processes), [ends(p) for p in processes]
        assert time.monotonic() < end, "no checkpoint"
        time.sleep(0.05)


def metrics_of(folder: Path) -> np.ndarray:
    with open(folder / "metrics.csv") as file:
        return np.array([[float(v) for v in row.values()] for row in csv.DictReader(file)])


def report_data(folder: Path) -> list[str]:
    """The report's text without numbers that depend on clock, machine or the last bits."""
    page = re.sub(r"<(style|script).*?</\1>", " ", (folder / "report.html").read_text(), flags=re.S)
    words = re.sub(r"<[^>]*>", " ", page.split("<footer")[0])
    words = re.sub(r"[\d.]+\s*(ms|µs|s|min|h)\b", " ", words)  # of the wall clock, in any unit
    return [word for word in words.split() if not re.search(r"\d", word)]


def assert_same_run(folder: Path, other: Path) -> None:
    assert (folder / "ledger.csv").read_bytes() == (other / "ledger.csv").read_bytes()
    np.testing.assert_allclose(metrics_of(folder), metrics_of(other), **EXACT)
    model, expected = (
        load_file(folder / "model.safetensors"),
        load_file(other / "model.safetensors"),
    )
    assert model.keys() == expected.keys()
    for name, values in model.items():
        np.testing.assert_allclose(values, expected[name], **EXACT)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The long run of one process that nothing interrupts."""
    folder = tmp_path_factory.mktemp("hosts") / "long"
    joulemesh.run(scenario_of(LONG), out=folder)
    return folder


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("auto", "a:1", None, None), "--hosts auto finds --coordinator by itself"),
        (("slurm", None, None, None), "--hosts slurm is unknown: write --hosts auto"),
        ((None, None, 2, None), "--processes needs --coordinator and --process-id too"),
        ((None, "a:1", None, 0), "--coordinator needs --processes too"),
        ((None, "a", 2, 0), "--coordinator a is not an address: write HOST:PORT"),
        ((None, ":80", 2, 0), "--coordinator :80 is not an address"),
        ((None, "a:65536", 2, 0), "--coordinator a:65536 is not an address"),
        ((None, "a:1", 0, 0), "--processes 0 is out of range: use 1 or more"),
        ((None, "a:1", 2, 2), "--process-id 2 is out of range: use 0 to 1"),
        ((None, "a:1", 2, -1), "--process-id -1 is out of range"),
        ((None, "a:1", 2, 0, 0), "--join-timeout 0 is out of range"),
    ],
)
def test_groups_that_cannot_be_are_refused(asked: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(words)) as refusal:
        Group.asked(*asked)
    assert "\n" not in str(refusal.value)


def test_groups_that_can_be() -> None:
    assert Group.asked(None, None, None, None) is None
    assert Group.asked(None, "a:1", 1, 0) is None  # alone after all
    assert Group.asked("auto", None, None, None, 9) == Group(timeout_s=9)
    assert Group.asked(None, "[::1]:80", 2, 1) == Group("[::1]:80", 2, 1)


def test_signals_that_follow_at_once_are_one_wish() -> None:
    with Interrupt(settle_s=60.0) as interrupt:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert interrupt.asked
    with Interrupt() as interrupt:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)


def test_fewer_devices_than_processes_are_refused() -> None:
    three = replace(platform.this_machine(), processes=3)
    with pytest.raises(ScenarioError, match="start at most 2 processes"):
        platform.row_mesh(three, 2)


def engine_on(machine: Machine, toy: Dataset, **options: Any) -> Engine:
    rounds = np.array([[1, 5, 2], [4, 1, 1], [2, 2, 3], [1, 3, 1]])
    held = [partition(toy.y_train, 3, kind="iid", seed=seed) for seed in (0, 1)]
    mixing = np.full((1, 3, 3), 1 / 3)
    return Engine(
        build("logistic", toy.shape, 3),
        toy,
        held,
        Schedule(rounds, mixing=mixing),
        Options(chunk_iterations=2, precision="float64", optimizer="adam", **options),
        (0, 1),
        machine=machine,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("first", "then"), [(1, 2), (2, 1)])
def test_a_checkpoint_serves_another_number_of_processors(
    toy: Dataset,
    tmp_path: Path,
    unevaluated: Callable[[Engine], Engine],
    machine_of: Callable[..., Machine],
    first: int,
    then: int,
) -> None:
    engine = unevaluated(engine_on(machine_of(first), toy))
    states = engine.train()
    state, _ = next(states)
    kept = Checkpoints(tmp_path)
    kept.save(engine, state)
    *_, (final, _) = states
    other = unevaluated(engine_on(machine_of(then), toy))
    assert other.layout.order.tolist() != engine.layout.order.tolist()
    assert other.digest() == engine.digest()
    *_, (resumed, _) = other.train(kept.restore(other, kept.saved()[-1])[0])
    for a, b in zip(
        jax.tree.leaves(engine.params(final)), jax.tree.leaves(other.params(resumed)), strict=True
    ):
        np.testing.assert_allclose(a, b, **EXACT)


def test_a_fingerprint_sees_weights_mixing_and_data(toy: Dataset) -> None:
    held, rounds = [partition(toy.y_train, 3, kind="iid")], np.ones((4, 3), int)
    ring = np.roll(np.eye(3), 1, axis=1)
    schedules = [
        Schedule(rounds),
        Schedule(rounds, mixing=ring[None], exact=np.array([True, False, False, False])),
        Schedule(rounds, mixing=ring[None], exact=np.array([True, True, False, False])),
        Schedule(rounds, mixing=ring[None]),
        Schedule(rounds, mixing=lambda t: ring if t < 3 else np.eye(3)),
        Schedule(rounds, mixing=sparse.csr_array(ring)),
        Schedule(rounds, mixing=sparse.csr_array(ring), mixing_rounds=2),
    ]
    model = build("logistic", toy.shape, 3)
    marks = [Engine(model, toy, held, schedule).digest() for schedule in schedules]
    assert len(set(marks)) == len(marks)
    changed = from_arrays(toy.x_train + 1, toy.y_train, toy.x_test, toy.y_test)
    assert Engine(model, changed, held, schedules[0]).digest() != marks[0]


def test_two_processes_make_the_run_of_one(start: Start, tmp_path: Path) -> None:
    processes = start(QUICK, tmp_path / "two", 2, "--seeds", "2")
    joulemesh.run(scenario_of(QUICK), out=tmp_path / "one", seeds=2)
    (code, printed, said), (other_code, other_printed, other_said) = map(ends, processes)
    assert (code, other_code) == (0, 0), said + other_said
    assert '"accuracy"' in printed
    assert len(printed.splitlines()) == 1
    assert (other_printed, other_said) == ("", "")
    assert_same_run(tmp_path / "two", tmp_path / "one")
    assert report_data(tmp_path / "two") == report_data(tmp_path / "one")


@pytest.mark.slow
def test_two_processes_make_the_worlds_of_one(start: Start, tmp_path: Path) -> None:
    processes = start(QUICK, tmp_path / "two", 2, "--worlds", "2")
    joulemesh.run(scenario_of(QUICK), out=tmp_path / "one", worlds=2)
    (code, printed, said), (other_code, other_printed, other_said) = map(ends, processes)
    assert (code, other_code) == (0, 0), said + other_said
    assert '"worlds_run": 2' in printed
    assert (other_printed, other_said) == ("", "")
    folders = sorted(path.name for path in (tmp_path / "one").iterdir() if path.is_dir())
    assert len(folders) == 2
    for name in folders:
        assert_same_run(tmp_path / "two" / name, tmp_path / "one" / name)


@pytest.mark.slow
def test_stopped_on_four_resumed_on_two_and_on_one(
    start: Start, tmp_path: Path, long_run: Path
) -> None:
    folder = tmp_path / "run"
    for count, told in ((4, 2), (2, 0)):
        processes = start(LONG, folder, count, "--resume")
        before = set((folder / "checkpoint").iterdir()) if (folder / "checkpoint").is_dir() else ()
        wait_for_a_checkpoint(folder, processes)
        while set((folder / "checkpoint").iterdir()) == before:
            time.sleep(0.05)
        processes[told].send_signal(signal.SIGTERM)
        outcomes = [ends(process) for process in processes]
        assert [code for code, _, _ in outcomes] == [130] * count, outcomes
        assert "--resume` goes on from here" in outcomes[0][2]
        assert all(said == "" for _, _, said in outcomes[1:])
        assert not RunFolder(folder).finished
    joulemesh.run(scenario_of(LONG), out=folder, resume=True)
    assert_same_run(folder, long_run)


@pytest.mark.slow
def test_stopped_and_resumed_on_two_gives_the_same_bits(start: Start, tmp_path: Path) -> None:
    whole = [ends(process) for process in start(LONG, tmp_path / "whole", 2)]
    processes = start(LONG, tmp_path / "parts", 2)
    wait_for_a_checkpoint(tmp_path / "parts", processes)
    processes[1].send_signal(signal.SIGINT)
    stopped = [ends(process) for process in processes]
    rest = [ends(process) for process in start(LONG, tmp_path / "parts", 2, "--resume")]
    codes = [[code for code, _, _ in outcomes] for outcomes in (whole, stopped, rest)]
    assert codes == [[0, 0], [130, 130], [0, 0]]
    for name in ("metrics.csv", "model.safetensors", "ledger.csv"):
        one, other = (tmp_path / folder / name for folder in ("whole", "parts"))
        assert one.read_bytes() == other.read_bytes(), name


@pytest.mark.slow
def test_four_processes_make_the_run_of_one(start: Start, tmp_path: Path, long_run: Path) -> None:
    processes = start(LONG, tmp_path / "four", 4)
    outcomes = [ends(process) for process in processes]
    assert [code for code, _, _ in outcomes] == [0] * 4, outcomes
    assert_same_run(tmp_path / "four", long_run)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_process_ends_the_other_and_the_run_can_go_on(
    start: Start, tmp_path: Path, long_run: Path, lost: int
) -> None:
    folder = tmp_path / "run"
    processes = start(LONG, folder, 2)
    wait_for_a_checkpoint(folder, processes)
    processes[lost].kill()
    code, _, said = ends(processes[1 - lost], within_s=60)
    assert code == 1
    assert said.startswith(f"error: process {lost} {ENDED}{folder} --resume`")
    assert len(said.splitlines()) == 1
    assert not RunFolder(folder).finished
    joulemesh.run(scenario_of(LONG), out=folder, resume=True)
    assert_same_run(folder, long_run)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [0, 1])
def test_a_host_that_falls_silent_is_lost(start: Start, tmp_path: Path, frozen: int) -> None:
    processes = start({**LONG, "plan.iterations": 3000}, tmp_path / "run", 2)
    wait_for_a_checkpoint(tmp_path / "run", processes)
    os.killpg(processes[frozen].pid, signal.SIGSTOP)  # its connections stay open
    code, _, said = ends(processes[1 - frozen], within_s=60)
    assert code == 1
    assert said.startswith(f"error: process {frozen} {ENDED}")
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_processes_with_different_scenarios_are_refused(start: Start, tmp_path: Path) -> None:
    other = {**QUICK, "training.learning_rate": 0.01}
    for code, _, said in map(ends, start([QUICK, other], tmp_path / "x", 2)):
        assert code == 2
        assert said.startswith("error: process 1 was given another scenario")
        assert len(said.splitlines()) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_only_process_0_needs_the_folder(start: Start, tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    folder = tmp_path / "run"
    joulemesh.run(scenario_of(QUICK), out=tmp_path / "one")
    with pytest.raises(KeyboardInterrupt):
        joulemesh.run(scenario_of(QUICK), out=folder, on_progress=stop)
    for _ in range(2):  # goes on; then there is nothing to do
        port = free_port()
        for i, place in enumerate((folder, tmp_path / "not-here")):
            start.running.append(launch({}, place, i, 2, port, "--resume"))
        (code, printed, said), (other_code, other_printed, _) = map(ends, start.running[-2:])
        assert (code, other_code) == (0, 0), said
        assert '"accuracy"' in printed
        assert other_printed == ""
    assert "is finished; nothing to do" in said
    assert_same_run(folder, tmp_path / "one")
    assert not (tmp_path / "not-here").exists()


@pytest.mark.slow
def test_a_slurm_job_is_found(start: Start, tmp_path: Path) -> None:
    port = str(free_port())
    job = {"SLURM_JOB_ID": "1", "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": "2"}
    ports = {
        "JAX_COORDINATOR_PORT": port,
        "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}",
        "JAX_NUM_CPU_DEVICES": "1",
    }
    command = [sys.executable, "-m", "joulemesh", "run", "--preset", "adaptive"]
    command += ["--hosts", "auto", "--out"]
    for number in ("0", "1"):
        own = {"SLURM_PROCID": number, "SLURM_LOCALID": number}
        start.running.append(
            subprocess.Popen(
                [*command, tmp_path / "two", *(f"--set={k}={v}" for k, v in QUICK.items())],
                env={**os.environ, **job, **ports, **own},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
    joulemesh.run(scenario_of(QUICK), out=tmp_path / "one")
    (code, printed, said), (other_code, other_printed, _) = map(ends, start.running)
    assert (code, other_code) == (0, 0), said
    assert "kept in" in printed
    assert other_printed == ""
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_a_refusal_of_process_0_is_everybodys(start: Start, tmp_path: Path) -> None:
    (tmp_path / "note").write_text("in the way")
    for code, _, said in map(ends, start(QUICK, tmp_path, 2)):
        assert code == 2
        assert "exists and is not empty; choose another --out" in said


def wait_for_connections(port: int, least: int) -> int:
    """Wait until so many connections to the port stay, and return how many there are."""
    wanted, end, seen = f":{port:04X}", time.monotonic() + PATIENCE_S, 0
    while seen < 20:  # times in a row
        tables = (Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
        rows = [row.split() for table in tables for row in table.splitlines()[1:]]
        joined = sum(row[2].endswith(wanted) and row[3] == "01" for row in rows)
        seen = seen + 1 if joined >= least else 0
        assert time.monotonic() < end, "nobody has connected"
        time.sleep(0.05)
    return joined


def test_a_process_that_was_told_of_more_is_refused_as_is_process_0(
    start: Start, tmp_path: Path
) -> None:
    port = free_port()
    made = [launch(QUICK, tmp_path / "x", i, told, port) for i, told in enumerate((2, 3))]
    start.running.extend(made)
    for told, (code, _, said) in zip((2, 3), map(ends, made), strict=True):
        assert code == 2, said
        assert said.startswith(f"error: process 1 was given another --processes (here {told})")
        assert len(said.splitlines()) == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_process_0_that_ends_before_all_met_is_noticed_at_once(
    start: Start, tmp_path: Path
) -> None:
    port = free_port()
    leader = launch(QUICK, tmp_path / "x", 0, 3, port)
    start.running.append(leader)
    own = wait_for_connections(port, 1)
    other = launch(QUICK, tmp_path / "x", 1, 3, port)
    start.running.append(other)
    wait_for_connections(port, own + 1)
    os.killpg(leader.pid, signal.SIGKILL)
    begun = time.monotonic()
    code, _, said = ends(other, within_s=60)
    assert code == 2, said
    assert said.startswith(f"error: process 0 at 127.0.0.1:{port} has ended before all")
    assert len(said.splitlines()) == 1
    assert time.monotonic() - begun < 30  # of a machine that may be busy; some 5 s


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1])
def test_processes_that_stay_alone_say_so(tmp_path: Path, number: int) -> None:
    port = free_port()
    code, _, said = ends(launch(QUICK, tmp_path / "x", number, 2, port, "--join-timeout", "3"))
    assert code == 2
    assert said.startswith("error: ")
    assert len(said.splitlines()) == 1
    assert f"127.0.0.1:{port}" in said
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_auto_without_a_cluster_is_refused(tmp_path: Path) -> None:
    hidden = ("SLURM", "OMPI", "KUBERNETES", "JAX_COORDINATOR")
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", "run", "--hosts", "auto", "--out", tmp_path / "x"],
        env={k: v for k, v in os.environ.items() if not k.startswith(hidden)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: --hosts auto finds no job of Slurm, Kubernetes or Open")
    assert len(done.stderr.splitlines()) == 1
