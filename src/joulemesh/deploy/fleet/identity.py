"""Who a device is: keys, requests and certificates of a fleet, as files and as text to paste.

A fleet has its own certificate authority, which lives on the operator's laptop. A device makes its
key and never shows it; it shows a request, and the authority answers with a certificate that bears
the device's name. The operator's certificate bears a name that no device can have, since a
device's name has no dot.
"""

from __future__ import annotations

__all__ = [
    "Authority",
    "Bearer",
    "Identity",
    "IdentityError",
    "Role",
    "bearer_of",
    "check_name",
    "make_identity",
    "make_key",
    "make_request",
    "name_in_request",
    "read_certificate",
]

import datetime as dt
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from joulemesh.base.files import make_folder
from joulemesh.deploy.fleet.bearing import OPERATOR_SUFFIX, Role, bearer_of, check_name
from joulemesh.deploy.fleet.credential import credential
from joulemesh.deploy.fleet.pem import (
    IdentityError,
    builder,
    check_issued,
    common_name,
    key_id,
    key_pem,
    load_certificate,
    load_key,
    load_request,
    new_key,
    read_pem,
    signed,
    subject_of,
    usage,
    write_pem,
)
from joulemesh.deploy.fleet.revocation import REVOKED, check_revoked

from cryptography import x509  # isort: skip  (pem says what to install where it is missing)
from cryptography.hazmat.primitives import hashes, serialization  # isort: skip
from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose  # isort: skip

KEY, CERTIFICATE, AUTHORITY = "key.pem", "certificate.pem", "ca.pem"
AUTHORITY_KEY = "ca-key.pem"


@dataclass(frozen=True)
class Bearer:
    """What a certificate says.

    Attributes:
        name: of the device or of the operator.
        role: ``"device"`` or ``"operator"``.
        not_before: the first moment at which it is valid (UTC).
        not_after: the last.
        serial: its number, in hexadecimal.
        fingerprint: SHA-256 of the certificate, in hexadecimal.
    """

    name: str
    role: Role
    not_before: dt.datetime
    not_after: dt.datetime
    serial: str
    fingerprint: str

    def fault(self, now: dt.datetime | None = None) -> str | None:
        """Why it cannot be used at this moment, in a line; None if it can."""
        now = now or dt.datetime.now(dt.UTC)
        if now < self.not_before:
            return (
                f"the certificate of {self.name} is valid from {_utc(self.not_before)} on, and "
                f"this clock says {_utc(now)}; set the clock"
            )
        if now > self.not_after:
            return (
                f"the certificate of {self.name} expired on {_utc(self.not_after)}, and this clock "
                f"says {_utc(now)}; set the clock, or enroll the device again"
            )
        return None


