"""The folders of a fleet and of its devices: what they hold, and what is refused."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import joulemesh
from joulemesh.base.errors import JoulemeshError, ScenarioError
from joulemesh.deploy.fleet.certificates import Identity
from joulemesh.deploy.fleet.fleet import Fleet, Host, read_hosts, require_addresses, write_hosts
from joulemesh.deploy.fleet.pack import DevicePack, make_fleet, refresh
from joulemesh.deploy.view import Settings
from joulemesh.planning.plan import Plan
from joulemesh.planning.static import plan_of
from joulemesh.scenario import Scenario

TABLE = "name,energy_j\nnorth,20\nsouth,25\nwest-1,30\n"


@cache
def planned() -> Plan:
    return joulemesh.plan(Scenario(devices={"count": 4}, plan={"iterations": 6}))


def tabled(folder: Path, table: str = TABLE) -> Plan:
    """A plan of three devices with names, and with links and gains in files."""
    (folder / "devices.csv").write_text(table, "utf-8")
    (folder / "links.csv").write_text("i,j\n0,1\n1,2\n", "utf-8")
    (folder / "s.toml").write_text(
        '[devices]\ntable = "devices.csv"\n[network]\ntopology = "links.csv"\n'
        "[plan]\niterations = 5\n",
        "utf-8",
    )
    return joulemesh.plan(Scenario.load(folder / "s.toml"))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet with keys; tests that change it make a copy."""
    folder = tmp_path_factory.mktemp("lab") / "fleet"
    make_fleet(folder, planned(), with_keys=True, hosts={"device-2": Host("device-2", "c", 9)})
    return folder


def test_every_device_has_what_it_needs_and_no_more(lab: Path) -> None:
    fleet = Fleet.load(lab)
    assert fleet.names == ("device-0", "device-1", "device-2", "device-3")
    for device, name in enumerate(fleet.names):
        mine = DevicePack.load(lab / "devices" / name)
        assert (mine.device, mine.name) == (device, name)
        assert mine.fleet.to_json() == fleet.to_json()
        assert set(mine.hosts) == {device, *mine.neighbours}
        assert mine.identity.bearer.name == name
        assert (mine.part.plan, mine.part.device) == (mine.fleet.digest, mine.device)
        assert not (mine.folder / "ca-key.pem").exists()
    assert DevicePack.load(lab / "devices" / "device-1").hosts[2] == Host("device-2", "c", 9)


def test_keys_are_their_owners_only(lab: Path) -> None:
    keys = [*lab.rglob("*key.pem")]
    assert len(keys) == 1 + 1 + 4  # the authority's, the operator's, the devices'
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert Identity.load(lab / "operator").bearer.role == "operator"


