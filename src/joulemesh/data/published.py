"""Published data sets: find their files or fetch them, verify, decode once, keep the arrays."""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import tarfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from joulemesh.base.arrays import open_arrays
from joulemesh.base.cache import find, keep, user_cache
from joulemesh.base.errors import ScenarioError
from joulemesh.base.optional import require
from joulemesh.data.catalog import spec
from joulemesh.data.dataset import Dataset
from joulemesh.data.reading import PACKING_DAMAGE, open_unpacked

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass(frozen=True)
class Member:
    """One original file: its name, and the size and SHA-256 of its unpacked content.

    Attributes:
        names: under which it is found in a folder, a compression suffix aside.
        size_bytes: of the content.
        sha256: of the content.
        pickle_md5: CIFAR-10 only: MD5 of the same batch in the "python version".
    """

    names: tuple[str, ...]
    size_bytes: int
    sha256: str
    pickle_md5: str = ""

    @property
    def name(self) -> str:
        """The official name."""
        return self.names[0]


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


_IDX = (
    ("train", "images", 3, 47_040_016),
    ("train", "labels", 1, 60_008),
    ("t10k", "images", 3, 7_840_016),
    ("t10k", "labels", 1, 10_008),
)


def _idx_source(
    name: str,
    folders: tuple[str, ...],
    mirrors: tuple[str, ...],
    content_sha256: tuple[str, ...],
    gz_sha256: tuple[str, ...],
    mean: float,
    std: float,
) -> Source:
    stems = [f"{part}-{what}-idx{rank}-ubyte" for part, what, rank, _ in _IDX]
    members = tuple(
        # The second spelling is what some archivers make of the first.
        Member((stem, stem.replace("-idx", ".idx")), size, sha256)
        for stem, (_, _, _, size), sha256 in zip(stems, _IDX, content_sha256, strict=True)
    )
    downloads = tuple(
        Download(f"{stem}.gz", f"sha256:{sha256}", tuple(f"{m}{stem}.gz" for m in mirrors))
        for stem, sha256 in zip(stems, gz_sha256, strict=True)
    )
    return Source(name, members, folders, (), downloads, (mean * 255,), (std * 255,))


