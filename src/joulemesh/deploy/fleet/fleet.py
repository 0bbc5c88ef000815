"""What all devices of a fleet know: ``fleet.json``, the same bytes on every one of them.

It holds the scenario as it was resolved, and the sizes of the model and of a round: with these a
device makes the plan again, and every later one, without the data and without the model. Where the
devices are reached is in ``hosts.csv``, one row per device, filled in by hand. That file is
convenience, not trust: a device is known by its certificate, wherever it answers.
"""

from __future__ import annotations

import csv
import difflib
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
)

from joulemesh._version import __version__
from joulemesh.base import files
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.base.files import FLEET, HOST_LIST, parse_json, read_bounded, read_json, sha256_of
from joulemesh.data import load_for, spec_for
from joulemesh.data.dataset import in_portions, moments
from joulemesh.data.published import SOURCES as PUBLISHED
from joulemesh.deploy.view import Settings
from joulemesh.metrics import OWN
from joulemesh.planning.ground import Workload
from joulemesh.scenario import Origin, Scenario
from joulemesh.scenario.given import INPUTS, absolute_paths, exists, renamed
from joulemesh.scenario.sections import FILES

if TYPE_CHECKING:
    from joulemesh.planning.ground import Ground


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Task(_Record):
    """What is learned, wherever the samples lie."""

    shape: tuple[int, ...]
    kind: Literal["uint8", "float32"]  # how samples are stored before they are scaled
    classes: int  # or tokens; of numbers, how many are to be predicted of each sample
    # (x - mean) / std is what the model sees: one figure, or one per feature (the last axis)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    class_names: tuple[str, ...] = ()  # in their order; none where classes are numbers
    feature_names: tuple[str, ...] = ()  # of the columns of a table, in their order

    def scaled(self, x: NDArray[Any]) -> NDArray[np.float32]:
        self.check_samples(x)
        mean, std = (np.array(figures, np.float64) for figures in (self.mean, self.std))
        return ((x - mean) / std).astype(np.float32)

    def check_samples(self, x: NDArray[Any]) -> None:
        if x.shape[1:] != self.shape:
            raise ScenarioError(
                f"a sample here has the shape {x.shape[1:]}, and {self.shape} on the other "
                "devices; bring it into that shape"
            )
        if (x.dtype == np.uint8) != (self.kind == "uint8"):
            raise ScenarioError(
                f"samples here are {x.dtype}, and {self.kind} on the other devices, so that they "
                f"would be scaled differently; store them as {self.kind}"
            )


def task_of(scenario: Scenario) -> Task:
    # The scale is that of the scenario's own training samples; published data sets are not fetched.
    training = scenario.training
    if training.loss.startswith(OWN):
        raise ScenarioError(
            f"training.loss = {training.loss!r} was given in Python, and devices cannot be sent "
            "it: name one that is built in, or put it into a file and name it FILE.py:NAME"
        )
    if training.dataset in PUBLISHED:
        sizes, source = spec_for(scenario), PUBLISHED[training.dataset]
        scale = {"mean": source.mean, "std": source.std}
        return Task(shape=sizes.shape, kind="uint8", classes=sizes.classes, **scale)
    raw = scenario.override({"training.normalize": False}) if training.normalize else scenario
    data = load_for(raw)
    mean, std = np.atleast_1d(data.mean), np.atleast_1d(data.std)
    if training.normalize and data.x_train.dtype != np.uint8:
        found = moments(in_portions(data.x_train))
        mean, std = found.mean, found.divisor
    return Task(
        shape=data.shape,
        kind="uint8" if data.x_train.dtype == np.uint8 else "float32",
        classes=data.classes,
        mean=tuple(map(float, mean)),
        std=tuple(map(float, std)),
        class_names=data.class_names,
        feature_names=data.feature_names,
    )


FILE, SOURCES = "fleet.json", "sources.json"
FORMAT = "joulemesh fleet 1"
_FileName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]


class Sizes(_Record):
    """The workload, as plain values; see `Workload`."""

    parameters: int
    model_bits: float
    round_samples: tuple[float, ...]
    operations: float | None = None
    label_distance: float | None = None


class Input(_Record):
    """A file that the scenario names and that travels with the fleet."""

    name: _FileName  # within the folder ``inputs``
    sha256: str


