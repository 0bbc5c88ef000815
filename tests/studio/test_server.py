"""The server: who may ask, what is answered, and how it ends."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import joulemesh
from joulemesh.cli.main import app
from joulemesh.planning.plan import digest_of
from tests.serving import Served

ONE, TWO = "a" * 16, "b" * 16
SMALL = ("--preset", "adaptive")


def test_a_scenario_is_changed_planned_taken_back_and_saved(
    serve: Callable[..., Served], tmp_path: Path
) -> None:
    """One server for the whole story: starting one takes a second."""
    served = serve(*SMALL)

    # The page and its files come with headers that let nothing else in.
    status, page, headers = served.ask(served.root)
    assert status == 200
    assert "<!doctype html>" in page
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert served.ask(f"{served.root}files/studio.js")[0] == 200
    assert served.ask(f"{served.root}files/../__init__.py")[0] == 404

    # Only this page, by this address, may ask.
    wrong = served.root.replace(served.root[3], "~", 1)
    assert served.ask(wrong)[0] == 403
    assert served.ask("/")[0] == 404
    for stranger in (
        {"host": f"evil.example:{served.host.rpartition(':')[2]}"},
        {"origin": "http://evil.example"},
        {"sec-fetch-site": "cross-site"},
    ):
        assert served.ask(served.root, headers=stranger)[0] == 403
    plain = {"content-type": "text/plain"}
    assert served.ask(f"{served.root}tab/{ONE}", {"do": "open"}, headers=plain)[0] == 415

    # A change is planned; two tabs know nothing of each other.
    before = served.tab(ONE, do="open")[1]
    status, after = served.tab(ONE, do="set", fields={"budget.deadline_s": "50 ms"})
    assert status == 200
    assert after["plan"]["rounds"] > before["plan"]["rounds"]
    assert served.tab(TWO, do="open")[1]["plan"]["digest"] == before["plan"]["digest"]

    # What is wrong is said of its field, and changes nothing.
    status, answer = served.tab(ONE, do="set", fields={"budget.deadline_s": "soon"})
    assert (status, answer["refused"]["field"]) == (422, "budget.deadline_s")
    assert served.tab(ONE, do="open")[1]["plan"]["digest"] == after["plan"]["digest"]

    # Saved, the scenario gives the same plan; what exists is not replaced unasked.
    status, answer = served.tab(ONE, do="save", path="fleet.toml")
    assert (status, answer["saved"]) == (200, ["fleet.toml"])
    saved = joulemesh.plan(joulemesh.Scenario.load(tmp_path / "fleet.toml"))
    assert digest_of(saved) == after["plan"]["digest"]
    text = (tmp_path / "fleet.toml").read_text()
    served.tab(ONE, do="undo")
    status, answer = served.tab(ONE, do="save", path="fleet.toml")
    assert (status, answer["exists"]) == (409, True)
    assert (tmp_path / "fleet.toml").read_text() == text
    assert served.tab(ONE, do="save", path="fleet.toml", replace=True)[0] == 200
    assert joulemesh.Scenario.load(tmp_path / "fleet.toml").budget.deadline_s == 0.04

    assert served.end() == 0
    assert served.process.stderr is not None
    assert served.process.stderr.read() == "Ctrl-C ends it.\n"


@pytest.mark.slow
def test_it_ends_while_it_trains_and_leaves_no_process(serve: Callable[..., Served]) -> None:
    served = serve(*SMALL)
    assert served.tab(ONE, do="simulate") == (200, {"started": "simulate"})
    threads = Path(f"/proc/{served.process.pid}/task").glob("*/children")
    workers = [int(pid) for path in threads for pid in path.read_text().split()]
    assert len(workers) == 1
    assert served.end() == 0
    assert not Path(f"/proc/{workers[0]}").exists()


@pytest.mark.slow
def test_a_killed_server_takes_its_training_with_it(serve: Callable[..., Served]) -> None:
    served = serve(*SMALL)
    served.tab(ONE, do="simulate")
    threads = Path(f"/proc/{served.process.pid}/task").glob("*/children")
    (worker,) = [int(pid) for path in threads for pid in path.read_text().split()]
    served.process.kill()
    served.process.wait()
    for _ in range(400):
        if not Path(f"/proc/{worker}").exists():
            break
        time.sleep(0.05)
    assert not Path(f"/proc/{worker}").exists()


def test_a_port_in_use_is_refused_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(app, ["studio", "--no-browser", "--port", str(port)])
    assert done.exception is not None
    assert f"port {port} is in use" in str(done.exception)


def test_two_plans_are_compared_by_command(tmp_path: Path) -> None:
    other = tmp_path / "before.toml"
    other.write_text(joulemesh.Scenario.preset("adaptive").to_toml())
    now = ["plan", *SMALL, "--set", "plan.iterations=50", "--against", str(other)]
    done = CliRunner().invoke(app, [*now, "--json"])
    assert {"field": "plan.iterations", "before": "100", "now": "50"} in json.loads(done.stdout)[
        "fields"
    ]
    assert "-50 %" in CliRunner().invoke(app, now).stdout


def test_all_that_the_page_shows_is_printed_on_demand() -> None:
    done = CliRunner().invoke(app, ["studio", "--json", *SMALL])
    assert done.exit_code == 0
    assert '"scheme": "tree"' in done.stdout


COLLECTING = """
import gc, threading, time

def often():
    while True:
        time.sleep(0.02)
        gc.collect()

threading.Thread(target=often, daemon=True).start()
"""


def test_a_closed_page_leaves_no_task_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task that is still pending when it is collected is reported on the terminal."""
    (tmp_path / "sitecustomize.py").write_text(COLLECTING)
    monkeypatch.syspath_prepend(str(tmp_path))
    served = Served(*SMALL, cwd=tmp_path)
    for number in range(5):
        talk = http.client.HTTPConnection(served.host, timeout=60)
        talk.request("GET", f"{served.root}events/{number:016d}")
        assert talk.getresponse().readline().startswith(b"retry")
        talk.close()
    time.sleep(0.5)
    served.process.send_signal(signal.SIGINT)
    _, said = served.process.communicate(timeout=20)
    assert "destroyed" not in said
    assert "Traceback" not in said
    assert served.process.returncode == 0
