"""What a device signs its floods with, and how any device of the fleet verifies them.

Devices that are not neighbours never see each other's certificates, and a certificate is too long
to travel with every flood. So the authority also signs a short form of it, which is kept below it
in the same file: the device's public key and the certificate's number, bound to its name. It
travels with each signature, so that a receiver needs nothing but the authority's certificate.
"""

from __future__ import annotations

__all__ = ["FleetSigner", "authorise", "credential"]

import base64
import binascii
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from joulemesh.deploy.fleet.pem import IdentityError, common_name, load_certificate, load_key
from joulemesh.deploy.fleet.revocation import revoked_serials

from cryptography.exceptions import InvalidSignature  # isort: skip  (pem says what to install)
from cryptography.hazmat.primitives import hashes, serialization  # isort: skip
from cryptography.hazmat.primitives.asymmetric import ec  # isort: skip
from cryptography.hazmat.primitives.asymmetric.utils import (  # isort: skip
    decode_dss_signature,
    encode_dss_signature,
)

if TYPE_CHECKING:
    from joulemesh.deploy.fleet.identity import Identity

_BEGIN, _END = "-----BEGIN JOULEMESH CREDENTIAL-----", "-----END JOULEMESH CREDENTIAL-----"
_BLOCK = re.compile(f"{_BEGIN}\\n([A-Za-z0-9+/=]+)\\n{_END}\\n")
_KEY, _SERIAL, _HALF = 33, 20, 32  # bytes of a compressed point, a serial number, half a signature
_CREDENTIAL = _KEY + _SERIAL + 2 * _HALF


def credential(authority_key: bytes, certificate: bytes) -> bytes:
    """The short form of a device's certificate, as a block that follows it in its file.

    Args:
        authority_key: in PEM.
        certificate: of the device, in PEM.
    """
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
    """The authority's signature of a text for all devices of a fleet.

    Args:
        authority_key: in PEM.
        about: the fleet and its plan: a signature counts there and nowhere else.
        text: what is signed.
    """
    return base64.b64encode(_sign(load_key(authority_key), _decree(about) + text)).decode()


class FleetSigner:
    """Signs floods as one device of a fleet, and verifies those of the others (see `Signer`).

    Args:
        identity: of the device.
        names: of all devices, by number.
        about: the fleet and its plan: a signature counts there and nowhere else.

    Raises:
        IdentityError: the certificate's file has no credential.

    >>> from joulemesh.deploy.fleet.identity import Authority, make_identity
    >>> fleet, names = Authority.make("orchard"), ("barn", "gate")
    >>> barn, gate = (FleetSigner(make_identity(fleet, name), names, "orchard") for name in names)
    >>> barn.verify(1, b"leave", gate.sign(b"leave")), barn.verify(0, b"leave", gate.sign(b"leave"))
    (True, False)
    """

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
        """Did that device sign this text?"""
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
    """The bytes of a signature; none if it is not base64."""
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