class Fleet(_Record):
    """What all devices of a fleet know."""

    format: str = FORMAT
    id: str  # drawn at random
    version: str = __version__  # of Joulemesh that made it
    digest: str  # of the plan
    names: tuple[str, ...]  # of the devices, by their numbers
    links: tuple[tuple[int, int], ...]  # each (lower, higher), ascending: who may talk to whom
    settings: Settings = Settings()
    task: Task  # what devices with data of their own have to share
    code: dict[str, str] = {}  # the user's own files that must be loaded, and their SHA-256
    inputs: dict[str, Input] = {}  # files that the scenario names, by field
    # the scenario's values; files that travel with the fleet by their relative names
    stated: dict[str, Any]
    origins: dict[str, str] = {}  # where the values come from
    sizes: Sizes  # of the model and of a round

    _folder: Path = PrivateAttr(default=Path())

    @classmethod
    def load(cls, folder: Path) -> Self:
        path = folder / FILE
        try:
            found = cls.parse(read_bounded(path, FLEET.now), str(path))
        except OSError as error:
            raise ScenarioError(
                f"cannot read {path}: {error.strerror}; name a folder that `joulemesh deploy init` "
                "or `joulemesh node enroll` made"
            ) from None
        found._folder = folder
        for field, one in found.inputs.items():
            _check_input(field, one, folder / INPUTS / one.name)
        return found

    @classmethod
    def parse(cls, text: bytes, where: str) -> Self:
        try:
            values = parse_json(text)
            made = values.get("format") if isinstance(values, dict) else None
            if made != FORMAT:
                raise ScenarioError(
                    f"{where} is of the format {made!r:.60}, not {FORMAT!r}; use the version of "
                    "Joulemesh that made it"
                )
            return cls.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            place = ".".join(map(str, first["loc"]))[:80]
            reason = f"{place}: {first['msg']}" if place else first["msg"]
        except JoulemeshError:
            raise
        except ValueError as error:
            reason = str(error)
        raise ScenarioError(
            f"{where} is damaged ({' '.join(reason.split())[:200]}); copy it again"
        ) from None

    def to_json(self) -> str:
        return self.model_dump_json() + "\n"

    @property
    def folder(self) -> Path:
        return self._folder

    @cached_property
    def scenario(self) -> Scenario:
        values: dict[str, Any] = {
            name: dict(part) if isinstance(part, dict) else part
            for name, part in self.stated.items()
        }
        for field, path in _sources(self._folder).items():
            section, _, name = field.partition(".")
            old = values[section].get(name)
            known = FILES[field].path_in(old) if field in FILES else None
            values[section][name] = path if known is None else renamed(old, known, path)
        made = Scenario(**absolute_paths(values, self._folder))
        return made.with_origins({name: Origin.parse(text) for name, text in self.origins.items()})

    @cached_property
    def work(self) -> Workload:
        sizes = self.sizes
        samples = np.array(sizes.round_samples, np.float64)
        told = sizes.operations, sizes.label_distance
        return Workload(sizes.parameters, sizes.model_bits, samples, *told)

    def ground(self) -> Ground:
        """What every plan of the fleet stands on, made without data and model."""
        from joulemesh.planning.ground import Ground
        from joulemesh.planning.static import plan_of
        from joulemesh.world import build_world

        world = build_world(self.scenario, self.work.round_samples)
        made = Ground(self.scenario, self.work, world)
        return made if self.scenario.plan.power == "full" else plan_of(made).ground

    @property
    def spares(self) -> tuple[int, ...]:
        """Places planned as absent until a device is added: they leave before the start."""
        # The scenario's ``devices.leave`` has them, so that plan and simulation are without them.
        return tuple(device for device, first in self.scenario.devices.leave if first == 1)

    @property
    def given_names(self) -> tuple[str, ...]:
        """The devices' names, if somebody gave them; empty where they only repeat the numbers."""
        return () if self.names == numbered_names(len(self.names)) else self.names

    def number(self, name: str) -> int:
        if name not in self.names:
            shown = ", ".join(self.names[:8]) + ("" if len(self.names) <= 8 else ", …")
            raise ScenarioError(f"the fleet has no device {name!r:.80}; its devices are {shown}")
        return self.names.index(name)

    def neighbours(self, device: int) -> tuple[int, ...]:
        return self._near.get(device, ())

    @cached_property
    def _near(self) -> dict[int, tuple[int, ...]]:
        found: dict[int, list[int]] = {}
        for low, high in self.links:
            found.setdefault(low, []).append(high)
            found.setdefault(high, []).append(low)
        return {device: tuple(sorted(near)) for device, near in found.items()}

    def check_code(self, loaded: tuple[Path, ...]) -> None:
        """Refuse to go on without the user's own files that the fleet was made with."""
        given = {path.name: path for path in loaded}
        for name, digest in self.code.items():
            if name not in given:
                raise ScenarioError(f"the fleet was made with --load {name}; add --load {name}")
            if sha256_of(given[name]) != digest:
                raise ScenarioError(
                    f"{given[name]} is not the file that the fleet was made with (SHA-256 "
                    f"{digest[:12]}…); copy that one here"
                )


def _sources(folder: Path) -> dict[str, str]:
    homes = (folder, folder.parent.parent) if folder.parent.name == "devices" else (folder,)
    for home in homes:
        if (home / SOURCES).is_file():
            found = read_json(home / SOURCES, FLEET.now)
            return {field: path for field, path in found.items() if exists(Path(path))}
    return {}


def numbered_names(count: int) -> tuple[str, ...]:
    digits = len(str(count - 1))
    return tuple(f"device-{device:0{digits}}" for device in range(count))


def _check_input(field: str, one: Input, path: Path) -> None:
    try:
        same = sha256_of(path) == one.sha256
    except OSError as error:
        raise ScenarioError(
            f"{field}: cannot read {path}: {error.strerror}; copy the folder again"
        ) from None
    if not same:
        raise ScenarioError(f"{field}: {path} has changed since the fleet was made; copy it again")


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
