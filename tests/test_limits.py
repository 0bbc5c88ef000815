"""Limits on files: each is used, and the documentation prints them all."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import joulemesh
from joulemesh import machine
from joulemesh.files import limits
from joulemesh.files.limits import LIMITS
from tools.reference import limits_page

HOME = Path(joulemesh.__file__).parent


def test_every_limit_is_used_and_documented() -> None:
    places = (HOME, Path(__file__).parents[1] / "publications")
    paths = [path for place in places for path in place.rglob("*.py") if path.name != "limits.py"]
    source = {path: path.read_text("utf-8") for path in paths}
    names = [name for name in limits.__all__ if name not in ("LIMITS", "Limit")]
    assert len(names) == len(LIMITS)
    page = limits_page()
    for name in names:
        assert any(f"import {name}" in text or f"{name}.now" in text for text in source.values())
        one = getattr(limits, name)
        assert one.now > 0
        assert f"| {one.reads} | {one} | {one.why} |" in page


def test_limits_follow_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2**31)
    assert limits.DATA.now == 2**30
    assert limits.TABLE.now == 2**26
    monkeypatch.setattr(machine, "memory_bytes", lambda: 2**50)
    assert limits.TABLE.now == 256 * 2**20


def test_memory_is_what_the_resource_limits_allow() -> None:
    code = "from joulemesh.machine import memory_bytes; print(memory_bytes())"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, preexec_fn=limit
    )
    assert int(done.stdout) <= 2**30
