"""Files: written whole or not at all, locked, verified; what strangers send, within limits."""

from __future__ import annotations

import hashlib
import io
import json
import os
import secrets
import shutil
import socket
import stat
import sys
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, TypeAlias, TypeVar

from joulemesh.base import machine
from joulemesh.base.errors import ScenarioError

if TYPE_CHECKING:
    from numpy.lib.npyio import NpzFile

LOCK = ".lock"
ArrayFile: TypeAlias = "NpzFile"


class FolderLock:
    """Holds a folder while the scope lasts; the system lets go of it when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._descriptor = folder, -1

    @classmethod
    def is_held(cls, folder: Path) -> bool:
        try:
            with cls(folder):
                return False
        except ScenarioError:
            return True

    def __enter__(self) -> FolderLock:
        path = self.folder / LOCK
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise ScenarioError(
                f"cannot lock {self.folder}: {error.strerror}; make it writable"
            ) from None
        try:
            take(descriptor)
        except OSError:
            holder = os.read(descriptor, 1000)
            os.close(descriptor)
            raise ScenarioError(
                f"{self.folder} is in use by {_words(holder)}; wait for it, or stop it"
            ) from None
        who = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with suppress(OSError):  # a full disk: others are told "another process"
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, json.dumps(who).encode())
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _words(holder: bytes) -> str:
    try:
        who = json.loads(holder)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(float(who["since"])))
        host = "".join(c for c in str(who["host"]) if c.isalnum() or c in ".-_")
        return f"process {int(who['process'])} on {host} since {since}"
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return "another process"


if sys.platform == "win32":
    import msvcrt

    _FAR = 2**31 - 2  # Windows keeps others from reading what is locked: not the file's own bytes

    def take(descriptor: int) -> None:
        """Lock a file until it is closed; refuse (OSError) if another process has locked it."""
        here = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        finally:
            os.lseek(descriptor, here, os.SEEK_SET)

else:
    import fcntl

    def take(descriptor: int) -> None:
        """Lock a file until it is closed; refuse (OSError) if another process has locked it."""
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


_MIB = 2**20


@dataclass(frozen=True)
class Limit:
    """The most that is read of one kind of file.

    Attributes:
        most: bytes, whatever the machine has.
        part: at most one part in this many of the memory that the process may use, as well.
    """

    most: int = sys.maxsize
    part: int = 0

    @property
    def now(self) -> int:
        """The figure on this machine, in its control group, within its resource limits."""
        return min(self.most, machine.memory_bytes() // self.part) if self.part else self.most


JOURNAL = Limit(1024 * _MIB)  # nodes begin a new one at 8 MB
JOURNAL_LINE = Limit(4 * _MIB)  # a view of 100,000 members fits
NODE_STATE = Limit(part=2)
FLEET = Limit(32 * _MIB)  # a scenario, 100,000 links and tables of 10 MiB fit
HOST_LIST = Limit(4 * _MIB)  # a row takes 40 bytes
_MOST_PARTS = 2**21  # objects and lists of a text: each takes 20 times its two characters


def _require_regular(path: Path, most_bytes: int) -> int:
    """The size of a file: a device or a pipe might never end."""
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(21, "Is a directory")
    if not stat.S_ISREG(found.st_mode):
        raise ScenarioError(f"{path} is a device, pipe or socket; name a file")
    if found.st_size > most_bytes:
        raise ScenarioError(
            f"{path} has {found.st_size:,} bytes, more than the {most_bytes:,} that are read; "
            "name another file"
        )
    return found.st_size


def open_bounded(path: Path, most_bytes: int) -> BufferedReader:
    """Open a plain file of at most so many bytes."""
    _require_regular(path, most_bytes)
    return path.open("rb")


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The contents of a plain file of at most so many bytes."""
    size = _require_regular(path, most_bytes)
    with path.open("rb") as file:
        content = file.read(size + 1)
    if len(content) > size:
        raise ScenarioError(f"{path} is being written to; wait until it is complete")
    return content


def read_json(path: Path, most_bytes: int | None = None) -> Any:
    """The value in a JSON file; of at most so many bytes, where others may have written it."""
    return parse_json(path.read_bytes() if most_bytes is None else read_bounded(path, most_bytes))


