"""The guide with real processes: check, status and the collecting of journals."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from joulemesh.deploy.local.local import free_ports

NAMES = ("farm-01", "farm-02", "farm-03")


def joulemesh(folder: Path, *words: str, code: int | None = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "joulemesh", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert code is None or done.returncode == code, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_fleet_is_checked_watched_and_collected(tmp_path: Path) -> None:
    rows = "".join(f"{name},30\n" for name in NAMES)
    (tmp_path / "d.csv").write_text(f"name,energy_j\n{rows}", "utf-8")
    ports = zip(NAMES, free_ports(3), strict=True)
    hosts = "".join(f"{name},127.0.0.1,{port}\n" for name, port in ports)
    (tmp_path / "hosts.csv").write_text(f"name,address,port\n{hosts}", "utf-8")
    what = ("devices.table=d.csv", "plan.iterations=60", "training.model=logistic")
    changes = [word for one in what for word in ("--set", one)]
    joulemesh(tmp_path, "deploy", "init", *changes, "--with-keys", "--hosts", "hosts.csv")
    start = (sys.executable, "-m", "joulemesh", "node", "run", "--meter=modelled", "--linger=60s")
    nodes = [
        subprocess.Popen(
            [*start, f"fleet/devices/{name}"],
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
        )
        for name in NAMES
    ]
    try:
        began = time.monotonic()
        standings: list[dict[str, Any]] = []
        while sum(bool(one["phase"]) for one in standings) < 3:
            assert time.monotonic() - began < 60
            standings = json.loads(
                joulemesh(tmp_path, "deploy", "status", "fleet", "--json", code=None)
            )
        found = json.loads(joulemesh(tmp_path, "deploy", "check", "fleet", "--json"))
        assert len(found) == 3 + 6
        assert all(one["rate_bps"] for one in found if one["here"] != "this machine")
        joulemesh(tmp_path, "deploy", "status", "fleet", "--watch", "--collect", code=None)
        assert [node.wait(30) for node in nodes] == [0, 0, 0]
    finally:
        for node in nodes:
            node.kill()
            node.wait()
    for name in NAMES:
        lines = (tmp_path / "fleet" / "journals" / name / "journal.jsonl").read_text("utf-8")
        last = json.loads(lines.splitlines()[-1])
        assert (last["kind"], last["complete"]) == ("end", True)
