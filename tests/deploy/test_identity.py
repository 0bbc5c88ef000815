"""Keys, requests and certificates: what they say, who may read them, and what is refused."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose

from joulemesh.deploy.fleet.certificates import (
    Authority,
    Identity,
    IdentityError,
    check_name,
    make_identity,
    make_key,
    make_request,
    name_in_request,
    read_certificate,
)

NOW = dt.datetime(2026, 11, 16, 8, 0, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def fleet() -> Authority:
    return Authority.make("orchard")


def test_a_device_shows_a_request_and_gets_a_certificate_for_its_key(fleet: Authority) -> None:
    key = make_key()
    request = make_request("farm-07", key)
    assert request.startswith("-----BEGIN CERTIFICATE REQUEST-----")
    assert b"PRIVATE" not in request.encode()
    assert name_in_request(request) == "farm-07"
    own = Identity(key, fleet.sign(request), fleet.certificate)
    own.check()
    assert own.bearer.name == "farm-07"


def test_a_pasted_block_may_have_blanks_and_text_around_it(fleet: Authority) -> None:
    request = make_request("farm-07", make_key())
    pasted = "here it is:\r\n\r\n" + request.replace("\n", "\r\n") + "\r\n  \r\n"
    assert read_certificate(fleet.sign(pasted)).name == "farm-07"


@pytest.mark.parametrize("name", ["", "Farm", "farm 7", "-farm", "farm.operator", "ä", "a" * 64])
def test_names_that_no_certificate_can_bear_are_refused(name: str) -> None:
    with pytest.raises(IdentityError, match="cannot be a device's name"):
        check_name(name)


def test_a_certificate_permits_no_more_than_its_role_needs(fleet: Authority) -> None:
    for role, purposes, bears in (
        ("device", {Purpose.CLIENT_AUTH, Purpose.SERVER_AUTH}, "laptop"),
        ("operator", {Purpose.CLIENT_AUTH}, "laptop.operator"),
    ):
        made = fleet.sign(make_request("laptop", make_key()), role=role)  # type: ignore[arg-type]
        of = x509.load_pem_x509_certificate(made).extensions.get_extension_for_class
        assert set(of(x509.ExtendedKeyUsage).value) == purposes
        assert of(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName) == [bears]
        usage = of(x509.KeyUsage)
        assert usage.critical
        assert usage.value.digital_signature
        assert not usage.value.key_cert_sign
        assert not of(x509.BasicConstraints).value.ca
        assert read_certificate(made).role == role


def test_a_request_cannot_ask_for_another_role(fleet: Authority) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    names = x509.SubjectAlternativeName([x509.DNSName("farm-07.operator")])
    asked = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "farm-07")]))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
        .decode()
    )
    issued = fleet.sign(asked)
    assert read_certificate(issued).role == "device"
    found = x509.load_pem_x509_certificate(issued).extensions
    assert not found.get_extension_for_class(x509.BasicConstraints).value.ca


def test_requests_that_are_damaged_or_of_another_kind_are_refused(fleet: Authority) -> None:
    request = make_request("farm-07", make_key())
    lines = request.splitlines()
    other = make_request("farm-07", make_key()).splitlines()
    swapped = "\n".join([*lines[:3], *other[3:]])
    for damaged in ("", "hello", request[:-40], swapped, request * 400):
        with pytest.raises(IdentityError, match="the request is damaged"):
            fleet.sign(damaged)
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "farm-07")])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    with pytest.raises(IdentityError, match="not a P-256 key"):
        fleet.sign(made.public_bytes(serialization.Encoding.PEM).decode())


def test_dates_leave_a_day_for_slow_clocks_and_never_outlive_the_authority() -> None:
    fleet = Authority.make("orchard", days=30)
    own = make_identity(fleet, "farm-07", days=90)
    issuer = read_dates(fleet.certificate)
    assert own.bearer.not_after == issuer[1]
    at = make_identity(fleet, "farm-07", days=2, now=NOW).bearer
    assert at.not_before == NOW - dt.timedelta(days=1)
    assert at.not_after == NOW + dt.timedelta(days=2)
    assert at.fault(NOW) is None
    assert "set the clock" in (at.fault(NOW - dt.timedelta(days=2)) or "")
    assert "expired on 2026-11-18 08:00 UTC" in (at.fault(NOW + dt.timedelta(days=3)) or "")
    with pytest.raises(IdentityError, match="make a new fleet"):
        make_identity(fleet, "farm-07", now=NOW + dt.timedelta(days=9999))
    with pytest.raises(IdentityError, match="for 0 days"):
        make_identity(fleet, "farm-07", days=0)


def read_dates(pem: bytes) -> tuple[dt.datetime, dt.datetime]:
    found = x509.load_pem_x509_certificate(pem)
    return found.not_valid_before_utc, found.not_valid_after_utc


def test_serial_numbers_differ(fleet: Authority) -> None:
    request = make_request("farm-07", make_key())
    assert len({read_certificate(fleet.sign(request)).serial for _ in range(8)}) == 8


def test_keys_are_readable_by_their_owner_only(tmp_path: Path, fleet: Authority) -> None:
    make_identity(fleet, "farm-07").save(tmp_path / "farm-07")
    fleet.save(tmp_path / "ca")
    for key in (tmp_path / "farm-07" / "key.pem", tmp_path / "ca" / "ca-key.pem"):
        assert key.stat().st_mode & 0o777 == 0o600
    assert Identity.load(tmp_path / "farm-07").bearer.name == "farm-07"
    assert Authority.load(tmp_path / "ca") == fleet
    (tmp_path / "farm-07" / "key.pem").chmod(0o644)
    with pytest.raises(IdentityError, match=r"others may read .*key.pem \(mode 644\); chmod 600"):
        Identity.load(tmp_path / "farm-07")


def test_no_key_is_printed(fleet: Authority) -> None:
    assert "PRIVATE" not in f"{fleet!r} {make_identity(fleet, 'farm-07')!r}"


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path, fleet: Authority) -> None:
    own, other = make_identity(fleet, "farm-07"), make_identity(fleet, "farm-08")
    elsewhere = Authority.make("meadow")
    for parts, why in (
        ((own.key, other.certificate, fleet.certificate), "for another key"),
        ((own.key, own.certificate, elsewhere.certificate), "another fleet's authority"),
        ((own.key, fleet.certificate, fleet.certificate), "bears no name of a device"),
        ((b"", own.certificate, fleet.certificate), "the key is damaged"),
        ((own.key, b"-----", fleet.certificate), "the certificate is damaged"),
    ):
        Identity(*parts).save(tmp_path)
        with pytest.raises(IdentityError, match=why):
            Identity.load(tmp_path)
    with pytest.raises(IdentityError, match=r"cannot read .*key.pem: No such file"):
        Identity.load(tmp_path / "nowhere")


def test_a_strict_verifier_accepts_the_chain(tmp_path: Path, fleet: Authority) -> None:
    """Python 3.13 checks by RFC 5280 to the letter; so may other libraries."""
    own = make_identity(fleet, "farm-07")
    own.save(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "certificate.pem", tmp_path / "key.pem")
    asking = ssl.create_default_context(cadata=fleet.certificate.decode())
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    into_server, into_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(into_client, into_server, server_hostname="farm-07")
    server = serving.wrap_bio(into_server, into_client, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    assert client.version() == "TLSv1.3"