def parse_json(text: str | bytes) -> Any:
    """The value that a JSON text writes, if no object in it names a key twice."""
    text = text.decode("utf-8") if isinstance(text, bytes) else text
    parts = text.count("[") + text.count("{")
    if parts > _MOST_PARTS:
        raise ValueError(f"{parts:,} objects and lists are more than {_MOST_PARTS:,} that are read")
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("its objects and lists are nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        seen: set[str] = set()
        for name, _ in pairs:
            if name in seen:
                raise ValueError(f"{name!r:.60} is given twice")
            seen.add(name)
    return values


DRAFT = ".part"
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


class Disk:
    """The machine's own file system."""

    def create(self, path: Path) -> IO[bytes]:
        """Make a file that did not exist, open for reading and writing."""
        return os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS, 0o666), "w+b")

    def append(self, path: Path, data: bytes) -> None:
        """Add bytes to a file, made if need be, and wait until they are on the disk."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS, 0o666)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to a size, and wait until that is on the disk."""
        descriptor = os.open(path, os.O_WRONLY | _FLAGS)
        try:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def sync(self, file: IO[bytes]) -> None:
        file.flush()
        os.fsync(file.fileno())

    def replace(self, draft: Path, path: Path) -> None:
        """Put a file in the place of another in one step."""
        os.replace(draft, path)

    def make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all in it, if it is there; a link is only unlinked."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Wait until the names in a folder are on the disk, where the system can be told to."""
        with suppress(PermissionError):  # Windows cannot open a folder; it needs no such call
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


DISK: ContextVar[Disk] = ContextVar("disk", default=Disk())  # noqa: B039 (it has no state)


D = TypeVar("D", bound=Disk)


@contextmanager
def using(disk: D) -> Iterator[D]:
    """Let everything written in this scope go through another disk."""
    token = DISK.set(disk)
    try:
        yield disk
    finally:
        DISK.reset(token)


