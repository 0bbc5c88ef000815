"""The state on disk: what was saved comes back, whatever a power cut leaves of the rest."""

from __future__ import annotations

import os
import re
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.device.store import PLACE, STATE, Owner, Store
from joulemesh.deploy.effects import Commit, Durable
from joulemesh.deploy.messages import Part
from joulemesh.deploy.view import View

LOG = f"{STATE}-wal"
MINE = Owner("f1e2", "ab12", 3)
VIEW = View(0, 1, (0, 1, 2), left_j=(1.5, float("inf"), 2.5), digest="d0")


def state_at(iteration: int, size: int = 5) -> Durable:
    vector = np.random.default_rng(iteration).normal(size=size).astype(np.float32)
    memory = {"m.0": np.full((2, 3), iteration, np.float64), "count": np.array(iteration)}
    commit = Commit(iteration, vector, memory, 0.1 * iteration, 2.5, (iteration, vector))
    return Durable(2, (VIEW,), commit)


def full_state() -> Durable:
    base = state_at(4)
    accepted = ((2, 1), View(1, 5, (0, 2), ((0, 2),), (1.0, 2.0), 9.5, ((2, 0),), "d1"))
    trained = (5, np.arange(5, dtype=np.float32), {"m.0": np.zeros(1)})
    commit = replace(base.commit, absent=((0, 2), (3, 1)), view=7)
    commit = replace(commit, owed=np.full(5, 0.5, np.float32), agreed=np.ones(5, np.float32))
    gift = (2, np.full(5, 2.0, np.float32))
    sent = tuple((to, Part(1, 4, step, gift[1] + step)) for to, step in ((0, 0), (3, 0), (0, 1)))
    return Durable(6, (VIEW, accepted[1]), commit, (3, 2), accepted, trained, gift, "why", sent)


