"""Files of strangers that unpack to far more than they hold, or claim what they do not hold.

They come with a download or with another's model. Each is read in a process of its own within
2 GiB of address space (RLIMIT_AS), and must end with one line and exit code 2; the most memory that
the process ever held must stay below 500 MB.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LIMIT_BYTES = 2 * 2**30
MOST_RESIDENT_KB = 500_000
GIB = 2**30

Make = Callable[[Path], Path]


# What is made ---------------------------------------------------------------------------------


def objects(folder: Path) -> Path:
    names = ("x_train", "y_train", "x_test", "y_test")
    held: dict[str, Any] = {name: np.array(["a"], object) for name in names}
    np.savez(folder / "a.npz", **held)
    return folder / "a.npz"


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


def written(name: str, content: bytes | Callable[[], bytes]) -> Make:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(content if isinstance(content, bytes) else content())
        return path

    return make


def safetensors(header: bytes, size: int | None = None, data: bytes = b"") -> bytes:
    return struct.pack("<Q", len(header) if size is None else size) + header + data


def described(first: object, stop: object) -> bytes:
    digests = json.dumps({"['w']": "0" * 64})
    entry = {"dtype": "F64", "shape": [3], "data_offsets": [first, stop]}
    return json.dumps({"__metadata__": {"sha256": digests}, "['w']": entry}).encode()


# What is done with it -------------------------------------------------------------------------


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
TREE = calling("""
    import numpy as np
    from joulemesh.training import tensors
    tensors.read_arrays(place, {"['w']": ((3,), np.dtype(float))}, besides="trace.")""")

KINDS: dict[str, tuple[Make, tuple[str, ...], str]] = {
    "npz of Python objects": (
        objects,
        LOAD,
        r"holds Python objects.*save texts as x_train.astype\(str\)",
    ),
    "tarball with a long name of 4 GiB": (
        archive(packed_zeros(tar_header(b"././@LongLink", 4 * GIB, b"L"), 4)),
        CIFAR,
        "headers of a member exceed 1 MiB",
    ),
    "tarball of a member of 8 GiB": (
        archive(packed_zeros(tar_header(b"other", 8 * GIB, b"0"), 8)),
        CIFAR,
        "unpacks to more than 1 GiB",
    ),
    "safetensors with a header of 2^63 bytes": (
        written("a.safetensors", safetensors(b"{}", 2**63)),
        TREE,
        "header is damaged",
    ),
    "safetensors with offsets outside": (
        written("a.safetensors", safetensors(described(2**50, 2**50 + 24))),
        TREE,
        "cut short",
    ),
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
@pytest.mark.parametrize("kind", KINDS)
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
