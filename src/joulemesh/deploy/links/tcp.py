"""What Linux knows of a TCP connection: segments sent again, and the round trip of its packets.

gRPC does not show its sockets. They are files of this process, so they are found by the address at
their other end.
"""

from __future__ import annotations

__all__ = ["TcpFigures", "between", "tcp_figures"]

import ipaddress
import os
import socket
import stat
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

# Of `struct tcp_info` (linux/tcp.h): 8 bytes, 24 numbers of 32 bits, 4 of 64, then 32 again.
_INFO_BYTES = 160
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_RESENT, _LEAST_RTT_US, _SEGMENTS = 100, 148, 156


@dataclass(frozen=True)
class TcpFigures:
    """Counters of connections.

    Attributes:
        segments: with data that were sent, those sent again included.
        resent: segments that were sent again.
        rtt_s: shortest round trip that the system has seen.
    """

    segments: int
    resent: int
    rtt_s: float


def tcp_figures(hosts: Collection[str], port: int) -> TcpFigures | None:
    """Counters of this process's connections to an address, added up.

    Args:
        hosts: IP addresses of the other end.
        port: its port.

    Returns:
        None where the system does not say, or there is no such connection.

    >>> with socket.create_server(("127.0.0.1", 0)) as server:
    ...     place = server.getsockname()
    ...     with socket.create_connection(place) as one:
    ...         _ = one.send(b"word")
    ...         found = tcp_figures({"127.0.0.1"}, place[1])
    >>> found.segments if found else "no TCP_INFO"
    1
    """
    if sys.platform != "linux":
        return None
    wanted = {_plain(host) for host in hosts}
    found = [one for one in map(_figures, _descriptors()) if one is not None]
    mine = [one for (host, at), one in found if at == port and host in wanted]
    if not mine:
        return None
    return TcpFigures(
        sum(one.segments for one in mine),
        sum(one.resent for one in mine),
        min(one.rtt_s for one in mine),
    )


def between(before: TcpFigures | None, after: TcpFigures | None) -> TcpFigures | None:
    """What was sent between two readings.

    >>> between(TcpFigures(10, 1, 0.2), TcpFigures(30, 2, 0.1))
    TcpFigures(segments=20, resent=1, rtt_s=0.1)
    """
    if before is None or after is None or after.segments < before.segments:
        return None  # another connection has taken its place
    resent = max(0, after.resent - before.resent)
    return TcpFigures(after.segments - before.segments, resent, after.rtt_s)


def _descriptors() -> list[int]:
    with suppress(OSError):
        return [int(name) for name in os.listdir("/proc/self/fd")]
    return []


def _figures(descriptor: int) -> tuple[tuple[str, int], TcpFigures] | None:
    """The other end and the counters of a file, if it is a TCP connection."""
    with suppress(OSError):
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        with socket.socket(fileno=os.dup(descriptor)) as one:
            if one.family not in _INTERNET or one.type != socket.SOCK_STREAM:
                return None
            host, port = one.getpeername()[:2]
            info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
        if len(info) < _INFO_BYTES:  # a kernel older than 4.6
            return None
        resent, rtt_us, segments = (
            int(struct.unpack_from("=I", info, at)[0]) for at in (_RESENT, _LEAST_RTT_US, _SEGMENTS)
        )
        return (_plain(host), port), TcpFigures(segments, resent, rtt_us / 1e6)
    return None


def _plain(host: str) -> str:
    """An address without a zone, and IPv4 as such.

    >>> _plain("::ffff:10.0.0.1"), _plain("fe80::1%eth0")
    ('10.0.0.1', 'fe80::1')
    """
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