def test_without_keys_devices_have_neither_key_nor_certificate(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet", planned())
    inside = {path.name for path in (tmp_path / "fleet" / "devices" / "device-0").iterdir()}
    assert inside == {"fleet.json", "orders.json", "hosts.csv", "ca.pem"}


def test_a_device_makes_the_plan_again_without_files_data_or_model(tmp_path: Path) -> None:
    """Also if the folder lies elsewhere, and the tables that it was made from are gone."""
    made = tabled(tmp_path)
    make_fleet(tmp_path / "fleet", made)
    home = Path(shutil.copytree(tmp_path / "fleet" / "devices" / "west-1", tmp_path / "x" / "w"))
    for name in ("devices.csv", "links.csv", "s.toml"):
        (tmp_path / name).unlink()
    shutil.rmtree(tmp_path / "fleet")
    mine = DevicePack.load(home)
    again = plan_of(mine.fleet.ground())
    assert again.names == mine.fleet.names == ("north", "south", "west-1")
    assert np.array_equal(again.rounds, made.rounds)
    assert np.array_equal(again.spent_j, made.spent_j)
    assert [str(one) for one in again.scenario.origins().values()] == [
        str(one) for one in made.scenario.origins().values()
    ]
    assert mine.fleet.links == ((0, 1), (1, 2))
    assert mine.neighbours == (1,)
    assert str(tmp_path) not in (home / "fleet.json").read_text("utf-8")


def test_the_digest_does_not_depend_on_where_files_lie(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        found.append(make_fleet(tmp_path / name / "fleet", tabled(tmp_path / name)))
    assert found[0].digest == found[1].digest
    assert found[0].id != found[1].id


def test_settings_and_own_files_are_kept(tmp_path: Path) -> None:
    code = tmp_path / "my code.py"
    code.write_text("x = 1\n", "utf-8")
    settings = Settings(patience_s=3, on_failure="stop")
    fleet = make_fleet(tmp_path / "fleet", planned(), settings=settings, code=[code])
    assert fleet.settings == settings
    fleet.check_code((code,))
    with pytest.raises(ScenarioError, match=r"made with --load my code\.py; add"):
        fleet.check_code(())
    code.write_text("x = 2\n", "utf-8")
    with pytest.raises(ScenarioError, match="is not the file that the fleet was made with"):
        fleet.check_code((code,))


def test_devices_with_data_of_their_own_share_the_scale(tmp_path: Path) -> None:
    rows = "".join(f"{k},{10 * k},{'yes' if k % 2 else 'no'}\n" for k in range(40))
    (tmp_path / "d.csv").write_text(f"a,b,label\n{rows}", "utf-8")
    training = {"dataset": str(tmp_path / "d.csv"), "normalize": True, "model": "logistic"}
    scenario = Scenario(devices={"count": 3}, plan={"iterations": 2}, training=training)
    task = make_fleet(tmp_path / "fleet", joulemesh.plan(scenario)).task
    assert (task.shape, task.class_names, task.feature_names) == ((2,), ("no", "yes"), ("a", "b"))
    known = joulemesh.data.load_for(scenario)
    raw = joulemesh.data.load_for(scenario.override({"training.normalize": False}))
    assert np.allclose(task.scaled(raw.x_test), known.x_test, atol=1e-6)


# Refused at init --------------------------------------------------------------------------------


def test_an_existing_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "note").write_text("mine", "utf-8")
    with pytest.raises(ScenarioError, match="exists and is not empty"):
        make_fleet(tmp_path, planned())
    assert [path.name for path in tmp_path.iterdir()] == ["note"]


def test_nothing_is_left_of_a_fleet_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("joulemesh.deploy.fleet.pack.os.rename", full)
    with pytest.raises(ScenarioError, match="No space left on device; choose another place"):
        make_fleet(tmp_path / "fleet", planned())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (TABLE.replace("south", "north"), "has two devices called 'north'"),
        (TABLE.replace("south", "South 2"), "device 1: 'South 2' cannot be a device's name"),
    ],
)
def test_names_must_be_good_for_certificates(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        make_fleet(tmp_path / "fleet", tabled(tmp_path, table))


def test_a_scheme_without_a_peer_is_for_simulation_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr(type(planned().timeline.scheme), "peer", none)
    with pytest.raises(ScenarioError, match="'tree-chunked' is for simulation only"):
        make_fleet(tmp_path / "fleet", planned())


def test_hosts_of_unknown_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the fleet has no device 'x'"):
        make_fleet(tmp_path / "fleet", planned(), hosts={"x": Host("x")})


# Refused on reading -----------------------------------------------------------------------------


def changed(lab: Path, tmp_path: Path, **values: object) -> Path:
    """A device's folder whose fleet.json says something else."""
    home = Path(shutil.copytree(lab / "devices" / "device-1", tmp_path / "device"))
    record = json.loads((home / "fleet.json").read_text("utf-8"))
    (home / "fleet.json").write_text(json.dumps({**record, **values}), "utf-8")
    return home


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"format": "joulemesh fleet 2"}, "is of the format 'joulemesh fleet 2', not"),
        ({"settings": {"on_failure": "cry"}}, "settings.on_failure: Input should be"),
        ({"sizes": {}}, "sizes.parameters"),
        ({"more": 1}, "more: Extra inputs"),
        ({"digest": "0" * 64}, "is of another plan than"),
        ({"inputs": {"devices.table": {"name": "../x", "sha256": "0" * 64}}}, "inputs.devices"),
        ({"inputs": {"devices.table": {"name": "x", "sha256": "0" * 64}}}, "copy the folder again"),
    ],
)
def test_a_damaged_record_is_refused_in_one_line(
    lab: Path, tmp_path: Path, values: dict[str, object], said: str
) -> None:
    with pytest.raises(JoulemeshError) as refused:
        DevicePack.load(changed(lab, tmp_path, **values))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_damage_is_refused(lab: Path, tmp_path: Path) -> None:
    home = Path(shutil.copytree(lab / "devices" / "device-1", tmp_path / "device"))
    record = (home / "fleet.json").read_bytes()
    for damage in (record[:-40], b"[]", b"\xff", b""):
        (home / "fleet.json").write_bytes(damage)
        with pytest.raises(ScenarioError, match=r"fleet\.json is"):
            DevicePack.load(home)
    (home / "fleet.json").unlink()
    with pytest.raises(ScenarioError, match="name a folder that `joulemesh deploy init`"):
        DevicePack.load(home)


