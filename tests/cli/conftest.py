"""Commands in an empty folder, or in one with a small scenario."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import SMALL, Command, commands


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run a command in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return commands(monkeypatch, capsys)


@pytest.fixture
def small(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """The same in a folder with a small scenario, and with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("small.toml").write_text(SMALL)
    return command
