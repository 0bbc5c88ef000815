"""Devices as real processes: stopped in every way, started again, to the bits of a quiet run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner

import joulemesh
from joulemesh.cli.main import app
from joulemesh.deploy.device.device import RUN
from joulemesh.deploy.device.journal import journals_in
from joulemesh.deploy.device.store import Owner, Store
from joulemesh.deploy.fleet.enroll import accept, ask, read_request, sign
from joulemesh.deploy.fleet.fleet import Host, read_hosts
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet
from joulemesh.deploy.local.local import environment, free_ports
from joulemesh.deploy.node.ending import RETIRED
from joulemesh.deploy.record.history import read_history
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan
from joulemesh.study.deployment import report_of_fleet

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

DEVICES, ITERATIONS = 4, 24
LEARNER = """
import time
import numpy as np

class Walk:
    def __init__(self, device):
        self.device, self.at, self.steps = device, np.zeros(650, np.float32), np.array(0)

    def parameters(self):
        return self.at

    def load(self, parameters):
        self.at = parameters

    def train(self, iteration, rounds):
        time.sleep(0.05)
        for step in range(rounds):
            draw = np.random.default_rng([self.device, iteration, step])
            self.at += draw.normal(size=650).astype(np.float32) / (1 + self.steps)
            self.steps = self.steps + 1

    def evaluate(self):
        return {"accuracy": float(abs(self.at).mean())}

    def save(self):
        return {"steps": self.steps}

    def restore(self, memory):
        self.steps = memory["steps"]
"""


def planned(iterations: int, spares: int = 0) -> Plan:
    changes = {
        "devices.leave": [[device, 1] for device in range(DEVICES - spares, DEVICES)],
        "devices.count": DEVICES,
        "plan.iterations": iterations,
        "plan.fixed_rounds": 1,
        "plan.rounds": "fixed",  # batteries pay for much more: what is done twice is paid twice
        "training.model": "logistic",
    }
    return joulemesh.plan(joulemesh.Scenario.preset("adaptive").override(changes))


class Fleet:
    """All devices of a fleet as processes of this machine."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        patience_s: float = 4.0,
        iterations: int = ITERATIONS,
        spares: int = 0,
    ) -> None:
        plan = planned(iterations, spares)
        names = [f"device-{device}" for device in range(DEVICES)]
        ports = free_ports(DEVICES)
        hosts = {
            name: Host(name, "127.0.0.1", port) for name, port in zip(names, ports, strict=True)
        }
        settings = Settings(patience_s=patience_s)
        make_fleet(folder, plan, hosts=hosts, with_keys=True, settings=settings)
        self.homes = [folder / "devices" / name for name in names]
        self.options, self.logs = options, [folder / f"{name}.log" for name in names]
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *devices: int) -> None:
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "joulemesh", "node", "run", str(self.homes[device]),
                 "--meter", "modelled", "--linger", "0 s", *self.options],
                stdout=subprocess.DEVNULL,
                stderr=self.logs[device].open("ab"),
                env={**os.environ, **environment()},
            )
            for device in devices or range(DEVICES)
        ]  # fmt: skip

    def signal(self, number: int) -> None:
        for process in self.processes:
            process.send_signal(number)

    def codes(self, within_s: float = 90.0) -> list[int]:
        until = time.monotonic() + within_s
        return [process.wait(until - time.monotonic()) for process in self.processes]

    def iteration(self, device: int = 0) -> int:
        """The last that a device has committed, by its journal."""
        done = 0
        for path in journals_in(self.homes[device] / RUN):
            for line in path.read_text().splitlines(keepends=True):
                if line.endswith("\n") and json.loads(line)["kind"] == "committed":
                    done = json.loads(line)["iteration"]
        return done

    def wait_for(self, iteration: int, within_s: float = 60.0, device: int = 0) -> None:
        until = time.monotonic() + within_s
        while self.iteration(device) < iteration:
            assert time.monotonic() < until, self.log(device)
            time.sleep(0.02)

    def log(self, device: int) -> str:
        return self.logs[device].read_text()

    def vectors(self) -> list[bytes]:
        found = []
        for home in self.homes:
            pack = DevicePack.load(home)
            owner = Owner(pack.fleet.id, pack.fleet.digest, pack.device)
            state = Store(home / RUN, owner).load()
            assert state is not None
            assert state.commit.iteration == ITERATIONS
            found.append(state.commit.vector.tobytes())
        return found


