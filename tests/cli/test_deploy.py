"""`joulemesh deploy` and `joulemesh node`, typed as in the guide."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulemesh.deploy.fleet.pack import DevicePack
from tests.commands import Command

THREE = ("--set", "devices.count=3", "--set", "plan.iterations=2")


def test_init_says_that_no_message_is_lost_in_the_field(command: Command) -> None:
    made = command("deploy", "init", *THREE, "--set", "network.packet_error=0.1")
    assert made.code == 0
    assert "no message is lost as in a simulated run" in made.out
    assert "packet_error" not in command("deploy", "init", *THREE, "--out", "other").out


def test_a_plan_for_a_shared_medium_is_packed_as_it_is_and_says_what_devices_do(
    command: Command,
) -> None:
    shared = ("--set", "network.medium=shared", "--set", "network.broadcast=true")
    made = command("deploy", "init", *THREE, *shared)
    assert (made.code, made.err) == (0, "")
    assert "note: network.medium" in made.out
    assert "the bytes go to each neighbour by unicast" in " ".join(made.out.split())
    assert "note:" not in command("deploy", "init", *THREE, "--out", "other").out


def test_the_guide_from_init_to_enrolled(command: Command, tmp_path: Path) -> None:
    made = command("deploy", "init", *THREE)
    assert (made.code, made.err) == (0, "")
    assert "now fill in fleet/hosts.csv" in made.out
    for device in range(3):
        name = f"device-{device}"
        asked = command("node", "enroll", name, "--address", f"{name}.local", "--port", "7200")
        assert asked.code == 0
        Path(f"{name}.txt").write_text(asked.out, "utf-8")
        assert asked.out.startswith("-----BEGIN JOULEMESH REQUEST-----\n")
    alone = command("deploy", "sign", "fleet", "device-0.txt")
    assert alone.code == 0
    assert alone.out.startswith("-----BEGIN JOULEMESH ANSWER-----\n")
    several = ("device-0.txt", "device-1.txt", "device-2.txt")
    assert "add --out DIR" in command("deploy", "sign", "fleet", *several).err
    signed = command("deploy", "sign", "fleet", *several, "--out", "answers")
    assert signed.code == 0
    taken = command("node", "enroll", "device-0", "--accept", "answers/device-0.txt")
    assert "its neighbours are device-1, device-2" in taken.out
    again = command("deploy", "sign", "fleet", "-", stdin=Path("device-1.txt").read_text("utf-8"))
    pasted = command("node", "enroll", "device-1", "--accept", "-", stdin=again.out + "more\n")
    assert pasted.code == 0, pasted.err
    assert DevicePack.load(tmp_path / "device-1").hosts[0].port == 7200
    text = Path("fleet/hosts.csv").read_text("utf-8").replace("device-0.local", "moved.local")
    Path("fleet/hosts.csv").write_text(text, "utf-8")
    moved = command("deploy", "sign", "fleet", "device-1")
    assert command("node", "enroll", "device-1", "--accept", "-", stdin=moved.out).code == 0
    assert DevicePack.load(tmp_path / "device-1").hosts[0].address == "moved.local"


def test_a_lab_needs_no_enrolling(command: Command, tmp_path: Path) -> None:
    rows = "".join(f"device-{k},10.0.0.{k},7100\n" for k in range(3))
    Path("hosts.csv").write_text(f"name,address,port\n{rows}", "utf-8")
    made = command("deploy", "init", *THREE, "--with-keys", "--hosts", "hosts.csv", "--out", "lab")
    assert made.code == 0, made.err
    mine = DevicePack.load(tmp_path / "lab" / "devices" / "device-2")
    assert mine.hosts[1].address == "10.0.0.1"
    assert mine.identity.bearer.name == "device-2"
    text = Path("lab/hosts.csv").read_text("utf-8").replace("10.0.0.1,", "other,")
    Path("lab/hosts.csv").write_text(text, "utf-8")
    assert command("deploy", "sign", "lab").code == 0
    assert DevicePack.load(mine.folder).hosts[1].address == "other"


@pytest.mark.parametrize("method", ["led", "gossip-learning", "fixed:3", "fedavg"])
def test_methods_that_devices_cannot_carry_out_are_refused(command: Command, method: str) -> None:
    refused = command("deploy", "init", *THREE, "--method", method)
    assert refused.code == 2
    assert refused.err.startswith(f"error: {method} is for simulation only: ")
    assert refused.err.count("\n") == 1
    assert not Path("fleet").exists()


def test_a_method_with_a_plan_of_its_own_is_deployed(command: Command, tmp_path: Path) -> None:
    made = command("deploy", "init", *THREE, "--method", "adaptive:backfill")
    assert made.code == 0, made.err
    mine = DevicePack.load(tmp_path / "fleet" / "devices" / "device-0")
    assert mine.fleet.scenario.plan.rounds == "backfill"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deploy", "init", "--patience", "5 J"), "this is an energy"),
        (("deploy", "init", "--patience", "0"), "--patience 0: "),
        (("deploy", "init", "--hosts", "none.csv"), "cannot read none.csv"),
        (("deploy", "sign", "nowhere"), "cannot read nowhere/fleet.json"),
        (("deploy", "sign", "nowhere", "none.txt"), "cannot read none.txt"),
        (("deploy", "sign", "nowhere", "device-0"), "cannot read device-0"),
        (("node", "enroll", "Farm 7"), "'Farm 7' cannot be a device's name"),
        (("node", "enroll", "a", "--address", "x y"), "'x y' is no host name"),
        (("node", "enroll", "a", "--accept", "none.txt"), "cannot read none.txt"),
    ],
)
def test_refusals_are_one_line(command: Command, arguments: tuple[str, ...], said: str) -> None:
    refused = command(*arguments)
    assert refused.code == 2
    assert refused.err.startswith("error: ")
    assert refused.err.count("\n") == 1
    assert said in refused.err


def test_a_device_without_a_default_route_asks_for_its_address(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joulemesh.deploy.fleet.fleet.own_address", str)
    asked = command("node", "enroll", "gate")
    assert asked.code == 2
    assert "no default route" in asked.err
    assert "--address" in asked.err
    assert not (tmp_path / "gate").exists()
    assert command("node", "enroll", "gate", "--address", "10.0.0.7").code == 0
