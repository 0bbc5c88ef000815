"""Bombs and liars: files that unpack to far more than they hold, or claim what they do not hold.

Each is read in a process of its own within 2 GiB of address space (RLIMIT_AS). Commands that only
plan or verify are run as they are; other readers are called directly, most without JAX, whose
libraries take much of that space. Each must end with one line and exit code 2, and the most memory
that the process ever held must stay below 500 MB.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import resource
import struct
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.files.manifest import FileDigest, Manifest

LIMIT_BYTES = 2 * 2**30
MOST_RESIDENT_KB = 500_000
GIB = 2**30

Make = Callable[[Path], Path]


# What is made ---------------------------------------------------------------------------------


class Raw(str):
    """Text to be written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def npy_header(shape: object, descr: object = "<f8", length: int | None = None) -> bytes:
    """The header of an array, of version 2, with any claims."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}\n".encode()
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text) if length is None else length) + text


def zipped(path: Path, members: dict[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive of members that need not be arrays."""
    with zipfile.ZipFile(path, "w", packing, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def good(**changes: bytes) -> dict[str, bytes]:
    """Members of a data set, with some changed."""
    arrays = {
        "x_train": np.zeros((6, 2)),
        "y_train": np.array([0, 1] * 3),
        "x_test": np.zeros((3, 2)),
        "y_test": np.array([0, 1, 0]),
    }
    members: dict[str, bytes] = {}
    for name, array in arrays.items():
        file = io.BytesIO()
        np.save(file, array)
        members[name] = file.getvalue()
    return members | changes


def claiming(path: Path, claimed: int, **changes: bytes) -> Path:
    """A data set whose archive claims that x_train holds so many bytes."""
    whole = zipped(path, good(**changes), zipfile.ZIP_STORED).read_bytes()
    true = struct.pack("<I", len(changes["x_train"]))
    start = whole.index(b"PK\x01\x02")  # x_train comes first
    entry = whole[start : start + 46].replace(true, struct.pack("<I", claimed))
    path.write_bytes(whole[:start] + entry + whole[start + 46 :])
    return path


def parquet_of(rows: int, groups: int, **columns: object) -> Make:
    """A Parquet file with the same value in every row of a column."""

    def make(folder: Path) -> Path:
        arrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        one = {
            name: arrow.DictionaryArray.from_arrays(np.zeros(rows, np.int32), arrow.array([value]))
            for name, value in columns.items()
        }
        table = arrow.table(one)
        with parquet.ParquetWriter(folder / "a.parquet", table.schema) as file:
            for _ in range(groups):
                file.write_table(table)
        return folder / "a.parquet"

    return make


def objects(path: Path) -> Path:
    held: dict[str, Any] = {name: np.array(["a"], object) for name in good()}
    np.savez(path, **held)
    return path


def zeros_npz(path: Path) -> Path:
    """20 GiB of zeros in a file of 21 MB, honestly announced."""
    size = 20 * GIB
    header = npy_header((size // 8,))
    squeezed, crc = zlib.compressobj(1, zlib.DEFLATED, -15), zlib.crc32(header)
    first = squeezed.compress(header) + squeezed.flush(zlib.Z_FULL_FLUSH)
    block = bytes(2**24)
    middle = squeezed.compress(block) + squeezed.flush(zlib.Z_FULL_FLUSH)
    packed = first + middle * (size // len(block)) + squeezed.flush()
    members = good()
    del members["x_train"]
    zipped(path, members)
    info = zipfile.ZipInfo("x_train.npy")
    info.compress_type, info.CRC = zipfile.ZIP_DEFLATED, crc  # the checksum is never reached
    info.compress_size, info.file_size = len(packed), len(header) + size
    with zipfile.ZipFile(path, "a") as archive:
        assert archive.fp is not None
        archive.fp.seek(archive.start_dir)
        info.header_offset = archive.fp.tell()
        archive.fp.write(info.FileHeader(zip64=True) + packed)
        archive.start_dir = archive.fp.tell()
        archive.filelist.append(info)
        archive.NameToInfo[info.filename] = info
        archive._didModify = True  # type: ignore[attr-defined]
    return path


def many_arrays(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for k in range(30_000):
            archive.writestr(f"{k:05}.npy", b"")
    return path


def tar_header(name: bytes, size: int, kind: bytes) -> bytes:
    head = tarfile.TarInfo(name.decode())
    head.size, head.type = size, kind
    return head.tobuf(tarfile.GNU_FORMAT)


def packed_zeros(head: bytes, gibibytes: int) -> bytes:
    """Gzip of a beginning and then zeros, in members, so that it is made at once."""
    return gzip.compress(head) + gzip.compress(bytes(2**26), 1) * (gibibytes * 16)


def archive(content: bytes) -> Make:
    """A data folder with a tarball of CIFAR-10 of such a content."""

    def make(folder: Path) -> Path:
        (folder / "cifar-10-binary.tar.gz").write_bytes(content)
        return folder

    return make


def sparse(name: str, size: int, head: bytes = b"") -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        with path.open("wb") as file:
            file.write(head)
            file.truncate(size)
        return path

    return make


def written(name: str, content: bytes | Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content())
        return path

    return make


def at(name: str, make: Callable[[Path], Path]) -> Make:
    return lambda folder: make(folder / name)


def fifo(name: str) -> Make:
    def make(folder: Path) -> Path:
        os.mkfifo(folder / name)
        return folder / name

    return make


def directory(name: str) -> Make:
    def make(folder: Path) -> Path:
        (folder / name).mkdir()
        return folder / name

    return make


def xz_dictionary() -> bytes:
    """An xz file whose header asks for a dictionary of 1.5 GiB."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**16}]
    whole = bytearray(lzma.compress(b"a,label\n1,x\n", filters=filters))
    at_size = whole.index(bytes([0x21, 0x01]), 12) + 2
    whole[at_size] = 37  # of 2 ** 30 * 1.5 bytes
    head = 12
    length = (whole[head] + 1) * 4
    whole[head + length - 4 : head + length] = struct.pack(
        "<I", zlib.crc32(bytes(whole[head : head + length - 4]))
    )
    return bytes(whole)


def rows(lines: bytes, times: int) -> bytes:
    """Gzip of a table with very many rows."""
    block = lines * (2**22 // len(lines))
    return gzip.compress(b"a,b,c,label\n") + gzip.compress(block, 1) * times


def safetensors(header: bytes, size: int | None = None, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header) if size is None else size) + header + data


def described(first: object, stop: object) -> bytes:
    digests = json.dumps({"['w']": "0" * 64})
    entry = {"dtype": "F64", "shape": [3], "data_offsets": [first, stop]}
    return json.dumps({"__metadata__": {"sha256": digests}, "['w']": entry}).encode()


def manifest_of_many(folder: Path) -> Path:
    """27,000 files in one commit, and 100 commits: 4 MB that name 2.7 million files."""
    made = Manifest(folder)
    made.commit({f"{k:05}": FileDigest(0, "0" * 64) for k in range(27_000)})
    for _ in range(100):
        made.commit({}, stage="running")
    return folder


def curves_of_a_terabyte(folder: Path) -> Path:
    sparse("metrics.csv", 2**40)(folder)
    Manifest(folder).commit({"metrics.csv": FileDigest(2**40, "0" * 64, grows=True)})
    return folder


def manifest_bomb(text: bytes) -> Make:
    def make(folder: Path) -> Path:
        (folder / "manifest.jsonl").write_bytes(text)
        return folder

    return make


# What is done with it -------------------------------------------------------------------------

PLAN = ("-m", "joulemesh", "plan")
DATA = (*PLAN, "--set", "training.local_round=epoch", "--set", "training.dataset=PLACE")


def calling(code: str) -> tuple[str, ...]:
    """A reader called directly: a refusal is told as the command line tells it."""
    script = f"""
import sys
from pathlib import Path
from joulemesh.errors import JoulemeshError
place = Path(sys.argv[1])
try:
    {code}
except JoulemeshError as error:
    sys.exit(print("error:", error, file=sys.stderr) or 2)
except (ValueError, OSError) as error:
    if not TOLD: raise
    sys.exit(print("error:", error, file=sys.stderr) or 2)
"""
    return ("-c", script.replace("TOLD", str("tensors" in code or "record" in code)), "PLACE")


LOAD = calling("from joulemesh.data import load; load(str(place))")
CIFAR = calling("from joulemesh.data import load; load('cifar-10', data_dir=place, download=False)")
IDX = calling(
    "from joulemesh.data.published import idx_array; idx_array('labels', place.read_bytes())"
)
TREE = calling("""
    import numpy as np
    from joulemesh.training import tensors
    tensors.read_arrays(place, {"['w']": ((3,), np.dtype(float))}, besides="trace.")""")
STORED_PLAN = calling(
    "from joulemesh import Scenario; from joulemesh.planning.export import load_plan; "
    "load_plan(place, Scenario())"
)
KEPT = calling(
    "from joulemesh.files.cache import find; kept = find(place); "
    "sys.exit(print('error: nothing is kept', file=sys.stderr) or 2 if kept is None else 0)"
)
RECORD = calling("from joulemesh.files.bounded import read_json as record; record(place, 2**25)")
MANIFEST = calling(
    "from joulemesh.files.manifest import Manifest; fault = Manifest(place).fault; "
    "sys.exit(print('error:', fault, file=sys.stderr) or 2 if fault else 0)"
)
CURVES = calling("from joulemesh.runs.folder import RunFolder; RunFolder(place).metrics_text()")
REDRAW = calling(
    "from joulemesh.cli.reproduce import publication; publication(); "
    "from yan_li_2024.folder import redraw_folder; redraw_folder(place)"
)

KINDS: dict[str, tuple[Make, tuple[str, ...], str]] = {
    "npz of 20 GiB in 21 MB": (at("a.npz", zeros_npz), LOAD, "takes 21.5 GB"),
    "npz of 20 GiB, planned": (at("a.npz", zeros_npz), DATA, "takes 21.5 GB|x_train"),
    "npy of 10^13 labels in 1 kB": (
        at("a.npz", lambda p: zipped(p, good(y_train=npy_header((10**13,), "<i8")))),
        DATA,
        "y_train claims 80,000,000,000,000 bytes",
    ),
    "npz that claims more than it holds": (
        at("a.npz", lambda p: claiming(p, 400_000_000 + 70, x_train=npy_header((50_000_000,)))),
        LOAD,
        "not a readable",
    ),
    "npz of -5 samples": (
        at("a.npz", lambda p: zipped(p, good(x_train=npy_header((-5, 2))))),
        DATA,
        r"x_train claims the shape \(-5, 2\)",
    ),
    "npz of an absurd shape": (
        at("a.npz", lambda p: zipped(p, good(x_train=npy_header((10**30, 0))))),
        LOAD,
        "claims the shape",
    ),
    "npy header of 4 GiB": (
        at("a.npz", lambda p: zipped(p, good(x_train=npy_header((3,), length=2**32 - 1)))),
        LOAD,
        "header of x_train claims 4,294,967,295 bytes",
    ),
    "npy header nested without end": (
        at("a.npz", lambda p: zipped(p, good(x_train=npy_header(Raw("-" * 9000 + "1"))))),
        LOAD,
        "not a readable",
    ),
    "npz of Python objects": (
        at(
            "a.npz",
            objects,
        ),
        LOAD,
        r"holds Python objects.*save texts as x_train.astype\(str\)",
    ),
    "npz with 30,000 arrays": (at("a.npz", many_arrays), LOAD, "list of arrays"),
    "npz packed with lzma": (
        at("a.npz", lambda p: zipped(p, good(), zipfile.ZIP_LZMA)),
        LOAD,
        "compressed in a way",
    ),
    "npz that is a pipe": (fifo("a.npz"), LOAD, "device, pipe or socket"),
    "tarball with a long name of 4 GiB": (
        archive(packed_zeros(tar_header(b"././@LongLink", 4 * GIB, b"L"), 4)),
        CIFAR,
        "headers of a member exceed 1 MiB",
    ),
    "tarball with attributes of 4 GiB": (
        archive(packed_zeros(tar_header(b"pax", 4 * GIB, b"x"), 4)),
        CIFAR,
        "headers of a member exceed 1 MiB",
    ),
    "tarball of long names without end": (
        archive(gzip.compress((tar_header(b"././@LongLink", 1, b"L") + b"a" + bytes(511)) * 900)),
        CIFAR,
        "corrupt",
    ),
    "tarball of a member of 8 GiB": (
        archive(packed_zeros(tar_header(b"other", 8 * GIB, b"0"), 8)),
        CIFAR,
        "unpacks to more than 1 GiB",
    ),
    "tarball of 100,000 members": (
        archive(gzip.compress(tar_header(b"other", 0, b"0") * 100_000, 1)),
        CIFAR,
        "more than 1,000 members",
    ),
    "tarball with a negative size": (
        archive(gzip.compress(tar_header(b"other", -1024, b"0") + bytes(2**16))),
        CIFAR,
        "corrupt",
    ),
    "idx that claims 10^18 labels": (
        written("a", bytes([0, 0, 8, 9]) + b"\xff" * 36 + bytes(100)),
        IDX,
        "promises more than 10",
    ),
    "gzip of 16 GiB in one line": (
        written("a.csv.gz", lambda: packed_zeros(b"a,label\n1,", 16)),
        LOAD,
        "is longer than",
    ),
    "gzip of 10^9 rows": (
        written("a.csv.gz", lambda: rows(b"1,2,3,x\n1,2,3,y\n", 2000)),
        LOAD,
        "half of this machine's memory",
    ),
    "gzip of 10^8 blank lines": (
        written("a.csv.gz", lambda: rows(b"\n", 25)),
        LOAD,
        "has no rows",
    ),
    "xz with a dictionary of 1.5 GiB": (
        written("a.csv.xz", xz_dictionary),
        LOAD,
        "unpacking it takes more than 128 MiB",
    ),
    "xz of 8 GiB": (
        written(
            "a.csv.xz",
            lambda: lzma.compress(b"a,label\n1,") + lzma.compress(bytes(2**26), preset=0) * 128,
        ),
        LOAD,
        "is longer than",
    ),
    "csv of a million columns": (
        written("a.csv", b",".join(b"%d" % k for k in range(10**6)) + b",label\n"),
        LOAD,
        "longer than|columns",
    ),
    "parquet of 10^9 rows": (parquet_of(10**7, 100, a=1.5, label=0.0), LOAD, "claims"),
    "parquet of 100,000 texts of 1 MB": (
        parquet_of(10**5, 1, b=1.5, label="a" * 10**6),
        LOAD,
        "names no class",
    ),
    "csv of one line of 1 GB": (sparse("a.csv", 10**9, b"a,label\n1,"), LOAD, "is longer than"),
    "table of devices of one line of 1 GB": (
        sparse("a.csv", 10**9, b"name,cpu_hz\n1,"),
        (*PLAN, "--set", "devices.table=PLACE"),
        "more than the",
    ),
    "table of devices of one line of 50 MB": (
        sparse("a.csv", 5 * 10**7, b"name,cpu_hz\n1,"),
        (*PLAN, "--set", "devices.table=PLACE"),
        "a line of more than 1 MiB",
    ),
    "safetensors with a header of 2^63 bytes": (
        written("a.safetensors", safetensors(b"{}", 2**63)),
        TREE,
        "header is damaged",
    ),
    "safetensors with a sparse header of 1 GiB": (
        sparse("a.safetensors", 2 * GIB, struct.pack("<Q", GIB)),
        TREE,
        "header is damaged",
    ),
    "safetensors with offsets outside": (
        written("a.safetensors", safetensors(described(2**50, 2**50 + 24))),
        TREE,
        "cut short",
    ),
    "safetensors with negative offsets": (
        written("a.safetensors", safetensors(described(-24, 0))),
        TREE,
        "header is damaged",
    ),
    "safetensors with a header nested without end": (
        written("a.safetensors", safetensors(b"[" * 100_000 + b"]" * 100_000)),
        TREE,
        "header is damaged",
    ),
    "JSON nested 100,000 deep": (
        written("a.json", b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        (*PLAN, "PLACE"),
        "nested too deeply",
    ),
    "JSON with a key twice": (
        written("a.json", b'{"plan": {"zeta": 9, "zeta": 8}}'),
        (*PLAN, "PLACE"),
        "'zeta' is given twice",
    ),
    "JSON of five million lists": (
        written("a.json", b'{"a": [' + b"[]," * 5_000_000 + b"[]]}"),
        (*PLAN, "PLACE"),
        "5,000,003 objects and lists",
    ),
    "JSON of a million keys": (
        written("a.json", lambda: json.dumps({f"{k:07}": 1 for k in range(10**6)}).encode()),
        (*PLAN, "PLACE"),
        "has 1,000,000 fields, and a scenario",
    ),
    "JSON with an integer of 100,000 digits": (
        written("a.json", b'{"seed": ' + b"9" * 100_000 + b"}"),
        (*PLAN, "PLACE"),
        "4300",
    ),
    "TOML with a seed of 100,000 digits": (
        written("a.toml", b"seed = " + b"9" * 100_000),
        (*PLAN, "PLACE"),
        "4300",
    ),
    "TOML nested 100,000 deep": (
        written("a.toml", b"seed = " + b"[" * 100_000),
        (*PLAN, "PLACE"),
        "TOML",
    ),
    "folder in place of a scenario": (directory("a.toml"), (*PLAN, "PLACE"), "Is a directory"),
    "manifest with a line of 1 TB": (
        at("manifest.jsonl", lambda p: sparse(p.name, 2**40)(p.parent).parent),
        ("-m", "joulemesh", "verify", "PLACE"),
        "damaged",
    ),
    "manifest that claims 10^9 entries": (
        manifest_bomb(b'{"commit": 0, "files": {' + b'"a": {}, ' * 3 * 10**6),
        ("-m", "joulemesh", "verify", "PLACE"),
        "damaged",
    ),
    "manifest of 300 commits of 27,000 files": (
        manifest_of_many,
        MANIFEST,
        "more than 2,097,152 files are named",
    ),
    "manifest that is a pipe": (
        at("manifest.jsonl", lambda p: fifo(p.name)(p.parent).parent),
        ("-m", "joulemesh", "verify", "PLACE"),
        "damaged|device",
    ),
    "plan.npz of 20 GiB": (
        at("plan.npz", lambda p: zipped(p, {"plan": npy_header((), "<U5000000000")})),
        STORED_PLAN,
        "holds no plan",
    ),
    "plan.npz whose record is packed zeros": (
        at(
            "plan.npz",
            lambda p: zipped(p, {"plan": npy_header((), "<U200000000") + bytes(800_000_000)}),
        ),
        STORED_PLAN,
        "compressed in a way",
    ),
    "metrics.csv of 1 TB that its manifest names": (
        curves_of_a_terabyte,
        CURVES,
        "metrics.csv holds 1,099,511,627,776 bytes of evaluations",
    ),
    "cached file of 100 GB": (
        sparse("a", 10**11, b"joulemesh cache 1 " + b"0" * 64 + b"\n"),
        KEPT,
        "nothing is kept",
    ),
    "cached file of 900 MB that was changed": (
        sparse("a", 9 * 10**8, b"joulemesh cache 1 " + b"0" * 64 + b"\n"),
        KEPT,
        "nothing is kept",
    ),
    "cached file that is a pipe": (fifo("a"), KEPT, "nothing is kept"),
    "record of a folder of 1 TB": (sparse("a.json", 2**40), RECORD, "more than the 33,554,432"),
    "record of a folder on /dev/zero": (lambda _: Path("/dev/zero"), RECORD, "device"),
    "timings of a reproduction of 1 TB": (
        at("timings.json", lambda p: sparse(p.name, 2**40)(p.parent).parent),
        REDRAW,
        "holds no reproduction",
    ),
    "own method on /dev/zero": (
        lambda _: Path("/dev/zero"),
        ("-m", "joulemesh", "methods", "--load", "PLACE"),
        "error",
    ),
    "own method of 1 TB": (
        sparse("a.py", 2**40),
        ("-m", "joulemesh", "methods", "--load", "PLACE"),
        "more than the 16,777,216",
    ),
}

# One of each family; the others are in the slow tier.
QUICK = {
    "npz of 20 GiB in 21 MB",
    "npy of 10^13 labels in 1 kB",
    "npz of -5 samples",
    "npz of Python objects",
    "tarball with a long name of 4 GiB",
    "gzip of 10^9 rows",
    "xz with a dictionary of 1.5 GiB",
    "csv of one line of 1 GB",
    "safetensors with a header of 2^63 bytes",
    "JSON nested 100,000 deep",
    "JSON with a key twice",
    "TOML with a seed of 100,000 digits",
    "manifest with a line of 1 TB",
    "plan.npz of 20 GiB",
    "cached file of 100 GB",
}

# Runs a command within the limit and tells the most memory that it held.
WATCH = """
import resource, subprocess, sys
LIMIT = int(sys.argv[1])
def limit():
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))
done = subprocess.run([sys.executable, *sys.argv[2:]], preexec_fn=limit, timeout=50)
print("PEAK", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux only")
@pytest.mark.parametrize(
    "kind",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in KINDS],
)
def test_one_line_in_little_memory(kind: str, tmp_path: Path) -> None:
    make, command, words = KINDS[kind]
    place = make(tmp_path)
    asked = [part.replace("PLACE", str(place)) for part in command]
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(LIMIT_BYTES), *asked],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 2, done.stderr[-2000:]
    told = [line for line in (done.stdout + done.stderr).splitlines() if "PEAK" not in line]
    message = told[-1] if told else ""
    assert "Traceback" not in done.stderr
    assert len(told) == 1, told
    assert len(message) < 600
    assert re.search(words, message), message
    peak_kb = int(done.stdout.split("PEAK")[1])
    assert peak_kb < MOST_RESIDENT_KB, f"{peak_kb:,} kB"


def test_the_limit_would_be_noticed() -> None:
    """The same watch sees a process that takes too much."""
    code = "a = bytearray(600_000_000)"
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(LIMIT_BYTES), "-c", code], capture_output=True, text=True
    )
    assert int(done.stdout.split("PEAK")[1]) > MOST_RESIDENT_KB
    done = subprocess.run(
        [sys.executable, "-c", WATCH, str(LIMIT_BYTES), "-c", "bytearray(3 * 10**9)"],
        capture_output=True,
        text=True,
    )
    assert "MemoryError" in done.stderr
    assert resource.getrlimit(resource.RLIMIT_AS)[0] != LIMIT_BYTES
