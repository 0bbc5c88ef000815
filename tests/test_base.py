"""Small parts that every room uses: cases by hand."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from joulemesh.base.errors import (
    Edit,
    ScenarioError,
    called,
    in_words,
    named_refusals,
    printable,
    require_countable,
)
from joulemesh.base.files import (
    DRAFT,
    FolderLock,
    GrowingFile,
    Manifest,
    digest_of,
    find,
    keep,
    new_folder,
    open_arrays,
    open_bounded,
    parse_json,
    shape_in,
    sweep,
    verified,
    write_whole,
)
from joulemesh.base.optional import (
    explained,
    frame,
    in_file_parts,
    place_of,
    require,
    require_call,
    run_file,
)
from joulemesh.scenario.fields import (
    ExchangePattern,
    Registered,
    RegisteredNames,
    in_si,
    parameters_of,
    pattern_of,
)
from joulemesh.scenario.given import Origin, renamed
from joulemesh.scenario.sections import Training
from joulemesh.scenario.varied import typed_value


def test_edits_in_words() -> None:
    edits = [Edit("budget.deadline_s", 0.31, "raise"), Edit("plan.on_depletion", "leave")]
    words = "raise the deadline to 310 ms and set plan.on_depletion to leave"
    assert in_words(edits) == words
    assert (called(1), called(1, ("north", "south"))) == ("device 1", "device 1 (south)")
    with pytest.raises(ScenarioError) as caught, named_refusals(lambda: ("north",)):
        raise ScenarioError("{device} holds no samples", device=0)
    assert str(caught.value) == "device 0 (north) holds no samples"


def test_arrays_are_opened_from_bytes() -> None:
    file = io.BytesIO()
    np.savez(file, w=np.arange(3))
    with open_arrays(file.getvalue()) as arrays:
        assert (arrays.files, shape_in(arrays, "w")) == (["w"], (3,))


def test_json_that_names_a_key_twice_and_what_is_no_file_are_refused() -> None:
    assert parse_json('{"seed": 1}') == {"seed": 1}
    with pytest.raises(ValueError, match="'seed' is given twice"):
        parse_json('{"seed": 1, "seed": 2}')
    with pytest.raises(ScenarioError, match="is a device, pipe or socket"):
        open_bounded(Path("/dev/null"), 100)


def test_what_is_kept_is_found_whole(tmp_path: Path) -> None:
    keep(tmp_path / "a" / "b", b"result")
    assert (find(tmp_path / "a" / "b"), find(tmp_path / "c")) == (b"result", None)
    (tmp_path / "a" / "b").write_bytes((tmp_path / "a" / "b").read_bytes()[:-1])
    assert find(tmp_path / "a" / "b") is None


def test_checksums_find_what_has_changed(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="name a run or study folder"):
        verified(tmp_path)
    (tmp_path / "a.txt").write_text("one")
    Manifest(tmp_path).commit({"a.txt": digest_of(tmp_path / "a.txt")}, stage="begun")
    assert verified(tmp_path).intact
    (tmp_path / "a.txt").write_text("two")
    again = Manifest(tmp_path)
    assert again.newest.facts["stage"] == "begun"
    assert again.damage(again.newest) == {"a.txt": "its contents have changed"}


def test_a_growing_file_is_cut_to_its_last_commit(tmp_path: Path) -> None:
    grown = GrowingFile(tmp_path / "rows.csv")
    grown.append("a,b\n")
    then = grown.digest
    grown.append("1,2\n")
    assert GrowingFile(grown.path, then).digest == then
    assert grown.path.read_text() == "a,b\n"


def test_files_are_written_whole_and_drafts_are_swept(tmp_path: Path) -> None:
    write_whole(tmp_path / "note.txt", lambda draft: draft.write(b"whole"))
    (tmp_path / f".note.txt.0123456789abcdef{DRAFT}").touch()
    sweep(tmp_path)
    with new_folder(tmp_path / "app") as draft:
        (draft / "note.txt").write_text("whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app", "note.txt"]


def test_a_folder_has_one_user(tmp_path: Path) -> None:
    with FolderLock(tmp_path), pytest.raises(ScenarioError, match="is in use by process"):
        FolderLock(tmp_path).__enter__()


def test_rounds_that_training_can_count() -> None:
    require_countable([1, 2], "lower tau")
    with pytest.raises(ScenarioError, match="3,000,000,000 rounds in an iteration"):
        require_countable(3_000_000_000, "lower tau")


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    with pytest.raises(ImportError, match="drawing stars needs stars, which is not"):
        require("no_such_module", "drawing stars", "stars")
    missing = explained(ModuleNotFoundError("No module named 'jax'", name="jax"))
    assert str(missing).endswith("pip install 'joulemesh[jax]'")
    table = frame({"device": [0, 1], "spent_j": np.array([0.5, 1.5])}, "device")
    assert table["spent_j"].sum() == 2.0


def test_the_users_own_code_is_run_and_named(tmp_path: Path) -> None:
    (tmp_path / "three.py").write_text("number = 3")
    assert run_file(tmp_path / "three.py", "three.py").number == 3
    assert in_file_parts("models/mine.py:Net") == ("models/mine.py", "Net")
    assert in_file_parts("mlp") is None
    assert place_of(place_of).endswith(", in place_of")
    assert place_of(len) == "len"
    with pytest.raises(ScenarioError, match=r"apply cannot be called with \(params, state\)"):
        require_call(lambda params: (), "params, state", "apply")


def test_control_codes_are_escaped() -> None:
    assert printable("a\x1b[31mb\n") == "a\\x1b[31mb\\n"
    assert printable("één ✓\n", lines=True) == "één ✓\n"


def test_names_of_a_registry_with_arguments() -> None:
    words = Registered(lambda: ("iid", "column:NAME"))
    assert words.check("column:site") == "column:site"
    with pytest.raises(ValueError, match="not 'idd'; did you mean 'iid'"):
        words.check("idd")
    names = RegisteredNames(lambda: ("brier", "top3"))
    assert names.checked(["top3", "brier", "top3"]) == ("top3", "brier")
    assert parameters_of("partition", ("alpha",), Training, {"l2": 1.0}) == {"alpha": 0.5}


def test_units_within_lists_and_tables() -> None:
    assert in_si(["6 J", 30.0], "J") == [6.0, 30.0]
    assert in_si({"values": ["1 Wh", 2]}, "J") == {"values": [3600.0, 2]}
    assert typed_value("[6 J, 30]") == ["6 J", 30]
    assert typed_value("esp32") == "esp32"


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        (Origin("profile", "esp32"), "from profile esp32"),
        (Origin("given", "fleet.toml"), "given in fleet.toml"),
        (Origin("given", "--set"), "given by --set"),
        (Origin("assumed"), "assumed"),
    ],
)
def test_origins_are_read_back(origin: Origin, text: str) -> None:
    assert str(origin) == text
    assert Origin.parse(text) == origin


def test_a_path_is_renamed_within_a_value() -> None:
    assert renamed("trace:a.csv", "a.csv", "/b.csv") == "trace:/b.csv"
    assert renamed("m.py:Net", "m.py", "/n.py") == "/n.py:Net"


def test_exchange_patterns() -> None:
    third = ExchangePattern(every=3)
    assert np.flatnonzero(third.averages(7)).tolist() == [2, 5]
    assert ExchangePattern(final=True, train=2, mix=1).trains(5).tolist() == [1, 1, 0, 1, 1]
    words = "neighbours, an exact average in every 10th iteration and in the last"
    assert str(ExchangePattern(every=10, final=True)) == words
    assert pattern_of("exact") == "exact"
    with pytest.raises(ValueError, match="'evry' is not one of between, times, every"):
        pattern_of({"evry": 5})