_MNIST = _idx_source(
    "mnist",
    ("mnist", "MNIST/raw"),
    (
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "http://yann.lecun.com/exdb/mnist/",
    ),
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
    (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    0.1307,
    0.3081,
)

_FASHION = _idx_source(
    "fashion-mnist",
    ("fashion-mnist", "FashionMNIST/raw"),
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
    0.2860,
    0.3530,
)

_CIFAR_BATCHES = (
    (
        "data_batch_1",
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "c99cafc152244af753f735de768cd75f",
    ),
    (
        "data_batch_2",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "d4bba439e000b95fd0a9bffe97cbabec",
    ),
    (
        "data_batch_3",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "54ebc095f3ab1f0389bbae665268c751",
    ),
    (
        "data_batch_4",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "634d18415352ddfa80567beed471001a",
    ),
    (
        "data_batch_5",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "482c414d41f54cd18b22e5b47cb7c3cb",
    ),
    (
        "test_batch",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
        "40351d587109b95175f43aff81a1287e",
    ),
)

_CIFAR = Source(
    "cifar-10",
    tuple(
        Member((f"{stem}.bin",), 30_730_000, sha256, md5) for stem, sha256, md5 in _CIFAR_BATCHES
    ),
    ("cifar-10", "cifar-10-batches-bin", "cifar-10-batches-py"),
    ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"),
    (
        Download(
            "cifar-10-binary.tar.gz",
            "md5:c32a1d4ab5d03f1284b67883e8d87530",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        ),
    ),
    tuple(255 * value for value in (0.4914, 0.4822, 0.4465)),
    tuple(255 * value for value in (0.2470, 0.2435, 0.2616)),
)

SOURCES = {source.name: source for source in (_MNIST, _FASHION, _CIFAR)}


_REMEDY = "delete it and download it again"

Bytes = NDArray[np.uint8]


def check_member(where: str, raw: bytes, member: Member) -> None:
    """Refuse content that is not, byte for byte, the published one."""
    if len(raw) < member.size_bytes:
        raise ScenarioError(
            f"{where} is truncated: its content ends after {len(raw):,} of "
            f"{member.size_bytes:,} bytes: {_REMEDY}"
        )
    if len(raw) > member.size_bytes:
        raise ScenarioError(
            f"{where} is not the published {member.name}: its content exceeds "
            f"{member.size_bytes:,} bytes: {_REMEDY}"
        )
    _check_digest(where, "SHA-256", hashlib.sha256(raw).hexdigest(), member.sha256)


def _check_digest(where: str, kind: str, found: str, expected: str) -> None:
    if found != expected:
        raise ScenarioError(
            f"{where} is corrupt or not the published file: {kind} of its content is {found}, "
            f"expected {expected}: {_REMEDY}"
        )


def idx_array(where: str, raw: bytes) -> Bytes:
    """Decode the IDX format of MNIST: 00 00, type, rank, sizes (big-endian), values."""
    if len(raw) < 4 or raw[:3] != b"\0\0\x08" or len(raw) < 4 + 4 * raw[3]:
        raise ScenarioError(
            f"{where} is corrupt: it begins with {raw[:4].hex(' ')}, not with the IDX header "
            f"00 00 08 (unsigned bytes): {_REMEDY}"
        )
    rank = raw[3]
    shape = [int(size) for size in np.frombuffer(raw, ">u4", rank, offset=4)]
    body = len(raw) - 4 - 4 * rank
    if body != math.prod(shape):
        raise ScenarioError(
            f"{where} is truncated or corrupt: its header promises {_product(shape)} and "
            f"{body:,} follow: {_REMEDY}"
        )
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _product(shape: list[int]) -> str:
    """The number of values, with the shape where it can be shown."""
    count = math.prod(shape)
    if count > 10**18:
        return "more than 10^18 values"
    return f"{count:,} values ({'x'.join(map(str, shape))})"


def cifar_images(where: str, raw: bytes) -> tuple[Bytes, Bytes]:
    """Decode a CIFAR-10 batch: records of one label byte and 32x32 red, green and blue planes."""
    record = 1 + 3 * 32 * 32
    if not raw or len(raw) % record:
        raise ScenarioError(
            f"{where} is truncated or corrupt: {len(raw):,} bytes are not a whole number of "
            f"records of {record:,}: {_REMEDY}"
        )
    rows = np.frombuffer(raw, np.uint8).reshape(-1, record)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def pickled_batch(where: str, raw: bytes, md5: str | None = None) -> bytes:
    """Turn a batch of CIFAR-10's "python version" into the records of the binary one.

    What has not the published checksum is not even read; None skips that.
    """
    if md5 is not None:
        _check_digest(where, "MD5", hashlib.md5(raw, usedforsecurity=False).hexdigest(), md5)
    try:
        batch = _Unpickler(io.BytesIO(raw), encoding="bytes").load()
        pixels, labels = batch[b"data"], np.array(batch[b"labels"], np.uint8)
        if pixels.dtype != np.uint8:
            raise ScenarioError(f"its array is {pixels.dtype}, not bytes: {_REMEDY}")
        return np.concatenate([labels[:, None], pixels], axis=1).tobytes()
    except ScenarioError as error:
        raise ScenarioError(f"{where}: {error}") from error
    except Exception as error:  # a damaged pickle can fail in any way
        raise ScenarioError(f"{where} is corrupt ({error}): {_REMEDY}") from error


class _Unpickler(pickle.Unpickler):
    """Reads lists, dicts, numbers, bytes and NumPy's arrays; refuses to name anything else."""

    def find_class(self, module: str, name: str) -> Any:
        module = module.replace("numpy.core", "numpy._core")
        known = {
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
        if (module, name) not in known:
            raise ScenarioError(
                f"the pickle asks for {module}.{name}, which no image file needs, and was not "
                f"read: {_REMEDY}"
            )
        return super().find_class(module, name)


_SUFFIXES = (".gz", ".xz", "")


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """What is wrong with a packed file, in one line."""
    try:
        yield
    except EOFError:
        size = path.stat().st_size
        raise ScenarioError(
            f"{path} is truncated: it ends after {size:,} bytes: {_REMEDY}"
        ) from None
    except (*PACKING_DAMAGE, tarfile.TarError) as error:
        reason = " ".join(str(error).split())[:120]
        raise ScenarioError(f"{path} is corrupt or truncated ({reason}): {_REMEDY}") from None
    except OSError as error:
        raise ScenarioError(f"{path} cannot be read ({error}): check its permissions") from None


def unpacked(path: Path) -> bytes:
    with _explained(path), open_unpacked(path, "rb") as file:
        return bytes(file.read())


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

    def contents(self) -> Iterator[tuple[str, bytes]]:
        """Yield where each member was read and its content, verified, in the source's order."""
        archive = self.paths[0] if self.paths[0].name in self.source.archives else None
        if archive is not None:
            yield from self._from_archive(archive)
            return
        for member, path in zip(self.source.members, self.paths, strict=True):
            where = str(path)
            if _is_pickle(member, path.name):
                yield where, pickled_batch(where, unpacked(path), member.pickle_md5)
            else:
                raw = unpacked(path)
                check_member(where, raw, member)
                yield where, raw

    def _from_archive(self, archive: Path) -> Iterator[tuple[str, bytes]]:
        members = self.source.members
        names = {name for member in members for name in (member.name, _pickle_name(member))}
        held = tar_members(archive, names)
        for member in members:
            where = f"{archive} ({member.name})"
            if member.name in held:
                check_member(where, held[member.name], member)
                yield where, held.pop(member.name)
            elif _pickle_name(member) in held:
                raw = held.pop(_pickle_name(member))
                yield where, pickled_batch(where, raw, member.pickle_md5)
            else:
                raise ScenarioError(
                    f"{archive} lacks {member.name}: delete it and download it again"
                )


def locate(source: Source, folder: Path) -> Located | None:
    """Look for the files of a data set in a folder or in its usual subfolders."""
    for searched in (*(folder / name for name in source.folders), folder):
        if not searched.is_dir():
            continue
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
    if member.pickle_md5:
        names.append(_pickle_name(member))
    return next((searched / name for name in names if (searched / name).is_file()), None)


def _pickle_name(member: Member) -> str:
    return member.name.removesuffix(".bin")


def _is_pickle(member: Member, name: str) -> bool:
    return bool(member.pickle_md5) and name == _pickle_name(member)


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

    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=not progress,
    )
    with bars:
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


_FORMAT = "v3"  # of the decoded arrays in the cache
_PARTS = ("x_train", "y_train", "x_test", "y_test")

Arrays = tuple[NDArray[np.uint8], NDArray[np.int32], NDArray[np.uint8], NDArray[np.int32]]


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
    """The arrays from the cache if these very files were verified before, else from the files.

    All verified files decode to the same arrays, so that one copy serves every folder; a stamp
    per set of files (path, size, time of change) says which were verified. What is read from the
    cache is verified by its digest.
    """
    folder = cache / "decoded" / f"{located.source.name}-{_FORMAT}"
    stamp = folder / f"verified-{_fingerprint(located.paths)}"
    with suppress(OSError, ValueError):
        if stamp.exists():
            return _cached_arrays(located.source, folder)
    arrays = _decode(located)
    with suppress(OSError, ScenarioError):  # a cache that is read-only or full only costs time
        for part, array in zip(_PARTS, list[NDArray[Any]](arrays), strict=True):
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **{part: array})
            keep(folder / part, buffer.getvalue())
        stamp.touch()
    return arrays


