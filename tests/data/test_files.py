"""Reading what others wrote: every form of a file, and every way in which it can be broken."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.data.published import (
    Member,
    Source,
    cifar_images,
    idx_array,
    locate,
    pickled_batch,
    tar_members,
)

RECORDS = np.random.default_rng(0).integers(0, 10, (4, 3073), dtype=np.uint8)


def batch_pickle(rows: Any, protocol: int = 2) -> bytes:
    """A batch as the "python version" stores it (there by Python 2, with bytes for text)."""
    batch = {b"data": np.ascontiguousarray(rows[:, 1:]), b"labels": rows[:, 0].tolist()}
    return pickle.dumps(batch, protocol)


def member(name: str, content: bytes, pickled: bytes = b"") -> Member:
    md5 = hashlib.md5(pickled, usedforsecurity=False).hexdigest() if pickled else ""
    return Member((name,), hashlib.sha256(content).hexdigest(), md5)


BINS = {f"{stem}.bin": RECORDS[[i]].tobytes() for i, stem in enumerate(("one", "two"))}
PICKLES = {f"{stem}": batch_pickle(RECORDS[[i]], 3) for i, stem in enumerate(("one", "two"))}
TOY = Source(
    "toy",
    tuple(member(name, raw, PICKLES[name[:-4]]) for name, raw in BINS.items()),
    ("toy",),
    ("toy.tar.gz",),
    (),
    (0.0,),
    (1.0,),
)


def tarball(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as tar:
        for name, raw in files.items():
            entry = tarfile.TarInfo(f"toy-batches/{name}")
            entry.size = len(raw)
            tar.addfile(entry, io.BytesIO(raw))


def contents(folder: Path) -> list[bytes]:
    located = locate(TOY, folder)
    assert located is not None
    return list(located.contents())


def refused(folder: Path, words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        contents(folder)
    assert "\n" not in str(caught.value)
    assert "download it again" in str(caught.value)


@pytest.mark.parametrize("subfolder", [".", "toy"])
@pytest.mark.parametrize("form", ["raw", "gz", "xz", "pickle", "tar", "pickle-tar"])
def test_every_form_gives_the_same_content(tmp_path: Path, subfolder: str, form: str) -> None:
    place = tmp_path / subfolder
    place.mkdir(exist_ok=True)
    if form == "tar":
        tarball(place / "toy.tar.gz", {"readme.html": b"hello", **BINS})
    elif form == "pickle-tar":
        tarball(place / "toy.tar.gz", PICKLES)
    elif form == "pickle":
        for name, raw in PICKLES.items():
            (place / name).write_bytes(raw)
    else:
        pack: Any = {"raw": bytes, "gz": gzip.compress, "xz": lzma.compress}[form]
        for name, raw in BINS.items():
            (place / (name if form == "raw" else f"{name}.{form}")).write_bytes(pack(raw))
    assert contents(tmp_path) == list(BINS.values())


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_a_damaged_file_is_named(tmp_path: Path, pack: Any, damage: str) -> None:
    for name, raw in BINS.items():
        (tmp_path / name).write_bytes(pack(raw))
    broken = bytearray((tmp_path / "two.bin").read_bytes())
    broken[len(broken) // 2] ^= 255
    (tmp_path / "two.bin").write_bytes(broken if damage == "changed" else broken[:-40])
    refused(tmp_path, "two.bin is (truncated, corrupt|corrupt or truncated)")


def test_another_file_of_the_same_length_shows_both_checksums(tmp_path: Path) -> None:
    for name in BINS:
        (tmp_path / name).write_bytes(bytes(3073))
    found, expected = hashlib.sha256(bytes(3073)).hexdigest(), TOY.members[0].sha256
    refused(tmp_path, f"SHA-256 of its 3,073 bytes is {found}, expected {expected}")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert locate(TOY, tmp_path) is None
    (tmp_path / "one.bin").write_bytes(BINS["one.bin"])
    with pytest.raises(ScenarioError, match=r"holds 1 of the 2 files of toy; two\.bin"):
        locate(TOY, tmp_path)


def test_broken_tarballs(tmp_path: Path) -> None:
    path = tmp_path / "toy.tar.gz"
    tarball(path, {"one.bin": BINS["one.bin"]})
    refused(tmp_path, "toy.tar.gz lacks two.bin")
    tarball(path, {"one.bin": BINS["one.bin"], "two.bin": BINS["one.bin"]})
    refused(tmp_path, r"toy.tar.gz \(two.bin\) is .* not the published file")
    tarball(path, BINS)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refused(tmp_path, "toy.tar.gz is corrupt or truncated")
    path.write_bytes(b"<html>not found</html>")
    refused(tmp_path, "toy.tar.gz is corrupt or truncated")


def test_a_tarball_cannot_point_outside_itself(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    with tarfile.open(tmp_path / "toy.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo("one.bin")
        entry.type, entry.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(entry)
    assert tar_members(tmp_path / "toy.tar.gz", {"one.bin"}) == {}


def unpickled(raw: bytes) -> bytes:
    return pickled_batch("batch", raw, hashlib.md5(raw, usedforsecurity=False).hexdigest())


@pytest.mark.parametrize("protocol", [3, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_pickled_batch_becomes_the_binary_records(protocol: int, order: Any) -> None:
    batch = {b"data": np.array(RECORDS[:, 1:], order=order), b"labels": RECORDS[:, 0].tolist()}
    assert unpickled(pickle.dumps(batch, protocol)) == RECORDS.tobytes()


# What Python 2 wrote, by hand: {'data': uint8 [[1, 2]], 'labels': [7]} in protocol 2.
PYTHON_2 = (
    b"\x80\x02}q\x00(U\x04datacnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n"
    b"K\x00\x85U\x01b\x87R(K\x01K\x01K\x02\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89U\x02\x01\x02tb"
    b"U\x06labels]K\x07au."
)


def test_a_pickle_of_python_2() -> None:
    assert unpickled(PYTHON_2) == bytes([7, 1, 2])
    reference = pickle.loads(PYTHON_2, encoding="bytes")
    assert reference[b"data"].tolist() == [[1, 2]]


class Malice:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_runs_nothing(tmp_path: Path, protocol: int) -> None:
    raw = pickle.dumps(Malice(tmp_path / "made"), protocol)
    with pytest.raises(ScenarioError, match=r"the pickle asks for (posix|nt)\.mkdir"):
        unpickled(raw)
    assert not (tmp_path / "made").exists()


def test_a_changed_pickle_is_not_even_read() -> None:
    with pytest.raises(ScenarioError, match=r"MD5 of its .* bytes is"):
        pickled_batch("batch", batch_pickle(RECORDS, 3), "0" * 32)


def test_idx_and_cifar_records_by_hand() -> None:
    raw = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    assert idx_array(raw).tolist() == [[1, 2, 3], [4, 5, 6]]
    planes = np.arange(3072, dtype=np.uint32).astype(np.uint8)
    x, y = cifar_images(bytes([3]) + planes.tobytes())
    assert y.tolist() == [3]
    # Row 2, column 5: place 69 of each plane; planes lie 1,024 = 4·256 apart.
    assert x[0, 2, 5].tolist() == [69, 69, 69]
