"""Certificates that no longer count: a list that the fleet's authority signs (an X.509 CRL)."""

from __future__ import annotations

__all__ = ["REVOKED", "check_revoked", "revoke", "revoked_serials"]

import datetime as dt
from collections.abc import Iterable
from typing import Any

from joulemesh.deploy.fleet.pem import IdentityError, load_certificate, load_key

from cryptography import x509  # isort: skip  (pem says what to install where it is missing)
from cryptography.hazmat.primitives import hashes, serialization  # isort: skip

REVOKED = "revoked.pem"


def revoke(
    key: bytes,
    authority: bytes,
    certificates: Iterable[bytes],
    before: bytes = b"",
    now: dt.datetime | None = None,
) -> bytes:
    """The list with more certificates on it, in PEM.

    Args:
        key: of the authority, in PEM.
        authority: its certificate, in PEM.
        certificates: those that shall not count any more, in PEM.
        before: the list so far, in PEM; empty for none.
        now: from when on; this clock's time unless given.

    Raises:
        IdentityError: a certificate is damaged, or the list is not this authority's.

    >>> from joulemesh.deploy.fleet.identity import Authority, make_identity
    >>> fleet = Authority.make("orchard")
    >>> lost = make_identity(fleet, "farm-07")
    >>> made = revoke(fleet.key, fleet.certificate, [lost.certificate])
    >>> revoked_serials(made) == {lost.bearer.serial}
    True
    """
    if before:
        check_revoked(before, authority)
    issuer, now = load_certificate(authority), now or dt.datetime.now(dt.UTC)
    listed = {one.serial_number: one for one in (_load(before) if before else ())}
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
    """The numbers of the certificates on a list, in hexadecimal."""
    return {f"{one.serial_number:x}" for one in _load(pem)}


def check_revoked(pem: bytes, authority: bytes) -> None:
    """Refuse a list that the authority has not signed.

    Raises:
        IdentityError: it is damaged, or another's.
    """
    found: Any = _load(pem)
    public: Any = load_certificate(authority).public_key()
    if not found.is_signature_valid(public):
        raise IdentityError(
            f"{REVOKED} was not signed by this fleet's authority; copy it from the fleet's folder"
        )


def _load(pem: bytes) -> Any:
    try:
        return x509.load_pem_x509_crl(pem)
    except ValueError:
        raise IdentityError(f"{REVOKED} is damaged; copy it from the fleet's folder") from None