def same(one: Durable | None, other: Durable) -> bool:
    """Field by field, arrays by their bits and types."""

    def plain(value: object) -> object:
        if isinstance(value, np.ndarray):
            return (value.dtype.str, value.shape, value.tobytes())
        if isinstance(value, dict):
            return {key: plain(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(plain(part) for part in value)
        if isinstance(value, Commit | Part):
            return {key: plain(part) for key, part in vars(value).items()}
        return value

    return one is not None and all(
        plain(getattr(one, name)) == plain(getattr(other, name)) for name in vars(other)
    )


def loaded(folder: Path, owner: Owner = MINE) -> Durable | None:
    return Store(folder, owner).load()


def test_all_of_a_state_comes_back(tmp_path: Path) -> None:
    Store(tmp_path, MINE).save(full_state())
    assert same(loaded(tmp_path), full_state())


def test_a_copy_of_the_folder_is_known_as_one(tmp_path: Path) -> None:
    """Another place of the same folder is none; who had lost it before has lost it still."""
    Store(tmp_path / "run", MINE).save(replace(full_state(), folder="whole"))
    moved = tmp_path / "run" / ".." / "moved"
    shutil.move(tmp_path / "run", moved)
    assert same(loaded(moved), replace(full_state(), folder="whole"))
    shutil.copytree(moved, tmp_path / "copy")
    assert same(loaded(tmp_path / "copy"), replace(full_state(), folder="copied"))
    (moved / PLACE).unlink()
    assert same(loaded(moved), replace(full_state(), folder="copied"))
    Store(tmp_path / "gone", MINE).save(replace(full_state(), folder="lost"))
    shutil.copytree(tmp_path / "gone", tmp_path / "again")
    assert same(loaded(tmp_path / "again"), replace(full_state(), folder="lost"))


def test_the_last_of_many_saves_comes_back_and_the_log_stays_small(tmp_path: Path) -> None:
    store = Store(tmp_path, MINE)
    for t in range(1, 40):
        store.save(state_at(t, size=100_000))
    assert same(loaded(tmp_path), state_at(39, size=100_000))
    assert on_disk(tmp_path) < 8 * 2**20  # 39 vectors take 15 MiB


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if "shm" not in path.name)


def test_arrays_that_stay_are_not_written_again(tmp_path: Path) -> None:
    store, state = Store(tmp_path, MINE), state_at(1, size=50_000)
    store.save(state)
    store.close()
    before = store.path.read_bytes()
    for attempt in range(10):
        store.save(replace(state, promised=(attempt, 0)))
    assert (tmp_path / LOG).stat().st_size < 11 * 2 * 16_500  # pages of the record, none of arrays
    store.close()
    assert len(store.path.read_bytes()) == len(before)
    found = loaded(tmp_path)
    assert found is not None
    assert found.promised == (9, 0)
    assert same(found, replace(state, promised=(9, 0)))


def test_a_store_that_was_read_goes_on(tmp_path: Path) -> None:
    before = Store(tmp_path, MINE)
    before.save(state_at(1, size=50_000))
    before.close()
    again = Store(tmp_path, MINE)
    found = again.load()
    assert found is not None
    again.save(replace(found, promised=(1, 1)))
    assert (tmp_path / LOG).stat().st_size < 70_000  # the vector was not written a second time
    again.save(state_at(2))
    assert same(loaded(tmp_path), state_at(2))


def crashed(folder: Path, place: Path, log: bytes) -> Path:
    """What is left of a folder after a power cut: with this much of the log."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    shutil.copy(folder / STATE, place)
    (place / LOG).write_bytes(log)
    return place


def test_every_cut_within_the_last_save_leaves_the_one_before(tmp_path: Path) -> None:
    folder, place = tmp_path / "run", tmp_path / "crashed"
    store = Store(folder, MINE)
    store.save(state_at(1))
    whole = (folder / LOG).stat().st_size
    store.save(state_at(2))
    content = (folder / LOG).read_bytes()
    for size in range(whole, len(content), 1531):
        for tail in (b"", b"\0" * (len(content) - size)):  # cut short, or blocks never written
            assert same(loaded(crashed(folder, place, content[:size] + tail)), state_at(1))
    again = Store(place, MINE)
    again.load()
    again.save(state_at(3))
    assert same(loaded(place), state_at(3))


def after_a_change(folder: Path, name: str, at: int) -> Durable | str | None:
    """What is loaded once a byte has changed, or why nothing is."""
    content = bytearray((folder / name).read_bytes())
    content[at] ^= 0x20
    (folder / name).write_bytes(content)
    try:
        return loaded(folder)
    except ScenarioError as refusal:
        return str(refusal)


REFUSED = re.compile(r"is damaged .*; remove |is of format|state of another")


def test_a_change_anywhere_is_refused_or_changes_nothing(tmp_path: Path) -> None:
    folder, place = tmp_path / "run", tmp_path / "changed"
    store = Store(folder, MINE)
    store.save(full_state())
    store.close()
    size, refused = store.path.stat().st_size, 0
    for at in [*range(0, 128, 3), *range(128, size, 397)]:
        found = after_a_change(crashed(folder, place, b""), STATE, at)
        if isinstance(found, str):
            refused += bool(REFUSED.search(found))
        else:
            assert same(found, full_state())
    assert refused > 20


def test_no_older_state_comes_back_where_the_log_has_changed(tmp_path: Path) -> None:
    folder, place = tmp_path / "run", tmp_path / "changed"
    store, sizes = Store(folder, MINE), [0]
    for iteration in (1, 2, 3, 4):
        store.save(state_at(iteration))
        sizes.append((folder / LOG).stat().st_size)
    content, refused = (folder / LOG).read_bytes(), 0
    for at in [*range(32), *range(32, len(content), 797)]:
        found = after_a_change(crashed(folder, place, content), LOG, at)
        if isinstance(found, str):
            assert REFUSED.search(found)
            with pytest.raises(ScenarioError):  # and is so with every start
                loaded(place)
            refused += 1
        else:  # a damaged last save looks like one that never returned
            assert any(same(found, state_at(t)) for t in ((4,) if at < sizes[3] else (3, 4)))
    assert refused > 20


def test_a_file_that_is_no_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / STATE).write_bytes(b"hello, world" * 100)
    with pytest.raises(ScenarioError, match=r"is damaged .file is not a database"):
        loaded(tmp_path)
    (tmp_path / STATE).unlink()
    (tmp_path / "state.log").write_bytes(b"JMNODE1")
    with pytest.raises(ScenarioError, match="by an earlier version of joulemesh; use that"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("owner", "what"),
    [
        (Owner("other", "ab12", 3), "another fleet .f1e2, not other"),
        (Owner("f1e2", "cd34", 3), "another plan .ab12, not cd34"),
        (Owner("f1e2", "ab12", 4), "another device .3, not 4"),
    ],
)
def test_the_state_of_somebody_else_is_refused(tmp_path: Path, owner: Owner, what: str) -> None:
    Store(tmp_path, MINE).save(state_at(1))
    with pytest.raises(ScenarioError, match=what):
        loaded(tmp_path, owner)


def test_a_full_disk_leaves_the_state_before_and_the_next_save_goes_on(tmp_path: Path) -> None:
    store = Store(tmp_path, MINE)
    store.save(state_at(1))
    assert store._base is not None
    store._base.execute("pragma max_page_count = 4")
    with pytest.raises(ScenarioError, match=r"disk is full; make room"):
        store.save(state_at(2, size=50_000))
    assert same(loaded(tmp_path), state_at(1))
    store.save(state_at(3, size=50_000))
    assert same(loaded(tmp_path), state_at(3, size=50_000))


def test_only_the_owner_may_read_the_parameters(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path, MINE)
        for iteration in range(3):
            store.save(Durable(1, (View(0, 1, (2, 3)),), Commit(iteration, np.arange(3.0))))
    finally:
        os.umask(before)
    for name in (STATE, LOG):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
