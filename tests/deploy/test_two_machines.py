"""The README's way from a description of devices to the model, on two machines.

Each has a network namespace and a file system of its own: what one needs of the other is carried
there, as a person would. Commands and files are those of the README, with two of its five devices.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = pytest.mark.slow

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
NAMES = ("gate", "barn")
_AT = {"gate": "10.77.0.1", "barn": "10.77.0.2"}


class Machine:
    """A network namespace, and a home that hides every other machine's."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root, self.home = name, root, root / name
        self.home.mkdir()
        ip("netns", "add", self.network)
        ip("-n", self.network, "link", "set", "lo", "up")

    @property
    def network(self) -> str:
        return f"joulemesh-{self.name}"

    def command(self, line: str) -> list[str]:
        path = Path(sys.executable).parent
        inside = (
            f"mount --bind {self.home} /mnt && mount -t tmpfs none {self.root} && cd /mnt && "
            f"export HOME=/mnt JAX_PLATFORMS=cpu PATH={path}:$PATH && exec {line}"
        )
        return ["ip", "netns", "exec", self.network, "unshare", "-m", "bash", "-c", inside]

    def run(self, line: str) -> str:
        done = subprocess.run(self.command(line), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{self.name}$ {line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def start(self, line: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self.command(line))


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"ip {words[0]}: {done.stderr.strip()}")


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    if sys.platform != "linux" or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need Linux, iproute2 and root")
    try:
        gate, barn = (Machine(name, tmp_path) for name in NAMES)
        ends = ("jm-gate", gate.network, "type", "veth", "peer", "name", "jm-barn", "netns")
        ip("link", "add", ends[0], "netns", *ends[1:], barn.network)
        for one in (gate, barn):
            ip("-n", one.network, "addr", "add", f"{_AT[one.name]}/24", "dev", f"jm-{one.name}")
            ip("-n", one.network, "link", "set", f"jm-{one.name}", "up")
            ip("-n", one.network, "route", "add", "default", "dev", f"jm-{one.name}")
        yield gate, barn
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", f"joulemesh-{name}"], check=False)


def block(language: str, holds: str) -> str:
    """The README's block of a language that holds a text."""
    found = re.findall(rf"```{language}[^\n]*\n(.*?)```", README, re.DOTALL)
    (one,) = [text for text in found if holds in text]
    return str(one)


def typed(command: str) -> str:
    """What the README types, without its comment."""
    (line,) = [one for one in block("text", "deploy init").splitlines() if f"$ {command}" in one]
    return line.partition("$ ")[2].partition("  #")[0].strip()


def describe(laptop: Path, device: Path) -> None:
    """The README's files on the laptop; the other device has samples of its own."""
    rows = block("csv", "gate,").splitlines()
    kept = [row for row in rows if row.startswith(("name,", *NAMES))]
    (laptop / "devices.csv").write_text("\n".join(kept) + "\n")
    few = "\n[plan]\niterations = 60\n"
    (laptop / "mine.toml").write_text(block("toml", 'table = "devices.csv"') + few)
    five = '("gate", "barn", "mast", "pump", "shed")[k % 5]'
    made = block("python", "readings.csv")
    assert five in made
    subprocess.run(
        [sys.executable, "-c", made.replace(five, '("gate", "barn")[k % 2]')],
        cwd=laptop,
        check=True,
    )
    lines = (laptop / "readings.csv").read_text().splitlines()
    own = [line for line in lines if line.startswith(("name,", "barn,"))]
    (device / "readings.csv").write_text("\n".join(own) + "\n")


def test_from_the_readme_to_the_model(machines: tuple[Machine, Machine]) -> None:
    began, (laptop, other) = time.monotonic(), machines
    describe(laptop.home, other.home)
    laptop.run(typed("joulemesh deploy init"))
    for device in machines:
        device.run(typed("joulemesh node enroll gate >").replace("gate", device.name))
        carried = (device.home / "request.txt").read_text()
        (laptop.home / "request.txt").write_text(carried)
        laptop.run(typed("joulemesh deploy sign"))
        (device.home / "answer.txt").write_text((laptop.home / "answer.txt").read_text())
        device.run(typed("joulemesh node enroll gate --accept").replace("gate", device.name))
    run = typed("joulemesh node run")
    nodes = [device.start(run.replace("gate", device.name)) for device in machines]
    try:
        assert [node.wait(300) for node in nodes] == [0, 0]
        nodes = [device.start(run.replace("gate", device.name)) for device in machines]
        until = time.monotonic() + 120
        while "2 of 2 devices answer" not in laptop.run(
            f"bash -c '{typed('joulemesh deploy status')} || true'"
        ):
            assert time.monotonic() < until
            time.sleep(1.0)
        assert "2 of 2 devices hold the same model" in laptop.run(typed("joulemesh deploy collect"))
        report = laptop.run(f"{typed('joulemesh deploy report')} --no-simulate")
        assert "2 devices carried out 60 iterations" in report
    finally:
        for node in nodes:
            node.terminate()
            node.wait(60)
    model = load_file(laptop.home / "fleet" / "model" / "model.safetensors")
    assert all(np.isfinite(one).all() for one in model.values())
    about = json.loads((laptop.home / "fleet" / "model" / "config.json").read_text())
    assert set(about["class_names"]) == {"fault", "hot", "well"}
    with (laptop.home / "fleet" / "receipt.csv").open() as file:
        assert {row["name"] for row in csv.DictReader(file)} == set(NAMES)
    print(f"from the README to the model of two machines in {time.monotonic() - began:.0f} s")
