"""Bits that nothing carries out are refused by every command alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Command

COMMANDS = {
    "plan": (),
    "run": (),
    "compare": ("--methods", "spread,d-psgd"),
    "tune": (),
    "sweep": ("--vary", "devices.count=4,5"),
    "deploy init": ("--out", "fleet"),
    "deploy local": (),
}


@pytest.mark.parametrize("words", COMMANDS)
@pytest.mark.parametrize("bits", [1, 8, 31])
def test_every_command_refuses_a_width_that_is_not_carried_out(
    words: str, bits: int, command: Command, tmp_path: Path
) -> None:
    Path("narrow.toml").write_text(f"[network]\nbits_per_parameter = {bits}\n")
    code, _, told = command(*words.split(), "narrow.toml", *COMMANDS[words])
    assert code == 2
    assert f"network.bits_per_parameter = {bits} is not carried out" in told
    assert "use 16 or 32" in told
    assert len(told.splitlines()) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["narrow.toml"]