@contextmanager
def opened(fleet: Fleet) -> Iterator[Fleet]:
    """Whatever happens, no process is left."""
    try:
        yield fleet
    finally:
        for process in fleet.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("own") / "walk.py"
    path.write_text(LEARNER)
    return f"{path}:Walk"


@pytest.fixture(scope="module")
def quiet(learner: str, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """The parameters after a run that nobody disturbs."""
    with opened(Fleet(tmp_path_factory.mktemp("quiet") / "f", "--learner", learner)) as fleet:
        fleet.start()
        assert fleet.codes() == [0] * DEVICES
        found = fleet.vectors()
    assert len({*found}) == 1
    assert np.isfinite(np.frombuffer(found[0], np.float32)).all()
    return found


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)],
    ids=["Ctrl-C", "SIGTERM", "power cut"],
)
def test_all_are_stopped_and_resume_to_the_same_bits(
    tmp_path: Path, learner: str, quiet: list[bytes], number: int, code: int
) -> None:
    with opened(Fleet(tmp_path / "f", "--learner", learner)) as fleet:
        fleet.start()
        fleet.wait_for(9)
        fleet.signal(number)
        assert fleet.codes(30) == [code] * DEVICES
        done = [fleet.iteration(device) for device in range(DEVICES)]
        assert max(done) < ITERATIONS
        if code > 0:
            assert "started again, it resumes" in fleet.log(0)
        for home in fleet.homes:
            assert (home / RUN / "receipt.json").exists() == (code > 0)  # nobody can after a kill
        fleet.start()
        assert fleet.codes() == [0] * DEVICES, fleet.log(0)
        assert fleet.vectors() == quiet
        assert "Traceback" not in "".join(fleet.log(device) for device in range(DEVICES))


def test_killed_again_and_again_it_resumes_to_the_same_bits(
    tmp_path: Path, learner: str, quiet: list[bytes]
) -> None:
    draw = np.random.default_rng(5)
    with opened(Fleet(tmp_path / "f", "--learner", learner)) as fleet:
        for after in (1, 6, 10, 15, 20):
            fleet.start()
            fleet.wait_for(after)
            time.sleep(float(draw.uniform(0, 0.1)))
            fleet.signal(signal.SIGKILL)
            fleet.codes(10)
        fleet.start()
        assert fleet.codes() == [0] * DEVICES, fleet.log(0)
        assert fleet.vectors() == quiet


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path, learner: str, quiet: list[bytes]) -> None:
    options = ("--learner", learner)
    with opened(Fleet(tmp_path / "f", *options, patience_s=60.0)) as fleet:
        fleet.start()
        fleet.wait_for(3)
        fleet.processes[3].send_signal(signal.SIGSTOP)
        time.sleep(1.0)
        first = fleet.processes[0]
        first.send_signal(signal.SIGINT)  # it would wait for what its neighbours lack
        time.sleep(1.0)
        if first.poll() is None:
            began = time.monotonic()
            first.send_signal(signal.SIGINT)
            assert first.wait(5) == 130
            assert time.monotonic() - began < 1.0
        fleet.signal(signal.SIGKILL)
        fleet.codes(10)
        fleet.start()
        assert fleet.codes() == [0] * DEVICES
        assert fleet.vectors() == quiet


def test_a_device_that_runs_already_is_refused(tmp_path: Path, learner: str) -> None:
    with opened(Fleet(tmp_path / "f", "--learner", learner)) as fleet:
        fleet.start(0)
        while not journals_in(fleet.homes[0] / RUN):
            time.sleep(0.05)
        command = [sys.executable, "-m", "joulemesh", "node", "run", str(fleet.homes[0])]
        second = subprocess.run(command, capture_output=True, text=True, check=False)
        assert second.returncode == 2
        assert "is in use by process" in second.stderr
        assert len(second.stderr.splitlines()) == 1


