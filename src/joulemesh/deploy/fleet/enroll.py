"""How a device joins a fleet: it asks with a block of text, and is answered with another one.

The device makes its key and keeps it. Its request holds its name, where it thinks that it is
reached, and the proof that it has the key; the operator, who knows which device it came from,
signs it. The answer holds all that the device needs.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
import shutil
import textwrap
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from joulemesh._version import __version__
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import FLEET, make_folder, parse_json, write_text
from joulemesh.deploy.fleet.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    REVOKED,
    Authority,
    Identity,
    check_name,
    make_key,
    make_request,
    name_in_request,
    read_pem,
    same_key,
    write_pem,
)
from joulemesh.deploy.fleet.fleet import (
    FILE,
    HOSTS,
    Fleet,
    Host,
    checked_host,
    fill_in,
    require_addresses,
)
from joulemesh.deploy.fleet.pack import (
    DEVICES,
    ORDERS,
    DevicePack,
    device_files,
    fleet_hosts,
    write_files,
)

_WIDTH = 72
_BLOCK = re.compile(r"-----BEGIN JOULEMESH ([A-Z]+)-----(.*?)-----END JOULEMESH \1-----", re.DOTALL)
_CHECK_SUM = re.compile(r"^sha256: ([0-9a-f]{64})$", re.MULTILINE)


def to_block(kind: str, files: Mapping[str, bytes], comment: str = "") -> str:
    plain = json.dumps({name: data.decode("latin-1") for name, data in files.items()}).encode()
    packed = base64.b64encode(zlib.compress(plain, 9)).decode()
    lines = [f"-----BEGIN JOULEMESH {kind}-----"]
    lines += [f"note: {comment}"] if comment else []
    lines += [f"sha256: {hashlib.sha256(plain).hexdigest()}", *textwrap.wrap(packed, _WIDTH)]
    return "\n".join([*lines, f"-----END JOULEMESH {kind}-----"])


def from_block(kind: str, text: str, made_by: str) -> dict[str, bytes]:
    if len(text) > FLEET.now:
        raise ScenarioError(f"the text is longer than a block may be ({FLEET}); paste the block")
    found = _BLOCK.search(text)
    if found is None or found[1] != kind:
        what = f"a block {found[1]}" if found else "no whole block"
        raise ScenarioError(
            f"the text holds {what}, not one BEGIN JOULEMESH {kind} … END; paste all that "
            f"`{made_by}` printed"
        )
    body = "\n".join(line.strip(" \t>|") for line in found[2].splitlines())
    check = _CHECK_SUM.search(body)
    if check is None:
        raise ScenarioError(f"the block has no line sha256; copy what `{made_by}` printed again")
    try:
        packed = base64.b64decode("".join(body[check.end() :].split()), validate=True)
        opened = zlib.decompressobj()
        plain = opened.decompress(packed, FLEET.now)
        if opened.unconsumed_tail or not opened.eof:
            raise ValueError(f"more than {FLEET}, or cut off")
        if hashlib.sha256(plain).hexdigest() != check[1]:
            raise ValueError("its check sum is wrong")
        return {name: value.encode("latin-1") for name, value in parse_json(plain).items()}
    except (ValueError, AttributeError, zlib.error) as error:
        reason = " ".join(str(error).split())[:100]
        raise ScenarioError(
            f"the block is damaged ({reason}); copy what `{made_by}` printed again"
        ) from None


REQUEST_FILE = "request.txt"
_ASK, _ANSWER = "joulemesh node enroll", "joulemesh deploy sign"
_FILES = {FILE, ORDERS, HOSTS, AUTHORITY, CERTIFICATE}
_INPUT = re.compile(r"inputs/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Request:
    """What a device asks for."""

    pem: str  # the request for a certificate
    host: Host  # its name, and where it thinks that it is reached; the address may be empty
    version: str = __version__


# On the device ----------------------------------------------------------------------------------


def ask(folder: Path, host: Host, *, anew: bool = False) -> str:
    check_name(host.name)
    make_folder(folder)
    if (folder / CERTIFICATE).exists() and not anew:
        raise ScenarioError(
            f"{folder} has a certificate already; `joulemesh node run {folder}` takes part, and "
            "--anew makes another key, which has to be signed again"
        )
    if anew or not (folder / KEY).exists():
        write_pem(folder / KEY, make_key(), private=True)
    pem = make_request(host.name, read_pem(folder / KEY, private=True))
    record = {"address": host.address, "port": host.port, "version": __version__}
    files = {"request.pem": pem.encode(), "host.json": json.dumps(record).encode()}
    block = to_block("REQUEST", files, f"{host.name} asks to take part")
    write_text(folder / REQUEST_FILE, f"{block}\n")
    return block


def accept(folder: Path, text: str, name: str) -> DevicePack:
    """Take up the operator's answer; nothing is changed unless it fits the device's key."""
    files = from_block("ANSWER", text, _ANSWER)
    known = {*_FILES, REVOKED}
    strange = [name for name in files if name not in known and not _INPUT.fullmatch(name)]
    lacking = sorted(_FILES - set(files))
    if strange or lacking:
        odd = f"has a file {strange[0]!r:.60}" if strange else f"lacks {lacking[0]}"
        raise ScenarioError(f"the block {odd}; use the same version of Joulemesh on both sides")
    if not (folder / KEY).exists():
        raise ScenarioError(f"{folder} has no key; ask first: `{_ASK} {name}`")
    key = read_pem(folder / KEY, private=True)
    draft = folder / f".{secrets.token_hex(8)}.part"
    try:
        write_files(draft, files)
        write_pem(draft / KEY, key, private=True)
        found = DevicePack.load(draft)
        bears = Identity.load(draft).bearer.name
        if not bears == found.name == name:
            raise ScenarioError(
                f"the answer is for {found.name} (its certificate for {bears}), not for {name}; "
                f"paste the answer to the request of {name}"
            )
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    if (folder / AUTHORITY).exists() and read_pem(folder / AUTHORITY) != files[AUTHORITY]:
        (folder / REVOKED).unlink(missing_ok=True)  # that was another fleet's
    write_files(folder, files)
    (folder / REQUEST_FILE).unlink(missing_ok=True)
    return DevicePack.load(folder)


# On the operator's machine ----------------------------------------------------------------------


def read_request(text: str) -> Request:
    files = from_block("REQUEST", text, _ASK)
    try:
        pem = files["request.pem"].decode()
        record = parse_json(files["host.json"])
        address, port, version = (record[name] for name in ("address", "port", "version"))
        name = name_in_request(pem)
        host = checked_host("the request", name, str(address), str(port))
        return Request(pem, host, str(version)[:100])
    except (KeyError, TypeError, UnicodeDecodeError):
        raise ScenarioError(
            f"the request is incomplete; copy what `{_ASK} NAME` printed again"
        ) from None


def sign(
    folder: Path, requests: Sequence[Request], *, again: bool = False, days: float = 365
) -> dict[str, str]:
    # Addresses that ``hosts.csv`` lacks are taken from the requests. A device need not know those
    # of neighbours that are signed later: these know its own, and tell it theirs when they connect.
    fleet, authority = Fleet.load(folder), Authority.load(folder)
    for one in requests:
        _check(folder, fleet, one, again=again)
    names = [one.host.name for one in requests]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ScenarioError(f"two of the requests are of {twice}; sign its newest one only")
    fill_in(folder / HOSTS, [one.host for one in requests if one.host.address])
    hosts = fleet_hosts(folder, fleet)
    require_addresses(folder / HOSTS, hosts, names)
    blocks = {}
    for one in requests:
        name = one.host.name
        certificate = authority.sign(one.pem, days=days)
        write_pem(folder / DEVICES / name / CERTIFICATE, certificate)
        content = device_files(folder, fleet, hosts, name)
        write_files(folder / DEVICES / name, content)
        blocks[name] = to_block("ANSWER", content, f"for {name} of fleet {fleet.id}")
    return blocks


def answer_again(folder: Path, name: str) -> str:
    """The block for a device that was signed before, with what ``hosts.csv`` says now."""
    fleet = Fleet.load(folder)
    fleet.number(name)
    hosts = fleet_hosts(folder, fleet)
    require_addresses(folder / HOSTS, hosts, [name])
    content = device_files(folder, fleet, hosts, name)
    if CERTIFICATE not in content:
        raise ScenarioError(f"{name} has no certificate yet; sign its request first")
    write_files(folder / DEVICES / name, content)
    return to_block("ANSWER", content, f"for {name} of fleet {fleet.id}")


def _check(folder: Path, fleet: Fleet, request: Request, *, again: bool) -> None:
    name = request.host.name
    fleet.number(name)
    issued = folder / DEVICES / name / CERTIFICATE
    if issued.exists() and not again and not same_key(read_pem(issued), request.pem):
        raise ScenarioError(
            f"{name} has a certificate for another key already; if the device lost its key, add "
            "--again"
        )
