"""hosts.csv as people fill it in, with the mistakes that they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from joulemesh.base.errors import ScenarioError
from joulemesh.deploy.fleet.hosts import Host, read_hosts, require_addresses, write_hosts

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
