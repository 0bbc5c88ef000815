"""The names that certificates bear: a device's own, and an operator's, which no device can have."""

from __future__ import annotations

__all__ = ["OPERATOR_SUFFIX", "Role", "bearer_of", "check_name"]

import re
from typing import Literal

from joulemesh.deploy.fleet.pem import IdentityError

Role = Literal["device", "operator"]

OPERATOR_SUFFIX = ".operator"
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


def check_name(name: str) -> str:
    """A device's name, if a certificate can bear it.

    Raises:
        IdentityError: it cannot.

    >>> check_name("farm-07")
    'farm-07'
    >>> check_name("Farm 07")
    Traceback (most recent call last):
    ...
    joulemesh.deploy.fleet.pem.IdentityError: 'Farm 07' cannot be a device's name: use 1 to 63 ...
    """
    if not _NAME.fullmatch(name):
        raise IdentityError(
            f"{name!r:.80} cannot be a device's name: use 1 to 63 lower-case letters, digits and "
            "hyphens, with no hyphen at either end"
        )
    return name


def bearer_of(bears: str) -> tuple[str, Role]:
    """The name and the role that the name in a certificate stands for.

    >>> bearer_of("farm-07"), bearer_of("laptop.operator")
    (('farm-07', 'device'), ('laptop', 'operator'))
    """
    name = bears.removesuffix(OPERATOR_SUFFIX)
    return check_name(name), "operator" if name != bears else "device"
