"""Where files are looked for, what is kept of them, and downloads from a server of our own."""

from __future__ import annotations

import gzip
import hashlib
import struct
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.base.files import find
from joulemesh.data import load, reading
from joulemesh.data.published import SOURCES, Download, Member, Source

X_TRAIN, X_TEST = np.arange(12, dtype=np.uint8).reshape(3, 2, 2), np.full((2, 2, 2), 5, np.uint8)
CONTENT = {
    "train-x": bytes([0, 0, 8, 3]) + struct.pack(">3I", 3, 2, 2) + X_TRAIN.tobytes(),
    "train-y": bytes([0, 0, 8, 1]) + struct.pack(">I", 3) + bytes([0, 1, 1]),
    "test-x": bytes([0, 0, 8, 3]) + struct.pack(">3I", 2, 2, 2) + X_TEST.tobytes(),
    "test-y": bytes([0, 0, 8, 1]) + struct.pack(">I", 2) + bytes([1, 0]),
}
PACKED = {f"{name}.gz": gzip.compress(raw, mtime=0) for name, raw in CONTENT.items()}


def sha256(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def toy(base: str = "http://127.0.0.1:9/", *mirrors: str) -> Source:
    """Five samples in the files of MNIST, offered at ``base`` (where nobody answers)."""
    return Source(
        "mnist",
        tuple(Member((name,), sha256(raw)) for name, raw in CONTENT.items()),
        ("mnist",),
        (),
        tuple(
            Download(name, f"sha256:{sha256(raw)}", tuple(url + name for url in (base, *mirrors)))
            for name, raw in PACKED.items()
        ),
        (1.0,),
        (2.0,),
    )


@pytest.fixture(autouse=True)
def small_mnist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JOULEMESH_DATA", raising=False)
    monkeypatch.setitem(SOURCES, "mnist", toy())
    small = reading.DataSpec("mnist", 3, 2, (2, 2, 1), 10)
    monkeypatch.setitem(reading._SPECS, "mnist", small)


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in PACKED.items():
        (folder / name).write_bytes(raw)
    return folder


def load_toy(cache: Path, **options: Any) -> None:
    """Load and compare with what was written."""
    found = load("mnist", cache_dir=cache, **{"download": False, "progress": False, **options})
    np.testing.assert_array_equal(found.x_train, X_TRAIN[..., None])
    np.testing.assert_array_equal(found.x_test, X_TEST[..., None])
    assert found.y_train.tolist() == [0, 1, 1]
    assert found.y_test.tolist() == [1, 0]
    assert found.normalise(found.x_test).ravel().tolist() == [2.0] * 8


def refused(words: str, cache: Path, **options: Any) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        load_toy(cache, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("place", [".", "mnist"])
def test_data_dir_holds_the_files_or_their_folder(tmp_path: Path, place: str) -> None:
    fill(tmp_path / "data" / place)
    load_toy(tmp_path / "cache", data_dir=tmp_path / "data")


def test_the_order_is_data_dir_then_environment_then_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, named, cache = (tmp_path / name for name in ("given", "named", "cache"))
    for folder in (given, named, cache):
        fill(folder / "mnist")
    monkeypatch.setenv("JOULEMESH_DATA", str(named))
    for folder in (given, named, cache):
        (folder / "mnist" / "train-y.gz").write_bytes(b"spoilt")
        refused(f"{folder.name}/mnist/train-y.gz is .*not the published", cache, data_dir=given)
        for path in (folder / "mnist").iterdir():
            path.unlink()
    refused("was not found in .*given, .*named, .*cache: allow the download", cache, data_dir=given)


@pytest.mark.parametrize("way", ["data_dir", "JOULEMESH_DATA"])
def test_a_folder_that_does_not_exist_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    fill(tmp_path / "cache" / "mnist")
    absent = str(tmp_path / "absent")
    if way == "JOULEMESH_DATA":
        monkeypatch.setenv(way, absent)
    data_dir = absent if way == "data_dir" else None
    refused(f"{way} = .*absent is not a folder", tmp_path / "cache", data_dir=data_dir)


def test_files_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, cache = fill(tmp_path / "data"), tmp_path / "cache"
    load_toy(cache, data_dir=data)
    monkeypatch.setattr("joulemesh.data.published.Located.contents", None)
    load_toy(cache, data_dir=data)
    with pytest.raises(TypeError):  # other files must be verified themselves
        load_toy(cache, data_dir=fill(tmp_path / "other"))


def test_a_file_changed_since_is_verified_again(tmp_path: Path) -> None:
    data, cache = fill(tmp_path / "data"), tmp_path / "cache"
    load_toy(cache, data_dir=data)
    (data / "test-y.gz").write_bytes(gzip.compress(CONTENT["test-y"][:-1]))
    refused("test-y.gz is truncated, corrupt or not .* of its 9 bytes is", cache, data_dir=data)


@pytest.mark.parametrize("damage", ["emptied", "nonsense", "a bit"])
def test_damaged_arrays_in_the_cache_are_decoded_again(tmp_path: Path, damage: str) -> None:
    data, cache = fill(tmp_path / "data"), tmp_path / "cache"
    load_toy(cache, data_dir=data)
    (kept,) = cache.glob("decoded/*")
    whole = kept.read_bytes()
    changed = whole[:-1] + bytes([whole[-1] ^ 1])
    kept.write_bytes({"emptied": b"", "nonsense": b"nonsense"}.get(damage, changed))
    load_toy(cache, data_dir=data)
    assert find(kept) is not None


def test_a_cache_that_cannot_be_written_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = fill(tmp_path / "data")
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    load_toy(blocked, data_dir=data)

    def full_disk(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    load_toy(tmp_path / "cache", data_dir=data)
    assert not [path for path in tmp_path.glob("cache/decoded/*") if path.is_file()]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing on standard error."""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and folder of a web server on loopback."""
    folder = fill(tmp_path / "site")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", folder
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_missing_is_downloaded_once_from_the_first_mirror_that_answers(
    tmp_path: Path,
    site: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    url, folder = site
    monkeypatch.setitem(SOURCES, "mnist", toy(url + "absent/", url))
    load_toy(tmp_path / "cache", download=True, progress=True)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "train-x.gz" in printed.err
    for path in folder.iterdir():
        path.unlink()
    load_toy(tmp_path / "cache", download=True, progress=False)
    assert capfd.readouterr().err == ""


def test_a_corrupt_or_incomplete_cache_is_mended_by_the_download(
    tmp_path: Path, site: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SOURCES, "mnist", toy(site[0]))
    cache = tmp_path / "cache"
    fill(cache / "mnist")
    (cache / "mnist" / "train-x.gz").write_bytes(b"spoilt")
    (cache / "mnist" / "test-y.gz").unlink()
    load_toy(cache, download=True)


def test_a_wrong_or_truncated_download_is_refused_and_not_kept(
    tmp_path: Path, site: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = site
    monkeypatch.setitem(SOURCES, "mnist", toy(url))
    (folder / "train-x.gz").write_bytes(PACKED["train-x.gz"][:-3])
    cache = tmp_path / "cache"
    words = f"train-x.gz could not be downloaded .*{url}train-x.gz.*hash.*JOULEMESH_DATA"
    refused(words, cache, download=True)
    assert not (cache / "mnist" / "train-x.gz").exists()


def test_no_network_says_how_to_go_on(tmp_path: Path) -> None:
    words = "mnist: train-x.gz could not be downloaded .*get it by hand.*--data-dir"
    refused(words, tmp_path / "cache", download=True)
