"""Where the devices of a fleet are reached: ``hosts.csv``, one row per device, filled in by hand.

The file is convenience, not trust: a device is known by its certificate, wherever it answers.
"""

from __future__ import annotations

import csv
import difflib
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from joulemesh.base import files
from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import HOST_LIST, read_bounded

HOSTS = "hosts.csv"
PORT = 7100  # registered for nothing that a small device runs

_COLUMNS = ("name", "address", "port")
_MISSING, _LACKS = "?", "# Missing:"
_ADDRESS = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")  # host names, IPv4, IPv6 with a zone
_HEAD = (
    "# Where each device is reached by its neighbours and by this machine: a host name or an IP\n"
    "# address, and a TCP port that is free there. Lines that begin with # are skipped.\n"
)


@dataclass(frozen=True)
class Host:
    """Where a device is reached."""

    name: str
    address: str = ""  # a host name or an IP address; empty while nobody has filled it in
    port: int = PORT

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if ":" in self.address else self._plain()

    def _plain(self) -> str:
        return f"{self.address}:{self.port}"

    @property
    def is_here(self) -> bool:
        return self.address in ("localhost", "::1") or self.address.startswith("127.")


def write_hosts(path: Path, hosts: Iterable[Host]) -> None:
    files.write_text(path, hosts_text(hosts))


def hosts_text(hosts: Iterable[Host]) -> str:
    """A list of hosts; where an address is missing there is a question mark, and a comment."""
    listed = list(hosts)
    missing = [host.name for host in listed if not host.address]
    lines = [_HEAD]
    if missing:
        shown = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" * (len(missing) > 5))
        many = "es" if len(missing) > 1 else ""
        them = "them" if many else "it"
        lines.append(f"{_LACKS} the address{many} of {shown} (write {them} in place of ?).\n")
    lines.append(",".join(_COLUMNS) + "\n")
    lines += [f"{host.name},{host.address or _MISSING},{host.port}\n" for host in listed]
    return "".join(lines)


def read_hosts(path: Path, names: Sequence[str]) -> dict[str, Host]:
    found: dict[str, Host] = {}
    at: dict[str, str] = {}
    known = frozenset(names)
    for line, _, host in _rows(path):
        where = f"{path}, line {line}"
        if host.name not in known:
            near = difflib.get_close_matches(host.name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else "remove the row"
            raise ScenarioError(f"{where}: the fleet has no device {host.name!r:.80}; {hint}")
        if host.name in found:
            raise ScenarioError(f"{where}: {host.name} has a row already; remove one")
        if host.address and str(host).lower() in at:
            raise ScenarioError(
                f"{where}: {host.name} has the address {host} of {at[str(host).lower()]}; give "
                "one of them another address or port"
            )
        found[host.name] = host
        at[str(host).lower()] = host.name
    missing = [name for name in names if name not in found]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ScenarioError(f"{path} has no row for {missing[0]}{more}; add name,address,port")
    return {name: found[name] for name in names}


def fill_in(path: Path, known: Iterable[Host]) -> list[Host]:
    """Write addresses into a list of hosts where they are missing; the rest stays as it is."""
    wanted = {host.name: host for host in known}
    lines, filled = _text(path).splitlines(), []
    for line, header, old in list(_rows(path)):
        new = wanted.get(old.name)
        if new is not None and not old.address:
            cells = {"name": new.name, "address": new.address, "port": str(new.port)}
            lines[line - 1] = ",".join(cells[column] for column in header)
            filled.append(new)
    if filled:
        missing = any(not host.address for _, _, host in _rows(path) if host.name not in wanted)
        kept = [line for line in lines if missing or not line.startswith(_LACKS)]
        files.write_text(path, "\n".join(kept) + "\n")
    return filled


def require_addresses(
    path: Path, hosts: Mapping[str, Host], names: Iterable[str], otherwise: str = ""
) -> None:
    missing = [name for name in names if not hosts[name].address]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ScenarioError(
            f"{path} has no address for {missing[0]}{more}; write a host name or an IP address in "
            f"place of {_MISSING}{otherwise}"
        )


def _rows(path: Path) -> Iterator[tuple[int, list[str], Host]]:
    header: list[str] = []
    for line, text in enumerate(_text(path).splitlines(), start=1):
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        (cells,) = csv.reader([text.replace(";", ",").replace("\t", ",")])
        cells = [cell.strip() for cell in cells]
        where, wanted = f"{path}, line {line}", ",".join(_COLUMNS)
        if not header:
            header = [cell.lower() for cell in cells]
            if sorted(header) != sorted(_COLUMNS):
                shown = ", ".join(cells)
                raise ScenarioError(f"{where}: the columns are {shown:.80}; write {wanted}")
        elif len(cells) != len(header):
            raise ScenarioError(
                f"{where}: {len(cells)} cells under {len(header)} columns; write {wanted}"
            )
        else:
            row = dict(zip(header, cells, strict=True))
            yield line, header, checked_host(where, *(row[name] for name in _COLUMNS))


def _text(path: Path) -> str:
    try:
        text = read_bounded(path, HOST_LIST.now).decode("utf-8-sig")
    except OSError as error:
        raise ScenarioError(f"cannot read {path}: {error.strerror}; check the path") from None
    except UnicodeDecodeError:
        raise ScenarioError(f"{path} is not text; save it as CSV in UTF-8") from None
    return text


def checked_host(where: str, name: str, address: str, port: str) -> Host:
    address = "" if address == _MISSING else address.removeprefix("[").removesuffix("]")
    if address and not _ADDRESS.fullmatch(address):
        raise ScenarioError(
            f"{where}: {address!r:.80} is no host name or IP address; write one without a port"
        )
    if address.count(":") == 1:
        raise ScenarioError(
            f"{where}: the address {address} has a port in it; write it in the column port"
        )
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 2**16):
        raise ScenarioError(f"{where}: port {port!r:.20} is not one of 1..65535; correct it")
    return Host(name, address, int(port))


def own_address() -> str:
    # Nothing is sent: the system is asked which of its addresses it would send from.
    elsewhere = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
    for family, address in elsewhere:  # addresses for documentation, which nobody has
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect((address, 9))
            return str(asked.getsockname()[0])
    return ""
