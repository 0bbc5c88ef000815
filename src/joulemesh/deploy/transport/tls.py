"""TLS 1.3, mutual, with the reasons of failures in words."""

from __future__ import annotations

__all__ = ["alert_reason", "client_context", "client_reason", "server_context", "verify_reason"]

import datetime as dt
import os
import ssl
import tempfile
from functools import lru_cache
from pathlib import Path

from joulemesh.deploy.fleet.identity import Identity
from joulemesh.deploy.transport import Reason

# The verdicts of OpenSSL on a certificate (x509_vfy.h).
_VERDICTS = {
    9: Reason.NOT_YET_VALID,
    10: Reason.EXPIRED,
    18: Reason.OTHER_AUTHORITY,  # self-signed
    19: Reason.OTHER_AUTHORITY,  # a self-signed one in the chain
    20: Reason.OTHER_AUTHORITY,  # issuer unknown
    21: Reason.OTHER_AUTHORITY,  # first one cannot be verified
    7: Reason.OTHER_AUTHORITY,  # signature does not fit: an authority of the same name
    23: Reason.REVOKED,
    62: Reason.OTHER_NAME,
}
# What the other side says of ours, or what this side finds, in an `ssl.SSLError`.
_ALERTS = {
    "CERTIFICATE_REQUIRED": Reason.NO_CERTIFICATE,
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": Reason.NO_CERTIFICATE,
    "UNKNOWN_CA": Reason.OTHER_AUTHORITY,
    "DECRYPT_ERROR": Reason.OTHER_AUTHORITY,
    "CERTIFICATE_EXPIRED": Reason.EXPIRED,
    "CERTIFICATE_REVOKED": Reason.REVOKED,
    "BAD_CERTIFICATE": Reason.NOT_YET_VALID,  # what OpenSSL says of one whose time has not come
    "CERTIFICATE_UNKNOWN": Reason.BAD_CERTIFICATE,
    "UNSUPPORTED_CERTIFICATE": Reason.BAD_CERTIFICATE,
    "UNSUPPORTED_PROTOCOL": Reason.OLD_TLS,
    "PROTOCOL_VERSION": Reason.OLD_TLS,
    "NO_PROTOCOLS_AVAILABLE": Reason.OLD_TLS,
    "VERSION_TOO_LOW": Reason.OLD_TLS,
}


def server_context(identity: Identity) -> ssl.SSLContext:
    """What a device's server demands: TLS 1.3 and a certificate of this fleet."""
    made = _context(ssl.PROTOCOL_TLS_SERVER, identity)
    made.num_tickets = 0  # nobody resumes: every connection shows its certificate anew
    return made


@lru_cache(maxsize=8)
def client_context(identity: Identity) -> ssl.SSLContext:
    """What a device demands of a server: the same, and the name in its certificate."""
    return _context(ssl.PROTOCOL_TLS_CLIENT, identity)


def _context(protocol: int, identity: Identity) -> ssl.SSLContext:
    made = ssl.SSLContext(protocol)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(cadata=identity.authority.decode())
    # Python reads a key from files only. These can be read by their owner only, and go at once.
    with tempfile.TemporaryDirectory(prefix="joulemesh-") as folder:
        chain, key = Path(folder, "chain"), Path(folder, "key")
        chain.write_bytes(identity.certificate)
        os.close(os.open(key, os.O_CREAT | os.O_EXCL, 0o600))
        key.write_bytes(identity.key)
        made.load_cert_chain(chain, key)
        if identity.revoked:
            listed = Path(folder, "revoked")
            listed.write_bytes(identity.revoked)
            made.load_verify_locations(listed)
            made.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return made


def verify_reason(error: ssl.SSLCertVerificationError) -> tuple[Reason, str]:
    """Why this side does not accept the other's certificate."""
    reason = _VERDICTS.get(error.verify_code, Reason.BAD_CERTIFICATE)
    clock = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    remedy = {
        Reason.NOT_YET_VALID: f"by this clock, which says {clock}; are both clocks right?",
        Reason.EXPIRED: f"by this clock, which says {clock}; enroll the device again, or set the "
        "clock",
        Reason.OTHER_AUTHORITY: "it was not signed by this fleet's authority",
        Reason.REVOKED: "the operator has revoked it; enroll the device again",
    }.get(reason, "")
    return reason, f"{error.verify_message}; {remedy}".rstrip("; ")


def alert_reason(error: ssl.SSLError) -> tuple[Reason, str] | None:
    """What an error of TLS says about a certificate or a version; None if nothing."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return verify_reason(error)
    said = (error.reason or "").partition("ALERT_")[2] or error.reason or ""
    found = _ALERTS.get(said)
    return (found, said.lower().replace("_", " ")) if found else None


def client_reason(error: ssl.SSLError, fault: str | None, there: str) -> tuple[Reason, str]:
    """Why a client's handshake has failed.

    Args:
        error: what OpenSSL has said.
        fault: of the client's own certificate, by its own clock; None if there is none.
        there: name and address of the server.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        reason, detail = verify_reason(error)
        return reason, f"{there} shows a certificate: {detail}"
    found = alert_reason(error)
    if found is None:
        detail = (error.reason or str(error)).lower().replace("_", " ")
        return Reason.NOT_TLS, f"{there} does not speak TLS: {detail}"
    reason, detail = found
    own = fault or f"{there} refuses this device's certificate ({detail})"
    if reason is Reason.NOT_YET_VALID and not fault:
        own += "; are both clocks right?"
    return reason, own
