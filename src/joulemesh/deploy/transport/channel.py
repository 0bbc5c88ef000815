"""Channels of gRPC to a device, by mutual TLS.

gRPC for Python cannot be told to refuse TLS 1.2. Every server of a fleet does (see `gate`), and a
client that offers, for TLS 1.2, only ciphers of RSA certificates cannot agree on it with the
holder of one of a fleet's P-256 certificates.
"""

from __future__ import annotations

__all__ = ["QUIET", "open_channel"]

import os
from typing import Any

from joulemesh.deploy import CIPHERS, ONLY_RSA
from joulemesh.deploy.fleet.identity import Identity
from joulemesh.deploy.transport import Address
from joulemesh.errors import JoulemeshError
from joulemesh.optional import require

if os.environ.get(CIPHERS) != ONLY_RSA:
    raise JoulemeshError(
        "gRPC was imported before joulemesh.deploy, so that it would accept TLS 1.2: import it "
        f"later, or set {CIPHERS}={ONLY_RSA} in the environment"
    )
require("grpc", "talking to other devices", "'joulemesh[deploy]'")

import grpc  # noqa: E402
import grpc.aio  # noqa: E402

_KEEPALIVE_MS, _KEEPALIVE_TIMEOUT_MS = 10_000, 10_000

# Both ends: no compression (what is small must not become large), no probing of the bandwidth
# (twice the packets), and a dead connection is noticed.
QUIET = (
    ("grpc.compression_enabled_algorithms_bitset", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
    ("grpc.max_metadata_size", 8 * 1024),
    ("grpc.absolute_max_metadata_size", 16 * 1024),
)


def open_channel(
    identity: Identity, name: str, address: Address, *, most_bytes: int = 64 * 1024
) -> Any:
    """A channel to a device; it connects when it is used, and again within about a second.

    Args:
        identity: of this end.
        name: that the device's certificate must bear.
        address: where it listens.
        most_bytes: of one answer.

    Returns:
        A `grpc.aio.Channel`.
    """
    credentials = grpc.ssl_channel_credentials(
        identity.authority, identity.key, identity.certificate
    )
    options = (
        *QUIET,
        ("grpc.http2.lookahead_bytes", max(most_bytes, 64 * 1024)),
        ("grpc.ssl_target_name_override", name),
        ("grpc.default_authority", name),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 5_000),  # which is also how long an attempt may take
        ("grpc.max_reconnect_backoff_ms", 1_000),
        ("grpc.dns_min_time_between_resolutions_ms", 2_000),
        ("grpc.max_receive_message_length", most_bytes),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.service_config_disable_resolution", 1),
        ("grpc.use_local_subchannel_pool", 1),
    )
    return grpc.aio.secure_channel(str(address), credentials, options=options)