@dataclass(frozen=True)
class Identity:
    """A device's or an operator's key, certificate and the authority that both ends trust, in PEM.

    ``revoked`` is the authority's list of certificates that no longer count; empty for none.

    >>> fleet = Authority.make("orchard")
    >>> own = make_identity(fleet, "farm-07")
    >>> own.bearer.name, own.bearer.role
    ('farm-07', 'device')
    """

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes
    revoked: bytes = b""

    @property
    def bearer(self) -> Bearer:
        """What the certificate says."""
        return read_certificate(self.certificate)

    def save(self, folder: Path) -> None:
        """Write the three files of an identity into a folder; only the owner may read the key."""
        make_folder(folder)
        write_pem(folder / KEY, self.key, private=True)
        write_pem(folder / CERTIFICATE, self.certificate)
        write_pem(folder / AUTHORITY, self.authority)
        if self.revoked:
            write_pem(folder / REVOKED, self.revoked)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an identity, if its parts belong together.

        Raises:
            IdentityError: a file is missing or damaged, others may read the key, or the key,
                the certificate and the authority do not belong together.
        """
        key = read_pem(folder / KEY, private=True)
        revoked = read_pem(folder / REVOKED) if (folder / REVOKED).exists() else b""
        own = cls(key, read_pem(folder / CERTIFICATE), read_pem(folder / AUTHORITY), revoked)
        own.check()
        return own

    def check(self) -> None:
        """Refuse parts that do not belong together. Dates are not looked at: see `Bearer.fault`.

        Raises:
            IdentityError: they do not.
        """
        issued, trusted = load_certificate(self.certificate), load_certificate(self.authority)
        name = read_certificate(self.certificate).name
        if load_key(self.key).public_key() != issued.public_key():
            raise IdentityError(
                f"the certificate of {name} is for another key; enroll the device again, and "
                "install the answer to its newest request"
            )
        check_issued(issued, trusted, name)
        if self.revoked:
            check_revoked(self.revoked, self.authority)


@dataclass(frozen=True)
class Authority:
    """The certificate authority of a fleet, in PEM. Whoever has its key can add devices.

    >>> fleet = Authority.make("orchard")
    >>> request = make_request("farm-07", make_key())
    >>> read_certificate(fleet.sign(request)).name
    'farm-07'
    """

    key: bytes = field(repr=False)
    certificate: bytes

    @classmethod
    def make(cls, fleet: str, *, days: int = 3650, key: bytes | None = None) -> Self:
        """A new authority.

        Args:
            fleet: what to call it, for people who read its certificate.
            days: for which it is valid, from now on.
            key: its key in PEM; a new one unless given.
        """
        private = new_key() if key is None else load_key(key)
        subject = subject_of(f"joulemesh fleet {fleet}"[:64])
        built = (
            builder(subject, subject, private.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage("key_cert_sign", "crl_sign"), critical=True)
            .add_extension(key_id(private.public_key()), critical=False)
        )
        return cls(key_pem(private), signed(built, private))

    def save(self, folder: Path) -> None:
        """Write the authority's two files into a folder; only the owner may read the key."""
        make_folder(folder)
        write_pem(folder / AUTHORITY_KEY, self.key, private=True)
        write_pem(folder / AUTHORITY, self.certificate)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read an authority.

        Raises:
            IdentityError: a file is missing or damaged, or others may read the key.
        """
        key = read_pem(folder / AUTHORITY_KEY, private=True)
        found = cls(key, read_pem(folder / AUTHORITY))
        if load_key(found.key).public_key() != load_certificate(found.certificate).public_key():
            raise IdentityError(f"{folder / AUTHORITY_KEY} is not the key of {AUTHORITY}")
        return found

    def sign(
        self,
        request: str,
        *,
        role: Role = "device",
        days: float = 365,
        now: dt.datetime | None = None,
    ) -> bytes:
        """A certificate for the holder of the key that a request was signed with.

        A request asks for nothing but a name: what the certificate permits is decided here.

        Args:
            request: the block that `make_request` made.
            role: what it is for: a device of the roster, or the operator's status commands.
            days: for which it is valid; no longer than the authority itself.
            now: from which a day before counts; this clock's time unless given.

        Raises:
            IdentityError: the request is malformed, its signature or its kind of key is wrong.
        """
        asked, issuer = load_request(request), load_certificate(self.certificate)
        name, latest = name_in_request(request), issuer.not_valid_after_utc
        if days <= 0 or latest < (now or dt.datetime.now(dt.UTC)):
            raise IdentityError(
                f"a certificate for {days:g} days cannot be signed by an authority that is valid "
                f"until {_utc(latest)}; ask for more days, or make a new fleet"
            )
        purposes = [Purpose.CLIENT_AUTH, *([Purpose.SERVER_AUTH] if role == "device" else [])]
        bears = name if role == "device" else name + OPERATOR_SUFFIX
        public = asked.public_key()
        by: Any = issuer.public_key()
        built = (
            builder(subject_of(name), issuer.subject, public, days, now, latest)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(bears)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(usage("digital_signature"), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(key_id(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(by), critical=False)
        )
        issued = signed(built, load_key(self.key))
        return issued + (credential(self.key, issued) if role == "device" else b"")


def make_key() -> bytes:
    """A new P-256 key, in PEM."""
    return key_pem(new_key())


def make_request(name: str, key: bytes) -> str:
    """A request for a certificate, as a block of text to paste.

    Args:
        name: of the device or of the operator.
        key: whose certificate is wanted, in PEM.

    Raises:
        IdentityError: the name cannot be used, or the key is damaged.
    """
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject_of(check_name(name)))
    made = asked.sign(load_key(key), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def name_in_request(request: str) -> str:
    """The name that a request asks for.

    Raises:
        IdentityError: it is malformed, or its signature or its kind of key is wrong.
    """
    return check_name(common_name(load_request(request).subject))


def make_identity(
    fleet: Authority,
    name: str,
    *,
    role: Role = "device",
    days: float = 365,
    now: dt.datetime | None = None,
) -> Identity:
    """A key with its certificate, made in one place: for the operator, and for a lab's devices."""
    key = make_key()
    issued = fleet.sign(make_request(name, key), role=role, days=days, now=now)
    return Identity(key, issued, fleet.certificate)


def read_certificate(pem: bytes) -> Bearer:
    """What a certificate says.

    Raises:
        IdentityError: it is damaged, or of another kind.
    """
    found = load_certificate(pem)
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (bears,) = names.get_values_for_type(x509.DNSName)
    except (x509.ExtensionNotFound, ValueError):
        raise IdentityError(
            "the certificate bears no name of a device; use one that deploy sign made"
        ) from None
    name, role = bearer_of(bears)
    return Bearer(
        name,
        role,
        found.not_valid_before_utc,
        found.not_valid_after_utc,
        f"{found.serial_number:x}",
        found.fingerprint(hashes.SHA256()).hex(),
    )


def _utc(moment: dt.datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M UTC")