def at_rest(process: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Resident memory in MB, and seconds of CPU that 10 s of waiting take."""

    def cpu_s() -> float:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = cpu_s()
    time.sleep(10.0)
    used_s = cpu_s() - before
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(resident.split()[1]) * 1024 / 1e6, used_s


@pytest.mark.parametrize(("own", "most_mb"), [(True, 100.0), (False, 250.0)], ids=["own", "JAX"])
def test_a_node_at_rest_takes_little_memory_and_no_cpu(
    tmp_path: Path, learner: str, own: bool, most_mb: float
) -> None:
    """One device is frozen; another has trained and waits for it, as it does between exchanges."""
    options = ("--learner", learner) if own else ()
    with opened(Fleet(tmp_path / "f", *options, patience_s=60.0, iterations=300)) as fleet:
        fleet.start()
        fleet.wait_for(2, within_s=240.0)
        fleet.processes[3].send_signal(signal.SIGSTOP)
        time.sleep(6.0)
        resident_mb, used_s = at_rest(fleet.processes[0])
        assert fleet.iteration() < 300
    print(f"{resident_mb:.0f} MB resident, {used_s:.2f} s of CPU in 10 s")
    assert resident_mb < most_mb
    assert used_s < 0.1


def test_a_device_that_comes_after_the_end_gets_the_model_and_ends(
    tmp_path: Path, learner: str
) -> None:
    """The others have gone on without it and ended; they serve what they ended with."""
    options = ("--learner", learner, "--linger", "60 s")
    with opened(Fleet(tmp_path / "f", *options, patience_s=1.5)) as fleet:
        fleet.start()
        fleet.wait_for(5)
        late = fleet.processes[3]
        late.send_signal(signal.SIGKILL)
        late.wait()
        fleet.wait_for(ITERATIONS)
        while not all("serves its model to" in fleet.log(device) for device in (0, 2)):
            assert all(process.poll() is None for process in fleet.processes[:3])
            time.sleep(0.1)
        others, fleet.options = fleet.processes[:3], options[:2]
        fleet.start(3)
        alone, fleet.processes = fleet.processes, [*others, *fleet.processes]
        assert alone[0].wait(60) == 0, fleet.log(3)
        assert "the fleet ended without this device" in fleet.log(3)
        files = {(home / "model" / "model.safetensors").read_bytes() for home in fleet.homes}
        assert len(files) == 1


def test_a_device_joins_a_running_fleet_and_another_is_retired(tmp_path: Path) -> None:
    """The newcomer makes its key itself, in a folder of its own."""
    (tmp_path / "walk.py").write_text(LEARNER.replace("sleep(0.05)", "sleep(0.3)"))
    learner = ("--learner", f"{tmp_path / 'walk.py'}:Walk")
    folder, newcomer = tmp_path / "fleet", tmp_path / "device-3"
    with opened(Fleet(folder, *learner, iterations=60, spares=1)) as fleet:
        for name in ("key.pem", "certificate.pem"):
            (fleet.homes[3] / name).unlink()
        fleet.start(0, 1, 2)
        members = fleet.processes
        host = read_hosts(folder / "hosts.csv", [one.name for one in fleet.homes])["device-3"]
        accept(newcomer, sign(folder, [read_request(ask(newcomer, host))])["device-3"], "device-3")
        fleet.wait_for(3)
        assert operated("add", folder, "device-3").startswith("added device-3: device-0 has roster")
        fleet.homes[3] = newcomer
        fleet.start(3)
        fleet.processes = [*members, *fleet.processes]
        fleet.wait_for(10, device=3)
        operated("retire", folder, "device-0")
        assert fleet.codes(120.0) == [0] * DEVICES, fleet.log(3)
    journal = read_history(newcomer / RUN, 3, "device-3")
    views = [event.figures["members"] for event in journal.events if event.kind == "view"]
    assert views == [[0, 1, 2, 3], [1, 2, 3]]
    end = read_history(fleet.homes[0] / RUN, 0, "device-0").end
    assert end is not None
    assert end.figures["reason"] == RETIRED
    models = [load_file(home / "model" / "model.safetensors") for home in fleet.homes]
    ends = {next(iter(model.values())).tobytes() for model in models[1:]}
    assert len(ends) == 1
    assert next(iter(models[0].values())).tobytes() not in ends
    shutil.copytree(newcomer / RUN, folder / "devices" / "device-3" / RUN)
    reported = report_of_fleet(folder, simulate=False)
    assert not [note for note in reported.notes if "another plan" in note]
    planned_j, simulated_j, charged_j = (
        json.loads(reported.receipt.to_json())["devices"][3]["totals"][kind]["joules"]
        for kind in ("planned", "simulated", "charged")
    )
    assert not planned_j
    assert charged_j == pytest.approx(simulated_j)
    page = reported.page.read_text("utf-8")
    assert RETIRED in page


def operated(command: str, folder: Path, name: str) -> str:
    done = CliRunner().invoke(app, ["deploy", command, str(folder), name])
    assert done.exit_code == 0, done.output
    return done.output
