"""Is this machine fit to take part in a fleet: packages, clock, port, certificate."""

# The doctor looks at a machine before the packages of the extra are installed: what needs them is
# imported where a folder is examined.

from __future__ import annotations

import ctypes
import datetime as dt
import os
import socket
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from joulemesh.base.errors import JoulemeshError
from joulemesh.base.files import FolderLock

_EXTRA = ("cryptography", "prometheus_client")
_PORT = 7100  # as in `joulemesh.deploy.fleet.fleet`, which needs packages of the extra
_TIME_ERROR = 5  # of adjtimex(2): the clock is not synchronised
_TIMEX_BYTES = 512  # struct timex has 208
_SOON = dt.timedelta(days=14)


def examine_machine(problems: list[str]) -> dict[str, Any]:
    now, installed = time.time(), _installed_at()
    if now < installed - 86400:
        problems.append(
            f"the clock says {_utc(now)}, before Joulemesh was installed ({_utc(installed)}); "
            "certificates would count as not yet valid: set it"
        )
    return {
        "installed": all(find_spec(name) is not None for name in _EXTRA),
        "clock": _utc(now),
        "synchronised": clock_synchronised(),
        "port": {"number": _PORT, "free": port_is_free(_PORT)},
    }


def examine_folder(folder: Path, problems: list[str]) -> dict[str, Any]:
    try:
        return _examined(folder, problems)
    except JoulemeshError as error:
        problems.append(str(error))
        return {}


def _examined(folder: Path, problems: list[str]) -> dict[str, Any]:
    from joulemesh.deploy.fleet.certificates import AUTHORITY_KEY, Authority, Identity
    from joulemesh.deploy.fleet.fleet import HOSTS, Fleet, require_addresses
    from joulemesh.deploy.fleet.pack import OPERATOR, DevicePack, fleet_hosts

    if (folder / AUTHORITY_KEY).exists():
        fleet, hosts = Fleet.load(folder), fleet_hosts(folder, Fleet.load(folder))
        Authority.load(folder)
        identity, name, port = Identity.load(folder / OPERATOR), OPERATOR, None
    else:
        pack = DevicePack.load(folder)
        fleet, identity, name = pack.fleet, pack.identity, pack.name
        hosts = {host.name: host for host in pack.hosts.values()}
        port = hosts[name].port
        if not (runs := _runs(folder)) and not port_is_free(port):
            problems.append(
                f"port {port} of {name} is used by another process; end that one, or write "
                f"another port into {HOSTS} here and on the neighbours"
            )
    try:
        require_addresses(folder / HOSTS, hosts, hosts)
    except JoulemeshError as error:
        problems.append(str(error))
    bearer = identity.bearer
    left = bearer.not_after - dt.datetime.now(dt.UTC)
    if fault := bearer.fault():
        problems.append(fault)
    elif left < _SOON:
        problems.append(f"the certificate of {name} expires in {left.days} days; sign it again")
    found = {"name": name, "fleet": fleet.id, "devices": len(fleet.names)}
    found["certificate"] = f"{bearer.not_before:%Y-%m-%d} to {bearer.not_after:%Y-%m-%d}"
    return found if port is None else {**found, "port": port, "running": runs}


def _runs(folder: Path) -> bool:
    return (folder / "run").is_dir() and FolderLock.is_held(folder / "run")


def port_is_free(port: int) -> bool:
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("", port))
            asked.listen(1)
        except OSError:
            return False
    return True


def clock_synchronised() -> bool | None:
    """Does the system keep its clock by others' (NTP)? None where it does not say."""
    if not sys.platform.startswith("linux"):
        return None
    with suppress(OSError, AttributeError):
        state = ctypes.CDLL(None, use_errno=True).adjtimex(
            ctypes.create_string_buffer(_TIMEX_BYTES)
        )
        return None if state < 0 else state != _TIME_ERROR
    return None


def _installed_at() -> float:
    return os.stat(__file__).st_mtime


def _utc(seconds: float) -> str:
    return f"{dt.datetime.fromtimestamp(seconds, dt.UTC):%Y-%m-%d %H:%M UTC}"