def test_a_changed_table_is_refused(tmp_path: Path) -> None:
    make_fleet(tmp_path / "fleet", tabled(tmp_path))
    home = tmp_path / "fleet" / "devices" / "north"
    table = home / "inputs" / "devices-table.csv"
    table.write_text(TABLE.replace("20", "2000"), "utf-8")
    with pytest.raises(ScenarioError, match=r"devices\.table: .* has changed since"):
        DevicePack.load(home)


def test_hosts_filled_in_later_reach_every_folder(lab: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(lab, tmp_path / "fleet"))
    text = (folder / "hosts.csv").read_text("utf-8").replace("device-1,?,7100", "device-1,b,7200")
    (folder / "hosts.csv").write_text(text, "utf-8")
    refresh(folder)
    for neighbour in Fleet.load(folder).neighbours(1):
        mine = DevicePack.load(folder / "devices" / f"device-{neighbour}")
        assert mine.hosts[1] == Host("device-1", "b", 7200)


NAMES = ("farm-01", "farm-02", "farm-03")


def read(tmp_path: Path, text: str) -> dict[str, Host]:
    path = tmp_path / "hosts.csv"
    path.write_text(text, "utf-8")
    return read_hosts(path, NAMES)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    hosts = [Host("farm-01", "10.0.0.1", 7100), Host("farm-02"), Host("farm-03", "fe80::3%eth0")]
    write_hosts(tmp_path / "hosts.csv", hosts)
    assert list(read_hosts(tmp_path / "hosts.csv", NAMES).values()) == hosts
    text = (tmp_path / "hosts.csv").read_text("utf-8")
    assert "Missing: the address of farm-02" in text


def test_rows_may_come_in_any_order_and_be_separated_as_spreadsheets_do(tmp_path: Path) -> None:
    rows = (
        "\ufeffPort;Name;Address\r\n1;farm-03;c\r\n\r\n2;farm-01;a\r\n# b is broken\r\n3;farm-02;?"
    )
    found = read(tmp_path, rows)
    assert list(found.values()) == [
        Host("farm-01", "a", 2),
        Host("farm-02", "", 3),
        Host("farm-03", "c", 1),
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["farm-01,a,1", "farm-01,b,2"], "line 3: farm-01 has a row already"),
        (["farm-1,a,1"], "line 2: the fleet has no device 'farm-1'; did you mean 'farm-01'?"),
        (["x,a,1"], "the fleet has no device 'x'; remove the row"),
        (["farm-01,a,1", "farm-02,A,1"], "farm-02 has the address A:1 of farm-01"),
        (["farm-01,a,0"], "line 2: port '0' is not one of 1..65535"),
        (["farm-01,a,65536"], "port '65536'"),
        (["farm-01,a,7100.0"], "port '7100.0'"),
        (["farm-01,a,²"], "port '²'"),
        (["farm-01,a,"], "port ''"),
        (["farm-01,a:7100,7100"], "the address a:7100 has a port in it"),
        (["farm-01,http://a,7100"], "'http://a' is no host name or IP address"),
        (["farm-01,a"], "line 2: 2 cells under 3 columns"),
        (["farm-01,a,1"], "has no row for farm-02 and 1 more"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, rows: list[str], said: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(tmp_path, "\n".join(["name,address,port", *rows]))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="the columns are name, ip; write name,address,port"):
        read(tmp_path, "name,ip\nfarm-01,a\n")
    with pytest.raises(ScenarioError, match="No such file"):
        read_hosts(tmp_path / "none.csv", NAMES)
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="is not text"):
        read_hosts(tmp_path / "bytes.csv", NAMES)
    with pytest.raises(ScenarioError, match="is a device, pipe or socket"):
        read_hosts(Path("/dev/zero"), NAMES)


def test_addresses_are_required_where_they_are_needed() -> None:
    hosts = {
        "farm-01": Host("farm-01", "a"),
        "farm-02": Host("farm-02"),
        "farm-03": Host("farm-03"),
    }
    require_addresses(Path("hosts.csv"), hosts, ["farm-01"])
    with pytest.raises(ScenarioError, match="no address for farm-02 and 1 more"):
        require_addresses(Path("hosts.csv"), hosts, NAMES)
