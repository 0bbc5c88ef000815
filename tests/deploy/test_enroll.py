"""Blocks of text between a device and the operator: who gets what, and what is refused."""

from __future__ import annotations

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import joulemesh
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.deploy.fleet.enroll import (
    Request,
    accept,
    answer_again,
    ask,
    from_block,
    read_request,
    sign,
    to_block,
)
from joulemesh.deploy.fleet.fleet import Fleet, Host, own_address, read_hosts
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet
from joulemesh.scenario import Scenario

NAMES = ("device-0", "device-1", "device-2")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "fleet"
    make_fleet(folder, joulemesh.plan(Scenario(devices={"count": 3}, plan={"iterations": 3})))
    return folder


@pytest.fixture
def fleet(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "fleet"))


def request(place: Path, name: str, address: str = "") -> Request:
    return read_request(ask(place / name, Host(name, address or f"{name}.local")))


def test_a_device_is_enrolled_and_its_key_never_leaves_it(fleet: Path, tmp_path: Path) -> None:
    asked = [request(tmp_path, name) for name in NAMES]
    answers = sign(fleet, asked)
    for name in NAMES:
        mine = accept(tmp_path / name, f"Dear colleague,\n{answers[name]}\nRegards", name)
        assert mine.name == mine.identity.bearer.name == name
        assert mine.fleet.to_json() == Fleet.load(fleet).to_json()
        assert {host.address for host in mine.hosts.values()} == {f"{one}.local" for one in NAMES}
        key = (tmp_path / name / "key.pem").read_bytes()
        assert not any(key in path.read_bytes() for path in fleet.rglob("*") if path.is_file())
        assert not (tmp_path / name / "request.txt").exists()
    assert DevicePack.load(fleet / "devices" / "device-1").hosts[1].address == "device-1.local"


def test_the_same_request_is_signed_again_and_another_key_only_if_told(
    fleet: Path, tmp_path: Path
) -> None:
    everybody = [request(tmp_path, name) for name in NAMES]
    sign(fleet, everybody)
    sign(fleet, everybody[:1])
    other = request(tmp_path / "stolen", "device-0")
    before = (fleet / "devices" / "device-0" / "certificate.pem").read_bytes()
    with pytest.raises(ScenarioError, match="device-0 has a certificate for another key already"):
        sign(fleet, [other])
    assert (fleet / "devices" / "device-0" / "certificate.pem").read_bytes() == before
    answer = sign(fleet, [other], again=True)["device-0"]
    assert accept(tmp_path / "stolen" / "device-0", answer, "device-0").device == 0


def test_addresses_come_from_requests_and_are_kept(fleet: Path, tmp_path: Path) -> None:
    nowhere = replace(request(tmp_path, "device-0"), host=Host("device-0"))
    with pytest.raises(ScenarioError, match="no address for device-0; write a host name"):
        sign(fleet, [nowhere])
    assert not list(fleet.rglob("certificate.pem"))[1:]  # the operator's only
    sign(fleet, [request(tmp_path, "device-0", "10.0.0.5")])
    assert read_hosts(fleet / "hosts.csv", NAMES)["device-0"].address == "10.0.0.5"
    moved = [request(tmp_path, name, "10.0.0.9") for name in NAMES[:1]]
    others = [request(tmp_path, name) for name in NAMES[1:]]
    sign(fleet, [*moved, *others])
    assert read_hosts(fleet / "hosts.csv", NAMES)["device-0"].address == "10.0.0.5"
    assert "Missing" not in (fleet / "hosts.csv").read_text("utf-8")


def test_requests_may_be_signed_one_by_one(fleet: Path, tmp_path: Path) -> None:
    """Of two neighbours at least one knows where the other is: that one tells it the rest."""
    packs = []
    for name in NAMES:
        block = sign(fleet, [request(tmp_path, name)])[name]
        packs.append(accept(tmp_path / name, block, name))
    for one in packs:
        for other in one.neighbours:
            assert one.hosts[other].address or packs[other].hosts[one.device].address


