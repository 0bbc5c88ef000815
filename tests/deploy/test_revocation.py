"""Certificates that no longer count: refused by name, at both ends of a connection."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import joulemesh
from joulemesh.cli.main import app
from joulemesh.deploy.fleet.certificates import (
    REVOKED,
    Authority,
    Identity,
    IdentityError,
    make_identity,
    revoke,
    revoked_serials,
)
from joulemesh.deploy.fleet.enroll import accept, answer_again, ask, read_request, sign
from joulemesh.deploy.fleet.fleet import Host
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet, revoke_devices
from joulemesh.deploy.messages import Beat
from joulemesh.deploy.transport import Reason, TransportError
from tests.deploy.neighbours import Device, authority, device, free_port, identity, started

BEAT = Beat(1, 0, 0, "training")


def without_birch(own: Identity) -> Identity:
    fleet = authority()
    listed = revoke(fleet.key, fleet.certificate, [identity("birch").certificate])
    return replace(own, revoked=listed)


Heard = tuple[list[Reason], list[Reason | None], int]


def heard(by: Identity, sender: Identity) -> Heard:
    """Device 1 sends to device 0: what each of them refuses, and what comes."""

    async def meet() -> Heard:
        ports = free_port(), free_port()
        here = device(0, {1: ports[1]}, listen=ports[0], by=by)
        there = device(1, {0: ports[0]}, listen=ports[1], by=sender)
        async with started(here, there):
            sides = [await _said(there, 0), await _said(here, 1)]
            return [one.reason for one in here.refusals], sides, len(here.inbox)

    return asyncio.run(meet())


async def _said(one: Device, to: int) -> Reason | None:
    try:
        await one.transport.send(to, BEAT, 3.0)
    except TransportError as error:
        return error.reason
    return None


def test_a_revoked_device_is_neither_heard_nor_told_anything() -> None:
    refused, (its_own, ours), came = heard(without_birch(identity("ash")), identity("birch"))
    assert Reason.REVOKED in refused
    assert its_own is Reason.REVOKED  # it hears why
    assert ours is Reason.REVOKED
    assert came == 0


def test_a_new_certificate_of_the_same_name_counts() -> None:
    again = make_identity(authority(), "birch")
    refused, sides, came = heard(without_birch(identity("ash")), again)
    assert (refused, sides, came) == ([], [None, None], 1)


def test_a_list_grows_and_is_the_authority_s_own(tmp_path: Path) -> None:
    fleet, other = Authority.make("orchard"), Authority.make("elsewhere")
    one, two = make_identity(fleet, "one"), make_identity(fleet, "two")
    first = revoke(fleet.key, fleet.certificate, [one.certificate])
    both = revoke(fleet.key, fleet.certificate, [two.certificate, one.certificate], first)
    assert revoked_serials(both) == {one.bearer.serial, two.bearer.serial}
    with pytest.raises(IdentityError, match="not signed by this fleet's authority"):
        revoke(other.key, other.certificate, [], first)
    replace(two, revoked=both).save(tmp_path / "two")
    assert Identity.load(tmp_path / "two").revoked == both
    (tmp_path / "two" / REVOKED).write_bytes(
        revoke(other.key, other.certificate, [one.certificate])
    )
    with pytest.raises(IdentityError, match="not signed by this fleet's authority"):
        Identity.load(tmp_path / "two")


def test_the_command_puts_the_list_into_every_device_s_folder(tmp_path: Path) -> None:
    folder = tmp_path / "fleet"
    make_fleet(folder, joulemesh.plan(joulemesh.Scenario(devices={"count": 3})), with_keys=True)
    lost = DevicePack.load(folder / "devices" / "device-1").identity.bearer.serial
    said = CliRunner().invoke(app, ["deploy", "revoke", str(folder), "device-1"])
    assert said.exit_code == 0, said.output
    assert "bring it to device-0, device-2" in " ".join(said.output.split())
    for name in ("device-0", "device-2"):
        found = DevicePack.load(folder / "devices" / name).identity
        assert revoked_serials(found.revoked) == {lost}
    (folder / "devices" / "device-2" / "certificate.pem").unlink()
    with pytest.raises(joulemesh.ScenarioError, match="device-2 has no certificate to revoke"):
        CliRunner().invoke(
            app, ["deploy", "revoke", str(folder), "device-2"], catch_exceptions=False
        )


def test_an_answer_brings_the_list_and_another_fleet_s_answer_removes_it(tmp_path: Path) -> None:
    plan = joulemesh.plan(joulemesh.Scenario(devices={"count": 3}))
    names = ("device-0", "device-1", "device-2")
    hosts = {name: Host(name, "127.0.0.1", 7100 + k) for k, name in enumerate(names)}
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        make_fleet(folder, plan, with_keys=True, hosts=hosts)
    mine = tmp_path / "mine"
    asked = read_request(ask(mine, hosts["device-0"]))
    for folder, listed in ((one, True), (other, False)):
        answer = sign(folder, [asked], again=True)["device-0"]
        assert not accept(mine, answer, "device-0").identity.revoked
        if listed:
            revoke_devices(folder, ["device-1"])
            accept(mine, answer_again(folder, "device-0"), "device-0")
            assert (mine / REVOKED).exists()
