"""Keys, requests, certificates and signatures of a fleet.

A fleet has its own certificate authority, which lives on the operator's laptop. A device makes its
key and never shows it; it shows a request, and the authority answers with a certificate that bears
the device's name. The operator's certificate bears a name that no device can have, since a
device's name has no dot.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Literal, Self

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.files import make_folder, read_bounded, write_whole
from joulemesh.base.optional import require

require("cryptography", "handling a fleet's keys", "'joulemesh[deploy]'")

from cryptography import x509  # noqa: E402
from cryptography.exceptions import InvalidSignature  # noqa: E402
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.utils import (  # noqa: E402
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.x509.oid import ExtendedKeyUsageOID as Purpose  # noqa: E402
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
    return ec.generate_private_key(ec.SECP256R1())


def derived_key(seed: bytes) -> ec.EllipticCurvePrivateKey:
    """The P-256 key that follows from a secret: whoever knows the one has the other."""
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
    return x509.SubjectKeyIdentifier.from_public_key(public)


def load_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    try:
        found = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError):
        raise IdentityError("the key is damaged; enroll the device again") from None
    if not isinstance(found, ec.EllipticCurvePrivateKey) or found.curve.name != _CURVE:
        raise IdentityError("the key is not a P-256 key; enroll the device again")
    return found


def load_request(text: str) -> x509.CertificateSigningRequest:
    """A request whose signature fits the P-256 key in it."""
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
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise IdentityError(
            "the certificate is damaged; paste the whole block that deploy sign printed, with its "
            "BEGIN and END lines"
        ) from None


def same_key(certificate: bytes, request: str) -> bool:
    return load_certificate(certificate).public_key() == load_request(request).public_key()


def check_issued(issued: x509.Certificate, trusted: x509.Certificate, name: str) -> None:
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
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def usage(*permitted: str) -> x509.KeyUsage:
    """What a key may be used for; everything that is not named is forbidden."""
    return x509.KeyUsage(**{kind: kind in permitted for kind in _USAGES})


def subject_of(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def common_name(subject: x509.Name) -> str:
    names = [str(found.value) for found in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return names[0] if len(names) == 1 else ""


def write_pem(path: Path, pem: bytes, *, private: bool = False) -> None:
    """Write a file whole; a private one may be read by its owner only, from the first byte on."""

    def write(draft: IO[bytes]) -> None:
        os.fchmod(draft.fileno(), 0o600 if private else 0o644)
        draft.write(pem)

    write_whole(path, write)


def read_pem(path: Path, *, private: bool = False) -> bytes:
    try:
        mode = path.stat().st_mode & 0o777
        if private and mode & 0o077:
            raise IdentityError(f"others may read {path} (mode {mode:o}); chmod 600 {path}")
        return read_bounded(path, _MOST_BYTES)
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}") from None


Role = Literal["device", "operator"]

OPERATOR_SUFFIX = ".operator"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"{name!r:.80} cannot be a device's name: use 1 to 63 lower-case letters, digits and "
            "hyphens, with no hyphen at either end"
        )
    return name


def bearer_of(bears: str) -> tuple[str, Role]:
    """The name and the role that the name in a certificate stands for."""
    name = bears.removesuffix(OPERATOR_SUFFIX)
    return check_name(name), "operator" if name != bears else "device"


REVOKED = "revoked.pem"


def revoke(
    key: bytes,
    authority: bytes,
    certificates: Iterable[bytes],
    before: bytes = b"",
    now: dt.datetime | None = None,
) -> bytes:
    if before:
        check_revoked(before, authority)
    issuer, now = load_certificate(authority), now or dt.datetime.now(dt.UTC)
    listed = {one.serial_number: one for one in (_load_list(before) if before else ())}
    for pem in certificates:
        number = load_certificate(pem).serial_number
        one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now)
        listed.setdefault(number, one.build())
    # Clocks differ, and a list has to count as long as the authority does.
    made = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
    made = made.last_update(issuer.not_valid_before_utc).next_update(issuer.not_valid_after_utc)
    for one in listed.values():
        made = made.add_revoked_certificate(one)
    signed = made.sign(load_key(key), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def revoked_serials(pem: bytes) -> set[str]:
    return {f"{one.serial_number:x}" for one in _load_list(pem)}


def check_revoked(pem: bytes, authority: bytes) -> None:
    found: Any = _load_list(pem)
    public: Any = load_certificate(authority).public_key()
    if not found.is_signature_valid(public):
        raise IdentityError(
            f"{REVOKED} was not signed by this fleet's authority; copy it from the fleet's folder"
        )


def _load_list(pem: bytes) -> Any:
    try:
        return x509.load_pem_x509_crl(pem)
    except ValueError:
        raise IdentityError(f"{REVOKED} is damaged; copy it from the fleet's folder") from None


_BEGIN, _END = "-----BEGIN JOULEMESH CREDENTIAL-----", "-----END JOULEMESH CREDENTIAL-----"
_BLOCK = re.compile(f"{_BEGIN}\\n([A-Za-z0-9+/=]+)\\n{_END}\\n")
_KEY, _SERIAL, _HALF = 33, 20, 32  # bytes of a compressed point, a serial number, half a signature
_CREDENTIAL = _KEY + _SERIAL + 2 * _HALF


def credential(authority_key: bytes, certificate: bytes) -> bytes:
    issued = load_certificate(certificate)
    public: Any = issued.public_key()
    point = public.public_bytes(
        serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint
    )
    content = point + issued.serial_number.to_bytes(_SERIAL, "big")
    signature = _sign(load_key(authority_key), _vouched(common_name(issued.subject), content))
    text = base64.b64encode(content + signature).decode()
    return f"{_BEGIN}\n{text}\n{_END}\n".encode()


def authorise(authority_key: bytes, about: str, text: bytes) -> str:
    return base64.b64encode(_sign(load_key(authority_key), _decree(about) + text)).decode()


class FleetSigner:
    """Signs floods as one device of a fleet, and verifies those of the others (see `Signer`)."""

    def __init__(self, identity: Identity, names: Sequence[str], about: str) -> None:
        found = _BLOCK.search(identity.certificate.decode())
        if found is None:
            raise IdentityError(
                f"the certificate of {identity.bearer.name} lets it sign no messages: an earlier "
                "version of Joulemesh made it; sign its request again (deploy sign --again)"
            )
        self._credential = base64.b64decode(found[1])
        self._key, self._names = load_key(identity.key), tuple(names)
        self._authority: Any = load_certificate(identity.authority).public_key()
        self._revoked = revoked_serials(identity.revoked) if identity.revoked else set()
        self._about, self._decree = f"joulemesh flood {about}\0".encode(), _decree(about)
        self._key_of = lru_cache(maxsize=4096)(self._vouched_key)

    def sign(self, text: bytes) -> str:
        """A signature with this device's key, and the credential that goes with it."""
        made = _sign(self._key, self._about + text)
        return base64.b64encode(self._credential + made).decode()

    def verify(self, device: int, text: bytes, signature: str) -> bool:
        content = _decoded(signature)
        if len(content) != _CREDENTIAL + 2 * _HALF or not 0 <= device < len(self._names):
            return False
        public = self._key_of(self._names[device], content[:_CREDENTIAL])
        return public is not None and _is_of(public, self._about + text, content[_CREDENTIAL:])

    def authorised(self, text: bytes, signature: str) -> bool:
        """Did the fleet's authority sign this text for this fleet?"""
        content = _decoded(signature)
        return len(content) == 2 * _HALF and _is_of(self._authority, self._decree + text, content)

    def _vouched_key(self, name: str, shown: bytes) -> Any:
        """The public key in a credential; None if it is not that device's, or is revoked."""
        content, signature = shown[: _KEY + _SERIAL], shown[_KEY + _SERIAL :]
        if f"{int.from_bytes(content[_KEY:], 'big'):x}" in self._revoked:
            return None
        if not _is_of(self._authority, _vouched(name, content), signature):
            return None
        return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), content[:_KEY])