def test_strangers_are_not_signed(fleet: Path, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the fleet has no device 'device-9'"):
        sign(fleet, [request(tmp_path, "device-9")])


def test_who_was_never_signed_cannot_be_answered_again(fleet: Path, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="no address for device-0;"):
        answer_again(fleet, "device-0")
    sign(fleet, [request(tmp_path, name) for name in NAMES])
    (fleet / "devices" / "device-0" / "certificate.pem").unlink()
    with pytest.raises(ScenarioError, match="device-0 has no certificate yet; sign its request"):
        answer_again(fleet, "device-0")


def test_two_requests_of_one_device_are_refused(fleet: Path, tmp_path: Path) -> None:
    both = [request(tmp_path / place, "device-0") for place in ("a", "b")]
    with pytest.raises(ScenarioError, match="two of the requests are of device-0"):
        sign(fleet, both)


def test_asking_again_shows_the_same_key_until_there_is_a_certificate(
    fleet: Path, tmp_path: Path
) -> None:
    everybody = [request(tmp_path, name) for name in NAMES]
    key = (tmp_path / "device-0" / "key.pem").read_bytes()
    request(tmp_path, "device-0")
    assert (tmp_path / "device-0" / "key.pem").read_bytes() == key
    accept(tmp_path / "device-0", sign(fleet, everybody)["device-0"], "device-0")
    with pytest.raises(ScenarioError, match="has a certificate already"):
        request(tmp_path, "device-0")
    ask(tmp_path / "device-0", Host("device-0", "a"), anew=True)
    assert (tmp_path / "device-0" / "key.pem").read_bytes() != key


def test_answers_for_others_change_nothing(fleet: Path, tmp_path: Path) -> None:
    answers = sign(fleet, [request(tmp_path, name) for name in NAMES])
    home = tmp_path / "device-0"
    before = sorted(path.name for path in home.iterdir())
    with pytest.raises(JoulemeshError, match="is for another key"):
        accept(home, answers["device-1"], "device-0")
    with pytest.raises(ScenarioError, match=r"is for device-0 .* not for device-2"):
        accept(home, answers["device-0"], "device-2")
    with pytest.raises(ScenarioError, match="has no key; ask first"):
        accept(tmp_path / "nobody", answers["device-0"], "device-0")
    files = from_block("ANSWER", answers["device-0"], "")
    for change in ({"../x": b""}, {"key.pem": b""}, {"inputs/../x": b""}, {"run/x": b""}):
        with pytest.raises(ScenarioError, match="the block has a file"):
            accept(home, to_block("ANSWER", {**files, **change}), "device-0")
    kept = to_block("ANSWER", {name: files[name] for name in files if name != "hosts.csv"})
    with pytest.raises(ScenarioError, match=r"the block lacks hosts\.csv"):
        accept(home, kept, "device-0")
    assert sorted(path.name for path in home.iterdir()) == before


def test_what_mail_does_to_a_block_does_no_harm() -> None:
    block = to_block("REQUEST", {"a": bytes(range(256)) * 4}, "hello")
    quoted = "\r\n".join(f"> > {line}  " for line in block.splitlines())
    for text in (block, quoted, f"\ufeff {block} ", block.replace("\n", "\n\n")):
        assert from_block("REQUEST", text, "x") == {"a": bytes(range(256)) * 4}


def test_a_damaged_block_is_refused_in_one_line() -> None:
    block = to_block("REQUEST", {"a": b"1" * 500})
    draw = random.Random(0)
    for _ in range(300):
        text = list(block)
        for _ in range(draw.randint(1, 3)):
            text[draw.randrange(len(text))] = draw.choice("Aa1+/=-\n\x00é")
        said = ""
        try:
            assert from_block("REQUEST", "".join(text), "x") == {"a": b"1" * 500}
        except ScenarioError as refused:
            said = str(refused)
        assert "\n" not in said
    with pytest.raises(ScenarioError, match="a block ANSWER, not one BEGIN JOULEMESH REQUEST"):
        from_block("REQUEST", to_block("ANSWER", {}), "x")
    with pytest.raises(ScenarioError, match="no whole block"):
        from_block("REQUEST", block[:-10], "x")


def test_a_block_that_unpacks_to_more_than_is_sensible_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bomb = to_block("REQUEST", {"a": b"\0" * 100_000})
    assert len(bomb) < 5000
    from joulemesh.base.files import Limit
    from joulemesh.deploy.fleet import enroll

    monkeypatch.setattr(enroll, "FLEET", Limit(10_000))
    with pytest.raises(ScenarioError, match="the block is damaged"):
        from_block("REQUEST", bomb, "x")


@pytest.mark.parametrize("host", ['{"address": "a b", "port": 1, "version": ""}', "[]", "{}", "1"])
def test_a_request_with_a_strange_host_is_refused(tmp_path: Path, host: str) -> None:
    ask(tmp_path / "a", Host("a"))
    files = from_block("REQUEST", (tmp_path / "a" / "request.txt").read_text("utf-8"), "")
    with pytest.raises(ScenarioError, match="the request"):
        read_request(to_block("REQUEST", {**files, "host.json": host.encode()}))


def test_the_own_address_is_one() -> None:
    assert " " not in own_address()
