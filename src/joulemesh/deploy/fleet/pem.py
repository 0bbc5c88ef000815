"""Keys, requests and certificates as `cryptography` sees them, and their files."""

from __future__ import annotations

__all__ = [
    "IdentityError",
    "builder",
    "check_issued",
    "common_name",
    "derived_key",
    "key_id",
    "key_pem",
    "load_certificate",
    "load_key",
    "load_request",
    "new_key",
    "read_pem",
    "same_key",
    "signed",
    "subject_of",
    "usage",
    "write_pem",
]

import datetime as dt
import os
from pathlib import Path
from typing import IO, Any

from joulemesh.base.bounded import read_bounded
from joulemesh.base.errors import JoulemeshError
from joulemesh.base.files import write_whole
from joulemesh.base.optional import require

require("cryptography", "handling a fleet's keys", "'joulemesh[deploy]'")

from cryptography import x509  # noqa: E402
from cryptography.exceptions import InvalidSignature  # noqa: E402
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.x509.oid import NameOID  # noqa: E402

_MOST_BYTES = 64 * 1024
_BACK = dt.timedelta(days=1)  # a device's clock may be behind the laptop's
_CURVE = "secp256r1"
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of its base point
_USAGES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


class IdentityError(JoulemeshError):
    """A key, request or certificate cannot be used: which, why, and what to do."""


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new P-256 key."""
    return ec.generate_private_key(ec.SECP256R1())


def derived_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    """The P-256 key that follows from a secret: whoever knows the one has the other.

    Args:
        seed: at least 40 bytes, so that every key is all but equally likely.

    >>> one, same = (key_pem(derived_key(b"s" * 64)) for _ in range(2))
    >>> one == same
    True
    """
    assert len(seed) >= 40
    return ec.derive_private_key(int.from_bytes(seed, "big") % (_ORDER - 1) + 1, ec.SECP256R1())


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A key in PEM, unencrypted: a device must start without anybody there."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def key_id(public: Any) -> x509.SubjectKeyIdentifier:
    """What certificates call a key."""
    return x509.SubjectKeyIdentifier.from_public_key(public)


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """A P-256 key.

    Raises:
        IdentityError: it is damaged, or of another kind.
    """
    try:
        found = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise IdentityError("the key is damaged; enroll the device again") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey) or found.curve.name != _CURVE:
        raise IdentityError("the key is not a P-256 key; enroll the device again")
    return found


def load_request(text: str) -> x509.CertificateSigningRequest:
    """A request whose signature fits the P-256 key in it.

    Raises:
        IdentityError: it is damaged, or its key is of another kind.
    """
    try:
        if len(text) > _MOST_BYTES:
            raise ValueError
        asked = x509.load_pem_x509_csr(text.encode())
        public, whole = asked.public_key(), asked.is_signature_valid
    except (ValueError, TypeError):
        whole = False
    if not whole:
        raise IdentityError(
            "the request is damaged; paste the whole block that node enroll printed, with its "
            "BEGIN and END lines"
        )
    if not isinstance(public, ec.EllipticCurvePublicKey) or public.curve.name != _CURVE:
        raise IdentityError("the request's key is not a P-256 key; make it with node enroll")
    return asked


def load_certificate(pem: bytes) -> x509.Certificate:
    """A certificate.

    Raises:
        IdentityError: it is damaged.
    """
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise IdentityError(
            "the certificate is damaged; paste the whole block that deploy sign printed, with its "
            "BEGIN and END lines"
        ) from None


def same_key(certificate: bytes, request: str) -> bool:
    """Is a certificate for the key that a request was signed with?

    Raises:
        IdentityError: either of them is damaged.
    """
    return load_certificate(certificate).public_key() == load_request(request).public_key()


def check_issued(issued: x509.Certificate, trusted: x509.Certificate, name: str) -> None:
    """Refuse a certificate that another authority has signed.

    Raises:
        IdentityError: another has.
    """
    try:
        issued.verify_directly_issued_by(trusted)
    except (InvalidSignature, ValueError, TypeError):
        raise IdentityError(
            f"the certificate of {name} was signed by another fleet's authority; have its request "
            "signed by this fleet's"
        ) from None


def builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: Any,
    days: float,
    now: dt.datetime | None = None,
    latest: dt.datetime | None = None,
) -> x509.CertificateBuilder:
    """The beginning of a certificate: names, key, serial number and dates.

    Args:
        subject: whose it is.
        issuer: who signs it.
        public: the subject's key.
        days: for which it is valid from ``now`` on; it is also valid on the day before.
        now: this clock's time unless given.
        latest: beyond which it cannot be valid.
    """
    now = now or dt.datetime.now(dt.UTC)
    end = now + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(min(end, latest) if latest else end)
    )


def signed(built: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> bytes:
    """A finished certificate in PEM."""
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def usage(*permitted: str) -> x509.KeyUsage:
    """What a key may be used for; everything that is not named is forbidden.

    >>> usage("digital_signature").key_cert_sign
    False
    """
    return x509.KeyUsage(**{kind: kind in permitted for kind in _USAGES})


def subject_of(name: str) -> x509.Name:
    """A certificate's subject of this name."""
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def common_name(subject: x509.Name) -> str:
    """The name of a subject; empty if it has none, or several.

    >>> common_name(subject_of("farm-07"))
    'farm-07'
    """
    names = [str(found.value) for found in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return names[0] if len(names) == 1 else ""


def write_pem(path: Path, pem: bytes, *, private: bool = False) -> None:
    """Write a file whole; a private one may be read by its owner only, from the first byte on."""

    def write(draft: IO[bytes]) -> None:
        os.fchmod(draft.fileno(), 0o600 if private else 0o644)
        draft.write(pem)

    write_whole(path, write)


def read_pem(path: Path, *, private: bool = False) -> bytes:
    """A file's contents.

    Raises:
        IdentityError: it cannot be read, or is private and others may read it too.
    """
    try:
        mode = path.stat().st_mode & 0o777
        if private and mode & 0o077:
            raise IdentityError(f"others may read {path} (mode {mode:o}); chmod 600 {path}")
        return read_bounded(path, _MOST_BYTES)
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}") from None
