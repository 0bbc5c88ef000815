"""Published data sets: find their files or fetch them, verify, decode once, keep the arrays."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
import tomllib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import find, keep, open_arrays, user_cache
from joulemesh.base.optional import require
from joulemesh.data.dataset import Dataset
from joulemesh.data.reading import PACKING_DAMAGE, open_unpacked, spec

if TYPE_CHECKING:
    from rich.progress import Progress

Bytes = NDArray[np.uint8]
Arrays = tuple[Bytes, NDArray[np.int32], Bytes, NDArray[np.int32]]

_REMEDY = "delete it and download it again"
_SUFFIXES = (".gz", ".xz", "")
_FORMAT = "v4"  # of the decoded arrays in the cache
_PARTS = ("x_train", "y_train", "x_test", "y_test")


@dataclass(frozen=True)
class Member:
    """One original file.

    Attributes:
        names: under which it is found in a folder, a compression suffix aside; the official first.
        sha256: of its unpacked content.
        pickle_md5: CIFAR-10 only: MD5 of the same batch in the "python version".
    """

    names: tuple[str, ...]
    sha256: str
    pickle_md5: str = ""

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def pickle_name(self) -> str:
        return self.name.removesuffix(".bin")


@dataclass(frozen=True)
class Download:
    """One file to fetch: its name, the checksum as pooch writes it, and where it is offered."""

    name: str
    checksum: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A data set as its authors publish it.

    Attributes:
        name: of the data set.
        members: training files before test files; for IDX, images and labels in turn.
        folders: usual names of the folder, within the data folder.
        archives: tarballs that hold all members.
        downloads: what to fetch when nothing is found.
        mean: of the training pixels, per channel, on the scale 0..255.
        std: as ``mean``.
    """

    name: str
    members: tuple[Member, ...]
    folders: tuple[str, ...]
    archives: tuple[str, ...]
    downloads: tuple[Download, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


def _source(name: str, entry: dict[str, Any]) -> Source:
    members, offered = [], [(one["name"], one["checksum"]) for one in entry.get("downloads", ())]
    for one in entry["members"]:
        # The second spelling is what some archivers make of the first.
        names = dict.fromkeys((one["name"], one["name"].replace("-idx", ".idx")))
        members.append(Member(tuple(names), one["sha256"], one.get("pickle_md5", "")))
        if "packed_sha256" in one:
            offered.append((f"{one['name']}.gz", f"sha256:{one['packed_sha256']}"))
    return Source(
        name,
        tuple(members),
        tuple(entry["folders"]),
        tuple(entry.get("archives", ())),
        tuple(
            Download(n, check, tuple(url + n for url in entry["mirrors"])) for n, check in offered
        ),
        tuple(255 * value for value in entry["mean"]),
        tuple(255 * value for value in entry["std"]),
    )


_TABLE = tomllib.loads(resources.files(__package__).joinpath("published.toml").read_text("utf-8"))
SOURCES = {name: _source(name, entry) for name, entry in _TABLE.items()}


def _check_digest(where: str, kind: str, raw: bytes, expected: str) -> None:
    """Refuse content that is not, byte for byte, the published one."""
    found = hashlib.new(kind.replace("-", ""), raw, usedforsecurity=False).hexdigest()
    if found != expected:
        raise ScenarioError(
            f"{where} is truncated, corrupt or not the published file: {kind} of its {len(raw):,} "
            f"bytes is {found}, expected {expected}: {_REMEDY}"
        )


def idx_array(raw: bytes) -> Bytes:
    """Decode the IDX format of MNIST: 00 00, type, rank, sizes (big-endian), values."""
    rank = raw[3]
    shape = np.frombuffer(raw, ">u4", rank, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def cifar_images(raw: bytes) -> tuple[Bytes, Bytes]:
    """Decode a CIFAR-10 batch: records of one label byte and 32x32 red, green and blue planes."""
    rows = np.frombuffer(raw, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


class _Unpickler(pickle.Unpickler):
    """Reads lists, dicts, numbers, bytes and NumPy's arrays; refuses to name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        known = ("numpy._core.multiarray._reconstruct", "numpy.ndarray", "numpy.dtype")
        if f"{module}.{name}" not in known:
            raise ScenarioError(
                f"the pickle asks for {module}.{name}, which no image file needs, and was not "
                f"read: {_REMEDY}"
            )
        return super().find_class(module, name)


def pickled_batch(where: str, raw: bytes, md5: str) -> bytes:
    """Turn a batch of CIFAR-10's "python version" into the records of the binary one."""
    _check_digest(where, "MD5", raw, md5)  # what is not the published file is not even read
    batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
    labels = np.array(batch[b"labels"], np.uint8)
    return np.concatenate([labels[:, None], batch[b"data"]], axis=1).tobytes()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What is wrong with a packed file, in one line."""
    try:
        yield
    except (EOFError, *PACKING_DAMAGE, tarfile.TarError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ScenarioError(f"{path} is corrupt or truncated ({reason}): {_REMEDY}") from None
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error}): check its permissions") from None


def tar_members(path: Path, wanted: Collection[str]) -> dict[str, bytes]:
    """The members with these base names of a tarball, in one pass; nothing is written."""
    found = {}
    with _explained(path), tarfile.open(path) as archive:
        for entry in archive:
            name = entry.name.rsplit("/", 1)[-1]
            if entry.isreg() and name in wanted and (content := archive.extractfile(entry)):
                found[name] = content.read()
    return found


@dataclass(frozen=True)
class Located:
    """All files of a data set: one path per member, or the one tarball that holds them all."""

    source: Source
    paths: tuple[Path, ...]

    def contents(self) -> Iterator[bytes]:
        """The content of each member, verified, in the source's order."""
        members, first = self.source.members, self.paths[0]
        if first.name in self.source.archives:
            held = tar_members(first, {name for m in members for name in (m.name, m.pickle_name)})
            for member in members:
                name = member.name if member.name in held else member.pickle_name
                if name not in held:
                    raise ScenarioError(f"{first} lacks {member.name}: {_REMEDY}")
                yield self._verified(f"{first} ({name})", member, name, held.pop(name))
            return
        for member, path in zip(members, self.paths, strict=True):
            with _explained(path), open_unpacked(path, "rb") as file:
                raw = file.read()
            yield self._verified(str(path), member, path.name, raw)

    @staticmethod
    def _verified(where: str, member: Member, name: str, raw: bytes) -> bytes:
        if member.pickle_md5 and name == member.pickle_name:
            return pickled_batch(where, raw, member.pickle_md5)
        _check_digest(where, "SHA-256", raw, member.sha256)
        return raw


def locate(source: Source, folder: Path) -> Located | None:
    """Look for the files of a data set in a folder or in its usual subfolders."""
    for searched in (*(folder / name for name in source.folders), folder):
        paths = [_find(searched, member) for member in source.members]
        found = tuple(path for path in paths if path is not None)
        if len(found) == len(paths):
            return Located(source, found)
        for archive in source.archives:
            if (searched / archive).is_file():
                return Located(source, (searched / archive,))
        if found:
            missing = source.members[paths.index(None)].name
            raise ScenarioError(
                f"{searched} holds {len(found)} of the {len(paths)} files of {source.name}; "
                f"{missing} (or .gz, .xz) is missing: add it, or remove the others to download all"
            )
    return None


def _find(searched: Path, member: Member) -> Path | None:
    names = [name + suffix for name in member.names for suffix in _SUFFIXES]
    names += [member.pickle_name] if member.pickle_md5 else []
    return next((searched / name for name in names if (searched / name).is_file()), None)


class _Bar:
    """What pooch asks of a progress bar, drawn by Rich on standard error."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.total = 0  # pooch sets it when the server has answered
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    def update(self, size_bytes: int) -> None:
        self._progress.update(self._task, advance=size_bytes, total=self.total or None)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.refresh()


def fetch(source: Source, cache: Path, *, progress: bool = True) -> None:
    """Download what the cache folder lacks; files whose checksum is right are kept."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), disable=not progress) as bars:
        for download in source.downloads:
            _fetch_one(source.name, download, cache / source.name, bars)


def _fetch_one(dataset: str, download: Download, folder: Path, bars: Progress) -> None:
    pooch = require("pooch", f"downloading {dataset}")
    pooch.get_logger().setLevel("WARNING")  # the bar says what its log would
    reasons = []
    for url in download.urls:
        downloader = pooch.HTTPDownloader(progressbar=_Bar(bars, download.name), chunk_size=1 << 16)
        try:
            pooch.retrieve(
                url, download.checksum, fname=download.name, path=folder, downloader=downloader
            )
        # pooch raises ValueError for a wrong checksum; requests' errors are OSErrors.
        except (OSError, ValueError) as error:
            text = " ".join(str(error).split())
            reasons.append(f"{url}: {type(error).__name__} {text[:160]}")
        else:
            return
    raise ScenarioError(
        f"{dataset}: {download.name} could not be downloaded ({'; '.join(reasons)}): try again, or "
        f"get it by hand, put it in {folder} or in a folder named by training.data_dir "
        f"(--data-dir) or JOULEMESH_DATA"
    )


def published(
    name: str,
    data_dir: str | Path | None,
    cache_dir: str | Path | None,
    download: bool,
    progress: bool,
) -> Dataset:
    """Load a published data set, as `joulemesh.data.load` says."""
    source = SOURCES[name]
    cache = user_cache() if cache_dir is None else Path(cache_dir)
    arrays = _arrays(source, data_dir, cache, download, progress)
    mean, std = (np.array(moment, np.float32) for moment in (source.mean, source.std))
    return Dataset(name, *arrays, spec(name).classes, mean, std)


def _arrays(
    source: Source, data_dir: str | Path | None, cache: Path, download: bool, progress: bool
) -> Arrays:
    looked = []
    for given, folder in given_folders(data_dir):
        if not folder.is_dir():
            raise ScenarioError(f"{given} = {folder} is not a folder: correct or remove it")
        looked.append(str(folder))
        located = locate(source, folder)
        if located is not None:
            return _decoded(located, cache)
    try:
        located = locate(source, cache)
        if located is not None:
            return _decoded(located, cache)
    except ScenarioError:
        if not download:
            raise  # else what is incomplete or corrupt in the cache is fetched anew
    if not download:
        raise ScenarioError(
            f"{source.name}: {source.downloads[0].name} was not found in "
            f"{', '.join([*looked, str(cache)])}: allow the download, or get it from "
            f"{source.downloads[0].urls[0]} and name its folder by training.data_dir "
            f"(--data-dir) or JOULEMESH_DATA"
        )
    fetch(source, cache, progress=progress)
    located = locate(source, cache)
    if located is None:
        raise ScenarioError(f"{source.name}: nothing in {cache} after downloading: try again")
    return _decoded(located, cache)


def given_folders(data_dir: str | Path | None) -> Iterator[tuple[str, Path]]:
    """Folders that the user names, each with what names it."""
    if data_dir is not None:
        yield "data_dir", Path(data_dir).expanduser()
    if os.environ.get("JOULEMESH_DATA"):
        yield "JOULEMESH_DATA", Path(os.environ["JOULEMESH_DATA"]).expanduser()


def _decoded(located: Located, cache: Path) -> Arrays:
    """The arrays from the cache if these very files (path, size, time of change) were verified
    before, else from the files.
    """
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns)
             for path in located.paths]  # fmt: skip
    stamp = hashlib.sha256(repr(stats).encode()).hexdigest()[:16]
    kept = cache / "decoded" / f"{located.source.name}-{_FORMAT}-{stamp}"
    content = find(kept)
    if content is not None:
        with open_arrays(content) as file:
            return file["x_train"], file["y_train"], file["x_test"], file["y_test"]
    arrays = _decode(located)
    with suppress(OSError, ScenarioError):  # a cache that is read-only or full only costs time
        buffer = io.BytesIO()
        named: dict[str, Any] = dict(zip(_PARTS, arrays, strict=True))
        np.savez(buffer, allow_pickle=False, **named)
        keep(kept, buffer.getvalue())
    return arrays


def _decode(located: Located) -> Arrays:
    if located.source.name == "cifar-10":
        batches = [cifar_images(raw) for raw in located.contents()]
        pairs = [
            (np.concatenate([x for x, _ in part]), np.concatenate([y for _, y in part]))
            for part in (batches[:-1], batches[-1:])
        ]
    else:
        four = [idx_array(raw) for raw in located.contents()]
        pairs = [(four[0][..., None], four[1]), (four[2][..., None], four[3])]
    (x_train, y_train), (x_test, y_test) = pairs
    return (
        np.ascontiguousarray(x_train),
        y_train.astype(np.int32),
        np.ascontiguousarray(x_test),
        y_test.astype(np.int32),
    )