def write_whole(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Let ``write`` fill a draft beside the path, then put it in the path's place in one step.

    The draft has an unpredictable name and is made exclusively, so that no symbolic link is
    followed and two writers cannot meet; what lies at the path is replaced, never written through.
    """
    path, disk = Path(path), DISK.get()
    if not path.name or (path.is_dir() and not path.is_symlink()):
        raise ScenarioError(f"cannot write {path}: Is a directory; choose another place")
    draft = path
    try:
        file, draft = _draft_for(path)
        with file:
            write(file)
            disk.sync(file)
        disk.replace(draft, path)
        disk.sync_folder(path.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write {path}: {reason}; choose another place") from None
    finally:
        if draft != path:
            with suppress(OSError):  # gone after the replacement; left by a failure or Ctrl-C
                draft.unlink()


def _draft_for(path: Path) -> tuple[IO[bytes], Path]:
    """A new file beside a path, open and locked: a draft that nobody has locked is litter."""
    while True:
        draft = path.with_name(f".{path.name[:80]}.{secrets.token_hex(8)}{DRAFT}")
        file = DISK.get().create(draft)
        try:
            take(file.fileno())
            if os.fstat(file.fileno()).st_nlink:
                return file, draft
        except BlockingIOError:
            pass
        except OSError:  # a file system without locks; there nothing is swept either
            return file, draft
        file.close()  # `sweep` has come between: it is removing, or has removed, the draft


def write_text(path: str | Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes, *, private: bool = False) -> None:
    """Write bytes, whole or not at all; if they are private, for the owner's eyes only."""

    def write(draft: IO[bytes]) -> None:
        if private and sys.platform != "win32":  # there a folder's rights are its files'
            os.fchmod(draft.fileno(), 0o600)  # before the first byte is there
        draft.write(data)

    write_whole(path, write)


def make_folder(path: str | Path, *, remedy: str = "choose another place") -> Path:
    """Make a folder and those above it, durably."""
    path, disk = Path(path), DISK.get()
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        for folder in reversed(missing):
            disk.make_folder(folder)
            disk.sync_folder(folder.parent)
        if not path.is_dir():
            raise NotADirectoryError(20, "Not a directory")
    except OSError as error:
        raise ScenarioError(f"cannot make the folder {path}: {error.strerror}; {remedy}") from None
    return path


def sweep(folder: Path) -> None:
    """Remove drafts that killed processes have left in a folder and those within it.

    Drafts that are being written are locked, and are left alone.
    """
    for path in folder.rglob(f".*{DRAFT}"):
        with suppress(OSError):
            if path.is_symlink() or path.is_dir():
                continue  # nothing that `write_whole` has made
            with path.open("rb") as file:
                take(file.fileno())
                if sys.platform != "win32":  # a writer that comes now finds its draft removed
                    DISK.get().remove(path)
            if sys.platform == "win32":  # it removes no open file, nor a draft opened meanwhile
                DISK.get().remove(path)


def require_empty(folder: str | Path) -> None:
    """Refuse a folder with anything in it, and what is not a folder."""
    folder = Path(folder)
    try:
        inside = sorted(path.name for path in folder.iterdir())
    except FileNotFoundError:
        return
    except NotADirectoryError:
        raise ScenarioError(f"{folder} is a file; name a new folder") from None
    except OSError as error:
        raise ScenarioError(f"cannot read {folder}: {error.strerror}; name a new folder") from None
    if inside:
        shown = ", ".join(inside[:3]) + (", …" if len(inside) > 3 else "")
        raise ScenarioError(f"{folder} is not empty (it has {shown}); name a new folder")


@contextmanager
def new_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to write into, which takes its place only when all is written."""
    folder = Path(folder)
    require_empty(folder)
    folder = Path(os.path.abspath(folder))  # "." has a name of its own only so
    draft = folder.with_name(f".{folder.name}-{secrets.token_hex(4)}{DRAFT}")
    make_folder(draft)
    try:
        yield draft
        with suppress(FileNotFoundError):
            folder.rmdir()
        os.replace(draft, folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ScenarioError(f"cannot write {folder}: {reason}; name another folder") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


MANIFEST = "manifest.jsonl"
_KEPT = 3  # commits: that of each checkpoint of a run, and the newest
_PIECE = 2**20


@dataclass(frozen=True)
class FileDigest:
    """Size and SHA-256 of a file; of one that grows, of the bytes that it began with."""

    bytes: int
    sha256: str
    grows: bool = False


def sha256_of(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first ``size`` bytes."""
    made, left = hashlib.sha256(), size
    with path.open("rb") as file:
        while left is None or left > 0:
            piece = file.read(_PIECE if left is None else min(_PIECE, left))
            if not piece:
                break
            made.update(piece)
            left = None if left is None else left - len(piece)
    if left:
        raise ValueError(f"{left} bytes are missing at its end")
    return made.hexdigest()


def digest_of(path: Path) -> FileDigest:
    return FileDigest(path.stat().st_size, sha256_of(path))


@dataclass(frozen=True)
class Commit:
    """One line of a manifest: every file that the folder must hold, and facts of the caller."""

    number: int
    files: Mapping[str, FileDigest]
    facts: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> bytes:
        record = {
            "commit": self.number,
            "files": {name: vars(known) for name, known in sorted(self.files.items())},
            "facts": dict(self.facts),
        }
        return json.dumps({**record, "sha256": _digest(record)}, sort_keys=True).encode() + b"\n"

    @classmethod
    def parse(cls, line: bytes) -> Commit:
        record = parse_json(line)
        if record.pop("sha256") != _digest(record):
            raise ValueError("the line's digest does not fit")
        files = {_inside(name): FileDigest(**known) for name, known in record["files"].items()}
        return cls(int(record["commit"]), files, record["facts"])


class Manifest:
    """The newest commits of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / MANIFEST
        self.commits: list[Commit] = []
        self.fault: str | None = None
        """What is wrong with the manifest itself; None if nothing is."""
        try:
            lines = self.path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as error:
            self.fault = f"{error.strerror}"
            return
        for number, line in enumerate(lines, start=1):
            try:
                commit = Commit.parse(line)
                if commit.line() != line:
                    raise ValueError("a line that was not written so")
                self.commits.append(commit)
            except (ValueError, KeyError, TypeError, AttributeError):
                self.fault = f"line {number}: its contents have changed"

    @property
    def newest(self) -> Commit:
        return self.commits[-1]

    def commit(
        self, files: Mapping[str, FileDigest], *, removed: Iterable[str] = (), **facts: Any
    ) -> Commit:
        """Add files that are on the disk already, and facts, to those of the commit before."""
        before = self.newest if self.commits else Commit(-1, {})
        gone = set(removed)
        held = {name: digest for name, digest in before.files.items() if name not in gone}
        plain = json.loads(json.dumps({**before.facts, **facts}))
        made = Commit(before.number + 1, {**held, **files}, plain)
        commits = [*self.commits, made][-_KEPT:]
        write_bytes(self.path, b"".join(one.line() for one in commits))
        self.commits, self.fault = commits, None
        return made

    def go_back(self, commit: Commit) -> None:
        """Forget the commits after one; the next commit takes their place."""
        self.commits = self.commits[: self.commits.index(commit) + 1]

    def damage(self, commit: Commit, only: Iterable[str] | None = None) -> dict[str, str]:
        """What has happened to files of a commit (or some of them), by name; empty if intact."""
        names = commit.files if only is None else [n for n in only if n in commit.files]
        found = {name: self._damage(name, commit.files[name]) for name in names}
        return {name: fault for name, fault in found.items() if fault}

    def _damage(self, name: str, known: FileDigest) -> str:
        path = self.folder / name
        above = [self.folder / part for part in Path(name).parents if part.name]
        try:
            if any(one.is_symlink() for one in (path, *above)):
                return "it is a symbolic link, or lies behind one"
            if not path.exists():
                return "it is missing"
            if not path.is_file():
                return "it is not a file"
            size = path.stat().st_size
            if size < known.bytes or (size > known.bytes and not known.grows):
                return f"it has {size} bytes instead of {known.bytes}"
            if sha256_of(path, known.bytes) != known.sha256:
                return "its contents have changed"
        except (OSError, ValueError) as error:
            return getattr(error, "strerror", None) or str(error)
        return ""


def _inside(name: str) -> str:
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise ValueError(f"{name!r} is not a name within the folder")
    return name


def _digest(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


class GrowingFile:
    """Appends to a file; what is appended is on the disk when the call returns.

    What the file holds beyond its last commit is cut off; without one it is begun anew.
    """

    def __init__(self, path: Path, known: FileDigest | None = None) -> None:
        self.path, self._size, self._sha256 = path, 0, hashlib.sha256()
        if known is None:
            DISK.get().remove(path)
            return
        if path.stat().st_size > known.bytes:
            DISK.get().truncate(path, known.bytes)
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                self._sha256.update(piece)
        self._size = known.bytes

    @property
    def digest(self) -> FileDigest:
        return FileDigest(self._size, self._sha256.hexdigest(), grows=True)

    def append(self, text: str) -> None:
        data, disk = text.encode(), DISK.get()
        try:
            disk.append(self.path, data)
            if not self._size:
                disk.sync_folder(self.path.parent)
        except OSError as error:
            raise ScenarioError(
                f"cannot write {self.path}: {error.strerror}; make room, then --resume"
            ) from None
        self._size += len(data)
        self._sha256.update(data)


@dataclass(frozen=True)
class Verdict:
    """What was found in a folder.

    Attributes:
        folder: which.
        commits: made in it so far.
        files: that the newest commit names.
        damaged: what has happened to files, by name; the manifest is one of them.
        strangers: files that no commit names.
    """

    folder: str
    commits: int
    files: int
    damaged: Mapping[str, str]
    strangers: tuple[str, ...]

    @property
    def intact(self) -> bool:
        return not self.damaged

    def lines(self) -> list[str]:
        folder = Path(self.folder)
        return [f"{folder / name} is damaged: {why}" for name, why in self.damaged.items()]

    def record(self) -> dict[str, Any]:
        return {**asdict(self), "intact": self.intact}


def _names_in(folder: Path) -> list[str]:
    found = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or not path.is_dir())
    names = (path.relative_to(folder).as_posix() for path in found)
    return [n for n in names if n not in (MANIFEST, LOCK) and not n.endswith(DRAFT)]


def commit_all(folder: Path, **facts: Any) -> None:
    """Take every file in a folder that the caller holds into its manifest, as it is now."""
    manifest = Manifest(folder)
    files = {name: digest_of(folder / name) for name in _names_in(folder)}
    gone = set(manifest.newest.files) - set(files) if manifest.commits else set()
    manifest.commit(files, removed=gone, **facts)


def ahead_of(manifest: Manifest) -> dict[str, str]:
    """What was written after the newest commit by whoever keeps the folder, by name.

    The fact ``owns`` lists the names, and beginnings of names, that are its own. A crash leaves
    such files behind, and so does a manifest that was replaced by an older one.
    """
    if not manifest.commits:
        return {}
    own = tuple(manifest.newest.facts.get("owns", ()))
    later = "it was written after the last commit; --resume puts that right"
    found = {name: later for name in strangers_in(manifest) if name.startswith(own)} if own else {}
    for name, known in manifest.newest.files.items():
        path = manifest.folder / name
        if known.grows and path.is_file() and path.stat().st_size > known.bytes:
            found[name] = later
    return found


def strangers_in(manifest: Manifest) -> list[str]:
    """Names in a folder that its newest commit does not know."""
    known = set(manifest.newest.files) if manifest.commits else set()
    return [name for name in _names_in(manifest.folder) if name not in known]


def verified(folder: Path) -> Verdict:
    """Look at every file that a folder's manifest names."""
    manifest = Manifest(folder)
    if not manifest.commits and not manifest.fault:
        raise ScenarioError(f"{folder} has no {MANIFEST}: name a run or study folder")
    damaged = {MANIFEST: manifest.fault} if manifest.fault else {}
    if manifest.commits:
        damaged |= ahead_of(manifest) | manifest.damage(manifest.newest)
    commits, files = 0, 0
    if manifest.commits:
        commits, files = manifest.newest.number + 1, len(manifest.newest.files)
    strangers = tuple(name for name in strangers_in(manifest) if name not in damaged)
    return Verdict(str(folder), commits, files, damaged, strangers)


_MARK = b"joulemesh cache 1 "


def user_cache() -> Path:
    """The user's cache folder: the one place for everything that can be computed again."""
    from platformdirs import user_cache_dir

    return Path(user_cache_dir("joulemesh"))


def _head(content: bytes) -> bytes:
    return _MARK + hashlib.sha256(content).hexdigest().encode()


def keep(path: Path, content: bytes) -> None:
    """Write content with its digest, whole or not at all."""
    sweep(make_folder(path.parent))
    write_bytes(path, _head(content) + b"\n" + content)


def find(path: Path) -> bytes | None:
    """What was kept; None if there is nothing, or if it is not what was written."""
    with suppress(OSError):
        head, _, content = path.read_bytes().partition(b"\n")
        if head == _head(content):
            return content
    return None


def require_usable(folder: Path, remedy: str) -> None:
    """Refuse a cache folder that cannot be written, before anything is computed for it.

    Drafts that killed processes have left in it are removed.
    """
    make_folder(folder, remedy=remedy)
    sweep(folder)
    probe = folder / ".probe"
    try:
        write_bytes(probe, b"")
        probe.unlink()
    except (ScenarioError, OSError) as error:
        reason = str(error).rpartition(";")[0] or str(error)
        raise ScenarioError(f"{reason}; {remedy}") from None


# RuntimeError is zipfile's for a file said to be encrypted or packed in an unknown way
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError)


@contextmanager
def open_arrays(source: Path | bytes) -> Iterator[ArrayFile]:
    """The arrays of an ``.npz`` file, or of the bytes of one; ValueError if it is damaged."""
    import numpy as np  # not where files are written alone

    try:
        file = np.load(io.BytesIO(source) if isinstance(source, bytes) else source)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it holds one array")
        with file:
            yield file
    except _DAMAGE as error:
        raise ValueError(" ".join(str(error).split())[:160] or type(error).__name__) from None


def shape_in(file: ArrayFile, name: str) -> tuple[int, ...]:
    """The shape of an array, of which only the header is read."""
    from numpy.lib import format as npy

    assert file.zip is not None  # while it is open
    with file.zip.open(f"{name}.npy") as stream:
        old = npy.read_magic(stream) == (1, 0)
        read = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
        return tuple(read(stream)[0])