def _fingerprint(paths: tuple[Path, ...]) -> str:
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.sha256(repr(stats).encode()).hexdigest()[:16]


def _cached_arrays(source: Source, folder: Path) -> Arrays:
    sizes = spec(source.name)
    arrays: list[NDArray[Any]] = []
    for part in _PARTS:
        content = find(folder / part)
        if content is None:
            raise ValueError(f"{part} is not what was kept")
        count = sizes.train if part.endswith("train") else sizes.test
        shape, dtype = ((count, *sizes.shape), np.uint8) if part[0] == "x" else ((count,), np.int32)
        with open_arrays(content) as file:
            array = file[part]
        if array.shape != shape or array.dtype != dtype:
            raise ValueError(f"{part} is not what this version wrote")
        arrays.append(array)
    return arrays[0], arrays[1], arrays[2], arrays[3]


def _decode(located: Located) -> Arrays:
    if located.source.name == "cifar-10":
        batches = [cifar_images(where, raw) for where, raw in located.contents()]
        pairs = [
            (np.concatenate([x for x, _ in part]), np.concatenate([y for _, y in part]))
            for part in (batches[:-1], batches[-1:])
        ]
    else:
        four = [idx_array(where, raw) for where, raw in located.contents()]
        pairs = [(four[0][..., None], four[1]), (four[2][..., None], four[3])]
    (x_train, y_train), (x_test, y_test) = pairs
    return (
        np.ascontiguousarray(x_train),
        y_train.astype(np.int32),
        np.ascontiguousarray(x_test),
        y_test.astype(np.int32),
    )