def _decree(about: str) -> bytes:
    return f"joulemesh roster {about}\0".encode()


def _decoded(signature: str) -> bytes:
    try:
        return base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _vouched(name: str, content: bytes) -> bytes:
    return f"joulemesh credential {name}\0".encode() + content


def _sign(key: ec.EllipticCurvePrivateKey, text: bytes) -> bytes:
    halves = decode_dss_signature(key.sign(text, ec.ECDSA(hashes.SHA256())))
    return b"".join(half.to_bytes(_HALF, "big") for half in halves)


def _is_of(public: Any, text: bytes, signature: bytes) -> bool:
    halves = (signature[:_HALF], signature[_HALF:])
    made = encode_dss_signature(*(int.from_bytes(half, "big") for half in halves))
    try:
        public.verify(made, text, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


KEY, CERTIFICATE, AUTHORITY = "key.pem", "certificate.pem", "ca.pem"
AUTHORITY_KEY = "ca-key.pem"


@dataclass(frozen=True)
class Bearer:
    """What a certificate says."""

    name: str  # of the device or of the operator
    role: Role
    not_before: dt.datetime  # the first moment at which it is valid (UTC)
    not_after: dt.datetime
    serial: str  # its number, in hexadecimal
    fingerprint: str  # SHA-256 of the certificate, in hexadecimal

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
    """Key and certificate of a device or an operator, and the authority that both ends trust."""

    # ``revoked`` is the authority's list of certificates that no longer count; empty for none.

    key: bytes = field(repr=False)
    certificate: bytes
    authority: bytes
    revoked: bytes = b""

    @property
    def bearer(self) -> Bearer:
        return read_certificate(self.certificate)

    def save(self, folder: Path) -> None:
        make_folder(folder)
        write_pem(folder / KEY, self.key, private=True)
        write_pem(folder / CERTIFICATE, self.certificate)
        write_pem(folder / AUTHORITY, self.authority)
        if self.revoked:
            write_pem(folder / REVOKED, self.revoked)

    @classmethod
    def load(cls, folder: Path) -> Self:
        key = read_pem(folder / KEY, private=True)
        revoked = read_pem(folder / REVOKED) if (folder / REVOKED).exists() else b""
        own = cls(key, read_pem(folder / CERTIFICATE), read_pem(folder / AUTHORITY), revoked)
        own.check()
        return own

    def check(self) -> None:
        """Refuse parts that do not belong together. Dates are not looked at: see `Bearer.fault`."""
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
    """The certificate authority of a fleet, in PEM. Whoever has its key can add devices."""

    key: bytes = field(repr=False)
    certificate: bytes

    @classmethod
    def make(cls, fleet: str, *, days: int = 3650, key: bytes | None = None) -> Self:
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
        make_folder(folder)
        write_pem(folder / AUTHORITY_KEY, self.key, private=True)
        write_pem(folder / AUTHORITY, self.certificate)

    @classmethod
    def load(cls, folder: Path) -> Self:
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
        """A certificate for the holder of the key that a request was signed with."""
        # A request asks for nothing but a name: what the certificate permits is decided here.
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
    return key_pem(new_key())


def make_request(name: str, key: bytes) -> str:
    asked = x509.CertificateSigningRequestBuilder().subject_name(subject_of(check_name(name)))
    made = asked.sign(load_key(key), hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def name_in_request(request: str) -> str:
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
